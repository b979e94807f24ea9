/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attention's work on rows for one instruction set: plain loops over 64 lanes that the compiler
 * vectorises, with the functions of kernels/math.h; docs/numerics.md, "Row shape" and "Attention".
 * Included by gemm_<isa>.c. Rows have room for n rounded up to whole groups of lanes; scores there
 * are set to -infinity where they could count: they add +0 to the sum, or NaN to one that is NaN
 * already.
 */
#ifndef SRT_BACKENDS_CPU_GEMM_ROWS_H
#define SRT_BACKENDS_CPU_GEMM_ROWS_H

#include "kernels/dialect.h"
#include "kernels/math.h"

static inline int64_t rows_padded(int64_t n)
{
	return (n + LANES - 1) / LANES * LANES;
}

/* s[j] = exp(s[j] - m). */
static inline void rows_exp(float *s, int64_t padded, float m)
{
	for (int64_t j = 0; j < padded; j++)
		s[j] = k_exp(s[j] - m);
}

static inline void rows_multiply(float *s, int64_t padded, float factor)
{
	for (int64_t j = 0; j < padded; j++)
		s[j] = s[j] * factor;
}

static void rows_softmax(float *s, int64_t n, float stats[2])
{
	const int64_t padded = rows_padded(n);
	float m[LANES], z[LANES];

	for (int64_t j = n; j < padded; j++)
		s[j] = -INFINITY;
	for (int l = 0; l < LANES; l++) {
		m[l] = -INFINITY;
		z[l] = 0.0f;
	}
	for (int64_t j = 0; j < padded; j += LANES)
		for (int l = 0; l < LANES; l++)
			m[l] = MAX_NAN(m[l], s[j + l]);
	for (int h = LANES / 2; h; h /= 2)
		for (int l = 0; l < h; l++)
			m[l] = MAX_NAN(m[l], m[l + h]);
	stats[0] = m[0] + 0.0f;
	rows_exp(s, padded, stats[0]);
	for (int64_t j = 0; j < padded; j += LANES)
		for (int l = 0; l < LANES; l++)
			z[l] = z[l] + s[j + l];
	for (int h = LANES / 2; h; h /= 2)
		for (int l = 0; l < h; l++)
			z[l] = z[l] + z[l + h];
	stats[1] = z[0];
	rows_multiply(s, padded, 1.0f / stats[1]);
}

static void rows_softmax_again(float *s, int64_t n, const float stats[2])
{
	rows_exp(s, rows_padded(n), stats[0]);
	rows_multiply(s, rows_padded(n), 1.0f / stats[1]);
}

static void rows_softmax_backward(float *dp, const float *p, int64_t n, float d, float scale)
{
	const int64_t padded = rows_padded(n);

	for (int64_t j = 0; j < padded; j++)
		dp[j] = (p[j] * (dp[j] - d)) * scale;
}

static float rows_dot(const float *a, const float *b, int64_t n)
{
	float sum[LANES] = { 0.0f };
	int64_t j = 0;

	for (; j + LANES <= n; j += LANES)
		for (int l = 0; l < LANES; l++)
			sum[l] = FMA(a[j + l], b[j + l], sum[l]);
	for (int l = 0; j + l < n; l++)
		sum[l] = FMA(a[j + l], b[j + l], sum[l]);
	for (int h = LANES / 2; h; h /= 2)
		for (int l = 0; l < h; l++)
			sum[l] = sum[l] + sum[l + h];
	return sum[0];
}

#endif
