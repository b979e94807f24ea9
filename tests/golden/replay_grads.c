/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The gradients of a step between the backward pass and the optimizer (replay.h): values that a
 * case injects into a rank's shard, and on which ranks gradients are not finite. Both are recorded
 * for the shards of the recorded run. Here an element is on the rank that owns it, or on all.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/engine.h"
#include "tests/golden/replay.h"
#include "tests/harness/half.h"

/* The elements of this rank's gradient shard. */
typedef struct local_grad {
	srt_view_t view;
	srt_dtype_t dtype;
	int64_t first, n;
} local_grad_t;

/* false: this rank has none. */
static srt_status_t find_local(const replay_t *r, srt_param_t *p, local_grad_t *local, bool *there)
{
	srt_part_t part;

	SRT_TRY(replay_part(r, p, &part));
	local->view = test_local(p, SRT_PARAM_GRAD);
	local->dtype = local->view.dtype;
	local->first = part.first;
	local->n = part.nelem;
	*there = local->view.buffer != NULL && local->n > 0;
	return SRT_OK;
}

static size_t element_nbytes(const local_grad_t *local, int64_t n)
{
	return (size_t)n * srt_dtype_bits(local->dtype) / 8;
}

/* ---- injection -------------------------------------------------------------------------- */

/* Sets the elements first .. first + n - 1 of the gradient of this rank's cell, where it has them.
 */
