/* SPDX-License-Identifier: BSD-3-Clause */
/* An element's step by the rules of torch.optim: what optim.k and adam8.k share. */
#ifndef SRT_KERNELS_DIALECT_ADAM_H
#define SRT_KERNELS_DIALECT_ADAM_H

#include "kernels/dialect/dialect.h"

/* Moments below 2^-120 are stored as 0: they would stick as subnormals for ever, and slow. */
#define K_MOMENT(m) ((m) < 0x1p-120f && (m) > -0x1p-120f ? 0.0f : (m))

/* What the elements from <= i < to of a segment share. */
typedef struct k_update {
	int64_t from, to;
	float clip, lr, decay;
	int fresh;                /* SGD: the parameter's first step */
	float shrink, step, root; /* Adam */
} k_update_t;

FN k_update_t k_factors(GLOBAL const srt_k_step_state_t *state,
			GLOBAL const srt_k_param_state_t *param, GLOBAL const srt_k_group_t *group,
			int maximize, int decoupled)
{
	float decay = group->weight_decay;
	k_update_t u;

	u.from = u.to = 0;
	u.clip = maximize ? -state->clip_coef : state->clip_coef;
	u.lr = state->lr * group->lr_scale;
	u.decay = decoupled ? 0.0f : decay;
	u.fresh = param->step == 1;
	u.shrink = decoupled ? u.lr * decay : 0.0f;
	u.step = u.lr / param->bias1;
	u.root = SQRT(param->bias2);
	return u;
}

/* An element: weight, gradient, moments (SGD has one). */
typedef struct k_element {
	float w, g, m, v;
} k_element_t;
FN k_element_t k_element(float w, float g, float m, float v)
{
	k_element_t e = { w, g, m, v };

	return e;
}

/*
 * v rounded to T if `rounds`, a constant: K_ROUNDS for tensors of T, 0 with masters. Besides what
 * is stored, torch rounds the factors of its additions (decay, learning rate of SGD ...), but
 * neither those of its products nor those of Adam's last line.
 */
#define K_ROUNDS (!T_IS_F32)
#define K_STORED(v) k_stored(v, rounds)
FN float k_stored(float v, int rounds)
{
	return rounds ? ROUND(v) : v;
}
#if T_IS_F32
#define K_IF(c, a, b) ((c) ? (a) : (b))
#else
#define K_IF(c, a, b) FLOAT_OF(k_select(c, BITS_OF(a), BITS_OF(b)))
#endif

/* g = grad * clip, or -grad * clip to maximize (+ decay * p) */
FN float k_gradient(k_update_t u, float w, float g, int rounds)
{
	g = K_STORED(g * u.clip);
	return K_IF(u.decay != 0.0f, K_STORED(FMA(K_STORED(u.decay), w, g)), g);
}

/*
 * Adam, AdamW (decoupled). After k_gradient(), w = p:
 * AdamW: w = w - (lr * decay) * w; Adam: g = g + decay * w
 * m = m + (1 - beta1) * (g - m)
 * v = beta2 * v + (1 - beta2) * g * g
 */
FN k_element_t k_adam(srt_k_adam_t a, k_update_t u, k_element_t e, int rounds)
{
	float g = k_gradient(u, e.w, e.g, rounds);

	/* in 16 bits by the factor: an infinite w stays */
	e.w = rounds ? ROUND((1.0f - u.shrink) * e.w) : e.w - u.shrink * e.w;
	e.m = K_STORED(FMA(a.weight1, g - e.m, e.m));
	e.v = K_STORED(K_STORED(a.beta2 * e.v) + a.weight2 * g * g);
	return e;
}

/*
 * p = w - (lr / bias1) * m / (sqrt(v) / sqrt(bias2) + eps)
 * With vmax (amsgrad): vmax = max(vmax, v), which replaces v.
 */
FN float k_adam_weight(srt_k_adam_t a, k_update_t u, k_element_t e, float v, int rounds)
{
	v = K_STORED(K_STORED(SQRT(v)) / u.root);
	return e.w - u.step * e.m / K_STORED(v + a.eps);
}

#endif
