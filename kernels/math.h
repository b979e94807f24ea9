/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Elementary functions of the kernels: our own polynomials in FMA, the same bits wherever FMA is
 * exact. Coefficients are minimax fits, rounded to float. No branches, so that loops vectorise:
 * arguments are clamped by comparisons that are false for NaN before any use as an integer, and
 * special results are selected last. Bounds (proved over all inputs by tests/test_math.c) in
 * docs/numerics.md.
 */
#ifndef SRT_KERNELS_MATH_H
#define SRT_KERNELS_MATH_H

#include "kernels/dialect.h"

/* Adding it to |x| < 2^22 leaves the nearest integer in the low bits. */
#define K_ROUND 12582912.0f
#define K_ROUND_BITS 0x4b400000

/*
 * e^x: n = nearest of x / ln 2, e^r on |r| <= ln 2 / 2, times 2^n in two factors, so that a
 * subnormal result is rounded once and overflow gives inf. exp(-inf) = 0, exp(inf) = inf, NaN
 * stays.
 */
FN float k_exp(float x)
{
	float c = x > -104.0f ? x : -104.0f;
	float t, n, r, q, p;
	int32_t i, low;

	c = c < 89.0f ? c : 89.0f;
	t = FMA(c, 0x1.715476p+0f, K_ROUND);
	n = t - K_ROUND;
	i = BITS_OF(t) - K_ROUND_BITS;
	r = FMA(n, -0x1.63p-1f, c);
	r = FMA(n, 0x1.bd0106p-13f, r);
	q = FMA(0x1.9f089cp-13f, r, 0x1.6d8d08p-10f);
	q = FMA(q, r, 0x1.111270p-7f);
	q = FMA(q, r, 0x1.55548ep-5f);
	q = FMA(q, r, 0x1.555554p-3f);
	q = FMA(q, r, 0.5f);
	p = FMA(q, r * r, r) + 1.0f;
	low = i >> 1;
	p = p * FLOAT_OF((low + 127) << 23) * FLOAT_OF((i - low + 127) << 23);
	return x != x ? x : p;
}

/*
 * ln x: x = m 2^e with m in [sqrt(1/2), sqrt 2), ln(1 + f) with f = m - 1. log(+-0) = -inf,
 * log(x < 0) = NaN, log(inf) = inf, NaN stays.
 */
FN float k_log(float x)
{
	int32_t tiny = x < 0x1p-126f;
	float s = tiny ? x * 0x1p23f : x;
	uint32_t bits = (uint32_t)BITS_OF(s);
	int32_t i = (int32_t)(bits - 0x3f3504f3u) >> 23;
	float f = FLOAT_OF((int32_t)(bits - ((uint32_t)i << 23))) - 1.0f;
	float e = (float)i - (tiny ? 23.0f : 0.0f);
	float z = f * f;
	float p;

	p = FMA(0x1.14575cp-4f, f, -0x1.de3c2cp-4f);
	p = FMA(p, f, 0x1.e6f09ap-4f);
	p = FMA(p, f, -0x1.fc2208p-4f);
	p = FMA(p, f, 0x1.233764p-3f);
	p = FMA(p, f, -0x1.555c4ep-3f);
	p = FMA(p, f, 0x1.99a4b6p-3f);
	p = FMA(p, f, -0x1.000006p-2f);
	p = FMA(p, f, 0x1.555548p-2f);
	p = FMA(e, -0x1.bd0106p-13f, p * (f * z));
	p = FMA(-0.5f, z, p);
	p = FMA(e, 0x1.63p-1f, f + p);
	p = x == FLOAT_OF(0x7f800000) ? x : p;
	p = x == 0.0f ? FLOAT_OF((int32_t)0xff800000u) : p;
	p = x < 0.0f ? FLOAT_OF(0x7fc00000) : p;
	return x != x ? x : p;
}

/* sin(pi (x + quarters / 2)) for |x| < 2^21: quarters = 0 sine, 1 cosine. Exact zeros and ones. */
FN float k_sinpi(float x, int32_t quarters)
{
	float t = FMA(x, 2.0f, K_ROUND);
	int32_t i = BITS_OF(t) - K_ROUND_BITS + quarters;
	float r = FMA(t - K_ROUND, -0.5f, x);
	float z = r * r;
	float s, c;

	s = FMA(0x1.4bc256p-4f, z, -0x1.32ca86p-1f);
	s = FMA(s, z, 0x1.466bbap+1f);
	s = FMA(s, z, -0x1.4abbcep+2f);
	s = FMA(s, z, 0x1.921fb6p+1f) * r;
	c = FMA(0x1.d99f54p-3f, z, -0x1.55c4eap+0f);
	c = FMA(c, z, 0x1.03c1dap+2f);
	c = FMA(c, z, -0x1.3bd3ccp+2f);
	c = FMA(c, z, 1.0f);
	s = (i & 1) ? c : s;
	return (i & 2) ? -s : s;
}

#endif
