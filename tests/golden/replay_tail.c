/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The end of a 16-bit tensor in torch's optimizer loops (replay.h). torch takes 32 elements at a
 * time and what is left one by one, and there it rounds the product in `y + alpha * x` to 16 bits,
 * which its vectors and our kernels do not; every other operation is rounded alike. So the steps
 * are written here once more, plainly, with either rounding: with the one they must give what was
 * recorded, with the other what the kernels gave.
 */
#include "config.h"

#include <math.h>

#include "tests/golden/replay.h"
#include "tests/harness/half.h"

static float rounded(const replay_tail_t *t, float v)
{
	return half_round(t->dtype, v);
}

/* y + alpha * x */
static float add_product(const replay_tail_t *t, int by_torch, float y, double alpha, float x)
{
	float a = rounded(t, (float)alpha);

	return rounded(t, by_torch ? y + rounded(t, a * x) : fmaf(a, x, y));
}

static void sgd(const replay_tail_t *t, int by_torch, replay_element_t *e, float g, int step)
{
	float m = g;

	if (t->decay != 0.0)
		g = m = add_product(t, by_torch, g, t->decay, e->p);
	if (t->momentum != 0.0) {
		if (step > 1) {
			m = rounded(t, (float)t->momentum * e->m);
			m = add_product(t, by_torch, m, 1.0 - t->dampening, g);
		}
		e->m = m;
		g = t->nesterov ? add_product(t, by_torch, g, t->momentum, m) : m;
	}
	e->p = add_product(t, by_torch, e->p, -t->lr, g);
}

static void adam(const replay_tail_t *t, int by_torch, replay_element_t *e, float g, int step)
{
	double bias1 = 1.0 - pow(t->beta1, step), bias2 = sqrt(1.0 - pow(t->beta2, step));
	float v;

	if (t->decoupled)
		e->p = rounded(t, (float)(1.0 - t->lr * t->decay) * e->p);
	else if (t->decay != 0.0)
		g = add_product(t, by_torch, g, t->decay, e->p);
	e->m = rounded(t, fmaf((float)(1.0 - t->beta1), g - e->m, e->m));
	e->v = rounded(t, (float)t->beta2 * e->v);
	e->v = rounded(t, e->v + (float)(1.0 - t->beta2) * g * g);
	e->top = e->v > e->top || e->v != e->v ? e->v : e->top;
	v = rounded(t, sqrtf(t->amsgrad ? e->top : e->v));
	v = rounded(t, rounded(t, v / (float)bias2) + (float)t->eps);
	e->p = rounded(t, e->p + (float)(-t->lr / bias1) * e->m / v);
}

void replay_tail_step(replay_tail_t *t, const float *grad, int step)
{
	for (size_t i = 0; i < t->n; i++) {
		float g = t->maximize ? -grad[i] : grad[i];

		for (int by_torch = 0; by_torch < 2; by_torch++) {
			replay_element_t *e = &(by_torch ? t->recorded : t->ours)[i];

			(t->is_sgd ? sgd : adam)(t, by_torch, e, g, step);
		}
	}
}
