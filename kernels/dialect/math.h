/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Elementary functions of the kernels: our own polynomials in FMA, the same bits wherever FMA is
 * exact. Coefficients are minimax fits, rounded to float. No branches (k_powi apart), so that loops
 * vectorise: arguments are clamped by comparisons that are false for NaN before any use as an
 * integer, and special results are selected last. Bounds (proved over all inputs by
 * tests/kernels/test_math.c) in docs/numerics.md.
 */
#ifndef SRT_KERNELS_DIALECT_MATH_H
#define SRT_KERNELS_DIALECT_MATH_H

#include "kernels/dialect/dialect.h"

/* Adding it to |x| < 2^22 leaves the nearest integer in the low bits. */
#define K_ROUND 12582912.0f
#define K_ROUND_BITS 0x4b400000

/*
 * x within low < 0 < high, and one of them for NaN. By the order of the patterns: gcc
 * duplicates the code that follows a selection by comparisons, once for each case.
 */
FN float k_clamp(float x, float low, float high)
{
	uint32_t bits = (uint32_t)MIN_OF(BITS_OF(x), BITS_OF(high));

	return FLOAT_OF((int32_t)MIN_OF(bits, (uint32_t)BITS_OF(low)));
}

/* (e^r - 1 - r) / r^2 on |r| <= ln 2 / 2 */
FN float k_exp_tail(float r)
{
	float q = FMA(0x1.9f089cp-13f, r, 0x1.6d8d08p-10f);

	q = FMA(q, r, 0x1.111270p-7f);
	q = FMA(q, r, 0x1.55548ep-5f);
	q = FMA(q, r, 0x1.555554p-3f);
	return FMA(q, r, 0.5f);
}

/* e^x = 2^n p with n the nearest integer of x / ln 2 and p = e^r, |r| <= ln 2 / 2. */
typedef struct k_exp_parts {
	int32_t n_bits; /* low bits: n + offset, offset < 2^21 */
	int32_t p_bits; /* p in (0.7, 1.42), so that 2^k p has these bits + k 2^23 */
} k_exp_parts_t;

FN k_exp_parts_t k_exp_split(float x, float offset)
{
	float t = FMA(x, 0x1.715476p+0f, K_ROUND + offset);
	float n = t - (K_ROUND + offset);
	float r = FMA(n, -0x1.63p-1f, x);
	k_exp_parts_t e;

	r = FMA(n, 0x1.bd0106p-13f, r);
	e.p_bits = BITS_OF(FMA(k_exp_tail(r), r * r, r) + 1.0f);
	e.n_bits = BITS_OF(t);
	return e;
}

/* bits + k 2^23 for the k of which n's low bits are known */
FN int32_t k_add_exponent(int32_t bits, int32_t n)
{
	return (int32_t)((uint32_t)bits + ((uint32_t)n << 23));
}

/*
 * e^x: 2^n in two factors, so that a subnormal result is rounded once and overflow gives inf.
 * exp(-inf) = 0, exp(inf) = inf, NaN stays.
 */
FN float k_exp(float x)
{
	float c = x > -104.0f ? x : -104.0f;
	k_exp_parts_t e;
	int32_t low;
	float p;

	c = c < 89.0f ? c : 89.0f;
	e = k_exp_split(c, 0.0f);
	low = e.n_bits >> 1; /* floor(n / 2) in the low bits, and n - that */
	p = FLOAT_OF(k_add_exponent(e.p_bits, low)) *
	    FLOAT_OF(k_add_exponent(0x3f800000, e.n_bits - low));
	return x != x ? x : p;
}

/* exp(x) where x <= 64 (or NaN), for less: 2^(n+32) p is a normal number, and is scaled once. */
FN float k_exp_to_64(float x)
{
	float c = x > -104.0f ? x : -104.0f;
	k_exp_parts_t e = k_exp_split(c, 32.0f);
	float p = FLOAT_OF(k_add_exponent(e.p_bits, e.n_bits)) * 0x1p-32f;

	return x != x ? x : p;
}

/*
 * e^x - 1 for -32 <= x <= 89: p = e^r - 1 with n and r as in k_exp, then 2^n p + (2^n - 1) with
 * everything halved, so that only a result that overflows does; p alone where n is 0. -0 becomes
 * +0.
 */
