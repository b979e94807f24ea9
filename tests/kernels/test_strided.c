/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * srt_op_copy_strided(): slices, transposes, permutations and repetitions of elements of 1, 2, 4
 * and 8 bytes against index arithmetic, byte for byte, with all that lies between; what is refused.
 */
#include "tests/harness/device.h"
#include "tests/harness/random.h"

#include <shardrt/ops.h>

#define NBYTES ((size_t)1 << 17) /* of each buffer */

static srt_device_t *device;
static srt_stream_t *s;
static srt_buffer_t *a, *b;
static unsigned char *want, *from, *got;

static const srt_dtype_t dtypes[] = { SRT_U8, SRT_BF16, SRT_F32, SRT_F64 };

/* The bytes of b after the copy of x at byte at_x of a to y at byte at_y of b. */
static void reference(const srt_strided_t *t, size_t size, size_t at_y, size_t at_x)
{
	int64_t i[SRT_STRIDED_MAX_DIMS] = { 0 }, n = 1;

	for (int d = 0; d < t->ndim; d++)
		n *= t->size[d];
	for (int64_t left = n; left > 0; left--) {
		int64_t y = 0, x = 0;

		for (int d = 0; d < t->ndim; d++) {
			y += i[d] * t->stride_y[d];
			x += i[d] * t->stride_x[d];
		}
		memcpy(want + at_y + (size_t)y * size, from + at_x + (size_t)x * size, size);
		for (int d = t->ndim - 1; d >= 0 && ++i[d] == t->size[d]; d--)
			i[d] = 0;
	}
}

/* One shape in all types; elements 3 and 5 are the first. */
static void check_copy(const srt_strided_t *t, const char *what)
{
	for (size_t k = 0; k < SRT_ARRAY_LEN(dtypes); k++) {
		const size_t size = srt_dtype_bits(dtypes[k]) / 8;

		for (size_t i = 0; i < NBYTES; i++)
			want[i] = (unsigned char)(i * 7 % 251);
		test_put(s, b, 0, want, NBYTES);
		reference(t, size, 3 * size, 5 * size);
		CHECK_OK(srt_op_copy_strided(srt_view(b, 3 * size, dtypes[k]),
					     srt_view(a, 5 * size, dtypes[k]), t, s));
		test_get(s, got, b, 0, NBYTES);
		CHECK_MSG(!memcmp(got, want, NBYTES), "%s: elements of %zu bytes", what, size);
	}
}

static void test_shapes(void)
{
	check_copy(&(srt_strided_t){ 0 }, "one element");
	check_copy(&(srt_strided_t){ 1, { 9001 }, { 1 }, { 1 } }, "a run");
	check_copy(&(srt_strided_t){ 1, { 97 }, { 3 }, { 2 } }, "every third from every second");
	check_copy(&(srt_strided_t){ 2, { 67, 13 }, { 29, 1 }, { 17, 1 } }, "a slice");
	check_copy(&(srt_strided_t){ 2, { 131, 70 }, { 70, 1 }, { 1, 131 } }, "transposed");
	check_copy(&(srt_strided_t){ 2, { 131, 70 }, { 1, 131 }, { 70, 1 } }, "transposed again");
	check_copy(&(srt_strided_t){ 2, { 5, 7 }, { 7, 1 }, { 0, 1 } }, "a row repeated");
	check_copy(&(srt_strided_t){ 3, { 4, 5, 6 }, { 30, 6, 1 }, { 1, 0, 4 } }, "and more");
	check_copy(&(srt_strided_t){ 3, { 2, 1, 6 }, { 6, 99, 1 }, { 6, 0, 1 } }, "a size of 1");
	check_copy(&(srt_strided_t){ 4, { 2, 3, 11, 20 }, { 660, 220, 20, 1 }, { 660, 20, 60, 1 } },
		   "heads before positions");
	check_copy(&(srt_strided_t){ 5,
				     { 2, 3, 4, 5, 6 },
				     { 360, 120, 30, 6, 1 },
				     { 1, 2, 6, 24, 120 } },
		   "all dimensions reversed");
	check_copy(&(srt_strided_t){ 5,
				     { 3, 2, 2, 3, 2 },
				     { 1, 3, 7, 100, 50 },
				     { 4, 2, 1, 12, 36 } },
		   "in no order");
	check_copy(&(srt_strided_t){ 2, { 0, 7 }, { 7, 1 }, { 7, 1 } }, "nothing");
	check_copy(&(srt_strided_t){ 2, { 7, 0 }, { 0, 0 }, { 0, 0 } }, "nothing, strides of 0");
}

