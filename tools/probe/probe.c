/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shardrt-probe NAME: lists the devices of a backend, for device/probe.c, which starts it so that a
 * driver runs in a separate process. Installed with the modules; not for people.
 *
 * Prints "begin" before it touches the backend. Then a line for each device, "accelerator NAME" or
 * "cpu NAME"; or one line, "failed WHY" if the backend's module does not load, or "none WHY"; then
 * "end". What the driver prints on standard output goes to standard error.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <shardrt/backend.h>

#include "tools/descriptors.h"

static int find_backend(const char *name, size_t *number, srt_backend_info_t *info)
{
	for (size_t i = 0; i < srt_backend_count(); i++) {
		if (srt_backend_get_info(i, info) == SRT_OK && strcmp(info->name, name) == 0) {
			*number = i;
			return 1;
		}
	}
	return 0;
}

/* The text on one line. */
static void print_line(FILE *out, const char *word, const char *text)
{
	fprintf(out, "%s ", word);
	for (; *text; text++)
		fputc(*text == '\n' ? ' ' : *text, out);
	fputc('\n', out);
}

static void print_devices(FILE *out, size_t backend, const srt_backend_info_t *info)
{
	for (int k = 0; k < info->ndevices; k++) {
		srt_device_description_t device = SRT_DEVICE_DESCRIPTION_INIT;

		if (srt_backend_get_device(backend, k, &device) != SRT_OK) {
			print_line(out, "failed", srt_error_last());
			return;
		}
		print_line(out, device.accelerator ? "accelerator" : "cpu", device.name);
	}
}

int main(int argc, char **argv)
{
	const struct rlimit no_core = { 0, 0 };
	srt_backend_info_t info = SRT_BACKEND_INFO_INIT;
	size_t backend;
	FILE *out;
	int fd;

	if (argc != 2) {
		fputs("Usage: shardrt-probe BACKEND\nLists the devices of a backend, for libshardrt.\n",
		      stderr);
		return 2;
	}
	tool_open_standard_files();
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* a driver that hangs must not outlive the program */
	setrlimit(RLIMIT_CORE, &no_core);
	fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	out = fd < 0 ? NULL : fdopen(fd, "w");
	if (out == NULL || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		return 1;
	setenv("SHARDRT_PROBE_TIMEOUT", "0", 1); /* this is the process that asks */
	unsetenv("SHARDRT_BACKEND");             /* the one that is asked is wanted */
	fputs("begin\n", out);
	fflush(out);
	if (!find_backend(argv[1], &backend, &info))
		print_line(out, "failed", "there is no such backend");
	else if (info.ndevices < 1)
		print_line(out, *info.module ? "none" : "failed", info.why_none);
	else
		print_devices(out, backend, &info);
	fputs("end\n", out);
	return fclose(out) == 0 ? 0 : 1;
}