static srt_status_t set_elements(replay_t *r, const char *name, int64_t first, int64_t n,
				 float value)
{
	srt_param_t *p = replay_find(r, name);
	local_grad_t local;
	srt_status_t status;
	int64_t from, to;
	void *values;
	bool there;

	if (p == NULL)
		return srt_fail(SRT_ERR_FORMAT, "an injection into '%s', which does not exist",
				name);
	SRT_TRY(find_local(r, p, &local, &there));
	from = first > local.first ? first : local.first;
	to = first + n < local.first + local.n ? first + n : local.first + local.n;
	if (!there || from >= to)
		return SRT_OK;
	values = srt_calloc((size_t)(to - from), sizeof(float), "values");
	if (values == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (int64_t i = 0; i < to - from; i++)
		half_put(local.dtype, values, (size_t)i, value);
	local.view.offset += element_nbytes(&local, from - local.first);
	status = replay_write_local(r, local.view, values, element_nbytes(&local, to - from));
	free(values);
	return status;
}

/* The element of a rank's shard that local_index is, counted from its first one. */
static int64_t find_element(const golden_t *g, const char *name, int rank, const json_t *index)
{
	int64_t shape[SRT_MAX_DIMS], at = 0;

	golden_cell(g, name, rank, shape);
	for (size_t d = 0; d < json_array_size(index); d++)
		at = (d > 0 ? at * shape[d] : 0) + json_integer_value(json_array_get(index, d));
	return at;
}

/* Into one parameter, on one rank of the recorded run. */
static srt_status_t inject_param(replay_t *r, const json_t *injection, const char *name, int rank)
{
	const json_t *index = json_object_get(injection, "local_index"),
		     *value = json_object_get(injection, "value");
	float v = json_is_number(value) ? (float)json_number_value(value) :
					  strtof(json_string_value(value), NULL);
	int64_t first, n, at;

	if (golden_tensor_index(r->golden, rank) !=
	    golden_tensor_index(r->golden, srt_context_rank(r->context)))
		return SRT_OK; /* into another cell */
	golden_shard(r->golden, name, rank, &first, &n);
	if (golden_is_set(injection, "fill"))
		return set_elements(r, name, first, n, v);
	at = find_element(r->golden, name, rank, index);
	return at < n ? set_elements(r, name, first + at, 1, v) : SRT_OK;
}

/* Into this rank's shard of a flat parameter. */
static srt_status_t inject_unit(replay_t *r, const json_t *injection, const json_t *names)
{
	const float value = strtof(golden_text(injection, "value"), NULL);
	srt_status_t status = SRT_OK;
	srt_view_t shard = { 0 };
	const json_t *name;
	size_t j;

	json_array_foreach(names, j, name)
	{
		srt_param_t *p = replay_find(r, json_string_value(name));
		srt_part_t part;

		if (p == NULL)
			return srt_fail(SRT_ERR_FORMAT, "an injection into a unit without '%s'",
					json_string_value(name));
		if (j == 0)
			shard = test_unit_local(p->unit, SRT_PARAM_GRAD);
		if (shard.buffer == NULL)
			return SRT_ERR_STATE;
		SRT_TRY(replay_part(r, p, &part));
		SRT_TRY(srt_stream_sync(r->stream));
		SRT_TRY(srt_op_fill(srt_view(shard.buffer,
					     shard.offset + (size_t)part.shard_offset *
								    srt_dtype_bits(shard.dtype) / 8,
					     shard.dtype),
				    value, part.nelem, r->home));
		status = srt_stream_sync(r->home);
	}
	return status;
}

static srt_status_t inject(replay_t *r, const json_t *injection)
{
	const char *name = golden_text(injection, "param"), *unit = golden_text(injection, "unit");
	const json_t *rank, *u, *param;
	size_t i, k, j;

	json_array_foreach(json_object_get(injection, "ranks"), i, rank)
	{
		int at = (int)json_integer_value(rank);

		if (r->own != NULL && at != srt_context_rank(r->context))
			continue;
		if (name != NULL)
			SRT_TRY(inject_param(r, injection, name, at));
		json_array_foreach(json_object_get(r->golden->json, "units"), k, u)
		{
			const char *module = golden_text(u, "module");

			if (unit == NULL || module == NULL || strcmp(unit, module))
				continue;
			if (replay_is_flat_as_recorded(r)) {
				if (at == srt_context_rank(r->context))
					SRT_TRY(inject_unit(r, injection,
							    json_object_get(u, "params")));
				continue;
			}
			json_array_foreach(json_object_get(u, "params"), j, param)
			{
				SRT_TRY(inject_param(r, injection, json_string_value(param), at));
			}
		}
	}
	return SRT_OK;
}

srt_status_t replay_inject(replay_t *r, int s)
{
	const json_t *injection;
	size_t i;

	json_array_foreach(json_object_get(r->golden->json, "inject"), i, injection)
	{
		if ((int)golden_number(injection, "step", 0) == s)
			SRT_TRY(inject(r, injection));
	}
	return SRT_OK;
}

/* ---- finite gradients ------------------------------------------------------------------- */

/* Notes in any[] which ranks of the recorded run held an element of this shard that is not
 * finite. */
static srt_status_t note_nonfinite(replay_t *r, srt_param_t *p, bool *any)
{
	const int rank = srt_context_rank(r->context);
	srt_status_t status;
	local_grad_t local;
	bool there;
	void *values;

	SRT_TRY(find_local(r, p, &local, &there));
	if (!there)
		return SRT_OK;
	values = srt_calloc((size_t)local.n, sizeof(float), "a gradient");
	if (values == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = replay_read_local(r, values, local.view, element_nbytes(&local, local.n));
	for (int k = 0; k < r->golden->world_size && status == SRT_OK; k++) {
		int64_t first, n;

		if (((r->own != NULL || replay_is_ignored(r, p)) && k != rank) ||
		    golden_tensor_index(r->golden, k) != golden_tensor_index(r->golden, rank))
			continue;
		golden_shard(r->golden, srt_param_name(p), k, &first, &n);
		for (int64_t i = 0; i < local.n; i++)
			if (local.first + i >= first && local.first + i < first + n)
				any[k] |= !isfinite(half_get(local.dtype, values, (size_t)i));
	}
	free(values);
	return status;
}

srt_status_t replay_compare_finite(replay_t *r, int s)
{
	const json_t *ranks = json_object_get(replay_step_of(r, s), "ranks");
	const int world = r->golden->world_size;
	const size_t size = (size_t)world * sizeof(bool);
	bool *any = srt_calloc((size_t)world, size + 1, "flags"), *mine;
	srt_status_t status = SRT_OK;
	srt_param_t *p;

	if (any == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	mine = any + (size_t)world * (size_t)srt_context_rank(r->context);
	for (size_t i = 0; (p = replay_nth(r, i)) != NULL && status == SRT_OK; i++)
		status = note_nonfinite(r, p, mine);
	if (status == SRT_OK)
		status = srt_comm_oob_allgather(srt_context_world(r->context), mine, size, any);
	for (int k = 0; k < world && status == SRT_OK; k++) {
		bool want = golden_is_set(json_array_get(ranks, (size_t)k), "local_nonfinite_grad");
		bool got = false;

		for (int from = 0; from < world; from++)
			got |= any[from * world + k];
		verdict_exact(r->verdict, got == want, "step %d: gradients of rank %d are%s finite",
			      s, k, got ? " not" : "");
	}
	free(any);
	return status;
}
