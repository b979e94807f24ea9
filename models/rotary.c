/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frequencies and tables of rotary position embeddings, in double and rounded to float once, so
 * nearly every number is the correctly rounded one; but exponents and angles are in fp32, as in
 * pretraining by transformers. Own functions instead of the math library's,
 * whose bits differ between machines; all run in the default floating-point environment.
 */
#include <shardrt/models/rotary.h>

#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shardrt/shardrt.h>

#include "models/try.h"

/* ln 2 and pi / 2 in parts: the product of all but the last one with a whole number up to 2^21 or
 * 2^24 is exact. */
#define LN2_HIGH 0x1.62e42feep-1
#define LN2_LOW 0x1.a39ef35793c76p-33
#define HALF_PI_HIGH 0x1.921fb54p+0
#define HALF_PI_MIDDLE 0x1.10b4611p-30
#define HALF_PI_LOW 0x1.4c4c6628b80dcp-59
#define ONE_OVER_LN2 0x1.71547652b82fep+0
#define TWO_OVER_PI 0x1.45f306dc9c883p-1
#define TWO_PI 0x1.921fb54442d18p+2

/* ---- functions of a double --------------------------------------------------------------- */

/* ln x of a normal x > 0: x = m 2^n with m in [1, 2), s = (m - 1) / (m + 1), ln m = 2 (s + s^3 / 3
 * + s^5 / 5 + ...). s is up to 1/3: 20 terms. */
static double log_of(double x)
{
	uint64_t bits;
	double n, s, sum = 0.0;

	memcpy(&bits, &x, sizeof(bits));
	n = (double)((int64_t)(bits >> 52) - 1023);
	bits = (bits & (((uint64_t)1 << 52) - 1)) | (uint64_t)1023 << 52;
	memcpy(&x, &bits, sizeof(x));
	s = (x - 1.0) / (x + 1.0);
	for (int k = 19; k >= 0; k--)
		sum = sum * s * s + 1.0 / (double)(2 * k + 1);
	return n * LN2_HIGH + (n * LN2_LOW + 2.0 * s * sum);
}

/* e^x where the result is normal: x = n ln 2 + r, |r| up to ln 2 / 2, by 15 terms of the series. */
static double exp_of(double x)
{
	const int64_t n = (int64_t)(x * ONE_OVER_LN2 + (x < 0.0 ? -0.5 : 0.5));
	const double r = (x - (double)n * LN2_HIGH) - (double)n * LN2_LOW;
	const uint64_t bits = (uint64_t)(n + 1023) << 52;
	double sum = 1.0, scale;

	for (int k = 15; k >= 1; k--)
		sum = 1.0 + sum * r / (double)k;
	memcpy(&scale, &bits, sizeof(scale));
	return sum * scale;
}

/* Sine and cosine of 0 <= x < 2^24: x = n pi / 2 + r, |r| up to pi / 4, by the series of r. */
static void sin_cos_of(double x, double *sin, double *cos)
{
	const int64_t n = (int64_t)(x * TWO_OVER_PI + 0.5);
	const double r = ((x - (double)n * HALF_PI_HIGH) - (double)n * HALF_PI_MIDDLE) -
			 (double)n * HALF_PI_LOW;
	double s = 1.0, c = 1.0, t;

	for (int k = 18; k >= 2; k -= 2) {
		s = 1.0 - s * r * r / (double)(k * (k + 1));
		c = 1.0 - c * r * r / (double)(k * (k - 1));
	}
	s = s * r;
	if (n & 1) {
		t = s;
		s = c;
		c = -t;
	}
	*sin = n & 2 ? -s : s;
	*cos = n & 2 ? -c : c;
}

/* ---- frequencies and tables ---------------------------------------------------------------- */

static double scale_frequency(const srt_rope_t *rope, double frequency)
{
	const double scaled = frequency / (double)rope->factor;
	const double waves = (double)rope->old_context * frequency / TWO_PI;
	double share;

	if (rope->kind == SRT_ROPE_NONE)
		return frequency;
	if (rope->kind == SRT_ROPE_LINEAR || waves < (double)rope->low)
		return scaled;
	if (waves > (double)rope->high)
		return frequency;
	share = (waves - (double)rope->low) / ((double)rope->high - (double)rope->low);
	return (1.0 - share) * scaled + share * frequency;
}

