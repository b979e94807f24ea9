/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The step state and the optimizers: bits against a plain reference on awkward segment tables,
 * values against torch's formulas in double, and the cases where nothing may happen.
 */
#include "runtime/ops/step.h"
#include "tests/kernels/kernel_check.h"

#include <shardrt/ops.h>

static srt_dtype_t dtype; /* of the case */

static srt_k_step_t step_args(int64_t nparams, double beta1, double beta2, float max_norm)
{
	srt_k_step_t a = { .nparams = nparams, .max_norm = max_norm };

	srt_kernel_split(beta1, &a.beta1_hi, &a.beta1_lo);
	srt_kernel_split(beta2, &a.beta2_hi, &a.beta2_lo);
	return a;
}

static void run(srt_kernel_id_t kernel, const void *args, unsigned char **places)
{
	srt_kernel_cpu(kernel, SRT_F32, SRT_ISA_BASELINE)(places, args, 0,
							  srt_kernel_grid(kernel, args));
}

static void advance(const srt_k_step_t *args, srt_k_step_state_t *state,
		    srt_k_param_state_t *params, const float *norm)
{
	unsigned char *places[3];

	places[0] = (unsigned char *)state;
	places[1] = (unsigned char *)params;
	places[2] = (unsigned char *)(uintptr_t)norm;
	run(SRT_K_STEP_ADVANCE, args, places);
}

/* ---- step state ------------------------------------------------------------------------- */
static void test_bias(void)
{
	static const int32_t steps[] = { 1, 2, 3, 10, 1000, 123457, 0x7ffffffe };
	static const double betas[] = { 0.9, 0.999, 0.95, 0.0, 0.99999 };

	for (size_t b = 0; b < 5; b++) {
		for (size_t s = 0; s < 7; s++) {
			srt_k_step_state_t state = { .clip_coef = 0.0f };
			srt_k_param_state_t p[2] = { { 1, steps[s] - 1, 0.0f, 0.0f },
						     { 0, 5, 6.0f, 7.0f } };
			srt_k_step_t args = step_args(2, betas[b], betas[0], 0.0f);
			double want1 = -expm1((double)steps[s] * log(betas[b]));
			double want2 = -expm1((double)steps[s] * log(betas[0]));

			advance(&args, &state, p, NULL);
			CHECK_INT(p[0].step, steps[s]);
			CHECK_MSG(fabs((double)p[0].bias1 - want1) <= want1 * 0x1.1p-24,
				  "1 - %g^%d is %.9g, exact %.9g", betas[b], steps[s],
				  (double)p[0].bias1, want1);
			CHECK(fabs((double)p[0].bias2 - want2) <= want2 * 0x1.1p-24);
			CHECK(p[1].step == 5 && p[1].bias1 == 6.0f && p[1].bias2 == 7.0f);
			CHECK_INT(state.step, 1);
		}
	}
}

/* Step t of 50, 10 of which are the warm-up, from 1e-3 down to 1e-4. */
static double schedule_at(srt_schedule_t schedule, int decay_steps, int t)
{
	double decay = schedule == SRT_SCHEDULE_STABLE && decay_steps < 40 ? decay_steps : 40;

	if (t < 10)
		return 1e-3 * t / 10;
	if (schedule == SRT_SCHEDULE_CONSTANT)
		return 1e-3;
	if (t >= 50)
		return 1e-4;
	if (schedule == SRT_SCHEDULE_COSINE)
		return 1e-4 + 0.5 * 9e-4 * (1.0 + cos(M_PI * (t - 10) / 40.0));
	return 50 - t >= decay ? 1e-3 : 1e-4 + 9e-4 * (50 - t) / decay;
}

static void test_schedule(srt_schedule_t schedule, int decay_steps)
{
	srt_k_step_state_t state = { .base_lr = 1e-3f,
				     .min_lr = 1e-4f,
				     .warmup = 10,
				     .lr_steps = 50,
				     .schedule = (int32_t)schedule,
				     .decay_steps = decay_steps };
	srt_k_step_t args = step_args(0, 0.9, 0.999, 0.0f);

	for (int t = 1; t <= 60; t++) {
		double want = schedule_at(schedule, decay_steps, t);

		advance(&args, &state, NULL, NULL);
		CHECK_INT(state.step, t);
		CHECK_MSG(fabs((double)state.lr - want) < 2e-10,
			  "schedule %d, step %d: lr %.9g, expected %.9g", (int)schedule, t,
			  (double)state.lr, want);
		CHECK(t < 10 || want != 1e-3 || state.lr == 1e-3f);
		CHECK(t < 50 || want != 1e-4 || state.lr == 1e-4f);
	}
	state = (srt_k_step_state_t){ .base_lr = 0.5f, .schedule = (int32_t)schedule };
	advance(&args, &state, NULL, NULL);
	CHECK(state.lr == 0.5f);
}