/* Sizes and gaps by chance, the order of y's dimensions too. */
static void test_random(void)
{
	for (int n = 0; n < 60; n++) {
		srt_strided_t t = { .ndim = 1 + (int)(random32() % SRT_STRIDED_MAX_DIMS) };
		int order[SRT_STRIDED_MAX_DIMS] = { 0, 1, 2, 3, 4 };
		int64_t reach_y = 1, reach_x = 1;
		char what[32];

		for (int d = t.ndim - 1; d > 0; d--) {
			int other = (int)(random32() % (uint32_t)(d + 1)), old = order[d];

			order[d] = order[other];
			order[other] = old;
		}
		for (int d = 0; d < t.ndim; d++) {
			t.size[d] = 1 + random32() % (t.ndim > 3 ? 5 : 9);
			t.stride_x[d] = reach_x;
			reach_x *= t.size[d];
		}
		for (int d = 0; d < t.ndim; d++) {
			t.stride_y[order[d]] = reach_y + random32() % 2;
			reach_y = t.stride_y[order[d]] * t.size[order[d]];
		}
		snprintf(what, sizeof(what), "random %d", n);
		check_copy(&t, what);
	}
}

#define REFUSED(call, words)                                                                       \
	do {                                                                                       \
		CHECK_STATUS(call, SRT_ERR_INVALID_ARGUMENT);                                      \
		CHECK_ERROR_HAS(words);                                                            \
	} while (0)

static void test_refused(void)
{
	const srt_view_t y = srt_view(b, 0, SRT_F32), x = srt_view(a, 0, SRT_F32);
	srt_strided_t t = { 2, { 4, 5 }, { 5, 1 }, { 5, 1 } };

	REFUSED(srt_op_copy_strided(y, x, NULL, s), "srt_op_copy_strided: shape is NULL");
	REFUSED(srt_op_copy_strided(y, x, &t, NULL), "stream is NULL");
	REFUSED(srt_op_copy_strided(y, srt_view(a, 0, SRT_I32), &t, s), "x is i32, must be f32");
	REFUSED(srt_op_copy_strided(srt_view(NULL, 0, SRT_F32), x, &t, s), "y is absent");
	t.ndim = 6;
	REFUSED(srt_op_copy_strided(y, x, &t, s), "6 dimensions, at most 5");
	t.ndim = 2;
	t.stride_y[0] = 4;
	REFUSED(srt_op_copy_strided(y, x, &t, s), "elements of y overlap");
	t.stride_y[0] = 0;
	REFUSED(srt_op_copy_strided(y, x, &t, s), "elements of y overlap");
	t.stride_y[0] = -5;
	REFUSED(srt_op_copy_strided(y, x, &t, s), "dimension 0 has size 4 and strides -5 and 5");
	t.stride_y[0] = 5;
	t.stride_x[1] = -1;
	REFUSED(srt_op_copy_strided(y, x, &t, s), "none may be negative");
	t.stride_x[1] = 1;
	t.size[0] = -1;
	REFUSED(srt_op_copy_strided(y, x, &t, s), "none may be negative");
	t.size[0] = INT64_MAX / 2;
	REFUSED(srt_op_copy_strided(y, x, &t, s), "negative or too large");
	t.size[0] = NBYTES / 4 / 5 + 1;
	REFUSED(srt_op_copy_strided(y, x, &t, s), "do not fit");
	/* In one buffer: overlapping, one after the other, side by side. */
	t.size[0] = 4;
	REFUSED(srt_op_copy_strided(y, srt_view(b, 4, SRT_F32), &t, s), "y overlaps x");
	REFUSED(srt_op_copy_strided(y, y, &t, s), "y overlaps x");
	CHECK_OK(srt_op_copy_strided(y, srt_view(b, 80, SRT_F32), &t, s));
	t.stride_y[0] = t.stride_x[0] = 10;
	CHECK_OK(srt_op_copy_strided(y, srt_view(b, 20, SRT_F32), &t, s));
	REFUSED(srt_op_copy_strided(y, srt_view(b, 24, SRT_F32), &t, s), "y overlaps x");
	t.stride_x[0] = 11;
	REFUSED(srt_op_copy_strided(y, srt_view(b, 20, SRT_F32), &t, s), "y overlaps x");
}

int main(void)
{
	device = test_device(2, "inline");
	s = test_stream(device, "test");
	a = test_buffer(device, NBYTES, "a");
	b = test_buffer(device, NBYTES, "b");
	want = malloc(NBYTES);
	from = malloc(NBYTES);
	got = malloc(NBYTES);
	CHECK_OR_DIE(want != NULL && from != NULL && got != NULL);
	for (size_t i = 0; i < NBYTES; i++)
		from[i] = (unsigned char)random32();
	test_put(s, a, 0, from, NBYTES);
	test_shapes();
	test_random();
	test_refused();
	free(want);
	free(from);
	free(got);
	srt_stream_destroy(s); /* waits: the last copies are in flight */
	srt_buffer_destroy(a);
	srt_buffer_destroy(b);
	srt_device_close(device);
	return check_done();
}
