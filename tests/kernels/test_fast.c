/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Products of numerics mode fast on the CPU (backends/cpu/onednn.h) against sums in double of
 * operands rounded to bf16: every transposition, edges, gaps between rows, bias, accumulation,
 * pools of one and of two threads. Skipped where there are none.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/onednn.h"
#include "base/base.h"
#include "tests/harness/bits.h"
#include "tests/harness/check.h"
#include "tests/harness/random.h"

#define MOST 40000 /* floats of the largest matrix, with gaps */

static float a[MOST], b[MOST], c[MOST], old[MOST], bias[400];

static void fill(float *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		x[i] = random_float();
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

	for (int64_t i = 0; i < mm->m; i++) {
		for (int64_t j = 0; j < mm->n; j++) {
			double sum = 0, size = 0, bound, error;

			for (int64_t k = 0; k < mm->k; k++) {
				double x =
					to_bf16(a[mm->trans_a ? k * mm->lda + i : i * mm->lda + k]);
				double y =
					to_bf16(b[mm->trans_b ? j * mm->ldb + k : k * mm->ldb + j]);

				sum += x * y;
				size += fabs(x * y);
			}
			sum += mm->bias ? (double)bias[j] : 0;
			sum += mm->accumulate ? (double)old[i * mm->ldc + j] : 0;
			bound = (size + 4) * (double)(mm->k + 2) * 0x1p-24;
			error = fabs((double)c[i * mm->ldc + j] - sum) / bound;
			most = error > most || isnan(error) ? error : most;
		}
	}
	return most;
}

static void test_product(srt_cpu_onednn_t *dnn, srt_cpu_pool_t *pool, srt_cpu_matmul_t mm, int gap)
{
	void *scratch = aligned_alloc(64, srt_cpu_onednn_scratch(&mm));

	CHECK(scratch);
	mm.lda = (mm.trans_a ? mm.m : mm.k) + gap;
	mm.ldb = (mm.trans_b ? mm.k : mm.n) + gap;
	mm.ldc = mm.n + gap;
	mm.a = a;
	mm.b = b;
	mm.c = c;
	mm.alpha = 1.0f;
	memcpy(c, old, sizeof(c));
	CHECK(srt_cpu_onednn_takes(&mm));
	CHECK_OK(srt_cpu_onednn_matmul(dnn, pool, &mm, scratch));
	CHECK(worst(&mm) <= 1.0);
	for (int64_t i = 0; i < mm.m; i++) /* what lies between the rows of C */
		for (int64_t j = mm.n; j < mm.ldc; j++)
			CHECK(memcmp(&c[i * mm.ldc + j], &old[i * mm.ldc + j], sizeof(*c)) == 0);
	free(scratch);
}

int main(void)
{
	static const int64_t sizes[][3] = { { 64, 64, 64 }, { 33, 47, 129 }, { 100, 384, 32 } };
	srt_cpu_onednn_t *dnn = srt_cpu_onednn_open();
	srt_cpu_pool_t *pool;

	if (!dnn)
		CHECK_SKIP("no oneDNN, or a processor that does not multiply bf16");
	fill(a, MOST);
	fill(b, MOST);
	fill(old, MOST);
	fill(bias, SRT_ARRAY_LEN(bias));
	for (int threads = 1; threads <= 2; threads++) {
		CHECK_OK_OR_DIE(srt_cpu_pool_create(threads, false, &pool));
		for (int i = 0; i < 3 * 16; i++)
			test_product(dnn, pool,
				     (srt_cpu_matmul_t){ .m = sizes[i / 16][0],
							 .n = sizes[i / 16][1],
							 .k = sizes[i / 16][2],
							 .trans_a = i & 1,
							 .trans_b = i >> 1 & 1,
							 .bias = i & 4 ? bias : NULL,
							 .accumulate = i >> 3 & 1 },
				     i % 3);
		srt_cpu_pool_destroy(pool);
	}
	srt_cpu_onednn_close(dnn);
	return check_done();
}
