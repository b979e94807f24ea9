/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The operations on a part of a vocabulary: arguments that are refused, as in
 * tests/kernels/test_ops_args.c; and with one part that has all, the bits of the cross-entropy.
 */
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

#define REFUSED(call, words)                                                                       \
	do {                                                                                       \
		CHECK_STATUS(call, SRT_ERR_INVALID_ARGUMENT);                                      \
		CHECK_ERROR_HAS(words);                                                            \
	} while (0)

#define EMBEDDING(...) (&(srt_embedding_t){ .size = sizeof(srt_embedding_t), __VA_ARGS__ })

#define LOSS(...) (&(srt_loss_t){ .size = sizeof(srt_loss_t), __VA_ARGS__ })

static void test_vocab_part(void)
{
	const srt_vocab_part_t part = { .vocab = 9, .first = 4, .n = 5 }, none = { .vocab = 9 };
	srt_vocab_part_t bad = { .vocab = 9, .first = 5, .n = 5 };
	const srt_view_t ids = srt_view(b, 0, SRT_I32);

	REFUSED(srt_op_embedding(EMBEDDING(.y = at(a, 0), .table = at(a, 200), .ids = ids,
					   .rows = 4, .n = 10, .part = &bad),
				 s),
		"5 elements from element 5 on are not a part of a vocabulary of 9");
	REFUSED(srt_op_embedding(EMBEDDING(.y = at(a, 0), .table = at(a, 200),
					   .position = at(a, 300), .ids = ids, .rows = 4, .n = 10,
					   .part = &part),
				 s),
		"srt_op_embedding: context is 0");
	REFUSED(srt_op_embedding_backward(EMBEDDING(.dtable = at(a, 0), .dy = at(a, 200),
						    .ids = ids, .rows = 4, .n = 10, .part = &part,
						    .padding = 9),
					  s),
		"srt_op_embedding_backward: padding is 9");
	REFUSED(srt_op_cross_entropy_part(at(a, 0), at(a, 100), ids, 4, &none, s),
		"srt_op_cross_entropy_part: n is 0");
	REFUSED(srt_op_cross_entropy_part(at(a, 0), at(a, 11), ids, 4, &part, s),
		"stats overlaps x");
	REFUSED(srt_op_cross_entropy_merge(LOSS(.loss = at(a, 0), .x = at(a, 100),
						.stats = at(a, 200), .target = ids, .rows = 4,
						.part = &part, .stride = 12, .grad_scale = 1),
					   s),
		"statistics of 0 parts that are 12 elements apart");
	REFUSED(srt_op_cross_entropy_merge(LOSS(.loss = at(a, 0), .x = at(a, 100),
						.stats = at(a, 200), .target = ids, .rows = 4,
						.part = &part, .nparts = 2, .stride = 11,
						.grad_scale = 1),
					   s),
		"needs a part or more, and 3 elements for each of 4 rows");
	REFUSED(srt_op_cross_entropy_merge(LOSS(.loss = at(a, 0), .x = at(a, 100),
						.stats = at(a, 200), .target = ids, .rows = 4,
						.part = &part, .nparts = 100, .stride = 12,
						.grad_scale = 1),
					   s),
		"stats: 1200 elements");
	CHECK_OK(srt_op_embedding(EMBEDDING(.y = at(a, 0), .table = at(a, 200), .ids = ids,
					    .rows = 4, .n = 10, .part = &part),
				  s));
	CHECK_OK(srt_op_embedding(EMBEDDING(.y = at(a, 0), .ids = ids, .rows = 4, .n = 10,
					    .part = &none),
				  s));
	CHECK_OK(srt_op_cross_entropy_part(at(a, 0), at(a, 100), ids, 4, &part, s));
	CHECK_OK(srt_op_cross_entropy_merge(LOSS(.loss = at(a, 0), .dx = at(a, 100),
						 .x = at(a, 100), .stats = at(a, 200),
						 .target = ids, .rows = 4, .part = &part,
						 .nparts = 2, .stride = 12, .grad_scale = 1),
					    s));
}

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
	REFUSED(srt_op_cross_entropy(LOSS(.loss = at(a, 0), .dx = at(b, 100), .x = at(b, 100),
					  .target = ids, .rows = ROWS, .n = N, .ld = N - 1,
					  .grad_scale = 0.3f),
				     s),
		"rows of 131 elements are 130 elements apart");
}

int main(void)
{
	device = test_device(1, "inline");
	s = test_stream(device, "s");
	a = test_buffer(device, 1000 * sizeof(float), "a");
	b = test_buffer(device, 1000 * sizeof(float), "b");
	test_vocab_part();
	test_one_part();
	srt_stream_destroy(s);
	srt_buffer_destroy(a);
	srt_buffer_destroy(b);
	CHECK_INT(srt_device_allocated(device), 0);
	srt_device_close(device);
	return check_done();
}
