/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Smooth activations of one element and their derivatives, for the elementwise kernels and for
 * gated ones. Bounds and special values: the rows of kernels.def.
 */
#ifndef SRT_KERNELS_DIALECT_ACTIVATION_H
#define SRT_KERNELS_DIALECT_ACTIVATION_H

#include "kernels/dialect/math.h"

/* x * sigmoid(x); silu(-inf) = NaN (-inf * 0), as in torch */
FN float k_silu(float x)
{
	float e = k_exp_to_64(-k_abs(x));

	return (x < 0.0f ? x * e : x) / (1.0f + e);
}

/*
 * The derivative: s + x s (1 - s), s = sigmoid(x); 1 - s = sigmoid(-x), which does not cancel. x is
 * clamped to where the product has long been 0, so that the ends are 0 and 1.
 */
FN float k_silu_slope(float x)
{
	float c = k_clamp(x, -128.0f, 128.0f);
	float e = k_exp_to_64(-k_abs(c));
	float w = 1.0f / (1.0f + e);
	float s = c < 0.0f ? e * w : w;
	float rest = c < 0.0f ? w : e * w;
	float d = FMA(c * s, rest, s);

	return x != x ? x : d;
}

/*
 * GELU in the tanh form, by the identity (1 + tanh u) / 2 = 1 / (1 + exp(-2u)), which keeps the
 * relative error small where 1 + tanh u cancels. u = sqrt(2/pi) (x + 0.044715 x^3). x is clamped
 * inside u, to where the function has reached x or 0 and exp(-2u) has no subnormal result but
 * already an infinite one. gelu(-inf) = NaN (inf / inf), as in torch.
 */
#define K_GELU_CLAMP(x) k_clamp(x, -10.0625f, 8.0f)
#define K_GELU_2A 0x1.988454p+0f /* 2 sqrt(2/pi) */
#define K_GELU_B 0x1.6e4e26p-5f  /* 0.044715 */
#define K_GELU_3B 0x1.12ba9ep-3f /* 3 * 0.044715 */

/* exp(-2u) / 4 of a clamped x */
FN float k_gelu_exp(float c)
{
	k_exp_parts_t e = k_exp_split(-K_GELU_2A * FMA(K_GELU_B * c * c, c, c), -2.0f);

	return FLOAT_OF(k_add_exponent(e.p_bits, e.n_bits));
}

FN float k_gelu_tanh(float x)
{
	return x / FMA(4.0f, k_gelu_exp(K_GELU_CLAMP(x)), 1.0f);
}

/* The derivative: s + x s (1 - s) 2u', s = 1 / (1 + exp(-2u)), 1 - s = exp(-2u) s */
FN float k_gelu_tanh_slope(float x)
{
	float c = K_GELU_CLAMP(x);
	float e = 4.0f * k_gelu_exp(c);
	float s = 1.0f / (1.0f + e);
	float du2 = K_GELU_2A * FMA(K_GELU_3B * c, c, 1.0f);
	/* exp(-2u) overflows to inf only where s is 0: the product is then 0 as well */
	float rest = s > 0.0f ? e * s : 1.0f;
	float d = FMA(c * (s * rest), du2, s);

	return x != x ? x : d;
}

/* x P(x), P the normal law: (1 + erf(x / sqrt 2)) / 2. gelu(-inf) = NaN as in torch */
FN float k_gelu_erf(float x)
{
	return x * k_normal_law(x).below;
}

/* The derivative of x P(x): P(x) + x p(x), p = exp(-x^2 / 2) / sqrt(2 pi); 0 and 1 at the ends. */
FN float k_gelu_erf_slope(float x)
{
	float c = k_clamp(x, -16.0f, 16.0f);
	k_normal_law_t law = k_normal_law(c);
	float d = FMA(c, law.bell * 0x1.988454p-2f, law.below);

	return x != x ? x : d;
}

#endif
