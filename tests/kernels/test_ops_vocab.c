/* SPDX-License-Identifier: BSD-3-Clause */
/* One part that has a whole vocabulary: the bits of the cross-entropy. */
#include <math.h>

#include "tests/harness/bits.h"
#include "tests/harness/device.h"
#include "tests/harness/random.h"

#include <shardrt/ops.h>

static srt_device_t *device;
static srt_stream_t *s;
static srt_buffer_t *a, *b; /* 1000 floats each */

static srt_view_t at(srt_buffer_t *buffer, size_t element)
{
	return srt_view(buffer, element * sizeof(float), SRT_F32);
}

#define LOSS(...) (&(srt_loss_t){ .size = sizeof(srt_loss_t), __VA_ARGS__ })

/* Rows with a large and a small sum, one with an infinity, and one whose target is outside; of one
 * part, and of rows that are LD elements apart, between which nothing is written. */
static void test_one_part(void)
{
	enum { ROWS = 6, N = 131, LD = 136 };
	const srt_vocab_part_t all = { .vocab = N, .n = N };
	const srt_vocab_part_t apart = { .vocab = N, .n = N, .ld = LD };
	float spread[ROWS * LD], of_spread[ROWS * LD];
	const srt_view_t ids = srt_view(b, 0, SRT_I32);
	float x[ROWS * N], want[ROWS * (N + 1)], got[ROWS * (N + 1)];
	int32_t targets[ROWS];

	for (int i = 0; i < ROWS * N; i++)
		x[i] = random_float() * (float)(1 << 2 * (i / N));
	for (int r = 0; r < ROWS; r++)
		targets[r] = r == 1 ? N : 20 * r;
	x[2 * N + 7] = -INFINITY;
	test_put(s, b, 0, targets, sizeof(targets));
	test_put(s, b, 100 * sizeof(float), x, sizeof(x));
	CHECK_OK(srt_op_cross_entropy(LOSS(.loss = at(a, 0), .dx = at(a, ROWS), .x = at(b, 100),
					   .target = ids, .rows = ROWS, .n = N, .grad_scale = 0.3f),
				      s));
	test_get(s, want, a, 0, sizeof(want));
	CHECK_OK(srt_op_cross_entropy_part(at(b, 20), at(b, 100), ids, ROWS, &all, s));
	CHECK_OK(srt_op_cross_entropy_merge(LOSS(.loss = at(a, 0), .dx = at(a, ROWS),
						 .x = at(b, 100), .stats = at(b, 20), .target = ids,
						 .rows = ROWS, .part = &all, .nparts = 1,
						 .stride = 3 * ROWS, .grad_scale = 0.3f),
					    s));
	test_get(s, got, a, 0, sizeof(got));
	CHECK_BITS(got, want, ROWS * (N + 1));
	CHECK(want[0] > 0.0f && want[1] != want[1]);
	for (int pass = 0; pass < 2; pass++) {
		for (int i = 0; i < ROWS * LD; i++)
			spread[i] = i % LD < N ? x[i / LD * N + i % LD] : (float)i;
		test_put(s, b, 100 * sizeof(float), spread, sizeof(spread));
		if (pass == 0) {
			CHECK_OK(srt_op_cross_entropy(LOSS(.loss = at(a, 0), .dx = at(b, 100),
							   .x = at(b, 100), .target = ids,
							   .rows = ROWS, .n = N, .ld = LD,
							   .grad_scale = 0.3f),
						      s));
		} else {
			CHECK_OK(srt_op_cross_entropy_part(at(b, 20), at(b, 100), ids, ROWS, &apart,
							   s));
			CHECK_OK(srt_op_cross_entropy_merge(LOSS(.loss = at(a, 0), .dx = at(b, 100),
								 .x = at(b, 100),
								 .stats = at(b, 20), .target = ids,
								 .rows = ROWS, .part = &apart,
								 .nparts = 1, .stride = 3 * ROWS,
								 .grad_scale = 0.3f),
							    s));
		}
		test_get(s, got, a, 0, ROWS * sizeof(float));
		test_get(s, of_spread, b, 100 * sizeof(float), sizeof(of_spread));
		CHECK_BITS(got, want, ROWS);
		for (int r = 0; r < ROWS; r++) {
			CHECK_BITS(of_spread + r * LD, want + ROWS + r * N, N);
			CHECK_BITS(of_spread + r * LD + N, spread + r * LD + N, LD - N);
		}
	}
}

int main(void)
{
	device = test_device(1, "inline");
	s = test_stream(device, "s");
	a = test_buffer(device, 1000 * sizeof(float), "a");
	b = test_buffer(device, 1000 * sizeof(float), "b");
	test_one_part();
	srt_stream_destroy(s);
	srt_buffer_destroy(a);
	srt_buffer_destroy(b);
	CHECK_INT(srt_device_allocated(device), 0);
	srt_device_close(device);
	return check_done();
}
