/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups of parameters, and what a step changes besides values: states of the optimizer, step
 * counts, learning rates. Read and set between steps, to resume a run.
 */
#include <stdlib.h>

#include <shardrt/engine_optimizer.h>

#include "runtime/engine/checks/verify.h"
#include "runtime/engine/declare/declare.h"
#include "runtime/engine/layout/layout.h"
#include "runtime/engine/step/step.h"
#include "runtime/engine/values/values.h"

/* ---- groups ------------------------------------------------------------------------------ */

static srt_status_t check_group(const srt_engine_t *engine, const char *call, int32_t group)
{
	if (group < 0 || (size_t)group >= engine->ngroups)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: group is %d, must be 0 to %zu", call,
				(int)group, engine->ngroups - 1);
	return SRT_OK;
}

srt_status_t srt_engine_group_options(const srt_engine_t *engine, int32_t group,
				      srt_optim_options_t *options)
{
	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(options);
	SRT_TRY(srt_struct_check(options, "srt_optim_options_t"));
	SRT_TRY(check_group(engine, "srt_engine_group_options", group));
	return srt_struct_write(options, &engine->groups[group], sizeof(*options),
				"srt_optim_options_t");
}

srt_status_t srt_engine_group_create(srt_engine_t *engine, const srt_optim_options_t *options,
				     int32_t *group)
{
	srt_optim_options_t *grown, read;

	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(options);
	SRT_NOT_NULL(group);
	SRT_TRY(srt_optim_read_options(options, &read));
	if (engine->build_begun)
		return srt_fail(SRT_ERR_STATE,
				"srt_engine_group_create() after srt_engine_build(): "
				"declare all groups first");
	if (read.kind != engine->groups[0].kind)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_engine_group_create: option kind is %d, that of the engine's "
				"optimizer is %d: copy the options of group 0 by "
				"srt_engine_group_options()",
				(int)read.kind, (int)engine->groups[0].kind);
	grown = srt_realloc(engine->groups, engine->ngroups + 1, sizeof(*grown),
			    "groups of parameters");
	if (grown == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	engine->groups = grown;
	engine->groups[engine->ngroups] = read;
	*group = (int32_t)engine->ngroups++;
	return SRT_OK;
}

/* ---- read and set ------------------------------------------------------------------------ */

/* Before tables or states are read or set on `home`; end_change() ends a change. */
static srt_status_t begin_access(srt_engine_t *engine, const char *call, srt_stream_t *stream,
				 srt_stream_t **home)
{
	SRT_TRY(srt_engine_require_built(engine, call));
	SRT_TRY(srt_home_enter(engine, stream, home));
	/* Edge: the last step or change, perhaps on another stream -> this call. */
	return srt_stream_wait_event(*home, engine->order.stepped);
}

static srt_status_t end_change(srt_engine_t *engine, srt_stream_t *home, srt_stream_t *stream)
{
	SRT_TRY(srt_unshard_changed(engine, home));
	return srt_home_leave(engine, stream);
}

srt_status_t srt_engine_set_group_lr(srt_engine_t *engine, int32_t group, float lr,
				     srt_stream_t *stream)
{
	srt_stream_t *home;

	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(stream);
	SRT_TRY(check_group(engine, "srt_engine_set_group_lr", group));
	SRT_TRY(begin_access(engine, "srt_engine_set_group_lr", stream, &home));
	SRT_TRY(srt_verify_float(engine, SRT_ACTION_SET_LR, (uint32_t)group, lr));
	SRT_TRY(srt_optim_set_lr(engine->optim, (size_t)group, lr, home));
	return end_change(engine, home, stream);
}

srt_status_t srt_engine_set_lr(srt_engine_t *engine, float lr, srt_stream_t *stream)
{
	srt_stream_t *home;

	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(stream);
	SRT_TRY(begin_access(engine, "srt_engine_set_lr", stream, &home));
	SRT_TRY(srt_verify_float(engine, SRT_ACTION_SET_LR, UINT32_MAX, lr));
	for (size_t g = 0; g < engine->ngroups; g++)
		SRT_TRY(srt_optim_set_lr(engine->optim, g, lr, home));
	return end_change(engine, home, stream);
}

