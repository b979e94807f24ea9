/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernels of Muon: bits against a plain reference, on a table with gaps and a parameter that is
 * not used, and the steps in which nothing may happen. Products and norms are other kernels'.
 */
#include "runtime/ops/step.h"
#include "tests/kernels/kernel_check.h"

#define NPARAMS 4

static srt_dtype_t dtype; /* of the case */

/* The tables of a step, and the flat buffers: update, gradient or parameter, momentum. */
typedef struct flat {
	int64_t n;
	srt_k_step_state_t state;
	srt_k_param_state_t params[NPARAMS];
	srt_k_segment_t segments[NPARAMS];
	srt_k_group_t groups[2];
	float *update, *values, *momentum;
} flat_t;

/* Parameter 1, of the segment before the last, is not used. */
static void flat_make(flat_t *f, int found_inf)
{
	static const int64_t sizes[NPARAMS] = { 3, 4097, 0, 2049 };
	int64_t at = 2;

	memset(f, 0, sizeof(*f));
	f->state = (srt_k_step_state_t){ .lr = 0.01f, .clip_coef = 0.75f, .step = 3 };
	f->state.found_inf = found_inf ? 1.0f : 0.0f;
	f->groups[0] = (srt_k_group_t){ 1.0f, 0.1f };
	f->groups[1] = (srt_k_group_t){ 0.5f, 0.0f };
	for (int i = 0; i < NPARAMS; i++) {
		f->segments[i] = (srt_k_segment_t){ at, sizes[i], i % 2, NPARAMS - 1 - i };
		f->params[i] = (srt_k_param_state_t){ i != 3, 3, 1.0f, 1.0f };
		at += sizes[i] + (i == 1 ? 2500 : 0);
	}
	f->n = at;
	f->update = kc_floats(at, kc_mild);
	f->values = kc_floats(at, kc_mild);
	f->momentum = kc_floats(at, kc_mild);
	for (int64_t i = 0; i < at; i += 7) { /* momenta that vanish */
		f->momentum[i] = 0x1p-121f;
		f->values[i] = 0.0f;
	}
	kc_round(dtype, f->update, at);
}

static void flat_free(flat_t *f)
{
	free(f->update);
	free(f->values);
	free(f->momentum);
}

static void flat_tables(flat_t *f)
{
	kc_in_struct(&f->state, sizeof(f->state));
	kc_in_struct(f->params, sizeof(f->params));
	kc_in_struct(f->segments, sizeof(f->segments));
	kc_in_struct(f->groups, sizeof(f->groups));
}

/* The segment whose parameter is stepped and that has element i; NULL: none. */
static const srt_k_segment_t *find_stepped(const flat_t *f, int64_t i)
{
	for (int s = 0; s < NPARAMS; s++) {
		const srt_k_segment_t *segment = &f->segments[s];

		if (i >= segment->offset && i < segment->offset + segment->nelem)
			return f->state.found_inf == 0.0f && f->params[segment->param].used ?
				       segment :
				       NULL;
	}
	return NULL;
}

static float lerp(float start, float end, float weight)
{
	return weight < 0.5f ? fmaf(weight, end - start, start) :
			       fmaf(weight - 1.0f, end - start, end);
}

static void test_update(float momentum, int nesterov, int found_inf)
{
	flat_t f;
	srt_k_muon_t args = { .nsegments = NPARAMS,
			      .momentum = momentum,
			      .weight = 1.0f - momentum,
			      .nesterov = nesterov };
	float *update, *mean;

	flat_make(&f, found_inf);
	args.nelem = f.n;
	update = kc_floats(f.n, NULL);
	mean = kc_floats(f.n, NULL);
	for (int64_t i = 0; i < f.n; i++) {
		const float g = f.values[i] * f.state.clip_coef;

		update[i] = f.update[i];
		mean[i] = f.momentum[i];
		if (find_stepped(&f, i) == NULL)
			continue;
		mean[i] = lerp(mean[i], g, args.weight);
		update[i] = nesterov ? lerp(g, mean[i], momentum) : mean[i];
		mean[i] = fabsf(mean[i]) < 0x1p-120f ? 0.0f : mean[i];
	}
	kc_begin_as(dtype, SRT_K_MUON_UPDATE, &args, found_inf ? "found inf" : "step");
	kc_out(f.update, update, f.n);
	kc_in(f.values, (size_t)f.n * sizeof(float));
	kc_out_floats(f.momentum, mean, f.n);
	flat_tables(&f);
	kc_run();
	free(update);
	free(mean);
	flat_free(&f);
}

static void test_step(float ratio, int found_inf)
{
	flat_t f;
	srt_k_muon_t args = { .nsegments = NPARAMS, .ratio = ratio };
	float *want;

	flat_make(&f, found_inf);
	args.nelem = f.n;
	want = kc_floats(f.n, NULL);
	for (int64_t i = 0; i < f.n; i++) {
		const srt_k_segment_t *segment = find_stepped(&f, i);
		const float p = f.values[i];
		float lr, decay;

		want[i] = p;
		if (segment == NULL)
			continue;
		lr = f.state.lr * f.groups[segment->group].lr_scale;
		decay = lr * f.groups[segment->group].weight_decay;
		want[i] = fmaf(-(lr * ratio), f.update[i], p - decay * p);
	}
	kc_begin_as(dtype, SRT_K_MUON_STEP, &args, found_inf ? "found inf" : "step");
	kc_out_floats(f.values, want, f.n);
	kc_in_t(f.update, f.n);
	flat_tables(&f);
	kc_run();
	free(want);
	flat_free(&f);
}

/* eps: below or above the norm. */
static void test_scale(float norm, float eps)
{
	const srt_k_elem_t args = { .nelem = 5001, .value = eps };
	float *x = kc_floats(args.nelem, kc_mild), *want = kc_floats(args.nelem, NULL);
	const float divisor = fmaxf(half_round(dtype, norm), eps);

	kc_round(dtype, x, args.nelem);
	for (int64_t i = 0; i < args.nelem; i++)
		want[i] = half_round(dtype, x[i] / divisor);
	kc_begin_as(dtype, SRT_K_MUON_SCALE, &args, "scale");
	kc_out_floats(NULL, want, args.nelem);
	kc_in_t(x, args.nelem);
	kc_in(&norm, sizeof(norm));
	kc_run();
	free(x);
	free(want);
}

static void test_combine(float value)
{
	const srt_k_elem_t args = { .nelem = 5001, .value = value };
	float *y = kc_floats(args.nelem, kc_mild), *s = kc_floats(args.nelem, kc_mild);
	float *want = kc_floats(args.nelem, NULL);

	for (int64_t i = 0; i < args.nelem; i++)
		want[i] = half_round(SRT_BF16, fmaf(value, y[i], s[i]));
	kc_begin(SRT_K_MUON_COMBINE, &args, "combine");
	kc_out(y, want, args.nelem);
	kc_in(s, (size_t)args.nelem * sizeof(float));
	kc_run();
	free(y);
	free(s);
	free(want);
}

int main(void)
{
	for (int d = 0; d < 3; d++) {
		dtype = (const srt_dtype_t[]){ SRT_F32, SRT_F16, SRT_BF16 }[d];
		for (int form = 0; form < 8; form++)
			test_update(form & 1 ? 0.95f : 0.375f, form >> 1 & 1, form >> 2);
		test_step(1.5f, 0);
		test_step(1.5f, 1);
		test_scale(17.3f, 1e-7f);
		test_scale(0.0f, 1e-3f);
	}
	test_combine(-4.775f);
	test_combine(3.4445f);
	return kc_done();
}