FN float k_expm1_within(float x)
{
	float t = FMA(x, 0x1.715476p+0f, K_ROUND);
	float n = t - K_ROUND;
	float r = FMA(n, -0x1.63p-1f, x);
	float p, s, y;

	r = FMA(n, 0x1.bd0106p-13f, r);
	p = FMA(k_exp_tail(r), r * r, r);
	s = FLOAT_OF(k_add_exponent(0x3f000000, BITS_OF(t)));
	y = 2.0f * FMA(p, s, s - 0.5f);
	return n == 0.0f ? p : y;
}

/* e^x - 1. expm1(+-0) = +-0, expm1(-inf) = -1, expm1(inf) = inf, NaN stays. */
FN float k_expm1(float x)
{
	float c = x > -32.0f ? x : -32.0f;
	float y = k_expm1_within(c < 89.0f ? c : 89.0f);

	y = x == 0.0f ? x : y;
	return x != x ? x : y;
}

/* |y| with the sign of x. */
FN float k_with_sign(float y, float x)
{
	return FLOAT_OF((BITS_OF(y) & 0x7fffffff) | (BITS_OF(x) & (int32_t)0x80000000u));
}

FN float k_abs(float x)
{
	return FLOAT_OF(BITS_OF(x) & 0x7fffffff);
}

/* tanh x = e / (e + 2), e = expm1(2 |x|). tanh(+-0) = +-0, tanh(+-inf) = +-1, NaN stays. */
FN float k_tanh(float x)
{
	float a = k_abs(x);
	float e = k_expm1_within(2.0f * (a < 10.0f ? a : 10.0f));

	e = k_with_sign(e / (e + 2.0f), x);
	return x != x ? x : e;
}

