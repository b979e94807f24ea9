/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Full parameters on demand (<shardrt/engine_values.h>).
 *
 * Each summoned unit has a record with a buffer of all its full tensors, one after the other. They
 * are gathered as for srt_param_get() (gather_full.c), on the device or into host memory. Writing
 * back is local: each rank copies its shard (values.c). What is refused meanwhile asks
 * srt_full_check() (lookup.c).
 */
#include <stdlib.h>
#include <string.h>

#include "collectives/comm.h"
#include "runtime/engine/checks/verify.h"
#include "runtime/engine/declare/declare.h"
#include "runtime/engine/step/step.h"
#include "runtime/engine/values/gather_full.h"
#include "runtime/engine/values/values.h"

#include <shardrt/engine.h>

#define ALIGN 256 /* bytes, of tensors in the buffers */

/* ---- records --------------------------------------------------------------------------- */

/* The offset in bytes of the i-th parameter's tensor in the unit's buffer; i = nparams: its end. */
static size_t offset_of(const srt_unit_t *unit, size_t i, srt_param_what_t what)
{
	size_t offset = 0;

	for (size_t k = 0; k < i; k++) {
		const srt_param_t *param = unit->params[k];

		if (what == SRT_PARAM_VALUE || !param->frozen)
			offset += (param->whole_nbytes + ALIGN - 1) / ALIGN * ALIGN;
	}
	return offset;
}

static void free_record(srt_unit_t *unit)
{
	srt_full_t *full = unit->full;

	if (full == NULL)
		return;
	unit->full = NULL;
	srt_buffer_destroy(full->values);
	srt_buffer_destroy(full->grads);
	free(full->has_grad);
	free(full);
}

void srt_full_drop(srt_engine_t *engine)
{
	for (size_t u = 0; u < engine->nunits; u++)
		free_record(engine->units[u]);
}

/* Frees the records that srt_unit_full_params_begin() of `unit` made. */
static void free_records(const srt_unit_t *unit)
{
	const srt_engine_t *engine = unit->engine;

	for (size_t u = 0; u < engine->nunits; u++) {
		if (engine->units[u]->full != NULL && engine->units[u]->full->unit == unit)
			free_record(engine->units[u]);
	}
}

static srt_status_t create_buffer(const srt_unit_t *unit, srt_param_what_t what,
				  srt_buffer_t **buffer)
{
	const srt_engine_t *engine = unit->engine;
	srt_device_t *device = engine->device;
	char name[128];

	if (unit->full->on_host)
		SRT_TRY(srt_context_host(engine->context, &device));
	snprintf(name, sizeof(name), "full %s of unit '%.80s'",
		 what == SRT_PARAM_VALUE ? "parameters" : "gradients", unit->name);
	return srt_buffer_create(device, unit->full->on_host ? SRT_MEM_PINNED : SRT_MEM_DEVICE,
				 offset_of(unit, unit->nparams, what), name, buffer);
}

