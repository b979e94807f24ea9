/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Adam with moments in 8 bits: bits against a plain reference on segments with rows of many
 * lengths; the values of the codes against the formula of bitsandbytes' create_dynamic_map().
 */
#include "kernels/dialect/codes.h"
#include "tests/kernels/kernel_check.h"

#define NSEGMENTS 6
#define FLOATS 4 /* the segment whose moments are floats */

/* ---- codes ------------------------------------------------------------------------------ */
/* Value n of decade d, 0 to 6, which has `size` of them. */
static double formula(int d, int n, int size)
{
	return pow(10.0, d - 6) * (0.1 + 0.9 * (n + 0.5) / size);
}

static void check_value(float value, double want)
{
	CHECK_MSG(fabs((double)value - want) <= 3e-7 * want, "value %.9g, formula %.9g",
		  (double)value, want);
}

static void test_values(void)
{
	int n = 0;

	for (int d = 0; d < 7; d++)
		for (int i = 0; i < 1 << d; i++, n++) {
			check_value(k_signed_value(128 + n), formula(d, i, 1 << d));
			CHECK(k_signed_value(126 - n) == -k_signed_value(128 + n));
		}
	CHECK_INT(n, 127);
	n = 0;
	for (int d = 0; d < 7; d++)
		for (int i = 0; i < 2 << d; i++)
			check_value(k_unsigned_value(1 + n++), formula(d, i, 2 << d));
	CHECK_INT(n, 254);
	CHECK(k_signed_value(127) == 0.0f && k_unsigned_value(0) == 0.0f);
	CHECK(k_signed_value(255) == 1.0f && k_unsigned_value(255) == 1.0f);
}

/* The nearest value, at the mean of two the smaller one. */
static unsigned char encode(int is_signed, float x)
{
	const float y = fabsf(x);
	const int last = !is_signed ? 255 : x < 0.0f ? 127 : 128;
	int c = 0;

	for (int i = 0; i < last; i++) {
		const float low = is_signed ? k_signed_value(127 + i) : k_unsigned_value(i);
		const float high = is_signed ? k_signed_value(128 + i) : k_unsigned_value(i + 1);

		if (y > 0.5f * (low + high))
			c = i + 1;
	}
	return (unsigned char)(!is_signed ? c : x < 0.0f ? 127 - c : 127 + c);
}

/* ---- steps ------------------------------------------------------------------------------ */
typedef struct flat {
	srt_dtype_t dtype;
	int param_is_f32, grad_is_f32;
	int64_t n, nblocks, nbytes;
	srt_k_step_state_t state;
	srt_k_param_state_t params[3];
	srt_k_segment8_t segments[NSEGMENTS];
	int64_t nelem[NSEGMENTS];
	srt_k_group_t groups[2];
	float *p, *g, *copy, *absmax;
	float *want_p, *want_copy, *want_absmax;
	unsigned char *codes[2], *want_codes[2];
} flat_t;

static void make_segments(flat_t *f)
{
	static const int64_t rows[NSEGMENTS] = { 5000, 300, 16, 500, 777, 1 };
	static const int64_t counts[NSEGMENTS] = { 1, 7, 40, 1, 1, 9 };
	int64_t offset = 3, state = 0, pairs = 2;

	for (int s = 0; s < NSEGMENTS; s++) {
		const int64_t nblocks = counts[s] * ((rows[s] + 255) / 256);

		f->nelem[s] = rows[s] * counts[s];
		f->segments[s] = (srt_k_segment8_t){ .offset = offset,
						     .row = rows[s],
						     .block = f->nblocks,
						     .state = state,
						     .absmax = s == FLOATS ? -1 : pairs,
						     .group = s % 2,
						     .param = s == 3 ? 1 : s % 2 * 2 };
		offset += f->nelem[s] + (s == 1 ? 100 : 0);
		state += (f->nelem[s] * (s == FLOATS ? 4 : 1) + 67) / 4 * 4;
		f->nblocks += nblocks;
		pairs += s == FLOATS ? 0 : nblocks;
	}
	f->n = offset;
	f->nbytes = state;
	f->absmax = kc_floats(2 * pairs, kc_mild);
	for (int64_t i = 0; i < 2 * pairs; i++)
		f->absmax[i] = fabsf(f->absmax[i]) * (i % 2 ? 0.01f : 0.1f);
	f->absmax[4] = f->absmax[5] = 0.0f; /* a block's first step */
	f->absmax[6] = 0x1p-119f;           /* moments that vanish */
	f->want_absmax = kc_floats(2 * pairs, NULL);
	memcpy(f->want_absmax, f->absmax, (size_t)(2 * pairs) * sizeof(float));
}