/* 1 / (1 + e^-x) as e / (1 + e) or 1 / (1 + e), e = exp(-|x|): no part overflows. NaN stays. */
FN float k_sigmoid(float x)
{
	float e = k_exp_to_64(-k_abs(x));

	return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

/*
 * erf x: x + x P(x^2) up to 475/512, from there 1 - e^-(|x| + |x| Q(|x|)), the logarithm of erfc
 * being smooth. erf(+-0) = +-0, erf(+-inf) = +-1, NaN stays.
 */
FN float k_erf(float x)
{
	float a = k_abs(x);
	float z = x * x;
	float c = a < 4.0f ? a : 4.0f;
	float p, q;

	z = z < 1.0f ? z : 1.0f;
	p = FMA(0x1.4f7fcep-14f, z, -0x1.a60f6cp-11f);
	p = FMA(p, z, 0x1.544a76p-8f);
	p = FMA(p, z, -0x1.b8011ep-6f);
	p = FMA(p, z, 0x1.ce2d64p-4f);
	p = FMA(p, z, -0x1.812740p-2f);
	p = FMA(p, z, 0x1.06eba8p-3f);
	p = FMA(p, x, x);
	q = FMA(0x1.82ad8ap-17f, c, -0x1.5590e0p-12f);
	q = FMA(q, c, 0x1.defec8p-9f);
	q = FMA(q, c, -0x1.85bbecp-6f);
	q = FMA(q, c, 0x1.b34476p-4f);
	q = FMA(q, c, 0x1.453034p-1f);
	q = FMA(q, c, 0x1.077b2ep-3f);
	q = k_with_sign(1.0f - k_exp_to_64(-FMA(q, c, c)), x);
	p = a < 0.927734375f ? p : q;
	p = x == 0.0f ? x : p;
	return x != x ? x : p;
}

/* The normal distribution: density without its factor 1/sqrt(2 pi), and cumulated. */
typedef struct k_normal_law {
	float bell; /* e^(-x^2/2) */
	float below;
} k_normal_law_t;

/*
 * Q(z) = e^(-z^2/2) P(t) / (z + 7/2) with z = |x|, t = (z - 7/2) / (z + 7/2), is the part above z.
 * Its relative error is small in the whole tail, which 1 + erf would lose; the square is taken to
 * twice the digits for it. x is clamped to where all of this is 0 or 1; NaN stays.
 */
FN k_normal_law_t k_normal_law(float x)
{
	float z = k_abs(x);
	float w, t, p, square;
	k_normal_law_t r;

	z = z < 16.0f ? z : 16.0f;
	square = z * z;
	w = 1.0f / (z + 3.5f);
	t = (z - 3.5f) * w;
	r.bell = k_exp_to_64(-0.5f * square);
	r.bell = FMA(r.bell, -0.5f * FMA(z, z, -square), r.bell);
	p = FMA(0x1.d041a8p-14f, t, 0x1.ba637ap-12f);
	p = FMA(p, t, -0x1.037e02p-11f);
	p = FMA(p, t, -0x1.a03192p-9f);
	p = FMA(p, t, 0x1.a98886p-8f);
	p = FMA(p, t, 0x1.1d2faep-6f);
	p = FMA(p, t, -0x1.db5a6p-4f);
	p = FMA(p, t, 0x1.42fecep-2f);
	p = FMA(p, t, -0x1.21915p-1f);
	p = FMA(p, t, 0x1.7d241ap-1f) * w;
	r.below = x < 0.0f ? r.bell * p : FMA(-r.bell, p, 1.0f);
	r.below = x != x ? x : r.below;
	r.bell = x != x ? x : r.bell;
	return r;
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

/* 32 bits of 2/pi, from bit 32 k of 26 zeros and then its binary digits. */
#define K_TWO_OVER_PI(k)                                                                           \
	((k) == 0 ? 0x00000028u :                                                                  \
	 (k) == 1 ? 0xbe60db93u :                                                                  \
	 (k) == 2 ? 0x91054a7fu :                                                                  \
	 (k) == 3 ? 0x09d5f47du :                                                                  \
	 (k) == 4 ? 0x4d377036u :                                                                  \
	 (k) == 5 ? 0xd8a5664fu :                                                                  \
	 (k) == 6 ? 0x10e4107fu :                                                                  \
		    0x9458eaf7u)

/* Word first + k of it; first is 0..4. */
#define K_TWO_OVER_PI_FROM(first, k)                                                               \
	((first) < 1 ? K_TWO_OVER_PI(k) :                                                          \
	 (first) < 2 ? K_TWO_OVER_PI((k) + 1) :                                                    \
	 (first) < 3 ? K_TWO_OVER_PI((k) + 2) :                                                    \
	 (first) < 4 ? K_TWO_OVER_PI((k) + 3) :                                                    \
		       K_TWO_OVER_PI((k) + 4))

/*
 * sin(x + quarters pi/2) for every finite x: quarters = 0 sine, 1 cosine. x is m 2^e with an
 * integer m of 24 bits, so of x 2/pi only those digits of 2/pi matter that m 2^e brings below 4
 * (Payne and Hanek, 1983): 96 of them, times m, give quarter turns in 2 bits and the rest of a turn
 * in 62, which leaves 30 bits of the worst argument. The rest times pi/2 is the argument's r + low,
 * with |r| <= pi/4. Below 1/2 the argument is x itself. sin(+-0) = +-0; +-inf gives NaN, NaN stays.
 */
FN float k_sin(float x, int32_t quarters)
{
	uint32_t bits = (uint32_t)BITS_OF(x) & 0x7fffffffu;
	int small = bits < 0x3f000000u;
	uint32_t m = (bits & 0x7fffffu) | 0x800000u;
	int32_t from = small ? 0 : (int32_t)(bits >> 23) - 126; /* first of the 96 digits */
	int32_t word = from >> 5, shift = from & 31;
	uint32_t w0 = K_TWO_OVER_PI_FROM(word, 0), w1 = K_TWO_OVER_PI_FROM(word, 1);
	uint32_t w2 = K_TWO_OVER_PI_FROM(word, 2), w3 = K_TWO_OVER_PI_FROM(word, 3);
	uint32_t y0 = (uint32_t)(((((uint64_t)w0 << 32) | w1) << shift) >> 32);
	uint32_t y1 = (uint32_t)(((((uint64_t)w1 << 32) | w2) << shift) >> 32);
	uint32_t y2 = (uint32_t)(((((uint64_t)w2 << 32) | w3) << shift) >> 32);
	uint64_t turns = ((uint64_t)(m * y0) << 32) + (uint64_t)m * y1 + (((uint64_t)m * y2) >> 32);
	int32_t i = (int32_t)((turns >> 62) + ((turns >> 61) & 1));
	uint64_t rest = turns << 2; /* of a quarter turn, in 2^-64; as a signed number */
	float a = (float)((int32_t)(uint32_t)(rest >> 32) >> 8) * 0x1p-24f; /* rest = a + b + c */
	float b = (float)(int32_t)((rest >> 16) & 0xffffffu) * 0x1p-48f;
	float c = (float)(int32_t)(rest & 0xffffu) * 0x1p-64f;
	float high = a + b;
	float r = high * 0x1.921fb6p+0f;
	float low = FMA(high, 0x1.921fb6p+0f, -r);
	float z, s, one;

	low = FMA((b - (high - a)) + c, 0x1.921fb6p+0f, low);
	low = FMA(high, -0x1.777a5cp-25f, low);
	/* the sign of x turns the argument round */
	r = small ? x : BITS_OF(x) < 0 ? -r : r;
	low = small ? 0.0f : BITS_OF(x) < 0 ? -low : low;
	i = (small ? 0 : BITS_OF(x) < 0 ? -i : i) + quarters;
	z = r * r;
	s = FMA(0x1.7ccf10p-19f, z, -0x1.a05ba8p-13f);
	s = FMA(s, z, 0x1.111176p-7f);
	s = FMA(s, z, -0x1.555556p-3f);
	s = r + FMA(s, r * z, low);
	c = FMA(0x1.99e0e4p-16f, z, -0x1.6c0c1ap-10f);
	c = FMA(c, z, 0x1.55554ap-5f);
	c = FMA(c, z * z, -r * low);
	one = FMA(-0.5f, z, 1.0f);
	c = one + (FMA(-0.5f, z, 1.0f - one) + c);
	s = (i & 1) ? c : s;
	s = (i & 2) ? -s : s;
	s = x == 0.0f && quarters == 0 ? x : s;
	s = bits >= 0x7f800000u ? FLOAT_OF(0x7fc00000) : s;
	return x != x ? x : s;
}

/* 1 / sqrt(x), two correctly rounded operations. +-0 gives +-inf, x < 0 NaN, inf 0. */
FN float k_rsqrt(float x)
{
	return 1.0f / SQRT(x);
}

/* A number as the unevaluated sum of two floats: 48 bits where there is no double. */
typedef struct k_pair {
	float hi, lo;
} k_pair_t;

FN k_pair_t k_pair_mul(k_pair_t a, k_pair_t b)
{
	float p = a.hi * b.hi;
	float e = FMA(a.hi, b.hi, -p);
	k_pair_t r;

	e = e + (a.hi * b.lo + a.lo * b.hi);
	r.hi = p + e;
	r.lo = e - (r.hi - p);
	return r;
}

/* v = m 2^e, m in [1, 2): returns e and makes v m. v is in [1/8, 8). */
FN int32_t k_exponent_out(k_pair_t *v)
{
	int32_t e = (BITS_OF(v->hi) >> 23) - 127;
	float s = FLOAT_OF((127 - e) << 23);

	v->hi = v->hi * s;
	v->lo = v->lo * s;
	return e;
}

/*
 * x^n by squaring, from the lowest bit of |n|: powers of the mantissa on pairs, the exponents
 * counted apart, so that nothing over- or underflows on the way; for n < 0 one over that; the power
 * of two in two factors at last. x^0 = 1 for every x, NaN too; 0 and inf as the limits say, NaN
 * stays.
 */
FN float k_powi(float x, int32_t n)
{
	uint32_t count = n < 0 ? 0u - (uint32_t)n : (uint32_t)n;
	float a = k_abs(x);
	int tiny = a < 0x1p-126f;
	int regular = a > 0.0f && a < FLOAT_OF(0x7f800000);
	int32_t bits = BITS_OF(tiny ? a * 0x1p24f : a);
	int32_t be = (bits >> 23) - (tiny ? 127 + 24 : 127);
	int32_t e, low;
	k_pair_t r, b;
	float y;

	b.hi = FLOAT_OF((bits & 0x7fffff) | 0x3f800000);
	b.lo = 0.0f;
	r.hi = 1.0f;
	r.lo = 0.0f;
	e = 0;
	for (uint32_t left = count; left; left >>= 1) {
		if (left & 1) {
			r = k_pair_mul(r, b);
			e += be + k_exponent_out(&r);
		}
		b = k_pair_mul(b, b);
		be = 2 * be + k_exponent_out(&b);
		/* far beyond what is left of a float, and no overflow of the sum */
		be = MIN_OF(MAX_OF(be, -0x100000), 0x100000);
	}
	y = 1.0f / r.hi;
	y = n < 0 ? FMA(y, FMA(-r.hi, y, 1.0f) - r.lo * y, y) : r.hi;
	e = n < 0 ? -e : e;
	e = MIN_OF(MAX_OF(e, -250), 250);
	low = e >> 1;
	y = y * FLOAT_OF((low + 127) << 23) * FLOAT_OF((e - low + 127) << 23);
	y = regular ? y : (a == 0.0f) == (n > 0) ? 0.0f : FLOAT_OF(0x7f800000);
	y = (count & 1) ? k_with_sign(y, x) : y;
	y = x != x ? x : y;
	return n == 0 ? 1.0f : y;
}

#endif
