/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attention's work on rows for one instruction set: plain loops that the compiler vectorises, with
 * the functions of kernels/dialect/math.h; docs/numerics.md, "Row shape" and "Attention". Included
 * by gemm_<isa>.c.
 *
 * Rows are processed in runs of 16 and have space for n rounded up. Scores beyond n are set to
 * -infinity where they could count: they add +0 to the sum, or NaN to a sum that is NaN. Their dP
 * is -0: P * dP is -0 too, and adds nothing to a sum, not even the sign of a zero. Run b
 * belongs to the lanes 16 * (b % 4) ... of the row shape's 64. The order of a maximum does not
 * change the bits.
 */
#ifndef SRT_BACKENDS_CPU_GEMM_ROWS_H
#define SRT_BACKENDS_CPU_GEMM_ROWS_H

#include "kernels/dialect/dialect.h"
#include "kernels/dialect/math.h"

#define RUN 16

static inline int64_t rows_runs(int64_t n)
{
	return (n + RUN - 1) / RUN;
}

/* Levels of a tree over lanes, with constant lengths, so that each compiles to a few vectors. */
#define ROWS_LEVEL(v, op, h)                                                                       \
	for (int l = 0; l < (h); l++)                                                              \
	v[l] = op(v[l], v[l + (h)])
#define ROWS_TREE_16(v, op)                                                                        \
	do {                                                                                       \
		ROWS_LEVEL(v, op, 8);                                                              \
		ROWS_LEVEL(v, op, 4);                                                              \
		ROWS_LEVEL(v, op, 2);                                                              \
		ROWS_LEVEL(v, op, 1);                                                              \
	} while (0)
#define ROWS_TREE_64(v, op)                                                                        \
	do {                                                                                       \
		ROWS_LEVEL(v, op, 32);                                                             \
		ROWS_LEVEL(v, op, 16);                                                             \
		ROWS_TREE_16(v, op);                                                               \
	} while (0)

static void rows_softmax(float *s, int64_t n, float stats[2])
{
	const int64_t runs = rows_runs(n);
	float m[2 * RUN], z[LANES] = { 0.0f }, max, inv;

	for (int64_t j = n; j < (runs + 1) / 2 * 2 * RUN; j++)
		s[j] = -INFINITY;
	for (int l = 0; l < 2 * RUN; l++)
		m[l] = s[l];
	for (int64_t b = 2; b < runs; b += 2)
		for (int l = 0; l < 2 * RUN; l++)
			m[l] = MAX_NAN(m[l], s[b * RUN + l]);
	ROWS_LEVEL(m, MAX_NAN, 16);
	ROWS_TREE_16(m, MAX_NAN);
	max = m[0] + 0.0f;
	for (int64_t b = 0; b < runs; b++) {
		float *lanes = z + b % (LANES / RUN) * RUN, *e = s + b * RUN;

		for (int l = 0; l < RUN; l++) {
			e[l] = k_exp(e[l] - max);
			lanes[l] = lanes[l] + e[l];
		}
	}
	ROWS_TREE_64(z, PLUS);
	stats[0] = max;
	stats[1] = z[0];
	inv = 1.0f / z[0];
	for (int64_t j = 0; j < runs * RUN; j++)
		s[j] = s[j] * inv;
}

static void rows_softmax_backward(float *p, float *ds, int64_t n, const float stats[2], float d,
				  float scale)
{
	const float max = stats[0], inv = 1.0f / stats[1];

	for (int64_t b = 0; b < rows_runs(n); b++) {
		float *pb = p + b * RUN, *dsb = ds + b * RUN;

		for (int l = 0; l < RUN; l++) {
			pb[l] = k_exp(pb[l] - max) * inv;
			dsb[l] = (pb[l] * (dsb[l] - d)) * scale;
		}
	}
}

static void rows_softmax_backward_half(float *p, float *ds, int64_t n, const float stats[2],
				       float scale)
{
	const float max = stats[0], inv = 1.0f / stats[1];
	float sum[LANES] = { 0.0f };

	for (int64_t j = n; j < rows_runs(n) * RUN; j++) {
		p[j] = -INFINITY;
		ds[j] = -0.0f;
	}
	for (int64_t b = 0; b < rows_runs(n); b++) {
		float *lanes = sum + b % (LANES / RUN) * RUN, *pb = p + b * RUN;

		for (int l = 0; l < RUN; l++) {
			pb[l] = k_exp(pb[l] - max) * inv;
			lanes[l] = FMA(pb[l], ds[b * RUN + l], lanes[l]);
		}
	}
	ROWS_TREE_64(sum, PLUS);
	for (int64_t j = 0; j < rows_runs(n) * RUN; j++)
		ds[j] = (p[j] * (ds[j] - sum[0])) * scale;
}

static float rows_dot(const float *a, const float *b, int64_t n)
{
	float sum[LANES] = { 0.0f };
	int64_t j = 0;

	for (; j + LANES <= n; j += LANES)
		for (int l = 0; l < LANES; l++)
			sum[l] = FMA(a[j + l], b[j + l], sum[l]);
	for (; j < n; j++)
		sum[j % LANES] = FMA(a[j], b[j], sum[j % LANES]);
	ROWS_TREE_64(sum, PLUS);
	return sum[0];
}

#endif
