/* SPDX-License-Identifier: BSD-3-Clause */
/* Arguments of the matrix product and of attention, as in test_ops_args.c. */
#include "tests/kernels/ops_check.h"

/* Dense rows have a distance that need not be given. */
static void test_dense(const srt_matmul_t *given)
{
	srt_normal_t values = SRT_NORMAL_INIT;
	srt_matmul_t mm = *given;
	float want[20], got[20];

	values.y = at(a, 0), values.nelem = 130, values.seed = 1, values.name = "a";
	CHECK_OK(srt_op_normal(&values, s));
	CHECK_OK(srt_op_matmul(&mm, s));
	test_get(s, want, b, 0, sizeof(want));
	CHECK_OK(srt_op_fill(at(b, 0), 0.0f, 20, s));
	mm.lda = mm.ldb = mm.ldc = 0;
	CHECK_OK(srt_op_matmul(&mm, s));
	test_get(s, got, b, 0, sizeof(got));
	CHECK(want[19] != 0.0f);
	CHECK_BITS(got, want, 20);
}

static void test_matmul(void)
{
	const srt_matmul_t good = { .size = sizeof(srt_matmul_t),
				    .batch = 1,
				    .alpha = 1.0f,
				    .m = 4,
				    .n = 5,
				    .k = 6,
				    .a = at(a, 0),
				    .b = at(a, 100),
				    .c = at(b, 0),
				    .lda = 6,
				    .ldb = 5,
				    .ldc = 5 };
	srt_matmul_t mm = good;
	float got[20];
	size_t nbytes = 0;

	REFUSED(srt_op_matmul(NULL, s), "srt_op_matmul: mm is NULL");
	mm.k = -6;
	REFUSED(srt_op_matmul(&mm, s), "k -6");
	REFUSED(srt_op_matmul_memory(device, &mm, SRT_F32, &nbytes), "k -6");
	REFUSED(srt_op_matmul_memory(device, NULL, SRT_F32, &nbytes), "mm is NULL");
	REFUSED(srt_op_matmul_memory(device, &mm, SRT_F32, NULL), "nbytes is NULL");
	REFUSED(srt_op_matmul_memory(NULL, &mm, SRT_F32, &nbytes), "device is NULL");
	mm = good;
	mm.lda = 5;
	REFUSED(srt_op_matmul(&mm, s), "lda is 5, less than the 6 columns");
	mm.trans_a = 1; /* stored (6,4) */
	CHECK_OK(srt_op_matmul(&mm, s));
	mm = good;
	mm.ldc = INT64_MAX / 2;
	REFUSED(srt_op_matmul(&mm, s), "size of c is negative or too large");
	mm.ldc = 332; /* 3 * 332 + 5 elements */
	REFUSED(srt_op_matmul(&mm, s), "srt_op_matmul: c: 1001 elements");
	mm = good;
	mm.batch = 3;
	mm.stride_a = 24;
	mm.stride_c = 491; /* 2 * 491 + 3 * 5 + 5 */
	REFUSED(srt_op_matmul(&mm, s), "c: 1002 elements");
	mm.stride_a = -24;
	REFUSED(srt_op_matmul(&mm, s), "is negative");
	mm = good;
	mm.batch = 2;
	mm.stride_c = 19;
	REFUSED(srt_op_matmul(&mm, s), "with stride_c 19 the 2 items of C overlap");
	mm.stride_c = 20;
	CHECK_OK(srt_op_matmul(&mm, s));
	mm.stride_c = 5; /* side by side */
	REFUSED(srt_op_matmul(&mm, s), "overlap");
	mm.ldc = 10;
	CHECK_OK(srt_op_matmul(&mm, s));
	mm = good; /* C may be wider than the operands, not narrower */
	mm.a.dtype = SRT_BF16;
	REFUSED(srt_op_matmul(&mm, s), "b is f32, must be bf16");
	mm.b.dtype = SRT_BF16;
	CHECK_OK(srt_op_matmul(&mm, s));
	mm.bias = at(a, 200);
	REFUSED(srt_op_matmul(&mm, s), "bias is f32, must be bf16");
	mm.bias.dtype = SRT_BF16;
	CHECK_OK(srt_op_matmul(&mm, s));
	mm.c.dtype = SRT_F16;
	REFUSED(srt_op_matmul(&mm, s), "a is bf16, must be f16");
	mm = good;
	mm.c.dtype = SRT_BF16;
	REFUSED(srt_op_matmul(&mm, s), "a is f32, must be bf16");
	mm = good;
	mm.a = mm.b = absent; /* without terms */
	mm.k = mm.lda = mm.ldb = 0;
	mm.bias = srt_view(a, 0, SRT_F16);
	CHECK_OK(srt_op_matmul(&mm, s));
	mm = good;
	mm.bias = at(a, 996);
	REFUSED(srt_op_matmul(&mm, s), "bias: 5 elements");
	mm = good;
	mm.c = at(a, 10);
	REFUSED(srt_op_matmul(&mm, s), "c overlaps a");
	mm = good;
	mm.b.dtype = SRT_F16;
	REFUSED(srt_op_matmul(&mm, s), "b is f16");
	mm = good;
	mm.a.buffer = NULL;
	REFUSED(srt_op_matmul(&mm, s), "a is absent");
	mm.k = 0;
	CHECK_OK(srt_op_matmul(&mm, s));
	mm.k = 6;
	mm.batch = 0; /* nothing */
	CHECK_OK(srt_op_matmul(&mm, s));
	mm = good;
	mm.alpha = 0.0f; /* and not 1 */
	CHECK_OK(srt_op_fill(at(a, 0), 1.0f, 130, s));
	CHECK_OK(srt_op_matmul(&mm, s));
	test_get(s, got, b, 0, sizeof(got));
	for (int i = 0; i < 20; i++)
		CHECK(got[i] == 0.0f);
	test_dense(&good);
	mm.m = 0;
	mm.c = absent;
	CHECK_OK(srt_op_matmul(&mm, s));
}

