/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Comparing the engine with what was recorded of a step (replay.h): gradients scaled, unscaled and
 * clipped, parameters, optimizer state, buffers, norms, dtypes, local shards, and what must be
 * absent. Full tensors are collected by all ranks together and compared on rank 0.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/engine.h"
#include "tests/golden/replay.h"
#include "tests/harness/half.h"

const json_t *replay_step_of(const replay_t *r, int s)
{
	return json_array_get(json_object_get(r->golden->json, "steps"), (size_t)s - 1);
}

/* ---- full tensors ------------------------------------------------------------------------ */

/* Collects a full tensor, widened; *full stays NULL on ranks other than 0. */
static srt_status_t collect(replay_t *r, srt_param_t *p, srt_param_what_t what, float **full)
{
	const size_t n = (size_t)srt_param_nelem(p);
	const srt_dtype_t dtype = test_local(p, SRT_PARAM_VALUE).dtype;
	void *stored = NULL;
	srt_status_t status;

	*full = NULL;
	if (srt_context_rank(r->context) == 0 || r->own != NULL) {
		stored = srt_calloc(n + 1, sizeof(**full), "a tensor");
		if (stored == NULL)
			return SRT_ERR_OUT_OF_MEMORY;
	}
	status = srt_param_get(p, what, stored, r->stream);
	if (status == SRT_OK && srt_context_rank(r->context) == 0) {
		*full = srt_calloc(n + 1, sizeof(**full), "a tensor");
		for (size_t i = 0; i < n && *full != NULL; i++)
			(*full)[i] = half_get(dtype, stored, i);
		status = *full != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
	}
	free(stored);
	return status;
}

/* Compares a full tensor times `factor` with the recorded one of this key. */
static srt_status_t compare_full(replay_t *r, const char *key, srt_param_t *p,
				 srt_param_what_t what, float factor)
{
	size_t n = (size_t)srt_param_nelem(p);
	float *got = NULL, *want = NULL;
	srt_status_t status = collect(r, p, what, &got);

	if (status == SRT_ERR_NOT_FOUND) {
		verdict_exact(r->verdict, false, "%s was recorded, but there is none", key);
		return SRT_OK;
	}
	if (status == SRT_OK)
		status = golden_floats(r->golden->expect, key, n, &want);
	if (status == SRT_OK && got != NULL) {
		for (size_t i = 0; i < n; i++)
			got[i] *= factor;
		verdict_values(r->verdict, r->golden, key, got, want, n);
	}
	free(got);
	free(want);
	return status;
}

static srt_status_t compare_optim(replay_t *r, const char *key, const char *rest, int step)
{
	char name[256];
	const char *state = strrchr(rest, '.');
	srt_param_t *p;
	float *want;

	snprintf(name, sizeof(name), "%.*s", state != NULL ? (int)(state - rest) : 0, rest);
	p = replay_find(r, name);
	if (p == NULL)
		return srt_fail(SRT_ERR_FORMAT, "'%s' names no parameter", key);
	state++;
	if (!strcmp(state, "exp_avg") || !strcmp(state, "momentum_buffer"))
		return compare_full(r, key, p, SRT_PARAM_STATE0, 1);
	if (!strcmp(state, "exp_avg_sq"))
		return compare_full(r, key, p, SRT_PARAM_STATE1, 1);
	if (strcmp(state, "step"))
		return srt_fail(SRT_ERR_FORMAT, "'%s' is an unknown optimizer state", key);
	SRT_TRY(golden_floats(r->golden->expect, key, 1, &want));
	verdict_exact(r->verdict, want[0] == (float)step, "%s: %d steps were made, recorded %g",
		      key, step, (double)want[0]);
	free(want);
	return SRT_OK;
}

/* "grad" of "step1.grad.0.weight", and what follows; false for a key of another form. */
static bool split_key(const char *key, char *kind, size_t nkind, const char **name)
{
	const char *first = strchr(key, '.'),
		   *second = first != NULL ? strchr(first + 1, '.') : NULL;

	if (second == NULL || (size_t)(second - first) > nkind)
		return false;
	snprintf(kind, nkind, "%.*s", (int)(second - first - 1), first + 1);
	*name = second + 1;
	return true;
}

