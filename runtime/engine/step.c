/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A step, in the order in which it happens.
 *
 * Before this, unit by unit: parameters were gathered (unshard.c), used by the caller, gathered
 * again for the backward pass, and each unit's gradients were sent to their owners (reduce.c).
 * All of it, and all of this, is queued on streams: the host waits for nothing.
 */
#include "runtime/engine/engine.h"

static srt_status_t check_step(const srt_engine_t *engine)
{
	SRT_TRY(srt_engine_require_built(engine, "srt_engine_step"));
	if (!engine->any_backward && engine->ntrainable > 0)
		return srt_fail(SRT_ERR_STATE,
				"srt_engine_step() without a backward pass since the last step");
	if (engine->units[0]->in_forward)
		return srt_fail(SRT_ERR_STATE,
				"srt_engine_step() inside the forward pass of root '%s': call "
				"srt_unit_forward_end() first",
				engine->units[0]->name);
	if (engine->microbatch != engine->nmicrobatches - 1)
		return srt_fail(SRT_ERR_STATE,
				"srt_engine_step() after micro-batch %d of %d: run the others "
				"first, or drop them with srt_engine_reset()",
				engine->microbatch + 1, engine->nmicrobatches);
	return SRT_OK;
}

static srt_status_t step(srt_engine_t *engine, srt_stream_t *stream)
{
	/* 1. The units that ran no backward are reduced too; then all shards of gradients are
	 * there. */
	SRT_TRY(srt_reduce_missing(engine, stream));
	SRT_TRY(srt_reduce_join(engine, stream));

	/* 2. Which parameters have a gradient on any rank: the others are left alone. */
	SRT_TRY(srt_reduce_flags(engine, stream));

	/* 3. The norm over all ranks; the step's scalars, with the clip coefficient it gives. */
	SRT_TRY(srt_clip_norm(engine, stream));
	SRT_TRY(srt_optim_advance(engine, stream));

	/* 4. When nobody reads the old values any more, the owned shards are stepped. */
	for (size_t u = 0; u < engine->nunits; u++)
		SRT_TRY(srt_unshard_fence(engine->units[u], stream));
	SRT_TRY(srt_optim_step(engine, stream));
	SRT_TRY(srt_unshard_changed(engine, stream));

	/* 5. The next step starts with no gradient, no use, and agreed orders. */
	srt_reduce_forget(engine);
	for (size_t u = 0; u < engine->nunits; u++)
		engine->units[u]->uses = 0;
	engine->order_checked = true;
	return SRT_OK;
}

srt_status_t srt_engine_step(srt_engine_t *engine, srt_stream_t *stream)
{
	SRT_TRY(check_step(engine));
	SRT_TRY(srt_engine_agree(engine, SRT_PHASE_STEP, NULL));
	return step(engine, stream);
}

srt_status_t srt_engine_state(srt_engine_t *engine, srt_stream_t *stream, srt_step_state_t *state)
{
	SRT_TRY(srt_engine_require_built(engine, "srt_engine_state"));
	/* Edge: the last step, perhaps on another stream -> this reading of its results. */
	SRT_TRY(srt_stream_wait_event(stream, engine->stepped));
	return srt_copy_to_host(stream, state, engine->staging, engine->memory.staging.state,
				sizeof(*state));
}

srt_status_t srt_engine_copy_state(srt_engine_t *engine, srt_stream_t *stream, srt_buffer_t *to,
				   size_t offset)
{
	SRT_TRY(srt_engine_require_built(engine, "srt_engine_copy_state"));
	/* Edge: the last step, perhaps on another stream -> this reading of its results. */
	SRT_TRY(srt_stream_wait_event(stream, engine->stepped));
	return srt_copy(stream, to, offset, engine->staging, engine->memory.staging.state,
			sizeof(srt_step_state_t));
}