static void make(flat_t *f, srt_dtype_t dtype, int param_is_f32, int grad_is_f32)
{
	*f = (flat_t){ .dtype = dtype, .param_is_f32 = param_is_f32, .grad_is_f32 = grad_is_f32 };
	f->state = (srt_k_step_state_t){ .step = 9, .lr = 0.01f, .clip_coef = 0.75f };
	f->groups[0] = (srt_k_group_t){ 1.0f, 0.1f };
	f->groups[1] = (srt_k_group_t){ 0.5f, 0.0f };
	for (int i = 0; i < 3; i++)
		f->params[i] = (srt_k_param_state_t){ i != 1, 5, 0.4f, 0.01f };
	make_segments(f);
	f->p = kc_floats(f->n, kc_mild);
	f->g = kc_floats(f->n, kc_mild);
	f->copy = kc_floats(f->n, kc_mild);
	kc_round(dtype, f->copy, f->n);
	if (!param_is_f32)
		kc_round(dtype, f->p, f->n);
	for (int64_t i = 0; i < f->n; i++)
		f->g[i] = i % 5 == 0 || (i >= 515 && i < 780) ? 0.0f : f->g[i];
	f->g[f->segments[1].offset + 301] = INFINITY;
	f->g[f->segments[2].offset + 17] = NAN;
	if (!grad_is_f32)
		kc_round(dtype, f->g, f->n);
	f->want_p = kc_floats(f->n, NULL);
	f->want_copy = kc_floats(f->n, NULL);
	memcpy(f->want_p, f->p, (size_t)f->n * sizeof(float));
	memcpy(f->want_copy, f->copy, (size_t)f->n * sizeof(float));
	for (int k = 0; k < 2; k++) {
		float *floats;

		f->codes[k] = (unsigned char *)kc_floats(f->nbytes / 4 + 1, kc_mild);
		f->want_codes[k] = (unsigned char *)kc_floats(f->nbytes / 4 + 1, NULL);
		floats = (float *)(void *)(f->codes[k] + f->segments[FLOATS].state);
		for (int64_t i = 0; k == 1 && i < f->nelem[FLOATS]; i++)
			floats[i] = fabsf(floats[i]);
		memcpy(f->want_codes[k], f->codes[k], (size_t)f->nbytes);
	}
}

static void drop(const flat_t *f)
{
	free(f->p);
	free(f->g);
	free(f->copy);
	free(f->absmax);
	free(f->want_p);
	free(f->want_copy);
	free(f->want_absmax);
	for (int k = 0; k < 2; k++) {
		free(f->codes[k]);
		free(f->want_codes[k]);
	}
}

static float moment(float m)
{
	return fabsf(m) < 0x1p-120f ? 0.0f : m;
}

/* New moments of an element whose old ones are m and v; the weight is stepped. */
static void step_element(flat_t *f, const srt_k_adam_t *a, const srt_k_segment8_t *s, int64_t i,
			 float *m, float *v)
{
	float lr = f->state.lr * f->groups[s->group].lr_scale;
	float decay = f->groups[s->group].weight_decay;
	float w = f->p[s->offset + i], g = f->g[s->offset + i];

	g = (a->maximize ? -g : g) * f->state.clip_coef;
	if (a->decoupled)
		w = w - lr * decay * w;
	else if (decay != 0.0f)
		g = fmaf(decay, w, g);
	*m = fmaf(a->weight1, g - *m, *m);
	*v = a->beta2 * *v + a->weight2 * g * g;
	w = w - lr / f->params[s->param].bias1 * *m /
			(sqrtf(*v) / sqrtf(f->params[s->param].bias2) + a->eps);
	f->want_p[s->offset + i] = f->param_is_f32 ? w : half_round(f->dtype, w);
	f->want_copy[s->offset + i] = half_round(f->dtype, w);
	*m = moment(*m);
	*v = moment(*v);
}

