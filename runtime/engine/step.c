/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A step, in order.
 *
 * Before the step, unit by unit: parameters were gathered (unshard.c), used by the program,
 * gathered again for the backward pass, and the unit's gradients were reduced (reduce.c). All work
 * is queued on streams: the host does not wait.
 */
#include "runtime/engine/engine.h"

static srt_status_t check_step(const srt_engine_t *engine)
{
	SRT_TRY(srt_engine_require_built(engine, "srt_engine_step"));
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
	if (!engine->backward_begun && engine->ntrainable > 0)
		return srt_fail(SRT_ERR_STATE,
				"srt_engine_step() without a backward pass in micro-batch %d of %d",
				engine->microbatch + 1, engine->nmicrobatches);
	return SRT_OK;
}

static srt_status_t queue_step(srt_engine_t *engine, srt_stream_t *stream)
{
	/* 1. The units that ran no backward are reduced too: all gradient shards are complete. */
	SRT_TRY(srt_reduce_end_microbatch(engine, stream));
	SRT_TRY(srt_reduce_join(engine, stream));

	/* 2. The parameters that have a gradient on any rank; the others are not stepped. */
	SRT_TRY(srt_reduce_flags(engine, stream));

	/* 3. The norm over all ranks; the step's scalars with the clip coefficient. */
	SRT_TRY(srt_grad_norm_compute(engine, stream));
	SRT_TRY(srt_optim_advance(engine, stream));

	/* 4. After all reads of the old values the owned shards are stepped. */
	for (size_t u = 0; u < engine->nunits; u++)
		SRT_TRY(srt_unshard_wait_readers(engine->units[u], stream));
	SRT_TRY(srt_optim_step(engine, stream));
	SRT_TRY(srt_unshard_changed(engine, stream));

	/* 5. The next step begins without gradients and uses; its order is not compared again. */
	srt_reduce_clear(engine);
	for (size_t u = 0; u < engine->nunits; u++)
		engine->units[u]->uses = 0;
	engine->order_checked = true;
	return SRT_OK;
}

srt_status_t srt_engine_step(srt_engine_t *engine, srt_stream_t *stream)
{
	SRT_TRY(check_step(engine));
	SRT_TRY(srt_verify_order(engine, SRT_ACTION_STEP, NULL));
	return queue_step(engine, stream);
}

srt_status_t srt_engine_state(srt_engine_t *engine, srt_stream_t *stream, srt_step_state_t *state)
{
	SRT_TRY(srt_engine_require_built(engine, "srt_engine_state"));
	/* Edge: the last step, perhaps on another stream -> this read of its results. */
	SRT_TRY(srt_stream_wait_event(stream, engine->stepped));
	return srt_copy_to_host(stream, state, engine->staging, engine->memory.staging.state,
				sizeof(*state));
}

srt_status_t srt_engine_copy_state(srt_engine_t *engine, srt_stream_t *stream, srt_buffer_t *to,
				   size_t offset)
{
	SRT_TRY(srt_engine_require_built(engine, "srt_engine_copy_state"));
	/* Edge: the last step, perhaps on another stream -> this read of its results. */
	SRT_TRY(srt_stream_wait_event(stream, engine->stepped));
	return srt_copy(stream, to, offset, engine->staging, engine->memory.staging.state,
			sizeof(srt_step_state_t));
}
