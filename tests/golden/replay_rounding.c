/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Steps of parameters that are stored in 16 bits (replay.h). At the end of a tensor, or of a rank's
 * shard, torch's optimizers round once more than our kernels (replay_tail.c), and in a model as
 * small as those of the cases most tensors are all end. So both ways are computed here from the
 * values before the step: the engine must have the bits of the one, and goes on with the other.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/golden/replay.h"
#include "tests/harness/half.h"

/* What a parameter's step starts from, on all ranks, widened; absent ones are NULL. */
struct replay_before {
	float *p, *g, *m, *v;
};

static bool is_half(srt_param_t *p)
{
	return test_local(p, SRT_PARAM_VALUE).dtype != SRT_F32 && srt_param_requires_grad(p);
}

/* The unsharded tensor, on every rank; NULL if there is none. */
static srt_status_t get_full(replay_t *r, srt_param_t *p, srt_param_what_t what, float **full)
{
	const size_t n = (size_t)srt_param_nelem(p);
	const srt_dtype_t dtype = test_local(p, SRT_PARAM_VALUE).dtype;
	void *stored = srt_calloc(n + 1, sizeof(**full), "a tensor");
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	*full = srt_calloc(n + 1, sizeof(**full), "a tensor");
	if (stored != NULL && *full != NULL)
		status = srt_param_get(p, what, stored, r->stream);
	for (size_t i = 0; i < n && status == SRT_OK; i++)
		(*full)[i] = half_get(dtype, stored, i);
	free(stored);
	if (status == SRT_OK)
		return SRT_OK;
	free(*full);
	*full = NULL;
	return status == SRT_ERR_NOT_FOUND ? SRT_OK : status;
}

srt_status_t replay_rounding_begin(replay_t *r)
{
	size_t n = json_array_size(json_object_get(r->golden->json, "params"));
	srt_param_t *p;

	replay_rounding_free(r);
	r->before = srt_calloc(n + 1, sizeof(*r->before), "values before a step");
	if (r->before == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; (p = replay_nth(r, i)) != NULL; i++) {
		struct replay_before *b = &r->before[i];

		if (!is_half(p))
			continue;
		SRT_TRY(get_full(r, p, SRT_PARAM_GRAD, &b->g));
		SRT_TRY(get_full(r, p, SRT_PARAM_VALUE, &b->p));
		SRT_TRY(get_full(r, p, SRT_PARAM_STATE0, &b->m));
		SRT_TRY(get_full(r, p, SRT_PARAM_STATE1, &b->v));
	}
	return SRT_OK;
}

void replay_rounding_free(replay_t *r)
{
	size_t n = json_array_size(json_object_get(r->golden->json, "params"));

	for (size_t i = 0; r->before != NULL && i < n; i++) {
		free(r->before[i].p);
		free(r->before[i].g);
		free(r->before[i].m);
		free(r->before[i].v);
	}
	free(r->before);
	r->before = NULL;
}

static replay_tail_t start_tail(const replay_t *r, srt_dtype_t dtype)
{
	const json_t *o = json_object_get(r->golden->json, "optimizer");
	const json_t *betas = json_object_get(o, "betas");
	const char *name = golden_text(o, "name");

	return (replay_tail_t){
		.dtype = dtype,
		.is_sgd = !strcmp(name, "SGD"),
		.decoupled = !strcmp(name, "AdamW"),
		.nesterov = golden_is_set(o, "nesterov"),
		.lr = golden_number(o, "lr", 0),
		.decay = golden_number(o, "weight_decay", 0),
		.momentum = golden_number(o, "momentum", 0),
		.dampening = golden_number(o, "dampening", 0),
		.beta1 = json_number_value(json_array_get(betas, 0)),
		.beta2 = json_number_value(json_array_get(betas, 1)),
		.eps = golden_number(o, "eps", 0),
	};
}

static bool is_same(float a, float b)
{
	return a == b || (isnan(a) && isnan(b));
}

/* The step of n elements from `first` on: p and m have what the engine made of them, and get what
 * torch makes of them. */
static void step_elements(replay_t *r, const char *name, replay_tail_t *t,
			  const struct replay_before *b, int64_t first, int64_t n, int step,
			  float *p, float *m)
{
	t->n = (size_t)n;
	for (size_t i = 0; i < t->n; i++) {
		size_t at = (size_t)first + i;

		t->ours[i] = (replay_element_t){ .p = b->p[at],
						 .m = b->m != NULL ? b->m[at] : 0,
						 .v = b->v != NULL ? b->v[at] : 0 };
		t->recorded[i] = t->ours[i];
	}
	replay_tail_step(t, b->g + first, step);
	for (size_t i = 0; i < t->n; i++) {
		size_t at = (size_t)first + i;

		verdict_exact(r->verdict,
			      is_same(p[at], t->ours[i].p) &&
				      (m == NULL || is_same(m[at], t->ours[i].m)),
			      "step %d made %s [%zu] %.9g, not %.9g", step, name, at, (double)p[at],
			      (double)t->ours[i].p);
		p[at] = t->recorded[i].p;
		if (m != NULL)
			m[at] = t->recorded[i].m;
	}
}

/* The ends of a parameter's shards in the recorded run. */
static void step_ends(replay_t *r, srt_param_t *param, const struct replay_before *b, int step,
		      float *p, float *m)
{
	const int nshards = golden_nshards(r->golden); /* rank k has the k-th */
	replay_tail_t tail = start_tail(r, test_local(param, SRT_PARAM_VALUE).dtype);

	for (int k = 0; k < nshards; k++) {
		int64_t first, n, end;

		golden_shard(r->golden, srt_param_name(param), k, &first, &n);
		end = n % REPLAY_TAIL_ALIGN;
		step_elements(r, srt_param_name(param), &tail, b, first + n - end, end, step, p, m);
	}
}

srt_status_t replay_rounding_end(replay_t *r, int step)
{
	srt_param_t *param;

	for (size_t i = 0; (param = replay_nth(r, i)) != NULL; i++) {
		const struct replay_before *b = &r->before[i];
		size_t n = (size_t)srt_param_nelem(param);
		float *p = NULL, *m = NULL;
		srt_status_t status;

		if (!is_half(param) || b->g == NULL)
			continue;
		status = get_full(r, param, SRT_PARAM_VALUE, &p);
		if (status == SRT_OK)
			status = get_full(r, param, SRT_PARAM_STATE0, &m);
		if (status == SRT_OK) {
			step_ends(r, param, b, step, p, m);
			status = replay_set_param(r, param, p, n);
		}
		if (status == SRT_OK && m != NULL)
			status = replay_set_local(r, param, SRT_PARAM_STATE0, m);
		free(p);
		free(m);
		SRT_TRY(status);
	}
	return SRT_OK;
}
