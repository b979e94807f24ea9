/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The matrix product for devices whose work-items share fast local memory (GPUs): a work-group of
 * TS x TS computes 4 TS x 4 TS elements of C, 16 a work-item, from slices of A and B that all of it
 * loads together. Every element is the chain of kernels/matmul.k, so the bits are the same.
 * Launched by matmul.c; -DTS=16, or 8 where work-groups are small.
 */
#include "kernels/math.h"

#ifndef TS
#define TS 16
#endif
#define PER 4          /* rows and columns of a work-item */
#define BLOCK (PER * TS)
#define SLICE 16       /* steps of k loaded at a time: divides SRT_K_MATMUL_KB */
#define PAD 1          /* against neighbours of a column in one bank */

/*
 * slice[kk][i] = element (k0 + kk, i0 + i) of a matrix of n columns and k1 rows, +0 outside, which
 * takes part in nothing: rows beyond k1 are not used, columns beyond n not stored. Neighbouring
 * work-items read neighbouring elements in both layouts.
 */
FN void load_slice(__local float (*slice)[BLOCK + PAD], GLOBAL const float *x, int64_t ld,
		   int along_k, int64_t i0, int64_t n, int64_t k0, int64_t k1)
{
	const int item = get_local_id(1) * TS + get_local_id(0);

	for (int e = item; e < SLICE * BLOCK; e += TS * TS) {
		const int kk = along_k ? e % SLICE : e / BLOCK;
		const int i = along_k ? e / SLICE : e % BLOCK;
		const int inside = k0 + kk < k1 && i0 + i < n;

		slice[kk][i] = !inside ? 0.0f
			       : along_k ? x[(i0 + i) * ld + k0 + kk]
					 : x[(k0 + kk) * ld + i0 + i];
	}
}

/* One step of k for a work-item's elements. */
#define TILED_STEP(kk)                                                                             \
	{                                                                                          \
		float av[PER], bv[PER];                                                            \
                                                                                                   \
		for (int r = 0; r < PER; r++)                                                      \
			av[r] = as[kk][ty + r * TS];                                               \
		for (int c = 0; c < PER; c++)                                                      \
			bv[c] = bs[kk][tx + c * TS];                                               \
		for (int r = 0; r < PER; r++)                                                      \
			for (int c = 0; c < PER; c++)                                              \
				x[r][c] = FMA(av[r], bv[c], x[r][c]);                              \
	}

/* Work-group (columns, rows, batch item). */
__kernel __attribute__((reqd_work_group_size(TS, TS, 1))) void matmul_tiled(
	K_PLACES_4 srt_k_matmul_t A)
{
	TENSOR(0, float, c);
	TENSOR(1, const float, a);
	TENSOR(2, const float, b);
	TENSOR(3, const float, bias);
	__local float as[SLICE][BLOCK + PAD];
	__local float bs[SLICE][BLOCK + PAD];
	float x[PER][PER], sum[PER][PER];
	const int tx = get_local_id(0), ty = get_local_id(1);
	const int64_t j0 = (int64_t)get_group_id(0) * BLOCK;
	const int64_t i0 = (int64_t)get_group_id(1) * BLOCK;
	const int64_t item = get_group_id(2);

	a += item * A.stride_a;
	b += item * A.stride_b;
	c += item * A.stride_c;
	for (int r = 0; r < PER; r++)
		for (int l = 0; l < PER; l++)
			sum[r][l] = 0.0f;
	for (int64_t block = 0; block < A.k; block += SRT_K_MATMUL_KB) {
		const int64_t end = MIN_OF(block + SRT_K_MATMUL_KB, A.k);

		for (int r = 0; r < PER; r++)
			for (int l = 0; l < PER; l++)
				x[r][l] = 0.0f;
		for (int64_t k = block; k < end; k += SLICE) {
			const int steps = MIN_OF(SLICE, end - k);

			BARRIER;
			load_slice(as, a, A.lda, !A.trans_a, i0, A.m, k, end);
			load_slice(bs, b, A.ldb, A.trans_b, j0, A.n, k, end);
			BARRIER;
			if (steps == SLICE) {
				for (int kk = 0; kk < SLICE; kk++)
					TILED_STEP(kk)
			} else {
				for (int kk = 0; kk < steps; kk++)
					TILED_STEP(kk)
			}
		}
		for (int r = 0; r < PER; r++)
			for (int l = 0; l < PER; l++)
				sum[r][l] = block ? sum[r][l] + x[r][l] : x[r][l];
	}
	for (int r = 0; r < PER; r++) {
		const int64_t i = i0 + ty + r * TS;

		for (int l = 0; l < PER; l++) {
			const int64_t j = j0 + tx + l * TS;
			float v = sum[r][l] * A.alpha;

			if (i >= A.m || j >= A.n)
				continue;
			v = bias ? v + bias[j] : v;
			c[i * A.ldc + j] = A.accumulate ? c[i * A.ldc + j] + v : v;
		}
	}
}