static void test_attention(void)
{
	const srt_attention_t good = { .size = sizeof(srt_attention_t),
				       .batch = 1,
				       .queries = 5,
				       .keys = 7,
				       .heads = 2,
				       .head_dim = 4,
				       .scale = 1 };
	const srt_attention_views_t fit = {
		.size = sizeof(srt_attention_views_t),
		.q = at(a, 0),
		.k = at(a, 100),
		.v = at(a, 200),
		.lengths = srt_view(a, 1200, SRT_I32),
		.mask = srt_view(a, 1205, SRT_U8),
		.dout = at(a, 400),
		.out = at(b, 0),
		.stats = at(b, 100),
		.dq = at(b, 200),
		.dk = at(b, 300),
		.dv = at(b, 400),
		.scratch = at(b, 470),
	};
	srt_attention_t shape = good;
	srt_attention_views_t v = fit;
	size_t nbytes = 0;

	REFUSED(srt_op_attention(NULL, &v, s), "srt_op_attention: shape is NULL");
	REFUSED(srt_op_attention(&shape, NULL, s), "srt_op_attention: views is NULL");
	REFUSED(srt_op_attention_backward(&shape, NULL, s), "views is NULL");
	v.stats = at(b, 39);
	REFUSED(srt_op_attention(&shape, &v, s), "out overlaps stats");
	v = fit;
	v.k = at(a, 945);
	REFUSED(srt_op_attention(&shape, &v, s), "k: 56 elements");
	v = fit;
	v.mask.dtype = SRT_I32;
	REFUSED(srt_op_attention(&shape, &v, s), "mask");
	v = fit;
	v.lengths.dtype = SRT_F32;
	REFUSED(srt_op_attention(&shape, &v, s), "lengths is f32, must be i32");
	v = fit;
	v.scratch = absent;
	REFUSED(srt_op_attention_backward(&shape, &v, s), "scratch is absent");
	v = fit;
	v.dk = v.out;
	REFUSED(srt_op_attention_backward(&shape, &v, s), "dk overlaps out");
	v = fit;
	v.dv = at(b, 239);
	REFUSED(srt_op_attention_backward(&shape, &v, s), "dq overlaps dv");
	v = fit;
	v.stats = absent;
	REFUSED(srt_op_attention_backward(&shape, &v, s), "stats is absent");
	shape.ldk = 7;
	REFUSED(srt_op_attention(&shape, &fit, s), "ldk is 7, less than a row of 8");
	shape.ldk = 151; /* 6 * 151 + 8 elements from 100 on */
	REFUSED(srt_op_attention(&shape, &fit, s), "k: 914 elements");
	shape = good;
	CHECK_OK(srt_op_attention_scratch(device, &shape, &nbytes));
	CHECK(nbytes >= 10 * sizeof(float));
	REFUSED(srt_op_attention_scratch(device, &shape, NULL), "nbytes is NULL");
	REFUSED(srt_op_attention_memory(device, &shape, SRT_F32, 0, 0, NULL), "nbytes is NULL");
	REFUSED(srt_op_attention_memory(NULL, &shape, SRT_F32, 0, 0, &nbytes), "device is NULL");
	shape.queries = INT64_MAX / 4;
	REFUSED(srt_op_attention_scratch(device, &shape, &nbytes), "too large");
	REFUSED(srt_op_attention(&shape, &fit, s), "negative or too large");
	shape.heads = -1;
	REFUSED(srt_op_attention(&shape, &fit, s), "heads -1");
	/* Allowed: gradients that nobody wants, rows side by side, nothing at all. */
	shape = good;
	CHECK_OK(srt_op_attention(&shape, &fit, s));
	v = fit;
	v.dq = v.dk = absent;
	CHECK_OK(srt_op_attention_backward(&shape, &v, s));
	v.dv = absent;
	CHECK_OK(srt_op_attention_backward(&shape, &v, s));
	shape.lddk = shape.lddv = 16;
	v = fit;
	v.dv = at(b, 308);
	CHECK_OK(srt_op_attention_backward(&shape, &v, s));
	v.dv = at(b, 307);
	REFUSED(srt_op_attention_backward(&shape, &v, s), "dk overlaps dv");
	v.dv = at(b, 309);
	REFUSED(srt_op_attention_backward(&shape, &v, s), "dk overlaps dv");
	shape = good;
	shape.batch = 0;
	v = (srt_attention_views_t)SRT_ATTENTION_VIEWS_INIT;
	CHECK_OK(srt_op_attention(&shape, &v, s));
	CHECK_OK(srt_op_attention_backward(&shape, &v, s));
}

