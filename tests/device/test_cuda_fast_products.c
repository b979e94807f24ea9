/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Products of every form in numerics mode fast of the cuda backend, against sums in double: over
 * the fake driver and the fake cuBLASLt, or with SRT_TEST_CUDA=device on the device that there is.
 * What is left to the exact kernels, and failures are in test_cuda_fast_calls.c.
 */
#include "base/base.h"
#include "tests/device/cuda_fast.h"

/* Products with C of floats: one with a bias, which has another type, is the exact kernels'. */
static void check_wide(product_t p, long computed)
{
	p.c_dtype = SRT_F32;
	if (p.dtype != SRT_F32)
		product_check(&p, p.bias ? 0 : computed);
}

static void test_products(void)
{
	static const int64_t sizes[][3] = {
		{ 16, 16, 16 }, { 1, 7, 5 }, { 13, 1, 3 }, { 7, 19, 1 }, { 9, 31, 23 }
	};
	static const srt_dtype_t dtypes[] = { SRT_F32, SRT_F16, SRT_BF16 };

	for (size_t t = 0; t < 3; t++)
		for (size_t i = 0; i < SRT_ARRAY_LEN(sizes); i++)
			for (int bits = 0; bits < 16; bits++) {
				product_t p = product(sizes[i][0], sizes[i][1], sizes[i][2], bits,
						      (int64_t)(bits % 3), dtypes[t]);

				p.first = (int)i;
				p.mm.alpha = bits % 5 == 0 ? 0.75f : (float)(bits % 5 - 1);
				product_check(&p, 1);
				check_wide(p, 1);
			}
}

/* A long dimension that is no multiple of 16 bytes is split if the rows are aligned. */
static void test_splits(void)
{
	static const int64_t sizes[][3] = { { 5, 1027, 8 }, { 1029, 8, 8 }, { 6, 8, 1031 } };

	for (size_t i = 0; i < SRT_ARRAY_LEN(sizes); i++)
		for (int bits = 0; bits < 16; bits++) {
			const int64_t *s = sizes[i];
			product_t p =
				product(s[0], s[1], s[2], bits, 0, bits % 3 ? SRT_BF16 : SRT_F16);
			const bool ta = p.mm.trans_a != 0, tb = p.mm.trans_b != 0;
			const bool is_split = i == 0 || (i == 1 && ta) || (i == 2 && (!ta || tb));

			p.mm.m = i == 2 || (i == 0 && ta) ? 8 : s[0]; /* one dimension is odd */
			p.mm.lda = ((ta ? p.mm.m : p.mm.k) + 7) / 8 * 8;
			p.mm.ldb = ((tb ? p.mm.k : p.mm.n) + 7) / 8 * 8;
			p.mm.ldc = (p.mm.n + 7) / 8 * 8;
			product_check(&p, is_split ? 2 : 1);
			check_wide(p, is_split ? 2 : 1);
			p.mm.ldc++; /* rows that are not aligned */
			product_check(&p, 1);
		}
}

/* Items one after the other, side by side, and with one operand for all. */
static void test_batches(void)
{
	for (int bits = 0; bits < 16; bits++) {
		product_t p = product(5, 6, 7, bits, 1, bits % 2 ? SRT_F32 : SRT_BF16);

		p.mm.batch = 3;
		p.mm.stride_a = 100;
		p.mm.stride_b = bits & 4 ? 0 : 90;
		p.mm.stride_c = 80;
		product_check(&p, 1);
		check_wide(p, 1);
		p.mm.lda = p.mm.ldb = p.mm.ldc = 24; /* heads of a row */
		p.mm.stride_a = p.mm.stride_b = 8;
		p.mm.stride_c = 6;
		product_check(&p, 1);
	}
}

static void test_tf32(void)
{
	static float c[MOST];
	const product_t p = product(9, 31, 23, 0, 0, SRT_F32);
	const srt_matmul_t mm = product_views(&p);

	CHECK(strstr(fast_logged, "rounded to TF32"));
	product_upload(&p);
	CHECK_OK(srt_op_matmul(&mm, fast_stream));
	product_download(&p, c);
	if (lt != NULL) /* whose devices round whatever is allowed */
		CHECK(product_error(&p, c, 0, 1) > 1.0);
	CHECK(product_error(&p, c, 0x1p-11, 1) <= 1.0);
}

int main(void)
{
	fast_start(!on_device());
	fast_open(SRT_NUMERICS_FAST);
	if (on_device() && strstr(fast_logged, "the exact kernels are used") != NULL)
		CHECK_SKIP("no numerics fast on this device: %s", fast_logged);
	CHECK_INT(srt_context_numerics(fast_context), SRT_NUMERICS_FAST);
	test_products();
	test_splits();
	test_batches();
	fast_close();
	setenv("SHARDRT_CUDA_FP32", "tf32", 1);
	fast_open(SRT_NUMERICS_FAST);
	test_tf32();
	fast_close();
	return check_done();
}