/* Not in line, so that no operation leaves the environment that is set around the call. */
static __attribute__((noinline)) void compute_frequencies(const srt_rope_t *rope, float *inv_freq)
{
	const double log_base = log_of((double)rope->base);

	for (int64_t i = 0; i < rope->dim / 2; i++) {
		const float exponent = (float)(2 * i) / (float)rope->dim;

		inv_freq[i] = (float)scale_frequency(rope, exp_of(-(double)exponent * log_base));
	}
}

static __attribute__((noinline)) void compute_tables(const float *inv_freq, int64_t n,
						     int64_t npositions, float *cos, float *sin)
{
	for (int64_t p = 0; p < npositions; p++) {
		for (int64_t i = 0; i < n; i++) {
			const float angle = (float)p * inv_freq[i];
			double s, c;

			sin_cos_of((double)angle, &s, &c);
			cos[p * n + i] = (float)c;
			sin[p * n + i] = (float)s;
		}
	}
}

/* Comparisons that a NaN fails. */
static srt_status_t check_rope(const srt_rope_t *rope)
{
	if (rope->size < sizeof(*rope))
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "rotary embedding: srt_rope_t.size is %zu, must be set by "
				      "SRT_ROPE_INIT",
				      rope->size);
	if (rope->dim < 2 || rope->dim % 2 != 0)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "rotary embedding: dim is %lld, must be even and at least 2",
				      (long long)rope->dim);
	if (!(rope->base >= 1.0f && rope->base <= 3e38f))
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "rotary embedding: base is %g, must be at least 1 and finite",
				      (double)rope->base);
	if ((unsigned)rope->kind > SRT_ROPE_LLAMA3)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "rotary embedding: kind is %d, must be a srt_rope_scaling_t",
				      (int)rope->kind);
	if (rope->kind != SRT_ROPE_NONE && !(rope->factor >= 1.0f && rope->factor <= 3e38f))
		return srt_model_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"rotary embedding: factor is %g, must be at least 1 and finite",
			(double)rope->factor);
	if (rope->kind == SRT_ROPE_LLAMA3 && !(rope->low > 0.0f && rope->low < rope->high &&
					       rope->high <= 3e38f && rope->old_context > 0))
		return srt_model_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"rotary embedding: low %g, high %g, old_context %lld: needs 0 < low "
			"< high and a context",
			(double)rope->low, (double)rope->high, (long long)rope->old_context);
	return SRT_OK;
}

srt_status_t srt_rope_inv_freq(const srt_rope_t *rope, float *inv_freq)
{
	fenv_t env;

	SRT_TRY(check_rope(rope));
	fegetenv(&env);
	fesetenv(FE_DFL_ENV);
	compute_frequencies(rope, inv_freq);
	fesetenv(&env);
	return SRT_OK;
}

srt_status_t srt_rope_tables(const srt_rope_t *rope, int64_t npositions, float *cos, float *sin)
{
	float *inv_freq;
	fenv_t env;

	SRT_TRY(check_rope(rope));
	if (npositions < 0 || npositions > SRT_ROPE_MAX_POSITIONS)
		return srt_model_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"rotary embedding: tables of %lld positions; they have at most %lld",
			(long long)npositions, (long long)SRT_ROPE_MAX_POSITIONS);
	inv_freq = malloc((size_t)(rope->dim / 2) * sizeof(*inv_freq));
	if (inv_freq == NULL)
		return srt_error_set(SRT_ERR_OUT_OF_MEMORY,
				     "no host memory for the frequencies of a rotary embedding");
	fegetenv(&env);
	fesetenv(FE_DFL_ENV);
	compute_frequencies(rope, inv_freq);
	compute_tables(inv_freq, rope->dim / 2, npositions, cos, sin);
	fesetenv(&env);
	free(inv_freq);
	return SRT_OK;
}