static srt_status_t compare_tensor(replay_t *r, int s, const char *key, const char *kind,
				   const char *name, float factor)
{
	srt_param_t *p;

	if (!strcmp(kind, "optim"))
		return compare_optim(r, key, name, s - r->nskipped);
	p = replay_find(r, name);
	if (p == NULL)
		return srt_fail(SRT_ERR_FORMAT, "'%s' names no parameter", key);
	return compare_full(r, key, p, !strcmp(kind, "param") ? SRT_PARAM_VALUE : SRT_PARAM_GRAD,
			    factor);
}

/* ---- local shards ----------------------------------------------------------------------- */

/* The recorded rows of a parameter on this rank, of the whole tensor; false if there are none. */
static bool find_box(const replay_t *r, const char *name, int64_t *offset, int64_t *size)
{
	char rank[32];
	const json_t *box;

	snprintf(rank, sizeof(rank), "rank%d", srt_context_rank(r->context));
	box = json_object_get(json_object_get(json_object_get(r->golden->json, "shards"), rank),
			      name);
	*offset = json_integer_value(json_array_get(json_object_get(box, "offset"), 0));
	*size = json_integer_value(json_array_get(json_object_get(box, "size"), 0));
	return json_array_size(json_object_get(box, "size")) > 0;
}

/* The tolerance of a local tensor may be given for the rank. */
static void name_tolerance(const replay_t *r, const char *key, char *ranked, size_t nranked)
{
	const json_t *tolerance = json_object_get(r->golden->json, "tolerance");

	snprintf(ranked, nranked, "%s@rank%d", key, srt_context_rank(r->context));
	if (json_object_get(json_object_get(tolerance, "overrides"), ranked) == NULL)
		snprintf(ranked, nranked, "%s", key);
}

/* Compares the recorded shard with these rows of our own (all of them, if replicated). */
static srt_status_t compare_local(replay_t *r, const srt_safetensors_tensor_t *t, const char *kind,
				  const char *name)
{
	srt_param_t *p = replay_find(r, name);
	int64_t row0, nrows, begin = 0;
	srt_part_t part;
	char ranked[160];
	srt_view_t view;
	float *got = NULL, *want = NULL;
	void *stored;
	srt_status_t status;

	if (p == NULL)
		return srt_fail(SRT_ERR_FORMAT, "'%s' names no parameter", t->name);
	view = test_local(p, !strcmp(kind, "grad") ? SRT_PARAM_GRAD : SRT_PARAM_VALUE);
	SRT_TRY(replay_part(r, p, &part));
	if (t->nelem == 0)
		return SRT_OK;
	/* Elements before it in our shard: the recorded one begins there or, of ddp, in it. */
	if (find_box(r, name, &row0, &nrows))
		begin = (row0 - part.offset[0]) * ((int64_t)t->nelem / nrows);
	if (view.buffer == NULL || begin < 0 || begin + (int64_t)t->nelem > part.nelem) {
		verdict_exact(r->verdict, false, "the rank does not hold %s", t->name);
		return SRT_OK;
	}
	got = srt_calloc(t->nelem, sizeof(*got), "a shard");
	stored = srt_calloc(t->nelem, sizeof(*got), "a shard");
	status = got != NULL && stored != NULL ?
			 golden_floats(r->golden->expect_rank, t->name, t->nelem, &want) :
			 SRT_ERR_OUT_OF_MEMORY;
	view.offset += (size_t)begin * (srt_dtype_bits(view.dtype) / 8);
	if (status == SRT_OK)
		status = replay_read_local(r, stored, view,
					   t->nelem * (srt_dtype_bits(view.dtype) / 8));
	for (size_t i = 0; i < t->nelem && status == SRT_OK; i++)
		got[i] = half_get(view.dtype, stored, i);
	name_tolerance(r, t->name, ranked, sizeof(ranked));
	if (status == SRT_OK)
		verdict_values(r->verdict, r->golden, ranked, got, want, t->nelem);
	free(got);
	free(stored);
	free(want);
	return status;
}