srt_status_t srt_engine_group_state(srt_engine_t *engine, int32_t group, srt_stream_t *stream,
				    srt_step_info_t *info)
{
	srt_stream_t *home;

	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(info);
	SRT_TRY(srt_struct_check(info, "srt_step_info_t"));
	SRT_TRY(check_group(engine, "srt_engine_group_state", group));
	SRT_TRY(begin_access(engine, "srt_engine_group_state", stream, &home));
	return srt_optim_get_state(engine->optim, (size_t)group, home, info);
}

srt_status_t srt_engine_set_group_state(srt_engine_t *engine, int32_t group,
					const srt_step_info_t *info, srt_stream_t *stream)
{
	srt_stream_t *home;

	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(info);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_struct_check(info, "srt_step_info_t"));
	SRT_TRY(check_group(engine, "srt_engine_set_group_state", group));
	SRT_TRY(begin_access(engine, "srt_engine_set_group_state", stream, &home));
	SRT_TRY(srt_optim_set_state(engine->optim, (size_t)group, info, home));
	engine->step.norm_is_set = engine->step.norm_is_set || group == 0;
	return end_change(engine, home, stream);
}

static srt_status_t check_trainable(const srt_param_t *param, const char *call)
{
	SRT_TRY(srt_engine_require_built(param->unit->engine, call));
	if (param->frozen)
		return srt_fail(SRT_ERR_NOT_FOUND, "%s: parameter '%s' is frozen", call,
				param->name);
	return SRT_OK;
}

srt_status_t srt_param_steps(srt_param_t *param, srt_stream_t *stream, int32_t *steps)
{
	SRT_NOT_NULL(param);
	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(steps);

	srt_engine_t *engine = param->unit->engine;
	srt_stream_t *home;

	SRT_TRY(check_trainable(param, "srt_param_steps"));
	SRT_TRY(begin_access(engine, "srt_param_steps", stream, &home));
	return srt_optim_get_steps(engine->optim, param->listed, home, steps);
}

srt_status_t srt_param_set_steps(srt_param_t *param, int32_t steps, srt_stream_t *stream)
{
	SRT_NOT_NULL(param);
	SRT_NOT_NULL(stream);

	srt_engine_t *engine = param->unit->engine;
	srt_stream_t *home;

	SRT_TRY(check_trainable(param, "srt_param_set_steps"));
	SRT_TRY(begin_access(engine, "srt_param_set_steps", stream, &home));
	SRT_TRY(srt_optim_set_steps(engine->optim, param->listed, steps, home));
	return end_change(engine, home, stream);
}

static srt_status_t set_state_shard(srt_param_t *param, const char *call, srt_param_what_t what,
				    const void *elements, srt_stream_t *stream)
{
	srt_engine_t *engine = param->unit->engine;
	const size_t nbytes = param->shard.nbytes;
	srt_view_t local = { 0 };
	srt_stream_t *home;

	SRT_TRY(check_trainable(param, call));
	if (what >= SRT_PARAM_STATE0)
		local = srt_param_local(param, what);
	if (local.buffer == NULL)
		return srt_fail(SRT_ERR_NOT_FOUND, "%s: parameter '%s' has no optimizer state %d",
				call, param->name, (int)what - (int)SRT_PARAM_STATE0);
	SRT_TRY(begin_access(engine, call, stream, &home));
	if (nbytes > 0)
		SRT_TRY(srt_buffer_copy_from_host(local.buffer, local.offset, elements, nbytes,
						  home));
	return end_change(engine, home, stream);
}

srt_status_t srt_param_set_state(srt_param_t *param, srt_param_what_t what, const void *unsharded,
				 srt_stream_t *stream)
{
	srt_packed_t packed;
	srt_status_t status;

	SRT_NOT_NULL(param);
	if (param->whole_nbytes > 0)
		SRT_NOT_NULL(unsharded);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_shard_pack(param, unsharded, &packed));
	status = set_state_shard(param, "srt_param_set_state", what, packed.elements, stream);
	free(packed.owned);
	return status;
}

srt_status_t srt_param_set_local(srt_param_t *param, srt_param_what_t what, const void *elements,
				 srt_stream_t *stream)
{
	SRT_NOT_NULL(param);
	if (param->shard.nbytes > 0)
		SRT_NOT_NULL(elements);
	SRT_NOT_NULL(stream);
	if (what == SRT_PARAM_VALUE)
		return srt_param_set_shard(param, "srt_param_set_local", elements, stream);
	return set_state_shard(param, "srt_param_set_local", what, elements, stream);
}
