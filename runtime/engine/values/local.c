/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * This rank's shards as views, which the program reads and writes. step/writes.c has what follows
 * for the passes.
 */
#include <shardrt/engine.h>

#include "runtime/engine/checks/checks.h"
#include "runtime/engine/checks/verify.h"
#include "runtime/engine/declare/declare.h"
#include "runtime/engine/layout/layout.h"
#include "runtime/engine/layout/shard.h"
#include "runtime/engine/step/step.h"

srt_status_t srt_param_local(srt_param_t *param, srt_param_what_t what, srt_view_t *view)
{
	const int k = (int)what - (int)SRT_PARAM_STATE0;
	srt_engine_t *engine;

	SRT_NOT_NULL(param);
	SRT_NOT_NULL(view);
	engine = param->unit->engine;
	SRT_TRY(srt_engine_require_built(engine, "srt_param_local"));
	if (what == SRT_PARAM_VALUE) {
		SRT_TRY(srt_writes_allow(engine));
		srt_param_has_values(param); /* the program may write them */
		*view = param->views.local;
		return SRT_OK;
	}
	if (what == SRT_PARAM_GRAD) {
		SRT_TRY(srt_finish_check_grad(param));
		*view = param->views.local_grad;
		return SRT_OK;
	}
	if (param->frozen || k < 0 || k >= engine->memory.nstates)
		return srt_fail(SRT_ERR_NOT_FOUND, "parameter '%s' has no optimizer state %d",
				param->name, k);
	if (srt_state8_is_coded(param))
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"srt_param_local: the optimizer states of parameter '%s' are in 8 "
				"bits: srt_param_get() and srt_param_set() convert them",
				param->name);
	*view = srt_param_shard_view(param, SRT_ROLE_STATE + k);
	return SRT_OK;
}

srt_status_t srt_unit_local(srt_unit_t *unit, srt_param_what_t what, srt_view_t *view)
{
	SRT_NOT_NULL(unit);
	SRT_NOT_NULL(view);
	SRT_TRY(srt_unit_require_flat(unit, "srt_unit_local"));
	if (srt_shard_is_contiguous(unit)) /* the first parameter begins where the shard does */
		return srt_param_local(unit->params[0], what, view);
	return srt_fail(SRT_ERR_INVALID_ARGUMENT,
			"srt_unit_local: unit '%s' has %s: use srt_param_local() for each of them",
			unit->name,
			unit->nparams == 0 ?
				"no parameters" :
				"frozen and trainable parameters, or parameters that are cut "
				"over a mesh and others, whose shards are apart");
}

srt_status_t srt_engine_write_begin(srt_engine_t *engine, srt_stream_t *stream)
{
	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_engine_require_built(engine, "srt_engine_write_begin"));
	if (engine->writes.open)
		return srt_fail(SRT_ERR_STATE, "srt_engine_write_begin() was called before: call "
					       "srt_engine_write_end() first");
	SRT_TRY(srt_full_check(engine, "srt_engine_write_begin"));
	for (size_t u = 0; u < engine->nunits; u++) {
		if (srt_unit_in_use(engine->units[u]))
			return srt_fail(
				SRT_ERR_STATE,
				"srt_engine_write_begin() while unit '%s' is in use: change "
				"parameters outside of passes",
				engine->units[u]->name);
	}
	for (size_t u = 0; u < engine->nunits; u++) {
		SRT_TRY(srt_unshard_wait_readers(engine->units[u], stream));
		if (!engine->writes.unseen)
			SRT_TRY(srt_check_unchanged(engine->units[u], stream));
	}
	SRT_TRY(srt_verify_call(engine, SRT_ACTION_WRITE, 0, 1));
	engine->writes.open = true;
	engine->writes.stream = stream;
	return SRT_OK;
}

srt_status_t srt_engine_write_end(srt_engine_t *engine, srt_stream_t *stream)
{
	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_engine_require_built(engine, "srt_engine_write_end"));
	if (!engine->writes.open)
		return srt_fail(SRT_ERR_STATE,
				"srt_engine_write_end() without srt_engine_write_begin()");
	if (stream != engine->writes.stream)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_engine_write_end() with another stream than that of "
				"srt_engine_write_begin()");
	/* A backward pass needs a forward pass of the new values. */
	for (size_t u = 0; u < engine->nunits; u++)
		engine->units[u]->pass.uses = 0;
	SRT_TRY(srt_verify_call(engine, SRT_ACTION_WRITE, 0, 0));
	engine->writes.open = false;
	return srt_writes_take(engine, stream); /* srt_param_get() may have gathered in between */
}