static void check_lr(float lr, float want)
{
	CHECK_MSG(lr == want, "lr %a, expected %a", (double)lr, (double)want);
}

/* Bits of the lines: (float)left / decay, FMA; and of the cosine, as version 1 has them. */
static void test_schedule_bits(void)
{
	static const float cosine[] = { 0x1.36a45p-12f,  0x1.23def4p-12f, 0x1.037cbcp-12f,
					0x1.b1b766p-13f, 0x1.50d52ep-13f, 0x1.dccba6p-14f,
					0x1.294b26p-14f, 0x1.33a62cp-15f, 0x1.ea741ap-17f };
	const float base = 3e-4f, min = 7e-6f;

	for (int t = 1; t < 100; t++) {
		srt_k_step_state_t line = { .step = t - 1,
					    .base_lr = base,
					    .min_lr = min,
					    .warmup = 3,
					    .lr_steps = 100,
					    .schedule = SRT_SCHEDULE_LINEAR };
		srt_k_step_state_t stable = line, curve = line;
		srt_k_step_t args = step_args(0, 0.9, 0.999, 0.0f);
		float rising = base * ((float)t / 3.0f);
		float want = fmaf(base - min, (float)(100 - t) / 97.0f, min);

		stable.schedule = SRT_SCHEDULE_STABLE;
		stable.decay_steps = 31;
		curve.schedule = SRT_SCHEDULE_COSINE;
		advance(&args, &line, NULL, NULL);
		advance(&args, &stable, NULL, NULL);
		advance(&args, &curve, NULL, NULL);
		check_lr(line.lr, t < 3 ? rising : t == 3 ? base : want);
		want = fmaf(base - min, (float)(100 - t) / 31.0f, min);
		check_lr(stable.lr, t < 3 ? rising : t <= 69 ? base : want);
		if (t % 10 == 0)
			check_lr(curve.lr, cosine[t / 10 - 1]);
	}
}

static void test_clip(void)
{
	static const struct {
		float norm, max_norm, coef;
	} cases[] = { { 2.0f, 1.0f, 1.0f / (2.0f + 1e-6f) },
		      { 0.5f, 1.0f, 1.0f },
		      { 3.0f, 0.0f, 1.0f },
		      { INFINITY, 1.0f, 0.0f },
		      { 0.0f, 1.0f, 1.0f },
		      { NAN, 1.0f, NAN } };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		srt_k_step_state_t state = { .lr = 3.0f };
		srt_k_step_t args = step_args(0, 0.9, 0.999, cases[i].max_norm);

		advance(&args, &state, NULL, &cases[i].norm);
		CHECK_BITS(&state.clip_coef, &cases[i].coef, 1);
		CHECK_BITS(&state.grad_norm, &cases[i].norm, 1);
	}
}

static void test_found_inf(void)
{
	srt_k_step_state_t state = { .step = 4, .lr = 3.0f, .found_inf = 1.0f, .base_lr = 9.0f };
	srt_k_param_state_t p = { 1, 7, 0.5f, 0.25f };
	srt_k_step_t args = step_args(1, 0.9, 0.999, 0.0f);

	advance(&args, &state, &p, NULL);
	CHECK(state.step == 4 && state.lr == 3.0f);
	CHECK_INT(state.skipped, 1);
	CHECK(p.step == 7 && p.bias1 == 0.5f && p.bias2 == 0.25f);
}

/* ---- optimizers: bits ------------------------------------------------------------------- */
#define NPARAMS 6

typedef struct flat {
	int64_t n;
	srt_k_step_state_t state;
	srt_k_param_state_t params[NPARAMS];
	srt_k_segment_t segments[NPARAMS];
	srt_k_group_t groups[2];
	float *x[6], *want[6]; /* param, grad, m, v, vmax, copy */
	int is_master, grad_is_t;
} flat_t;

