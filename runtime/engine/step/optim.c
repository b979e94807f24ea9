/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine's optimizer: a client of runtime/optimizer. Its list has this rank's shards of all
 * trainable parameters; their memory is the engine's.
 *
 * Values, gradients and states are flat arenas of one layout, so each part of them is one launch,
 * and one more for each further group that has parameters there.
 */
#include <stdlib.h>

#include "runtime/engine/layout/layout.h"
#include "runtime/engine/step/step.h"

/* The optimizer's own pass writes 16-bit copies of fp32 values. */
static bool writes_copy(const srt_unit_t *unit)
{
	return unit->types.stored == SRT_F32 && unit->types.compute != SRT_F32;
}

static srt_optim_param_t list_param(const srt_param_t *param)
{
	srt_optim_param_t listed = {
		.size = sizeof(listed),
		.name = param->name,
		.nelem = param->shard.nelem,
		.value = param->views.local,
		.grad = param->views.local_grad,
		.group = param->group,
		.weight_decay = param->weight_decay,
		.lr_scale = param->lr_scale,
		.whole_nelem = srt_state8_is_coded(param) ? param->whole_nelem : 1,
		.row_nelem = srt_state8_row(param),
	};

	if (writes_copy(param->unit))
		listed.copy = param->views.local_compute;
	listed.update = srt_matrices_update(param);
	if (listed.update.buffer != NULL) {
		listed.rows = param->shape[0];
		listed.cols = param->shape[1];
	}
	for (int k = 0; k < param->unit->engine->memory.nstates; k++)
		listed.state[k] = srt_param_shard_view(param, SRT_ROLE_STATE + k);
	if (srt_state8_is_coded(param))
		listed.state[2] = srt_param_shard_view(param, SRT_ROLE_STATE + 2);
	return listed;
}

/* In the order of the arenas: offsets rise. */
static size_t list_params(const srt_engine_t *engine, srt_optim_param_t *list)
{
	size_t n = 0;

	for (size_t u = 0; u < 2 * engine->nunits; u++) {
		const srt_unit_t *unit = engine->units[u % engine->nunits];
		const bool cut = u < engine->nunits; /* first */

		for (size_t i = 0; i < unit->nparams; i++) {
			if (unit->params[i]->frozen || unit->params[i]->is_cut != cut)
				continue;
			unit->params[i]->listed = n;
			list[n++] = list_param(unit->params[i]);
		}
	}
	return n;
}

/* Creates the optimizer; the arenas are allocated. */
srt_status_t srt_engine_optim_create(srt_engine_t *engine, srt_stream_t *stream)
{
	const srt_view_t tables =
		srt_view(engine->storage.staging, engine->memory.staging.optim, SRT_U8);
	srt_optim_param_t *list =
		srt_calloc(engine->declared.ntrainable, sizeof(*list), "list of the optimizer");
	srt_status_t status;

	if (list == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	engine->optim->device = engine->home.device;
	status = srt_optim_complete(engine->optim, list, list_params(engine, list), tables, stream);
	free(list);
	for (size_t i = 0; status == SRT_OK && i < engine->nparams; i++) {
		srt_param_t *param = engine->params[i];

		if (!param->frozen)
			param->trainable = engine->optim->entries[param->listed].slot;
	}
	return status;
}

/* The step counts, the learning rates and, from the norm, the clip coefficient of this step. */
srt_status_t srt_engine_optim_advance(srt_engine_t *engine, srt_stream_t *stream)
{
	const srt_engine_options_t *options = &engine->options;
	srt_view_t norm = { 0 };

	if (!engine->step.clipped && options->norm_p != 0 && engine->declared.trainable_nelem > 0)
		norm = srt_view(engine->storage.staging, engine->memory.staging.norm, SRT_F32);
	return srt_optim_advance(engine->optim, norm, options->max_norm, stream);
}

srt_status_t srt_param_round(const srt_param_t *param, srt_stream_t *stream)
{
	if (param->views.local_compute.buffer == NULL)
		return SRT_OK;
	return srt_op_cast(param->views.local_compute, param->views.local, param->shard.nelem,
			   stream);
}

srt_status_t srt_unit_round(srt_unit_t *unit, srt_stream_t *stream)
{
	for (size_t i = 0; i < unit->nparams; i++)
		SRT_TRY(srt_param_round(unit->params[i], stream));
	return SRT_OK;
}

srt_status_t srt_engine_optim_step(srt_engine_t *engine, srt_stream_t *stream)
{
	if (engine->optim->groups[0].kind == SRT_OPTIM_NONE)
		return SRT_OK;
	SRT_TRY(srt_optim_apply(engine->optim, stream));
	for (size_t u = 0; u < engine->nunits; u++) {
		if (!writes_copy(engine->units[u]))
			SRT_TRY(srt_unit_round(engine->units[u], stream));
	}
	return SRT_OK;
}
