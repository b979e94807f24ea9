/* SPDX-License-Identifier: BSD-3-Clause */
/* See common.h. */
#include "tools/common.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <shardrt/config.h>
#include <shardrt/log.h>
#include <shardrt/status.h>

#include "tools/descriptors.h"

/* Time for rank 0 to print an error that all ranks share; then the launcher ends the others. */
#define RANK0_PRINTS_S 1

static const char *tool_name = "shardrt";

static void print_log(srt_log_level_t level, const char *message, void *arg)
{
	(void)arg;
	fprintf(stderr, "%s: %s: %s\n", tool_name, srt_log_level_name(level), message);
}

static void print_unknown(const char *name, const char *nearest, void *arg)
{
	(void)arg;
	if (nearest != NULL)
		tool_error("warning: %s is not a variable of libshardrt; did you mean %s?", name,
			   nearest);
	else
		tool_error(
			"warning: %s is not a variable of libshardrt; shardrt-info -c lists them",
			name);
}

/* CUDA_LAUNCH_BLOCKING is a variable of the CUDA driver. */
static void warn_of_blocking(void)
{
	const char *value = getenv("CUDA_LAUNCH_BLOCKING");

	if (value != NULL && strcmp(value, "1") == 0)
		tool_error(
			"warning: CUDA_LAUNCH_BLOCKING=1: every kernel launch on a CUDA device waits "
			"until the kernel has ended; jobs of several ranks are slow and may hang");
}

void tool_start(const char *name)
{
	const char *level = "warn", *rank;

	tool_open_standard_files();
	tool_name = name;
	signal(SIGXFSZ, SIG_IGN); /* a write past the limit of file sizes fails with EFBIG */
	srt_config_value("SHARDRT_LOG", &level, NULL); /* tool_check_config() reports errors */
	for (int i = SRT_LOG_ERROR; i <= SRT_LOG_TRACE; i++) {
		if (!strcmp(level, srt_log_level_name((srt_log_level_t)i)))
			srt_log_set(print_log, (srt_log_level_t)i, NULL);
	}
	if (srt_config_value("SHARDRT_RANK", &rank, NULL) == SRT_OK && !strcmp(rank, "0")) {
		srt_config_unknown(print_unknown, NULL);
		warn_of_blocking();
	}
}

int tool_check_config(void)
{
	const char *value, *rank = "";
	srt_status_t status = SRT_OK;

	srt_config_value("SHARDRT_RANK", &rank, NULL);
	for (size_t i = 0; i < srt_config_count() && status == SRT_OK; i++)
		status = srt_config_value(srt_config_at(i)->name, &value, NULL);
	if (status == SRT_OK)
		return 0;
	if (strcmp(rank, "0") != 0)
		sleep(RANK0_PRINTS_S);
	tool_error("%s", srt_error_last());
	return TOOL_EXIT_USAGE;
}

void tool_error(const char *format, ...)
{
	char text[2048];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof text, format, ap);
	va_end(ap);
	/* One call, so that the lines of several ranks do not mix. */
	fprintf(stderr, "%s: %s\n", tool_name, text);
}

void tool_make_printable(char *text)
{
	for (unsigned char *c = (unsigned char *)text; *c; c++) {
		if (c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0) /* U+0080 .. U+009F */
			c[0] = c[1] = '?';
		else if (c[0] < 0x20 || c[0] == 0x7f)
			c[0] = '?';
	}
}

void tool_print_text(FILE *out, const char *text, size_t nbytes)
{
	const unsigned char *c = (const unsigned char *)text, *end = c + nbytes;

	for (; c < end; c++) {
		if (c[0] == 0xc2 && c + 1 < end && c[1] >= 0x80 && c[1] < 0xa0) {
			fputs("??", out); /* U+0080 .. U+009F */
			c++;
		} else if ((c[0] < 0x20 && c[0] != '\n' && c[0] != '\t') || c[0] == 0x7f) {
			fputc('?', out);
		} else {
			fputc(c[0], out);
		}
	}
}

const char *tool_bytes(double nbytes, char text[32])
{
	static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	size_t u = 0;

	while (nbytes >= 1024 && u + 1 < sizeof unit / sizeof unit[0]) {
		nbytes /= 1024;
		u++;
	}
	snprintf(text, 32, u ? "%.1f %s" : "%.0f %s", nbytes, unit[u]);
	return text;
}