static srt_status_t create_record(srt_unit_t *unit, const srt_unit_t *top,
				  const srt_full_params_options_t *options,
				  const srt_stream_t *stream)
{
	const bool has_tensors = !options->rank0_only || unit->engine->rank == 0;
	srt_full_t *full = srt_calloc(1, sizeof(*full), unit->name);

	if (full == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	unit->full = full;
	full->unit = top;
	full->stream = stream;
	full->writeback = options->writeback != 0;
	full->with_grads = options->with_grads != 0;
	full->on_host = options->offload_to_cpu != 0;
	full->has_grad = srt_calloc(unit->nparams + 1, sizeof(bool), unit->name);
	if (full->has_grad == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	if (has_tensors)
		SRT_TRY(create_buffer(unit, SRT_PARAM_VALUE, &full->values));
	if (has_tensors && full->with_grads)
		SRT_TRY(create_buffer(unit, SRT_PARAM_GRAD, &full->grads));
	return SRT_OK;
}

static srt_view_t view_of(const srt_unit_t *unit, size_t i, srt_param_what_t what)
{
	const srt_full_t *full = unit->full;

	return srt_view(what == SRT_PARAM_VALUE ? full->values : full->grads,
			offset_of(unit, i, what), unit->params[i]->dtype);
}

/* ---- the begin ------------------------------------------------------------------------- */

static bool is_covered(const srt_unit_t *unit, const srt_unit_t *top, bool recurse)
{
	while (recurse && unit != top && unit->parent != NULL)
		unit = unit->parent;
	return unit == top;
}

/* By the order of the calls alone, so the same on all ranks. */
static srt_status_t check_begin(const srt_unit_t *unit, const srt_full_params_options_t *options)
{
	static const char call[] = "srt_unit_full_params_begin";
	const srt_engine_t *engine = unit->engine;

	if (options->writeback && options->rank0_only)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: writeback with rank0_only of unit '%s': the other ranks would "
				"keep their values, so set one of the two",
				call, unit->name);
	SRT_TRY(srt_engine_require_built(engine, call));
	if (srt_unit_in_use(engine->units[0]))
		return srt_fail(SRT_ERR_STATE,
				"%s of unit '%s' inside a pass of root '%s': end the pass first",
				call, unit->name, engine->units[0]->name);
	if (engine->writes.open)
		return srt_fail(SRT_ERR_STATE,
				"%s of unit '%s' after srt_engine_write_begin(): call "
				"srt_engine_write_end() first",
				call, unit->name);
	if (options->with_grads && !engine->step.finished &&
	    (engine->step.any_backward || engine->step.nsteps == 0))
		return srt_fail(SRT_ERR_STATE,
				"%s of unit '%s' with gradients, but there are no reduced ones: "
				"call it after srt_engine_finish_backward()",
				call, unit->name);
	for (size_t u = 0; u < engine->nunits; u++) {
		const srt_unit_t *other = engine->units[u];

		if (other->full != NULL && is_covered(other, unit, options->recurse))
			return srt_fail(SRT_ERR_STATE,
					"%s of unit '%s': unit '%s' is summoned already, by that "
					"of unit '%s'",
					call, unit->name, other->name, other->full->unit->name);
	}
	return SRT_OK;
}

static srt_status_t gather(srt_unit_t *unit, size_t i, srt_param_what_t what, srt_stream_t *stream)
{
	const srt_view_t view = view_of(unit, i, what);
	srt_gather_sink_t sink = { .host_nbytes = SIZE_MAX };

	if (unit->full->on_host && view.buffer != NULL)
		sink.host = srt_view_host(view);
	else
		sink.to = view;
	return srt_param_gather(unit->params[i], what, &sink, stream);
}

static srt_status_t gather_unit(srt_unit_t *unit, srt_stream_t *stream)
{
	srt_status_t status;

	for (size_t i = 0; i < unit->nparams; i++) {
		SRT_TRY(gather(unit, i, SRT_PARAM_VALUE, stream));
		if (!unit->full->with_grads || unit->params[i]->frozen)
			continue;
		status = gather(unit, i, SRT_PARAM_GRAD, stream);
		unit->full->has_grad[i] = status == SRT_OK;
		if (status != SRT_ERR_NOT_FOUND)
			SRT_TRY(status);
	}
	return SRT_OK;
}

srt_status_t srt_unit_full_params_begin(srt_unit_t *unit, const srt_full_params_options_t *given,
					srt_stream_t *stream)
{
	srt_full_params_options_t read = SRT_FULL_PARAMS_OPTIONS_INIT;
	const srt_full_params_options_t *options = &read;
	srt_status_t status = SRT_OK;
	srt_engine_t *engine;
	uint64_t bits;
	char doing[160];

	SRT_NOT_NULL(unit);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_struct_read(&read, sizeof(read), given, "srt_full_params_options_t"));
	engine = unit->engine;
	SRT_TRY(check_begin(unit, options));
	bits = 1u | (options->recurse ? 2u : 0u) | (options->writeback ? 4u : 0u) |
	       (options->rank0_only ? 8u : 0u) | (options->offload_to_cpu ? 16u : 0u) |
	       (options->with_grads ? 32u : 0u);
	SRT_TRY(srt_verify_call(engine, SRT_ACTION_FULL, (uint32_t)unit->index, bits));
	SRT_TRY(srt_writes_before_read(engine, stream));
	for (size_t u = 0; u < engine->nunits && status == SRT_OK; u++) {
		if (is_covered(engine->units[u], unit, options->recurse))
			status = create_record(engine->units[u], unit, options, stream);
	}
	snprintf(doing, sizeof(doing), "summoning the full parameters of unit '%.80s'", unit->name);
	status = srt_comm_status_consensus(engine->comm, doing, status);
	for (size_t u = 0; u < engine->nunits && status == SRT_OK; u++) {
		if (engine->units[u]->full != NULL && engine->units[u]->full->unit == unit)
			status = gather_unit(engine->units[u], stream);
	}
	if (status != SRT_OK)
		free_records(unit);
	return status;
}

/* ---- between --------------------------------------------------------------------------- */

srt_status_t srt_param_full(srt_param_t *param, srt_param_what_t what, srt_view_t *view)
{
	const srt_unit_t *unit;
	size_t i = 0;

	SRT_NOT_NULL(param);
	SRT_NOT_NULL(view);
	unit = param->unit;
	if (what != SRT_PARAM_VALUE && what != SRT_PARAM_GRAD)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_param_full of parameter '%s': what is %d, must be "
				"SRT_PARAM_VALUE or SRT_PARAM_GRAD",
				param->name, (int)what);
	if (unit->full == NULL || (what == SRT_PARAM_GRAD && !unit->full->with_grads))
		return srt_fail(SRT_ERR_STATE,
				"the full %s of parameter '%s' is not there: call "
				"srt_unit_full_params_begin() of its unit '%s'%s first",
				what == SRT_PARAM_VALUE ? "tensor" : "gradient", param->name,
				unit->name, unit->full != NULL ? " with option with_grads" : "");
	while (unit->params[i] != param)
		i++;
	if (what == SRT_PARAM_GRAD && !unit->full->has_grad[i])
		return srt_fail(SRT_ERR_NOT_FOUND, "parameter '%s' has no gradient: %s",
				param->name,
				param->frozen ? "it is frozen" :
						"no rank had one in the last step");
	if (unit->full->values == NULL)
		return srt_fail(SRT_ERR_NOT_FOUND,
				"the full tensor of parameter '%s' is on rank 0 alone, by option "
				"rank0_only",
				param->name);
	*view = view_of(unit, i, what);
	return SRT_OK;
}