/* Rounds as what is stored: to dtype, or for masters to a float. */
static float r(const flat_t *f, float v)
{
	return f->is_master ? v : half_round(dtype, v);
}

/* Segments of many sizes with gaps; parameter 2 is not used, 3 is in its first step. */
static void flat_make(flat_t *f, int is_master, int grad_is_t)
{
	static const int64_t sizes[NPARAMS] = { 1, 4097, 0, 63, 2048, 5000 };
	int64_t at = 3;

	memset(f, 0, sizeof(*f));
	f->is_master = is_master;
	f->grad_is_t = grad_is_t;
	f->state = (srt_k_step_state_t){ .step = 9, .lr = 0.01f, .clip_coef = 0.75f };
	f->groups[0] = (srt_k_group_t){ 1.0f, 0.1f };
	f->groups[1] = (srt_k_group_t){ 0.5f, 0.0f };
	for (int i = 0; i < NPARAMS; i++) {
		f->segments[i] = (srt_k_segment_t){ at, sizes[i], i % 2, NPARAMS - 1 - i };
		f->params[i] = (srt_k_param_state_t){ i != 2, i == 3 ? 1 : 5, 0.4f, 0.01f };
		at += sizes[i] + (i == 1 ? 2500 : i == 3 ? 1 : 0);
	}
	f->n = at;
	for (int k = 0; k < 6; k++) {
		f->x[k] = kc_floats(f->n, kc_mild);
		f->want[k] = kc_floats(f->n, NULL);
		for (int64_t i = 0; k >= 3 && i < f->n; i++)
			f->x[k][i] = fabsf(f->x[k][i]);
		for (int64_t i = 5; k == 4 && i < f->n;
		     i += 11) /* a maximum that is NaN stays so */
			f->x[k][i] = NAN;
		for (int64_t i = 0; k >= 2 && i < f->n; i += 7) /* moments that vanish */
			f->x[k][i] = 0x1p-121f;
		for (int64_t i = 0; k == 1 && i < f->n; i += 7)
			f->x[k][i] = 0.0f;
		for (int64_t i = 0; i < f->n; i++)
			if (k == 1 ? grad_is_t : !is_master || k == 5)
				f->x[k][i] = half_round(dtype, f->x[k][i]);
		memcpy(f->want[k], f->x[k], (size_t)f->n * sizeof(float));
	}
}

static void flat_free(flat_t *f)
{
	for (int k = 0; k < 6; k++) {
		free(f->x[k]);
		free(f->want[k]);
	}
}

static float moment(float m)
{
	return fabsf(m) < 0x1p-120f ? 0.0f : m;
}

static void sgd_one(flat_t *f, const srt_k_sgd_t *a, const srt_k_segment_t *s, int64_t i,
		    int with_momentum)
{
	float lr = f->state.lr * f->groups[s->group].lr_scale;
	float decay = f->groups[s->group].weight_decay;
	float w = f->x[0][i], g = f->x[1][i], m = f->x[2][i];

	g = r(f, (a->maximize ? -g : g) * f->state.clip_coef);
	if (decay != 0.0f)
		g = r(f, fmaf(r(f, decay), w, g));
	if (with_momentum) {
		m = f->params[s->param].step == 1 ?
			    g :
			    r(f, fmaf(r(f, a->undampened), g, r(f, a->momentum * m)));
		g = a->nesterov ? r(f, fmaf(r(f, a->momentum), m, g)) : m;
		f->want[2][i] = r(f, moment(m));
	}
	f->want[0][i] = r(f, fmaf(-r(f, lr), g, w));
	f->want[5][i] = half_round(dtype, f->want[0][i]);
}