/* ---- the tensors of a step --------------------------------------------------------------- */

/* Whether a tensor of a file is of step s and one of these kinds. */
static bool is_due(const char *key, int s, const char *kinds, char *kind, size_t nkind,
		   const char **name)
{
	char prefix[32];

	snprintf(prefix, sizeof(prefix), "step%d.", s);
	return !strncmp(key, prefix, strlen(prefix)) && split_key(key, kind, nkind, name) &&
	       golden_is_one_of(kinds, kind);
}

srt_status_t replay_compare_kinds(replay_t *r, int s, const char *kinds, float factor)
{
	const srt_safetensors_tensor_t *t;
	const char *name;
	char kind[32];

	for (size_t i = 0; (t = srt_safetensors_tensor(r->golden->expect, i)) != NULL; i++) {
		if (!is_due(t->name, s, kinds, kind, sizeof(kind), &name))
			continue;
		r->golden->seen[i] = true;
		SRT_TRY(compare_tensor(r, s, t->name, kind, name, factor));
	}
	for (size_t i = 0; r->golden->expect_rank != NULL &&
			   (t = srt_safetensors_tensor(r->golden->expect_rank, i)) != NULL;
	     i++) {
		if (!is_due(t->name, s, kinds, kind, sizeof(kind), &name))
			continue;
		r->golden->seen_rank[i] = true;
		if (!strcmp(kind, "buffer"))
			SRT_TRY(replay_buffer_compare(r, t->name, name));
		else
			SRT_TRY(compare_local(r, t, kind, name));
	}
	return SRT_OK;
}

srt_status_t replay_compare_start(replay_t *r)
{
	srt_param_t *p;

	for (size_t i = 0; (p = replay_nth(r, i)) != NULL; i++) {
		const char *name = srt_param_name(p);
		int64_t want_offset, want_size;
		srt_part_t part;

		SRT_TRY(replay_part(r, p, &part));
		/* Parameters that became 16-bit after they were wrapped are aligned as fp32. */
		if (replay_is_flat_as_recorded(r) && p->dtype == SRT_F32) {
			golden_shard(r->golden, name, srt_context_rank(r->context), &want_offset,
				     &want_size);
			verdict_exact(r->verdict,
				      part.nelem == want_size &&
					      (want_size == 0 || part.first == want_offset),
				      "%s: elements %lld+%lld, recorded %lld+%lld", name,
				      (long long)part.first, (long long)part.nelem,
				      (long long)want_offset, (long long)want_size);
		}
		if (!find_box(r, name, &want_offset, &want_size))
			continue;
		if (r->strategy != SRT_STRATEGY_DDP)
			verdict_exact(r->verdict,
				      part.offset[0] == want_offset && part.size[0] == want_size,
				      "%s: rows %lld+%lld, recorded %lld+%lld", name,
				      (long long)part.offset[0], (long long)part.size[0],
				      (long long)want_offset, (long long)want_size);
	}
	return replay_compare_kinds(r, 0, "param", 1);
}

/* ---- gradients ---------------------------------------------------------------------------- */