/* ---- the end --------------------------------------------------------------------------- */

/* SHARDRT_CHECK: the ranks wrote the same values. Collective; the same error on all ranks. */
static srt_status_t compare_tensor(const srt_unit_t *unit, size_t i, srt_param_what_t what,
				   srt_stream_t *stream)
{
	const srt_param_t *param = unit->params[i];
	const srt_engine_t *engine = unit->engine;
	const srt_view_t view = view_of(unit, i, what);
	uint64_t *all = srt_calloc((size_t)engine->world, sizeof(*all), param->name), mine = 0;
	void *bytes = srt_calloc(param->whole_nbytes + 1, 1, param->name);
	srt_status_t status = all == NULL || bytes == NULL ? SRT_ERR_OUT_OF_MEMORY : SRT_OK;
	char doing[160];

	snprintf(doing, sizeof(doing), "comparing what the ranks wrote to parameter '%.80s'",
		 param->name);
	if (status == SRT_OK && unit->full->on_host && param->whole_nbytes > 0)
		memcpy(bytes, srt_view_host(view), param->whole_nbytes);
	else if (status == SRT_OK && param->whole_nbytes > 0)
		status = srt_buffer_copy_to_host(bytes, view.buffer, view.offset,
						 param->whole_nbytes, stream);
	status = srt_comm_status_consensus(engine->comm, doing, status);
	if (status == SRT_OK) {
		mine = srt_hash64(0, bytes, param->whole_nbytes);
		status = srt_comm_oob_allgather_for(engine->comm, doing, &mine, sizeof(mine), all);
	}
	for (int r = 1; r < engine->world && status == SRT_OK; r++) {
		if (all[r] != all[0])
			status = srt_fail(
				SRT_ERR_MISMATCH,
				"rank %d and rank %d wrote different values to the full %s "
				"of parameter '%s', of which each keeps its shard: nothing "
				"is written back",
				srt_comm_world_rank(engine->comm, 0),
				srt_comm_world_rank(engine->comm, r),
				what == SRT_PARAM_VALUE ? "tensor" : "gradient", param->name);
	}
	free(bytes);
	free(all);
	return status;
}

/* This rank's shards of a tensor of the unit. */
static srt_status_t write_tensor(const srt_unit_t *unit, size_t i, srt_param_what_t what,
				 srt_stream_t *stream)
{
	return srt_param_set_full(unit->params[i], what, view_of(unit, i, what),
				  unit->full->on_host, stream);
}

typedef srt_status_t tensor_fn(const srt_unit_t *unit, size_t i, srt_param_what_t what,
			       srt_stream_t *stream);

/* For each tensor that is written back. Gradients of the last step are not. */
static srt_status_t for_written(const srt_unit_t *top, tensor_fn *fn, srt_stream_t *stream)
{
	const srt_engine_t *engine = top->engine;

	for (size_t u = 0; u < engine->nunits; u++) {
		const srt_unit_t *unit = engine->units[u];

		if (unit->full == NULL || unit->full->unit != top || !unit->full->writeback)
			continue;
		for (size_t i = 0; i < unit->nparams; i++) {
			SRT_TRY(fn(unit, i, SRT_PARAM_VALUE, stream));
			if (engine->step.finished && unit->full->has_grad[i])
				SRT_TRY(fn(unit, i, SRT_PARAM_GRAD, stream));
		}
	}
	return SRT_OK;
}

srt_status_t srt_unit_full_params_end(srt_unit_t *unit, srt_stream_t *stream)
{
	srt_status_t status = SRT_OK;
	srt_engine_t *engine;

	SRT_NOT_NULL(unit);
	SRT_NOT_NULL(stream);
	engine = unit->engine;
	if (unit->full == NULL || unit->full->unit != unit)
		return srt_fail(SRT_ERR_STATE,
				"srt_unit_full_params_end() of unit '%s' without "
				"srt_unit_full_params_begin() of it%s%s%s",
				unit->name,
				unit->full != NULL ? ": it is summoned by that of '" : "",
				unit->full != NULL ? unit->full->unit->name : "",
				unit->full != NULL ? "'" : "");
	if (unit->full->stream != stream)
		return srt_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"srt_unit_full_params_end() of unit '%s' with another stream than that "
			"of srt_unit_full_params_begin()",
			unit->name);
	SRT_TRY(srt_verify_call(engine, SRT_ACTION_FULL, (uint32_t)unit->index, 0));
	status = srt_stream_sync(stream); /* host memory is read below */
	if (status == SRT_OK && engine->checks.on)
		status = for_written(unit, compare_tensor, stream);
	if (status == SRT_OK)
		status = for_written(unit, write_tensor, stream);
	if (status == SRT_OK)
		status = srt_stream_sync(stream);
	free_records(unit);
	return status;
}
