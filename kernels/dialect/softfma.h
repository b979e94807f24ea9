/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fused multiply-add where the instruction set has none (x86-64 baseline): a*b + c with one
 * rounding, equal to fmaf for all finite and infinite inputs and NaN where fmaf gives NaN
 * (subnormal and overflowing results included).
 *
 * The product of two floats is exact in double. The sum p + c is rounded to odd: TwoSum gives the
 * sum and its error; an inexact sum is cut towards zero and its last bit set. Rounding such a value
 * of 53 bits to the 24 (or fewer) of a float is then the same as rounding the exact sum once.
 * Plain arithmetic without branches, so that the compiler vectorises loops over it. Needs
 * -ffp-contract=off, rounding to nearest and no flushing of subnormals.
 */
#ifndef SRT_KERNELS_DIALECT_SOFTFMA_H
#define SRT_KERNELS_DIALECT_SOFTFMA_H

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#ifdef __FAST_MATH__
#error "the numeric contract (docs/numerics.md) forbids -ffast-math"
#endif

static inline float srt_softfma(float a, float b, float c)
{
	double p = (double)a * (double)b;
	double d = (double)c;
	double s = p + d;
	double t = s - p;
	double e = (p - (s - t)) + (d - t); /* p + d = s + e; NaN if s is not finite */
	double q = e * s;                   /* the sign alone counts: cannot under- or overflow */
	int64_t bits;

	memcpy(&bits, &s, sizeof(bits));
	bits += q < 0.0 ? -1 : 0; /* |exact| < |s|: towards zero */
	bits |= (q < 0.0 ? 1 : 0) | (q > 0.0 ? 1 : 0);
	memcpy(&s, &bits, sizeof(s));
	return (float)s;
}

#if defined(__SSE2__)
/* p + c rounded to odd, two lanes. */
static inline __m128d srt_softfma_odd(__m128d p, __m128d c)
{
	__m128d s = _mm_add_pd(p, c);
	__m128d t = _mm_sub_pd(s, p);
	__m128d e = _mm_add_pd(_mm_sub_pd(p, _mm_sub_pd(s, t)), _mm_sub_pd(c, t));
	__m128d q = _mm_mul_pd(e, s);
	__m128i below = _mm_castpd_si128(_mm_cmplt_pd(q, _mm_setzero_pd()));
	__m128i above = _mm_castpd_si128(_mm_cmpgt_pd(q, _mm_setzero_pd()));
	__m128i bits = _mm_add_epi64(_mm_castpd_si128(s), below);

	bits = _mm_or_si128(bits, _mm_srli_epi64(_mm_or_si128(below, above), 63));
	return _mm_castsi128_pd(bits);
}

/* Four lanes of srt_softfma. */
static inline __m128 srt_softfma4(__m128 a, __m128 b, __m128 c)
{
	__m128d p0 = _mm_mul_pd(_mm_cvtps_pd(a), _mm_cvtps_pd(b));
	__m128d p1 =
		_mm_mul_pd(_mm_cvtps_pd(_mm_movehl_ps(a, a)), _mm_cvtps_pd(_mm_movehl_ps(b, b)));
	__m128d s0 = srt_softfma_odd(p0, _mm_cvtps_pd(c));
	__m128d s1 = srt_softfma_odd(p1, _mm_cvtps_pd(_mm_movehl_ps(c, c)));

	return _mm_movelh_ps(_mm_cvtpd_ps(s0), _mm_cvtpd_ps(s1));
}
#endif

#endif
