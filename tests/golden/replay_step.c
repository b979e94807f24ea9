/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Comparing the engine with what was recorded of a step (replay.h): gradients before and after
 * clipping, parameters, optimizer state, norms, dtypes, local shards, and what must be absent.
 * Full tensors are collected by all ranks together and compared on rank 0.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/golden/replay.h"

/* Collects a full tensor; *full stays NULL on ranks other than 0. */
static srt_status_t collect(replay_t *r, srt_param_t *p, srt_param_what_t what, float **full)
{
	srt_status_t status;

	*full = NULL;
	if (srt_context_rank(r->context) == 0) {
		*full = srt_calloc((size_t)srt_param_nelem(p) + 1, sizeof(**full), "a tensor");
		if (!*full)
			return SRT_ERR_OUT_OF_MEMORY;
	}
	status = srt_param_get(p, what, *full, r->stream);
	if (status != SRT_OK) {
		free(*full);
		*full = NULL;
	}
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
	if (status == SRT_OK && got) {
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

	snprintf(name, sizeof(name), "%.*s", state ? (int)(state - rest) : 0, rest);
	p = srt_engine_find(r->engine, name);
	if (!p)
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

static srt_status_t compare_tensor(replay_t *r, const char *key, const srt_step_state_t *state)
{
	static const struct {
		const char *kind;
		srt_param_what_t what;
		bool clipped;
	} kinds[] = {
		{ "grad", SRT_PARAM_GRAD, false },
		{ "grad_scaled", SRT_PARAM_GRAD, false }, /* without a scaler the same */
		{ "grad_clipped", SRT_PARAM_GRAD, true },
		{ "param", SRT_PARAM_VALUE, false },
	};
	const char *kind = strchr(key, '.') + 1, *rest = strchr(kind, '.');
	size_t nkind = rest ? (size_t)(rest - kind) : 0;

	if (nkind == strlen("optim") && !strncmp(kind, "optim", nkind))
		return compare_optim(r, key, rest + 1, state->step);
	for (size_t i = 0; i < SRT_ARRAY_LEN(kinds); i++) {
		srt_param_t *p;

		if (nkind != strlen(kinds[i].kind) || strncmp(kind, kinds[i].kind, nkind))
			continue;
		p = srt_engine_find(r->engine, rest + 1);
		if (!p)
			return srt_fail(SRT_ERR_FORMAT, "'%s' names no parameter", key);
		return compare_full(r, key, p, kinds[i].what,
				    kinds[i].clipped ? state->clip_coef : 1);
	}
	return srt_fail(SRT_ERR_FORMAT, "'%s' is of an unknown kind", key);
}

/* What was not recorded must not be there: gradients, and optimizer state before a first step. */
static srt_status_t compare_absent(replay_t *r, int s, const json_t *step)
{
	const json_t *recorded = json_object_get(r->golden->json, "recorded");
	bool grads = golden_has_int(json_object_get(recorded, "grads_at"), s);
	bool optim = golden_has_int(json_object_get(recorded, "optim_at"), s);
	srt_param_t *p;
	char key[256];
	float *got;

	for (size_t i = 0; (p = srt_engine_param(r->engine, i)); i++) {
		const char *name = srt_param_name(p);
		bool none = golden_has(json_object_get(step, "grad_none"), name);

		snprintf(key, sizeof(key), "step%d.grad.%s", s, name);
		if (grads)
			verdict_exact(r->verdict,
				      none == !srt_safetensors_find(r->golden->expect, key),
				      "%s is neither recorded nor in grad_none", key);
		if (grads && none) {
			verdict_exact(r->verdict,
				      collect(r, p, SRT_PARAM_GRAD, &got) == SRT_ERR_NOT_FOUND,
				      "%s should not exist", key);
			free(got);
		}
		snprintf(key, sizeof(key), "step%d.optim.%s.exp_avg", s, name);
		if (!optim || srt_safetensors_find(r->golden->expect, key))
			continue;
		snprintf(key, sizeof(key), "step%d.optim.%s.momentum_buffer", s, name);
		if (srt_safetensors_find(r->golden->expect, key))
			continue;
		/* the memory may be planned, but nothing may have come into it */
		if (collect(r, p, SRT_PARAM_STATE0, &got) != SRT_OK)
			continue;
		for (int64_t k = 0; got && k < srt_param_nelem(p); k++)
			verdict_exact(r->verdict, got[k] == 0, "%s of step %d has optimizer state",
				      name, s);
		free(got);
	}
	return SRT_OK;
}

/* ---- local shards ----------------------------------------------------------------------- */

/* The recorded box of a parameter on this rank; false if none was recorded. */
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

/* Compares the recorded shard with these rows of our own (all of them, if replicated). */
static srt_status_t compare_local(replay_t *r, const srt_safetensors_tensor_t *t)
{
	const char *kind = strchr(t->name, '.') + 1, *rest = strchr(kind, '.');
	srt_param_t *p = rest ? srt_engine_find(r->engine, rest + 1) : NULL;
	int64_t row_offset, nrows, offset, size, nrow;
	srt_view_t view;
	float *got = NULL, *want = NULL;
	srt_status_t status;

	if (!p || !find_box(r, rest + 1, &row_offset, &nrows))
		return srt_fail(SRT_ERR_FORMAT, "'%s' has no recorded box", t->name);
	view = !strncmp(kind, "grad.", 5) ? srt_param_local(p, SRT_PARAM_GRAD) :
					    srt_param_local(p, SRT_PARAM_VALUE);
	SRT_TRY(srt_param_shard(p, srt_context_rank(r->context), &offset, &size));
	nrow = nrows > 0 ? (int64_t)t->nelem / nrows : 0;
	if (t->nelem == 0)
		return SRT_OK;
	if (!view.buffer || row_offset < offset || row_offset + nrows > offset + size) {
		verdict_exact(r->verdict, false, "the rank does not hold %s", t->name);
		return SRT_OK;
	}
	got = srt_calloc(t->nelem, sizeof(*got), "a shard");
	status = got ? golden_floats(r->golden->expect_rank, t->name, t->nelem, &want) :
		       SRT_ERR_OUT_OF_MEMORY;
	if (status == SRT_OK)
		status = srt_copy_to_host(r->stream, got, view.buffer,
					  view.offset + (size_t)((row_offset - offset) * nrow) *
								sizeof(*got),
					  t->nelem * sizeof(*got));
	if (status == SRT_OK)
		verdict_values(r->verdict, r->golden, t->name, got, want, t->nelem);
	free(got);
	free(want);
	return status;
}

/* All tensors of step s in the rank's own file. */
static srt_status_t compare_locals(replay_t *r, int s)
{
	const srt_safetensors_tensor_t *t;
	char prefix[32];

	if (!r->golden->expect_rank)
		return SRT_OK;
	snprintf(prefix, sizeof(prefix), "step%d.", s);
	for (size_t i = 0; (t = srt_safetensors_tensor(r->golden->expect_rank, i)); i++) {
		if (strncmp(t->name, prefix, strlen(prefix)))
			continue;
		r->golden->seen_rank[i] = true;
		SRT_TRY(compare_local(r, t));
	}
	return SRT_OK;
}

/* All full tensors recorded of step s. */
static srt_status_t compare_fulls(replay_t *r, int s, const srt_step_state_t *state)
{
	const srt_safetensors_tensor_t *t;
	char prefix[32];

	snprintf(prefix, sizeof(prefix), "step%d.", s);
	for (size_t i = 0; (t = srt_safetensors_tensor(r->golden->expect, i)); i++) {
		if (strncmp(t->name, prefix, strlen(prefix)))
			continue;
		r->golden->seen[i] = true;
		SRT_TRY(compare_tensor(r, t->name, state));
	}
	return SRT_OK;
}

srt_status_t replay_compare_start(replay_t *r)
{
	const srt_step_state_t before = { .clip_coef = 1 };
	srt_param_t *p;

	for (size_t i = 0; (p = srt_engine_param(r->engine, i)); i++) {
		const char *name = srt_param_name(p);
		int64_t offset, size, want_offset, want_size;

		if (!find_box(r, name, &want_offset, &want_size))
			continue;
		SRT_TRY(srt_param_shard(p, srt_context_rank(r->context), &offset, &size));
		if (r->strategy == SRT_STRATEGY_ZERO3)
			verdict_exact(r->verdict, offset == want_offset && size == want_size,
				      "%s: rows %lld+%lld, recorded %lld+%lld", name,
				      (long long)offset, (long long)size, (long long)want_offset,
				      (long long)want_size);
	}
	SRT_TRY(compare_fulls(r, 0, &before));
	return compare_locals(r, 0);
}

/* Whether a gradient of this rank's own shards is infinite or NaN. */
static srt_status_t any_nonfinite(replay_t *r, bool *any)
{
	srt_param_t *p;

	*any = false;
	for (size_t i = 0; (p = srt_engine_param(r->engine, i)); i++) {
		srt_view_t view = srt_param_local(p, SRT_PARAM_GRAD);
		int64_t offset, size, nelem = srt_param_nelem(p), shape[SRT_MAX_DIMS];
		float *values;
		srt_status_t status;

		SRT_TRY(srt_param_shard(p, srt_context_rank(r->context), &offset, &size));
		srt_param_shape(p, shape);
		nelem = shape[0] > 0 ? nelem / shape[0] * size : 0;
		if (!view.buffer || nelem == 0)
			continue;
		values = srt_calloc((size_t)nelem, sizeof(*values), "a gradient");
		if (!values)
			return SRT_ERR_OUT_OF_MEMORY;
		status = srt_copy_to_host(r->stream, values, view.buffer, view.offset,
					  (size_t)nelem * sizeof(*values));
		for (int64_t k = 0; k < nelem; k++)
			*any |= !isfinite(values[k]);
		free(values);
		SRT_TRY(status);
	}
	return SRT_OK;
}

/* What each rank recorded of itself; shards differ between strategies, the whole does not. */
static srt_status_t compare_ranks(replay_t *r, int s, const json_t *step)
{
	bool sharded = !strcmp(r->golden->reference, "fsdp2");
	int world = srt_context_world_size(r->context), rank = srt_context_rank(r->context);
	const json_t *ranks = json_object_get(step, "ranks");
	bool own = sharded == (r->strategy == SRT_STRATEGY_ZERO3), all_got = false,
	     all_want = false;
	bool *each = srt_calloc((size_t)world, sizeof(*each), "flags"), any = false;
	srt_status_t status = each ? any_nonfinite(r, &any) : SRT_ERR_OUT_OF_MEMORY;

	if (status == SRT_OK)
		status = srt_comm_oob_allgather(srt_context_world(r->context), &any, sizeof(any),
						each);
	for (int k = 0; k < world && status == SRT_OK; k++) {
		bool want = golden_is_set(json_array_get(ranks, (size_t)k), "local_nonfinite_grad");

		all_got |= each[k];
		all_want |= want;
		verdict_exact(r->verdict, !own || k != rank || each[k] == want,
			      "step %d: gradients of rank %d are%s finite", s, k,
			      want ? "" : " not");
	}
	verdict_exact(r->verdict, all_got == all_want, "step %d: gradients are%s finite", s,
		      all_want ? "" : " not");
	free(each);
	return status;
}

/* Everything computes and stores fp32 so far; what was recorded must say so too. */
static void compare_dtypes(replay_t *r, int s, const json_t *step)
{
	const char *output = golden_text(step, "output_dtype");
	const json_t *grads = json_object_get(step, "grad_dtype");
	srt_param_t *p;

	verdict_exact(r->verdict,
		      output && !strcmp(output, srt_dtype_name(srt_tensor_view(r->loss).dtype)),
		      "step %d: output dtype", s);
	for (size_t i = 0; (p = srt_engine_param(r->engine, i)); i++) {
		srt_view_t view = srt_param_local(p, SRT_PARAM_GRAD);

		if (view.buffer)
			verdict_exact(r->verdict, golden_has(grads, srt_dtype_name(view.dtype)),
				      "step %d: dtype of the gradient of %s", s, srt_param_name(p));
	}
}

srt_status_t replay_compare_step(replay_t *r, int s)
{
	const json_t *step =
		json_array_get(json_object_get(r->golden->json, "steps"), (size_t)s - 1);
	srt_step_state_t state;
	char key[64];

	SRT_TRY(srt_engine_state(r->engine, r->stream, &state));
	verdict_exact(r->verdict, state.step == s, "step %d: %d real steps were made", s,
		      (int)state.step);
	verdict_exact(r->verdict, state.found_inf == 0, "step %d was skipped", s);
	if (golden_is_set(r->golden->json, "clip")) {
		snprintf(key, sizeof(key), "step%d.grad_norm", s);
		verdict_scalar(r->verdict, r->golden, key, (double)state.grad_norm,
			       golden_scalar(json_object_get(step, "grad_norm")));
	}
	SRT_TRY(compare_fulls(r, s, &state));
	SRT_TRY(compare_locals(r, s));
	SRT_TRY(compare_absent(r, s, step));
	compare_dtypes(r, s, step);
	return compare_ranks(r, s, step);
}