static void adam_one(flat_t *f, const srt_k_adam_t *a, const srt_k_segment_t *s, int64_t i,
		     int amsgrad)
{
	float lr = f->state.lr * f->groups[s->group].lr_scale;
	float decay = f->groups[s->group].weight_decay;
	float w = f->x[0][i], g = f->x[1][i], m = f->x[2][i], v = f->x[3][i], top = f->x[4][i];

	g = r(f, (a->maximize ? -g : g) * f->state.clip_coef);
	if (a->decoupled)
		w = f->is_master || dtype == SRT_F32 ? w - lr * decay * w :
						       r(f, (1.0f - lr * decay) * w);
	else if (decay != 0.0f)
		g = r(f, fmaf(r(f, decay), w, g));
	m = r(f, fmaf(a->weight1, g - m, m));
	v = r(f, r(f, a->beta2 * v) + a->weight2 * g * g);
	f->want[2][i] = r(f, moment(m));
	f->want[3][i] = r(f, moment(v));
	if (amsgrad) {
		v = v > top || v != v ? v : top;
		f->want[4][i] = r(f, moment(v));
	}
	v = r(f, r(f, r(f, sqrtf(v)) / sqrtf(f->params[s->param].bias2)) + a->eps);
	f->want[0][i] = r(f, w - lr / f->params[s->param].bias1 * m / v);
	f->want[5][i] = half_round(dtype, f->want[0][i]);
}

/* A place of parameters or moments: k of x. */
static void flat_out(const flat_t *f, int k)
{
	if (f->is_master && k != 5)
		kc_out_floats(f->x[k], f->want[k], f->n);
	else
		kc_out(f->x[k], f->want[k], f->n);
}

static void flat_grad(const flat_t *f)
{
	if (f->grad_is_t)
		kc_in_t(f->x[1], f->n);
	else
		kc_in(f->x[1], (size_t)f->n * sizeof(float));
}

static void flat_tables(flat_t *f)
{
	kc_in_struct(&f->state, sizeof(f->state));
	kc_in_struct(f->params, sizeof(f->params));
	kc_in_struct(f->segments, sizeof(f->segments));
	kc_in_struct(f->groups, sizeof(f->groups));
}

static void test_sgd(int with_momentum, int nesterov, int found_inf, int maximize, int is_master,
		     int grad_is_t)
{
	flat_t f;
	srt_k_sgd_t args = { .nsegments = NPARAMS,
			     .momentum = 0.9f,
			     .undampened = nesterov ? 1.0f : 0.5f,
			     .nesterov = nesterov,
			     .maximize = maximize,
			     .grad_is_f32 = !grad_is_t };

	flat_make(&f, is_master, grad_is_t);
	f.state.found_inf = found_inf ? 1.0f : 0.0f;
	args.nelem = f.n;
	for (int s = 0; s < NPARAMS && !found_inf; s++)
		for (int64_t i = 0; i < f.segments[s].nelem; i++)
			if (f.params[f.segments[s].param].used)
				sgd_one(&f, &args, &f.segments[s], f.segments[s].offset + i,
					with_momentum);
	kc_begin_as(dtype, is_master ? SRT_K_SGD_MASTER : SRT_K_SGD, &args,
		    found_inf ? "found inf" : "step");
	flat_out(&f, 0);
	flat_grad(&f);
	if (with_momentum)
		flat_out(&f, 2);
	else
		kc_absent();
	flat_tables(&f);
	if (is_master)
		flat_out(&f, 5);
	kc_run();
	flat_free(&f);
}

static void test_adam(int decoupled, int found_inf, int amsgrad, int maximize, int is_master,
		      int grad_is_t)
{
	flat_t f;
	srt_k_adam_t args = { .nsegments = NPARAMS,
			      .beta2 = 0.999f,
			      .weight1 = (float)(1.0 - 0.9),
			      .weight2 = (float)(1.0 - 0.999),
			      .eps = 1e-8f,
			      .decoupled = decoupled,
			      .maximize = maximize,
			      .grad_is_f32 = !grad_is_t };

	flat_make(&f, is_master, grad_is_t);
	f.state.found_inf = found_inf ? 1.0f : 0.0f;
	args.nelem = f.n;
	for (int s = 0; s < NPARAMS && !found_inf; s++)
		for (int64_t i = 0; i < f.segments[s].nelem; i++)
			if (f.params[f.segments[s].param].used)
				adam_one(&f, &args, &f.segments[s], f.segments[s].offset + i,
					 amsgrad);
	kc_begin_as(dtype, is_master ? SRT_K_ADAM_MASTER : SRT_K_ADAM, &args,
		    found_inf ? "found inf" : "step");
	flat_out(&f, 0);
	flat_grad(&f);
	flat_out(&f, 2);
	flat_out(&f, 3);
	flat_tables(&f);
	if (amsgrad)
		flat_out(&f, 4);
	else
		kc_absent();
	if (is_master)
		flat_out(&f, 5);
	kc_run();
	flat_free(&f);
}

