/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Weights in 8 bits: srt_quantize() by its definition in double precision, at the ends of the range
 * too, and the kernel that widens them, in f32, f16 and bf16, against a plain reference.
 */
#include <float.h>
#include <math.h>

#include "tests/kernels/kernel_check.h"

static int64_t count_blocks(int64_t n)
{
	return (n + SRT_QUANT_BLOCK - 1) / SRT_QUANT_BLOCK;
}

static void check_dequantize(srt_dtype_t dtype, int64_t rows, int64_t n)
{
	const srt_k_quantize_t args = { .rows = rows, .n = n };
	const int64_t nblocks = count_blocks(n);
	float *scales = kc_floats(rows * nblocks, kc_hard), *want = kc_floats(rows * n, NULL);
	signed char *codes = malloc((size_t)(rows * n) + 1);

	CHECK_OR_DIE(codes != NULL);
	for (int64_t i = 0; i < rows * n; i++) {
		codes[i] = (signed char)random32();
		want[i] = (float)codes[i] * scales[i / n * nblocks + i % n / SRT_QUANT_BLOCK];
	}
	kc_begin_as(dtype, SRT_K_DEQUANTIZE, &args, "dequantize");
	kc_out(NULL, want, rows * n);
	kc_in(codes, (size_t)(rows * n));
	kc_in(scales, (size_t)(rows * nblocks) * sizeof(*scales));
	kc_run();
	free(codes);
	free(scales);
	free(want);
}

/* What the definition says of a block: a quotient halfway between two codes takes the even one. */
static void check_block(const float *x, int64_t n, const int8_t *codes, float scale)
{
	float most = 0.0f;

	for (int64_t i = 0; i < n; i++)
		most = fmaxf(most, fabsf(x[i]));
	CHECK_BITS(&scale, &(float){ most / 127.0f }, 1);
	for (int64_t i = 0; i < n; i++) {
		const double q = scale > 0.0f ? nearbyint((double)(x[i] / scale)) : 0.0;

		CHECK_INT(codes[i], (int)fmax(-127.0, fmin(127.0, q)));
	}
}

static void check_quantize(int64_t rows, int64_t n, float factor)
{
	const int64_t nblocks = count_blocks(n);
	float *x = kc_floats(rows * n, kc_mild), *scales = kc_floats(rows * nblocks, kc_mild);
	int8_t *codes = malloc((size_t)(rows * n) + 1);

	CHECK_OR_DIE(codes != NULL);
	for (int64_t i = 0; i < rows * n; i++)
		x[i] *= factor;
	CHECK_OK(srt_quantize(x, rows, n, codes, scales));
	for (int64_t r = 0; r < rows; r++)
		for (int64_t b = 0; b < nblocks; b++) {
			const int64_t at = r * n + b * SRT_QUANT_BLOCK;
			const int64_t left = n - b * SRT_QUANT_BLOCK;

			check_block(x + at, left < SRT_QUANT_BLOCK ? left : SRT_QUANT_BLOCK,
				    codes + at, scales[r * nblocks + b]);
		}
	free(x);
	free(scales);
	free(codes);
}

static void test_edges(void)
{
	/* scale 1: halves go to the even code; its sign stays */
	const float halves[6] = { 127.0f, 0.5f, 1.5f, -0.5f, -2.5f, -127.0f };
	const int8_t want[6] = { 127, 0, 2, 0, -2, -127 };
	/* The scale is 1.496 of the least float, which is 1: 190 is more than 127 of it. */
	const float tiny[2] = { 190 * 0x1p-149f, -63 * 0x1p-149f };
	const float none[2] = { 0.0f, -0.0f };
	const float large[2] = { FLT_MAX, -FLT_MAX };
	int8_t codes[6];
	float scale;

	CHECK_OK(srt_quantize(halves, 1, 6, codes, &scale));
	CHECK(memcmp(codes, want, sizeof(want)) == 0);
	CHECK_OK(srt_quantize(tiny, 1, 2, codes, &scale));
	CHECK_INT(codes[0], 127);
	CHECK_INT(codes[1], -63);
	CHECK_OK(srt_quantize(none, 1, 2, codes, &scale));
	CHECK(scale == 0.0f && codes[0] == 0 && codes[1] == 0);
	CHECK_OK(srt_quantize(large, 1, 2, codes, &scale));
	CHECK_INT(codes[0], 127);
	CHECK_INT(codes[1], -127);
}

static void test_refused(void)
{
	const float bad[4] = { 1.0f, 2.0f, 3.0f, NAN }, infinite[1] = { -INFINITY };
	float scales[2];
	int8_t codes[4];

	CHECK_STATUS(srt_quantize(bad, 2, 2, codes, scales), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("row 1 has a value that is not finite");
	CHECK_STATUS(srt_quantize(infinite, 1, 1, codes, scales), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("row 0");
	CHECK_STATUS(srt_quantize(bad, -1, 2, codes, scales), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("-1 rows");
	CHECK_STATUS(srt_quantize(NULL, 1, 2, codes, scales), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("x is NULL");
	CHECK_OK(srt_quantize(NULL, 0, 2, NULL, NULL));
	CHECK_OK(srt_quantize(NULL, 2, 0, NULL, NULL));
}

int main(void)
{
	static const srt_dtype_t dtypes[] = { SRT_F32, SRT_F16, SRT_BF16 };

	for (size_t d = 0; d < 3; d++) {
		check_dequantize(dtypes[d], 0, 3);
		check_dequantize(dtypes[d], 1, 1);
		check_dequantize(dtypes[d], 3, 64);
		check_dequantize(dtypes[d], 5, 131);
		check_dequantize(dtypes[d], 2, 4099);
	}
	check_quantize(1, 1, 1.0f);
	check_quantize(3, 64, 1.0f);
	check_quantize(7, 200, 0x1p-140f);
	check_quantize(2, 129, 0x1p100f);
	test_edges();
	test_refused();
	return kc_done();
}