srt_status_t replay_compare_grads(replay_t *r, int s)
{
	const json_t *step = replay_step_of(r, s),
		     *recorded = json_object_get(r->golden->json, "recorded");
	const json_t *dtypes = json_object_get(step, "grad_dtype");
	bool is_recorded = golden_has_int(json_object_get(recorded, "grads_at"), s);
	srt_param_t *p;
	char key[256];
	float *got;

	for (size_t i = 0; (p = replay_nth(r, i)) != NULL; i++) {
		const char *name = srt_param_name(p);
		bool none = golden_has(json_object_get(step, "grad_none"), name);
		srt_view_t view = test_local(p, SRT_PARAM_GRAD);

		/* rank 0 recorded the dtypes: of FSDP1's shards it may have none */
		if (view.buffer != NULL && json_array_size(dtypes) > 0)
			verdict_exact(r->verdict, golden_has(dtypes, srt_dtype_name(view.dtype)),
				      "step %d: the gradient of %s is %s", s, name,
				      srt_dtype_name(view.dtype));
		if (!is_recorded)
			continue;
		snprintf(key, sizeof(key), "step%d.grad.%s", s, name);
		verdict_exact(r->verdict,
			      none == (srt_safetensors_find(r->golden->expect, key) == NULL),
			      "%s is neither recorded nor in grad_none", key);
		if (!none)
			continue;
		verdict_exact(r->verdict, collect(r, p, SRT_PARAM_GRAD, &got) == SRT_ERR_NOT_FOUND,
			      "%s should not exist", key);
		free(got);
	}
	return SRT_OK;
}

/* ---- after a step ------------------------------------------------------------------------- */

/* Before the first step of a parameter there is no optimizer state. */
static srt_status_t compare_absent_state(replay_t *r, int s)
{
	const json_t *recorded = json_object_get(r->golden->json, "recorded");
	srt_param_t *p;
	char key[256];
	float *got;

	if (!golden_has_int(json_object_get(recorded, "optim_at"), s))
		return SRT_OK;
	for (size_t i = 0; (p = replay_nth(r, i)) != NULL; i++) {
		const char *name = srt_param_name(p);

		snprintf(key, sizeof(key), "step%d.optim.%s.exp_avg", s, name);
		if (srt_safetensors_find(r->golden->expect, key) != NULL)
			continue;
		snprintf(key, sizeof(key), "step%d.optim.%s.momentum_buffer", s, name);
		if (srt_safetensors_find(r->golden->expect, key) != NULL)
			continue;
		/* the memory may be planned, but nothing may have come into it */
		if (collect(r, p, SRT_PARAM_STATE0, &got) != SRT_OK)
			continue;
		for (int64_t k = 0; got != NULL && k < srt_param_nelem(p); k++)
			verdict_exact(r->verdict, got[k] == 0, "%s of step %d has optimizer state",
				      name, s);
		free(got);
	}
	return SRT_OK;
}

bool replay_is_skipped(const replay_t *r, int s)
{
	const json_t *rank;
	size_t i;

	json_array_foreach(json_object_get(replay_step_of(r, s), "ranks"), i, rank)
	{
		if (golden_is_set(rank, "skipped"))
			return true;
	}
	return false;
}

srt_status_t replay_compare_step(replay_t *r, int s)
{
	const json_t *step = replay_step_of(r, s);
	const char *output = golden_text(step, "output_dtype");
	srt_step_info_t state = SRT_STEP_INFO_INIT;
	char key[64];

	r->nskipped += replay_is_skipped(r, s);
	SRT_TRY(srt_engine_get_step_info(r->engine, &state, r->stream));
	verdict_exact(r->verdict, state.step == s - r->nskipped, "step %d: %d real steps were made",
		      s, (int)state.step);
	verdict_exact(r->verdict, state.skipped == r->nskipped, "step %d: %d steps were skipped", s,
		      (int)state.skipped);
	verdict_exact(r->verdict,
		      output != NULL && !strcmp(output, srt_dtype_name(r->output_dtype)),
		      "step %d: the output is %s", s, srt_dtype_name(r->output_dtype));
	if (golden_is_set(r->golden->json, "clip")) {
		snprintf(key, sizeof(key), "step%d.grad_norm", s);
		verdict_scalar(r->verdict, r->golden, key, (double)state.grad_norm,
			       golden_scalar(json_object_get(step, "grad_norm")));
	}
	if (r->clip_in_step)
		SRT_TRY(replay_compare_kinds(r, s, "grad_clipped", state.clip_coef));
	SRT_TRY(replay_compare_kinds(r, s, "param optim buffer", 1));
	return compare_absent_state(r, s);
}
