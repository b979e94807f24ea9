/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The caller's floating-point environment neither changes results nor is changed: with subnormals
 * flushed and rounding upwards in the caller's thread (as a library built with -Ofast leaves it),
 * every kernel gives the same bits, and the caller finds its own environment afterwards.
 */
#include <shardrt/coll.h>
#include <shardrt/init.h>

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

/*
 * Values that the host computes for kernels: 1 / (1 - rate), divisors of averages.
 *
 * Reliability: a rounding mode of the caller | other bits of dropout at 9 of 18 rates | the same
 * bits
 */
static void test_host_values(srt_device_t *device)
{
	srt_stream_t *s = test_stream(device, "dropout");
	srt_buffer_t *buffer;
	float kept[2][16], factors[2][2];

	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, 128, "dropout", &buffer));
	for (float rate = 0.05f; rate < 0.5f; rate += 0.05f) {
		for (int hostile = 0; hostile < 2; hostile++) {
			CHECK_OK(srt_op_fill(srt_view(buffer, 0, SRT_F32), 1.0f, 16, s));
			srt_fpenv_set(hostile ? HOSTILE : SRT_FPENV_DEFAULT);
			CHECK_OK(
				srt_op_dropout(&(srt_dropout_t){ .size = sizeof(srt_dropout_t),
								 .y = srt_view(buffer, 64, SRT_F32),
								 .x = srt_view(buffer, 0, SRT_F32),
								 .seed = 7,
								 .name = "x",
								 .nelem = 16,
								 .rate = rate },
					       s));
			CHECK_INT(srt_fpenv_get() & ~STATUS_BITS,
				  hostile ? HOSTILE : SRT_FPENV_DEFAULT);
			srt_fpenv_set(SRT_FPENV_DEFAULT);
			CHECK_OK(srt_buffer_copy_to_host(kept[hostile], buffer, 64, 64, s));
		}
		CHECK_MSG(memcmp(kept[0], kept[1], sizeof(kept[0])) == 0, "dropout at rate %g",
			  (double)rate);
	}
	for (int64_t n = 3; n < 40; n++) {
		srt_init_t init[2][3];

		for (int hostile = 0; hostile < 2; hostile++) {
			srt_fpenv_set(hostile ? HOSTILE : SRT_FPENV_DEFAULT);
			CHECK_OK(srt_init_kaiming_uniform(2, (int64_t[]){ 5, n }, 0.3,
							  &init[hostile][0]));
			CHECK_OK(srt_init_xavier_uniform(2, (int64_t[]){ 5, n }, 0.7,
							 &init[hostile][1]));
			CHECK_OK(srt_init_linear_bias(n, &init[hostile][2]));
			srt_fpenv_set(SRT_FPENV_DEFAULT);
		}
		CHECK(memcmp(init[0], init[1], sizeof(init[0])) == 0);
	}
	for (int hostile = 0; hostile < 2; hostile++) {
		srt_fpenv_set(hostile ? HOSTILE : SRT_FPENV_DEFAULT);
		/* not a float: 2^24 + 1 */
		CHECK_OK(srt_coll_divide_factors(SRT_F32, 16777217, 0.0f, &factors[hostile][0],
						 &factors[hostile][1]));
		srt_fpenv_set(SRT_FPENV_DEFAULT);
	}
	CHECK(memcmp(factors[0], factors[1], sizeof(factors[0])) == 0);
	srt_buffer_destroy(buffer);
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
	test_host_values(device);
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
		CHECK_MSG(which == NULL, "%s streams, %d threads: %s has other bits", kinds[i % 2],
			  1 + i / 2, which);
		free(bytes);
		test_host_fn(device);
		srt_device_close(device);
	}
	free(reference);
	all_cases_free(&all);
	return check_done();
}
