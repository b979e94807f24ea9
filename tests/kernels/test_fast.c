/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Products of numerics mode fast on the CPU (backends/cpu/onednn.h) against sums in double of
 * operands rounded to bf16: tensors of floats and of bf16, every transposition, edges, gaps between
 * rows, bias, accumulation, pools of one and of two threads. Skipped where there are none.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/onednn.h"
#include "base/base.h"
#include "tests/harness/bits.h"
#include "tests/harness/check.h"
#include "tests/harness/half.h"
#include "tests/harness/random.h"

#define MOST 40000 /* floats of the largest matrix, with gaps */

static float a[MOST], b[MOST], c[MOST], old[MOST], bias[400];
static uint16_t bf16_a[MOST], bf16_b[MOST], bf16_c[MOST], bf16_bias[400]; /* the same in bf16 */

static void fill(srt_dtype_t dtype, float *x, uint16_t *bf16, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		x[i] = half_round(dtype, random_float());
		if (dtype == SRT_BF16)
			half_put(dtype, bf16, i, x[i]);
	}
}

/* To nearest even; the values here are finite. */
static double to_bf16(float x)
{
	const uint32_t bits = bits_of(x);

	return (double)float_of((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u);
}

/* Largest error of the product over the bound of fp32 sums in any order. */
static double worst(const srt_cpu_matmul_t *mm)
{
	double most = 0;

	for (int64_t i = 0; i < mm->shape.m; i++) {
		for (int64_t j = 0; j < mm->shape.n; j++) {
			double sum = 0, size = 0, bound, error;

			for (int64_t k = 0; k < mm->shape.k; k++) {
				double x = to_bf16(a[mm->shape.trans_a ? k * mm->shape.lda + i :
									 i * mm->shape.lda + k]);
				double y = to_bf16(b[mm->shape.trans_b ? j * mm->shape.ldb + k :
									 k * mm->shape.ldb + j]);

				sum += x * y;
				size += fabs(x * y);
			}
			sum += mm->bias != NULL ? (double)bias[j] : 0;
			sum += mm->shape.accumulate ? (double)old[i * mm->shape.ldc + j] : 0;
			bound = (size + 4) * (double)(mm->shape.k + 2) * 0x1p-24;
			if (mm->dtype == SRT_BF16) /* C is rounded, and again if it is added */
				bound += (size + 4) * 0x1p-8;
			error = fabs((double)c[i * mm->shape.ldc + j] - sum) / bound;
			most = error > most || isnan(error) ? error : most;
		}
	}
	return most;
}

static void test_product(srt_cpu_onednn_t *dnn, srt_cpu_pool_t *pool, srt_cpu_matmul_t mm, int gap)
{
	size_t nbytes = srt_cpu_onednn_scratch(&mm);
	void *scratch = nbytes ? aligned_alloc(64, nbytes) : NULL;

	CHECK((scratch != NULL) == (mm.dtype == SRT_F32));
	mm.shape.lda = (mm.shape.trans_a ? mm.shape.m : mm.shape.k) + gap;
	mm.shape.ldb = (mm.shape.trans_b ? mm.shape.k : mm.shape.n) + gap;
	mm.shape.ldc = mm.shape.n + gap;
	mm.a = a;
	mm.b = b;
	mm.c = c;
	mm.shape.alpha = 1.0f;
	memcpy(c, old, sizeof(c));
	if (mm.dtype == SRT_BF16) {
		mm.a = bf16_a;
		mm.b = bf16_b;
		mm.c = bf16_c;
		mm.bias = mm.bias != NULL ? bf16_bias : NULL;
		for (size_t i = 0; i < MOST; i++)
			half_put(SRT_BF16, bf16_c, i, old[i]);
	}
	CHECK(srt_cpu_onednn_takes(&mm));
	CHECK_OK(srt_cpu_onednn_matmul(dnn, pool, &mm, scratch));
	for (size_t i = 0; i < MOST && mm.dtype == SRT_BF16; i++)
		c[i] = half_get(SRT_BF16, bf16_c, i);
	CHECK(worst(&mm) <= 1.0);
	for (int64_t i = 0; i < mm.shape.m; i++) /* what lies between the rows of C */
		for (int64_t j = mm.shape.n; j < mm.shape.ldc; j++)
			CHECK(memcmp(&c[i * mm.shape.ldc + j], &old[i * mm.shape.ldc + j],
				     sizeof(*c)) == 0);
	free(scratch);
}

int main(void)
{
	static const int64_t sizes[][3] = { { 64, 64, 64 }, { 33, 47, 129 }, { 100, 384, 32 } };
	srt_cpu_onednn_t *dnn = srt_cpu_onednn_open();
	srt_cpu_pool_t *pool;

	if (dnn == NULL)
		CHECK_SKIP("no oneDNN, or a processor that does not multiply bf16");
	for (int run = 0; run < 4; run++) {
		const srt_dtype_t dtype = run < 2 ? SRT_F32 : SRT_BF16;

		fill(dtype, a, bf16_a, MOST);
		fill(dtype, b, bf16_b, MOST);
		fill(dtype, old, bf16_c, MOST);
		fill(dtype, bias, bf16_bias, SRT_ARRAY_LEN(bias));
		CHECK_OK_OR_DIE(srt_cpu_pool_create(1 + run % 2, false, &pool));
		for (int i = 0; i < 3 * 16; i++)
			test_product(dnn, pool,
				     (srt_cpu_matmul_t){ .dtype = dtype,
							 .shape.m = sizes[i / 16][0],
							 .shape.n = sizes[i / 16][1],
							 .shape.k = sizes[i / 16][2],
							 .shape.trans_a = i & 1,
							 .shape.trans_b = i >> 1 & 1,
							 .bias = i & 4 ? bias : NULL,
							 .shape.accumulate = i >> 3 & 1 },
				     i % 3);
		srt_cpu_pool_destroy(pool);
	}
	srt_cpu_onednn_close(dnn);
	return check_done();
}
