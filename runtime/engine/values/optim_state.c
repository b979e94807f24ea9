/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The optimizer as <shardrt/optimizer.h> shows it: each call on it is ordered with the steps and
 * with other streams. Groups are declared, states of parameters set.
 */
#include <stdlib.h>

#include <shardrt/engine.h>

#include "runtime/engine/checks/verify.h"
#include "runtime/engine/declare/declare.h"
#include "runtime/engine/layout/layout.h"
#include "runtime/engine/step/step.h"
#include "runtime/engine/values/values.h"

/* ---- the optimizer and its owner --------------------------------------------------------- */

/* Before tables or states are read or set on `home`; end_change() ends a change. */
static srt_status_t begin_access(void *owner, const char *call, srt_stream_t *stream,
				 srt_stream_t **home)
{
	srt_engine_t *engine = owner;

	SRT_TRY(srt_engine_require_built(engine, call));
	SRT_TRY(srt_home_enter(engine, stream, home));
	/* Edge: the last step or change, perhaps on another stream -> this call. */
	return srt_stream_wait_event(*home, engine->order.stepped);
}

static srt_status_t end_change(void *owner, srt_stream_t *home, srt_stream_t *stream)
{
	srt_engine_t *engine = owner;

	SRT_TRY(srt_unshard_changed(engine, home));
	return srt_home_leave(engine, stream);
}

static srt_status_t verify_lr(void *owner, size_t group, float lr)
{
	return srt_verify_float(owner, SRT_ACTION_SET_LR, (uint32_t)group, lr);
}

static void note_norm(void *owner, size_t group)
{
	srt_engine_t *engine = owner;

	engine->step.norm_is_set = engine->step.norm_is_set || group == 0;
}

srt_status_t srt_engine_optim_new(srt_engine_t *engine, const srt_optim_options_t *options)
{
	static const srt_optim_owner_t owner = { .stepped_by = "srt_engine_step",
						 .enter = begin_access,
						 .leave = end_change,
						 .set_lr = verify_lr,
						 .set_info = note_norm,
						 .orthogonalise = srt_matrices_orthogonalise };
	srt_optim_t *optim;

	SRT_TRY(srt_optim_new(engine->device, &optim));
	optim->owner = &owner;
	optim->owner_arg = engine;
	if (srt_optim_add_group(optim, options) != SRT_OK) {
		srt_optim_free(optim);
		return SRT_ERR_OUT_OF_MEMORY;
	}
	engine->optim = optim;
	return SRT_OK;
}

srt_optim_t *srt_engine_optim(const srt_engine_t *engine)
{
	return engine != NULL ? engine->optim : NULL;
}

srt_status_t srt_engine_group_create(srt_engine_t *engine, const srt_optim_options_t *options,
				     size_t *group)
{
	srt_optim_options_t read;

	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(options);
	SRT_NOT_NULL(group);
	SRT_TRY(srt_optim_read_options(options, &read));
	if (engine->build_begun)
		return srt_fail(SRT_ERR_STATE,
				"srt_engine_group_create() after srt_engine_build(): "
				"declare all groups first");
	SRT_TRY(srt_optim_check_kinds("srt_engine_group_create", engine->optim->ngroups,
				      engine->optim->groups[0].kind, read.kind));
	if (read.state_bits != engine->optim->groups[0].state_bits)
		return srt_optim_fail_bits(&read, &engine->optim->groups[0]);
	SRT_TRY(srt_optim_add_group(engine->optim, &read));
	*group = engine->optim->ngroups - 1;
	return SRT_OK;
}

/* ---- states of parameters ---------------------------------------------------------------- */

static srt_status_t set_shard(srt_param_t *param, const char *call, srt_param_what_t what,
			      const void *elements, srt_stream_t *stream)
{
	srt_engine_t *engine = param->unit->engine;
	const size_t nbytes = param->shard.nbytes;
	srt_view_t local;
	srt_stream_t *home;

	if (what == SRT_PARAM_VALUE)
		return srt_param_set_shard(param, call, elements, stream);
	SRT_TRY(srt_engine_require_built(engine, call));
	if (what == SRT_PARAM_GRAD)
		return srt_fail(SRT_ERR_NOT_FOUND,
				"%s: the gradient of parameter '%s' is not set: work on a stream "
				"writes it (srt_param_local())",
				call, param->name);
	if (srt_state8_is_coded(param) && what >= SRT_PARAM_STATE0 &&
	    (int)what - (int)SRT_PARAM_STATE0 < engine->memory.nstates)
		return srt_optim_set_state(engine->optim, param->listed,
					   (size_t)(what - SRT_PARAM_STATE0), elements, stream);
	SRT_TRY(srt_param_local(param, what, &local));
	SRT_TRY(begin_access(engine, call, stream, &home));
	if (nbytes > 0)
		SRT_TRY(srt_buffer_copy_from_host(local.buffer, local.offset, elements, nbytes,
						  home));
	return end_change(engine, home, stream);
}

srt_status_t srt_param_set_state8(srt_param_t *param, int k, const void *bytes,
				  srt_stream_t *stream)
{
	static const char call[] = "srt_checkpoint_load";
	srt_engine_t *engine = param->unit->engine;
	const srt_view_t local = srt_state8_view(param, k);
	const size_t nbytes = srt_state8_nbytes(param, k);
	srt_stream_t *home;

	SRT_TRY(begin_access(engine, call, stream, &home));
	if (nbytes > 0)
		SRT_TRY(srt_buffer_copy_from_host(local.buffer, local.offset, bytes, nbytes, home));
	return end_change(engine, home, stream);
}

srt_status_t srt_param_set(srt_param_t *param, srt_param_what_t what, const void *unsharded,
			   srt_stream_t *stream)
{
	static const char call[] = "srt_param_set";
	srt_packed_t packed;
	srt_status_t status;

	SRT_NOT_NULL(param);
	if (param->whole_nbytes > 0)
		SRT_NOT_NULL(unsharded);
	SRT_NOT_NULL(stream);
	if (what == SRT_PARAM_VALUE)
		SRT_TRY(srt_full_check(param->unit->engine, call));
	SRT_TRY(srt_shard_pack(param, unsharded, &packed));
	status = set_shard(param, call, what, packed.elements, stream);
	free(packed.owned);
	SRT_TRY(status);
	if (what != SRT_PARAM_VALUE)
		return SRT_OK;
	return srt_verify_call(param->unit->engine, SRT_ACTION_SET, (uint32_t)param->index, 0);
}

srt_status_t srt_param_set_local(srt_param_t *param, srt_param_what_t what, const void *elements,
				 srt_stream_t *stream)
{
	SRT_NOT_NULL(param);
	if (param->shard.nbytes > 0)
		SRT_NOT_NULL(elements);
	SRT_NOT_NULL(stream);
	return set_shard(param, "srt_param_set_local", what, elements, stream);
}