/* Elements from <= i < to of the segment, a block: pair is the index of its maxima. */
static void step_block(flat_t *f, const srt_k_adam_t *a, const srt_k_segment8_t *s, int64_t from,
		       int64_t to, int64_t pair)
{
	float own[2][256], top[2] = { 0.0f, 0.0f };

	for (int64_t i = from; i < to; i++) {
		for (int k = 0; k < 2; k++) {
			const int c = f->codes[k][s->state + i];

			own[k][i - from] = (k == 0 ? k_signed_value(c) : k_unsigned_value(c)) *
					   f->absmax[2 * pair + k];
		}
		step_element(f, a, s, i, &own[0][i - from], &own[1][i - from]);
		for (int k = 0; k < 2; k++) {
			const float x = fabsf(own[k][i - from]);

			top[k] = x > top[k] || x != x ? x : top[k];
		}
	}
	for (int k = 0; k < 2; k++) {
		if (!(top[k] < INFINITY))
			top[k] = NAN;
		f->want_absmax[2 * pair + k] = top[k];
		for (int64_t i = from; i < to; i++) {
			const float x = top[k] > 0.0f ? own[k][i - from] / top[k] : 0.0f;

			f->want_codes[k][s->state + i] = encode(k == 0, x);
			if (k == 1 && own[1][i - from] > 0.0f)
				f->want_codes[1][s->state + i] +=
					f->want_codes[1][s->state + i] == 0;
		}
	}
}

static void step_segment(flat_t *f, const srt_k_adam_t *a, int number)
{
	const srt_k_segment8_t *s = &f->segments[number];
	int64_t pair = s->absmax;

	if (number == FLOATS) {
		float *m = (float *)(void *)(f->want_codes[0] + s->state);
		float *v = (float *)(void *)(f->want_codes[1] + s->state);

		for (int64_t i = 0; i < f->nelem[number]; i++)
			step_element(f, a, s, i, &m[i], &v[i]);
		return;
	}
	for (int64_t row = 0; row < f->nelem[number]; row += s->row)
		for (int64_t i = 0; i < s->row; i += 256, pair++)
			step_block(f, a, s, row + i, row + (i + 256 < s->row ? i + 256 : s->row),
				   pair);
}

static void test_step(srt_dtype_t dtype, int form, int found_inf)
{
	const int decoupled = form & 1, has_copy = form >> 1 & 1;
	srt_k_adam_t args = { .nsegments = NSEGMENTS,
			      .beta2 = 0.999f,
			      .weight1 = (float)(1.0 - 0.9),
			      .weight2 = (float)(1.0 - 0.999),
			      .eps = 1e-8f,
			      .decoupled = decoupled,
			      .maximize = form == 5,
			      .param_is_f32 = has_copy || form == 5,
			      .grad_is_f32 = form >> 2 & 1 };
	const srt_k_segment8_t *last;
	flat_t f;

	make(&f, dtype, args.param_is_f32, args.grad_is_f32);
	args.nelem = f.nblocks;
	f.state.found_inf = found_inf ? 1.0f : 0.0f;
	for (int s = 0; s < NSEGMENTS && !found_inf; s++)
		if (f.params[f.segments[s].param].used)
			step_segment(&f, &args, s);
	last = &f.segments[NSEGMENTS - 1];
	kc_begin_as(dtype, SRT_K_ADAM8, &args, found_inf ? "found inf" : "step");
	if (args.param_is_f32)
		kc_out_floats(f.p, f.want_p, f.n);
	else
		kc_out(f.p, f.want_p, f.n);
	if (args.grad_is_f32)
		kc_in(f.g, (size_t)f.n * sizeof(float));
	else
		kc_in_t(f.g, f.n);
	for (int k = 0; k < 2; k++)
		kc_out_bytes(f.codes[k], f.want_codes[k], (size_t)f.nbytes);
	kc_out_floats(f.absmax, f.want_absmax, 2 * (last->absmax + f.nelem[NSEGMENTS - 1]));
	kc_in_struct(&f.state, sizeof(f.state));
	kc_in_struct(f.params, sizeof(f.params));
	kc_in_struct(f.segments, sizeof(f.segments));
	kc_in_struct(f.groups, sizeof(f.groups));
	if (has_copy)
		kc_out(f.copy, f.want_copy, f.n);
	else
		kc_absent();
	kc_run();
	drop(&f);
}

int main(void)
{
	static const srt_dtype_t dtypes[] = { SRT_F32, SRT_F16, SRT_BF16 };

	test_values();
	for (int d = 0; d < 3; d++) {
		for (int form = 0; form < 8; form++)
			test_step(dtypes[d], form, 0);
		test_step(dtypes[d], 3, 1);
	}
	return kc_done();
}
