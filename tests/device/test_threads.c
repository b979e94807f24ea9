/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every kernel gives the same bits with 1 to 5 threads, on both kinds of streams, with every
 * instruction set of this processor, also while another stream uses the same threads. Under a
 * sanitizer with 3 and 4 threads alone: the code is the same with each number of them.
 */
#include <pthread.h>
#include <string.h>

#include "config.h"
#include "kernels/cpu.h"
#include "tests/harness/device.h"
#include "tests/kernels/all_cases.h"

static all_cases_t all;
static unsigned char *reference;

static void compare(const unsigned char *bytes, const char *what, int threads, const char *streams)
{
	const char *which = all_cases_differ(&all, bytes, reference);

	CHECK_MSG(which == NULL, "%s, %d threads, %s streams: %s differs", what, threads, streams,
		  which);
}

static void run(const char *what, int threads, const char *streams)
{
	srt_device_t *device = test_cpu_device(threads, streams);
	unsigned char *bytes;

	CHECK_OK(all_cases_run(&all, device, &bytes));
	compare(bytes, what, threads, streams);
	free(bytes);
	srt_device_close(device);
}

/* Two callers with one stream each, which share one pool. */
static void *other_caller(void *arg)
{
	unsigned char *bytes = NULL;

	if (all_cases_run(&all, arg, &bytes) != SRT_OK)
		return NULL;
	return bytes;
}

static void run_two_callers(const char *streams)
{
	srt_device_t *device = test_cpu_device(3, streams);
	unsigned char *mine;
	void *theirs = NULL;
	pthread_t thread;

	CHECK_OR_DIE(!pthread_create(&thread, NULL, other_caller, device));
	CHECK_OK(all_cases_run(&all, device, &mine));
	CHECK_OR_DIE(!pthread_join(thread, &theirs));
	CHECK(theirs);
	compare(mine, "two callers", 3, streams);
	compare(theirs, "two callers", 3, streams);
	free(mine);
	free(theirs);
	CHECK_INT(srt_device_allocated(device), 0);
	srt_device_close(device);
}

int main(void)
{
	const bool few = strcmp(SRT_BUILD_SANITIZER, "none") != 0;
	srt_device_t *device = test_cpu_device(1, "inline");

	all = all_cases_make(false, false);
	CHECK_OK_OR_DIE(all_cases_run(&all, device, &reference));
	srt_device_close(device);
	for (int threads = few ? 3 : 1; threads <= (few ? 3 : 5); threads++)
		run("threads", threads, "threads");
	run("threads", 4, "inline");
	run_two_callers("inline");
	run_two_callers("threads");
	for (int isa = 0; isa < SRT_ISA_COUNT; isa++) {
		if (few || !srt_cpu_isa_usable(isa))
			continue;
		setenv("SHARDRT_CPU_ISA", srt_cpu_isa_name(isa), 1);
		run(srt_cpu_isa_name(isa), 2, "threads");
	}
	free(reference);
	all_cases_free(&all);
	return check_done();
}