/* Heads of keys that several heads of the queries read, first keys, the position of the queries. */
static void test_attention_grouped(void)
{
	const srt_attention_t good = { .size = sizeof(srt_attention_t),
				       .batch = 1,
				       .queries = 5,
				       .keys = 7,
				       .heads = 6,
				       .head_dim = 4,
				       .causal = 1,
				       .kv_heads = 2,
				       .offset = INT64_MAX };
	const srt_attention_views_t fit = { .size = sizeof(srt_attention_views_t),
					    .q = at(a, 0),
					    .k = at(a, 944), /* 7 rows of 8 elements */
					    .v = at(a, 200),
					    .first = srt_view(a, 1200, SRT_I32),
					    .out = at(b, 0),
					    .stats = at(b, 200) };
	srt_attention_t shape = good;
	srt_attention_views_t v = fit;

	CHECK_OK(srt_op_attention(&shape, &v, s));
	v.k = at(a, 945);
	REFUSED(srt_op_attention(&shape, &v, s), "k: 56 elements");
	v = fit;
	v.first.dtype = SRT_F32;
	REFUSED(srt_op_attention(&shape, &v, s), "first is f32, must be i32");
	shape.kv_heads = 4;
	REFUSED(srt_op_attention(&shape, &fit, s), "6 heads cannot share 4 heads of keys");
	shape.kv_heads = -2;
	REFUSED(srt_op_attention(&shape, &fit, s), "kv_heads -2");
	shape = good;
	shape.heads = 256;
	REFUSED(srt_op_attention(&shape, &fit, s), "at most 127 times as many");
	shape = good;
	shape.offset = -1;
	REFUSED(srt_op_attention(&shape, &fit, s), "offset -1: none may be negative");
	shape = good;
	v = fit;
	srt_attention_set_packed(&shape, &v, fit.q, fit.q);
	CHECK(shape.ldq == 40 && shape.lddv == 40 && shape.keys == 5);
	CHECK(v.k.offset == v.q.offset + 24 * sizeof(float));
	CHECK(v.dv.offset == v.q.offset + 32 * sizeof(float));
}

/* Without keys the results are zeros; without queries the gradients of the keys are. */
static void test_attention_of_none(void)
{
	srt_attention_t shape = { .size = sizeof(srt_attention_t),
				  .batch = 1,
				  .queries = 5,
				  .heads = 2,
				  .head_dim = 4,
				  .scale = 1 };
	srt_attention_views_t v = { .size = sizeof(srt_attention_views_t),
				    .q = at(a, 0),
				    .out = at(b, 0),
				    .stats = at(b, 100) };
	float ones[56], zeros[56] = { 0 }, got[56];

	for (int i = 0; i < 56; i++)
		ones[i] = 1.0f;
	test_put(s, b, 0, ones, sizeof(ones));
	CHECK_OK(srt_op_attention(&shape, &v, s));
	test_get(s, got, b, 0, sizeof(got));
	CHECK_BITS(got, zeros, 40);
	CHECK_BITS(got + 40, ones, 16);
	shape.queries = 0;
	shape.keys = 7;
	v = (srt_attention_views_t){ .size = sizeof(srt_attention_views_t),
				     .k = at(a, 0),
				     .v = at(a, 100),
				     .dk = at(b, 0) };
	test_put(s, b, 0, ones, sizeof(ones));
	CHECK_OK(srt_op_attention_backward(&shape, &v, s));
	test_get(s, got, b, 0, sizeof(got));
	CHECK_BITS(got, zeros, 56);
}

int main(void)
{
	ops_open();
	test_matmul();
	test_attention();
	test_attention_grouped();
	test_attention_of_none();
	ops_close();
	return check_done();
}
