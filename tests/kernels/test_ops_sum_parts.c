/* SPDX-License-Identifier: BSD-3-Clause */
/* Arguments of srt_op_sum_parts(), as in test_ops_args.c, and where its parts lie. */
#include "tests/kernels/ops_check.h"

static const srt_sum_parts_t good = { .size = sizeof(srt_sum_parts_t), .rows = 2, .n = 3 };

static void test_refused(void)
{
	srt_sum_parts_t args = good;

	args.nparts = 3;
	args.parts = at(a, 0);
	args.bias = at(a, 100);
	args.out = at(b, 0);
	REFUSED(srt_op_sum_parts(NULL, s), "srt_op_sum_parts: args is NULL");
	REFUSED(srt_op_sum_parts(&args, NULL), "srt_op_sum_parts: stream is NULL");
	REFUSED_WITH(srt_op_sum_parts, args, nparts = 0, "nparts is 0, must be 1 to 8");
	REFUSED_WITH(srt_op_sum_parts, args, nparts = 9, "nparts is 9, must be 1 to 8");
	REFUSED_WITH(srt_op_sum_parts, args, stride = 5,
		     "stride is 5, less than the 6 elements of a part");
	REFUSED_WITH(srt_op_sum_parts, args, stride = -6, "stride is -6, less than");
	REFUSED_WITH(srt_op_sum_parts, args, stride = INT64_MAX / 4, "the size of parts is");
	REFUSED_WITH(srt_op_sum_parts, args, stride = INT64_MAX, "the size of parts is");
	REFUSED_WITH(srt_op_sum_parts, args, stride = 498, "parts: 504 elements of f32");
	REFUSED_WITH(srt_op_sum_parts, args, rows = -1, "the size of out is negative");
	REFUSED_WITH(srt_op_sum_parts, args, n = -1, "the size of out is negative");
	REFUSED_WITH(srt_op_sum_parts, args, parts = srt_view(a, 0, SRT_BF16),
		     "parts is bf16, must be f32");
	REFUSED_WITH(srt_op_sum_parts, args, bias = srt_view(a, 0, SRT_BF16),
		     "bias is bf16, must be f32");
	REFUSED_WITH(srt_op_sum_parts, args, parts = absent, "parts is absent");
	REFUSED_WITH(srt_op_sum_parts, args, out = absent, "out is absent");
	REFUSED_WITH(srt_op_sum_parts, args, out = at(a, 1), "out overlaps parts");
	REFUSED_WITH(srt_op_sum_parts, args, out = at(a, 12), "out overlaps parts");
	REFUSED_WITH(srt_op_sum_parts, args, out = at(a, 102), "out overlaps bias");
	args.bias = absent;
	REFUSED_WITH(srt_op_sum_parts, args, out = srt_view(a, 0, SRT_F16), "out overlaps parts");
	CHECK_STATUS(srt_op_sum_parts(&(srt_sum_parts_t){ .size = sizeof(args),
							  .nparts = 1,
							  .rows = 1,
							  .n = 1,
							  .parts = at(a, 0),
							  .out = srt_view(b, 0, SRT_F64) },
				      s),
		     SRT_ERR_UNSUPPORTED);
	args.parts = args.out = absent;
	ACCEPTED_WITH(srt_op_sum_parts, args, rows = 0);
	ACCEPTED_WITH(srt_op_sum_parts, args, n = 0);
	CHECK_OK(srt_op_sum_parts(&(srt_sum_parts_t)SRT_SUM_PARTS_INIT, s));
}

/* Three parts in place of the first one, seven elements apart: what lies between them stays. */
static void test_in_place(void)
{
	float x[20], bias[3] = { 0.5f, 0.25f, -1.0f }, got[20];
	srt_sum_parts_t args = good;

	for (int i = 0; i < 20; i++)
		x[i] = (float)(i % 7 == 6 ? -1 : 1 << i / 7);
	test_put(s, a, 0, x, sizeof(x));
	test_put(s, b, 0, bias, sizeof(bias));
	args.nparts = 3;
	args.stride = 7;
	args.parts = args.out = at(a, 0);
	args.bias = at(b, 0);
	args.accumulate = 1;
	CHECK_OK(srt_op_sum_parts(&args, s));
	for (int i = 0; i < 6; i++)
		x[i] = 1.0f + (7.0f + bias[i % 3]);
	test_get(s, got, a, 0, sizeof(got));
	CHECK_BITS(got, x, 20);
}

int main(void)
{
	ops_open();
	test_refused();
	test_in_place();
	ops_close();
	return check_done();
}
