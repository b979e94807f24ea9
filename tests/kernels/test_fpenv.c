/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The caller's floating-point environment neither changes results nor is changed: with subnormals
 * flushed and rounding upwards in the caller's thread (as a library built with -Ofast leaves it),
 * every kernel gives the same bits, and the caller finds its own environment afterwards.
 */
#include "base/fpenv.h"
#include "tests/harness/device.h"
#include "tests/kernels/all_cases.h"

#if defined(__SSE2__)
#define HOSTILE (SRT_FPENV_DEFAULT | 0x8040u | 0x4000u) /* FTZ, DAZ, upwards */
#else
#define HOSTILE ((srt_fpenv_t)1 << 24 | (srt_fpenv_t)1 << 22) /* FZ, upwards */
#endif
#define STATUS_BITS 0x3fu /* exceptions that have occurred; not part of the environment */

static srt_fpenv_t seen_in_host_fn;

static srt_status_t look(void *arg)
{
	(void)arg;
	seen_in_host_fn = srt_fpenv_get();
	return SRT_OK;
}

/* A host function (a collective's sums) runs in the kernels' environment too. */
static void test_host_fn(srt_device_t *device)
{
	srt_stream_t *s = test_stream(device, "look");

	srt_fpenv_set(HOSTILE);
	CHECK_OK(srt_stream_host_fn(s, look, NULL));
	CHECK_OK(srt_stream_sync(s));
	CHECK_INT(srt_fpenv_get() & ~STATUS_BITS, HOSTILE);
	srt_fpenv_set(SRT_FPENV_DEFAULT);
	CHECK_INT(seen_in_host_fn & ~STATUS_BITS, SRT_FPENV_DEFAULT);
	srt_stream_destroy(s);
}

static size_t count_subnormals(const unsigned char *bytes, size_t nbytes)
{
	size_t count = 0;

	for (size_t i = 0; i < nbytes; i += 4) {
		uint32_t u;

		memcpy(&u, bytes + i, 4);
		count += (u & 0x7f800000u) == 0 && (u & 0x7fffffu) != 0;
	}
	return count;
}

int main(void)
{
	static const char *const kinds[] = { "inline", "threads" };
	unsigned char *reference, *bytes;
	srt_device_t *device = test_cpu_device(1, "inline");
	all_cases_t all = all_cases_make(false, false);

	CHECK_OK_OR_DIE(all_cases_run(&all, device, &reference));
	CHECK(count_subnormals(reference, all.nbytes) > 1000); /* there is something to flush */
	srt_device_close(device);
	for (int i = 0; i < 4; i++) {
		/* Threads are made in the hostile environment, and inherit it. */
		srt_fpenv_set(HOSTILE);
		device = test_cpu_device(1 + i / 2, kinds[i % 2]);
		const char *which;

		CHECK_OK(all_cases_run(&all, device, &bytes));
		CHECK_INT(srt_fpenv_get() & ~STATUS_BITS, HOSTILE);
		srt_fpenv_set(SRT_FPENV_DEFAULT);
		which = all_cases_differ(&all, bytes, reference);
		CHECK_MSG(!which, "%s streams, %d threads: %s has other bits", kinds[i % 2],
			  1 + i / 2, which);
		free(bytes);
		test_host_fn(device);
		srt_device_close(device);
	}
	free(reference);
	all_cases_free(&all);
	return check_done();
}
