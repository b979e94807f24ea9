/* SPDX-License-Identifier: BSD-3-Clause */
/* Arguments of srt_op_index_copy(), as in test_ops_args.c, and where its rows are put. */
#include "tests/kernels/ops_check.h"

/* Four rows of two, three apart, into rows four apart of a y of three rows. */
static void test_index_copy(void)
{
	const int32_t index[4] = { 2, -1, 0, 3 };
	float x[12], y[12], want[12];
	srt_index_copy_t good = { .size = sizeof(srt_index_copy_t),
				  .rows = 4,
				  .n = 2,
				  .yrows = 3,
				  .ldx = 3,
				  .ldy = 4,
				  .x = at(a, 0),
				  .index = srt_view(b, 0, SRT_I32),
				  .y = at(a, 100) };

	REFUSED_WITH(srt_op_index_copy, good, ldx = 1, "rows of 2 elements are 1 elements apart");
	REFUSED_WITH(srt_op_index_copy, good, ldy = -4, "rows of 2 elements are -4 elements apart");
	REFUSED_WITH(srt_op_index_copy, good, rows = -1, "the size of x is negative");
	REFUSED_WITH(srt_op_index_copy, good, yrows = -1, "the size of y is negative");
	REFUSED_WITH(srt_op_index_copy, good, n = -1, "the size of y is negative");
	REFUSED_WITH(srt_op_index_copy, good, index = at(b, 0), "index is f32, must be i32");
	REFUSED_WITH(srt_op_index_copy, good, x = srt_view(a, 0, SRT_F16), "x is f16, must be f32");
	REFUSED_WITH(srt_op_index_copy, good, x = absent, "x is absent");
	REFUSED_WITH(srt_op_index_copy, good, y = absent, "y is absent");
	REFUSED_WITH(srt_op_index_copy, good, y = at(a, 10), "y overlaps x");
	REFUSED_WITH(srt_op_index_copy, good, y = at(a, 0), "y overlaps x");
	REFUSED_WITH(srt_op_index_copy, good, y = at(a, 991), "do not fit");
	for (int i = 0; i < 12; i++) {
		x[i] = (float)(i + 1);
		y[i] = want[i] = -x[i];
	}
	memcpy(want + 8, x, 2 * sizeof(*x));
	memcpy(want, x + 6, 2 * sizeof(*x));
	test_put(s, a, 0, x, sizeof(x));
	test_put(s, a, 400, y, sizeof(y));
	test_put(s, b, 0, index, sizeof(index));
	CHECK_OK(srt_op_index_copy(&good, s));
	test_get(s, y, a, 400, sizeof(y));
	CHECK_BITS(y, want, 12);
	/* Nothing to copy, and nowhere to. */
	CHECK_OK(srt_op_index_copy(&(srt_index_copy_t)SRT_INDEX_COPY_INIT, s));
	ACCEPTED_WITH(srt_op_index_copy, good, rows = 0);
	ACCEPTED_WITH(srt_op_index_copy, good, n = 0);
	good.y = absent;
	ACCEPTED_WITH(srt_op_index_copy, good, yrows = 0);
}

int main(void)
{
	ops_open();
	test_index_copy();
	ops_close();
	return check_done();
}