/* ---- optimizers: values over steps, in double ---------------------------------------------- */
/* One weight over 20 steps as torch computes it; the kernel must stay within a few units of the
 * last place. */
static void test_adam_trace(int decoupled, int amsgrad, int maximize)
{
	enum { STEPS = 20 };
	srt_k_step_t step = step_args(1, 0.9, 0.999, 0.0f);
	srt_k_adam_t args = { .nelem = 1,
			      .nsegments = 1,
			      .beta2 = (float)0.999,
			      .weight1 = (float)(1.0 - 0.9),
			      .weight2 = (float)(1.0 - 0.999),
			      .eps = 1e-8f,
			      .decoupled = decoupled,
			      .maximize = maximize };
	srt_k_step_state_t state = { .base_lr = 1e-2f };
	srt_k_param_state_t param = { .used = 1 };
	srt_k_segment_t segment = { 0, 1, 0, 0 };
	srt_k_group_t group = { 1.0f, 0.1f };
	float p = 0.7f, g, m = 0.0f, v = 0.0f, vmax = 0.0f;
	double dp = (double)p, dm = 0.0, dv = 0.0, dmax = 0.0;
	unsigned char *places[9] = { (unsigned char *)&p,
				     (unsigned char *)&g,
				     (unsigned char *)&m,
				     (unsigned char *)&v,
				     (unsigned char *)&state,
				     (unsigned char *)&param,
				     (unsigned char *)&segment,
				     (unsigned char *)&group,
				     amsgrad ? (unsigned char *)&vmax : NULL };

	for (int t = 1; t <= STEPS; t++) {
		double dg;

		g = t > STEPS / 2 ? 0.1f * kc_mild() : kc_mild(); /* v falls under its maximum */
		dg = maximize ? -(double)g : (double)g;
		advance(&step, &state, &param, NULL);
		run(SRT_K_ADAM, &args, places);
		if (decoupled)
			dp -= 1e-2 * 0.1 * dp;
		else
			dg += 0.1 * dp;
		dm += 0.1 * (dg - dm);
		dv = 0.999 * dv + 0.001 * dg * dg;
		dmax = amsgrad && dmax > dv ? dmax : dv;
		dp -= 1e-2 / (1.0 - pow(0.9, t)) * dm /
		      (sqrt(dmax) / sqrt(1.0 - pow(0.999, t)) + 1e-8);
		CHECK_MSG(fabs((double)p - dp) < 1e-6 * fabs(dp) &&
				  fabs((double)v - dv) < 1e-6 * dv,
			  "step %d: p %.9g, v %.9g, expected %.9g, %.9g", t, (double)p, (double)v,
			  dp, dv);
	}
}

int main(void)
{
	test_bias();
	for (int schedule = SRT_SCHEDULE_COSINE; schedule <= SRT_SCHEDULE_CONSTANT; schedule++)
		for (int decay = 0; decay <= 45; decay += 15)
			test_schedule((srt_schedule_t)schedule, decay);
	test_schedule_bits();
	test_clip();
	test_found_inf();
	for (int d = 0; d < 3; d++) {
		dtype = (const srt_dtype_t[]){ SRT_F32, SRT_F16, SRT_BF16 }[d];
		for (int form = 0; form < 16; form++)
			test_sgd(form & 1, form >> 1 & 1, form >> 2 & 1, form >> 3, 0, 1);
		for (int form = 0; form < 16; form++)
			test_adam(form & 1, form >> 1 & 1, form >> 2 & 1, form >> 3, 0, 1);
		for (int form = 0; form < 8; form++)
			test_sgd(form & 1, form >> 1 & 1, form == 7, form == 3, 1, form >> 2);
		for (int form = 0; form < 8; form++)
			test_adam(form & 1, form == 7, form >> 1 & 1, form == 3, 1, form >> 2);
	}
	dtype = SRT_F32;
	for (int form = 0; form < 8; form++)
		test_adam_trace(form & 1, form >> 1 & 1, form >> 2);
	return kc_done();
}
