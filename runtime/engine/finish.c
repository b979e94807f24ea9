/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Between the backward passes and the step: the reductions are completed, and the program may read
 * and change the gradient shards: clip them, unscale them, or write to them itself.
 */
#include "device/device.h"
#include "runtime/engine/verify.h"

srt_status_t srt_finish_check(const srt_engine_t *engine, const char *call)
{
	if (engine->units[0]->in_forward)
		return srt_fail(SRT_ERR_STATE,
				"%s() inside the forward pass of root '%s': call "
				"srt_unit_forward_end() first",
				call, engine->units[0]->name);
	if (engine->microbatch != engine->nmicrobatches - 1)
		return srt_fail(SRT_ERR_STATE,
				"%s() after micro-batch %d of %d: run the others first, or drop "
				"them with srt_engine_reset()",
				call, engine->microbatch + 1, engine->nmicrobatches);
	if (!engine->backward_begun && engine->ntrainable > 0)
		return srt_fail(SRT_ERR_STATE,
				"%s() without a backward pass in micro-batch %d of %d", call,
				engine->microbatch + 1, engine->nmicrobatches);
	return SRT_OK;
}

srt_status_t srt_finish_check_grad(const srt_param_t *param)
{
	const srt_engine_t *engine = param->unit->engine;

	if (param->frozen)
		return srt_fail(SRT_ERR_NOT_FOUND, "parameter '%s' is frozen: it has no gradient",
				param->name);
	if (engine->any_backward && !engine->finished)
		return srt_fail(SRT_ERR_STATE,
				"the gradient of parameter '%s' is not reduced yet: call "
				"srt_engine_finish_backward() first",
				param->name);
	return SRT_OK;
}

srt_status_t srt_finish_check_stream(const srt_engine_t *engine, const char *call,
				     const srt_stream_t *stream)
{
	if (!engine->finished)
		return srt_fail(SRT_ERR_STATE,
				"%s() before srt_engine_finish_backward(): the gradients are not "
				"reduced yet",
				call);
	if (stream != engine->finish_stream)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s() with another stream than that of "
				"srt_engine_finish_backward()",
				call);
	return SRT_OK;
}

srt_status_t srt_finish_reductions(srt_engine_t *engine, srt_stream_t *stream)
{
	if (engine->finished)
		return SRT_OK;
	/* The units that ran no backward are reduced too. */
	SRT_TRY(srt_reduce_end_microbatch(engine, stream));
	SRT_TRY(srt_reduce_join(engine, stream));
	/* The parameters that have a gradient on any rank; the others are not stepped. */
	SRT_TRY(srt_reduce_flags(engine, stream));
	if (engine->found_inf)
		SRT_TRY(srt_zero(stream, engine->staging, srt_found_inf(engine).offset,
				 sizeof(float)));
	engine->found_inf = false;
	return SRT_OK;
}

/* Before the program changes gradient shards: where peers sum from them, they must have read. */
static srt_status_t wait_readers(srt_engine_t *engine, srt_stream_t *stream)
{
	for (size_t u = 0; u < engine->nunits; u++) {
		srt_unit_t *unit = engine->units[u];

		/* Edge: the peers' reductions -> the changes. */
		if (unit->reduce != NULL && srt_role_summed(unit, engine->world) == SRT_ROLE_GRAD)
			SRT_TRY(srt_coll_wait_readers(unit->reduce, stream));
	}
	return SRT_OK;
}

srt_status_t srt_engine_finish_backward(srt_engine_t *engine, srt_stream_t *stream)
{
	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_engine_require_built(engine, "srt_engine_finish_backward"));
	if (engine->finished)
		return srt_fail(SRT_ERR_STATE,
				"srt_engine_finish_backward() was called before in this step");
	SRT_TRY(srt_finish_check(engine, "srt_engine_finish_backward"));
	if (engine->ntrainable == 0)
		engine->any_backward = true; /* a step without gradients: REDUCED all the same */
	SRT_TRY(srt_verify_order(engine, SRT_ACTION_FINISH, NULL));
	SRT_TRY(srt_finish_reductions(engine, stream));
	SRT_TRY(wait_readers(engine, stream));
	engine->finished = true;
	engine->finish_stream = stream;
	return SRT_OK;
}

srt_view_t srt_found_inf(const srt_engine_t *engine)
{
	return srt_view(engine->staging,
			engine->memory.staging.state + offsetof(srt_step_state_t, found_inf),
			SRT_F32);
}

srt_status_t srt_engine_clip(srt_engine_t *engine, int norm_p, float max_norm, srt_stream_t *stream)
{
	srt_view_t norm;

	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_engine_require_built(engine, "srt_engine_clip"));
	SRT_TRY(srt_finish_check_stream(engine, "srt_engine_clip", stream));
	if ((norm_p != 1 && norm_p != 2 && norm_p != 3 && norm_p != SRT_NORM_INF) ||
	    max_norm != max_norm)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_engine_clip: norm_p is %d, must be 1, 2, 3 or SRT_NORM_INF; "
				"max_norm is %g, must not be NaN",
				norm_p, (double)max_norm);
	SRT_TRY(srt_verify_float(engine, SRT_ACTION_CLIP, (uint32_t)norm_p, max_norm));
	SRT_TRY(srt_grad_norm_compute(engine, norm_p, stream));
	engine->clipped = true;
	norm = srt_view(engine->staging, engine->memory.staging.norm, SRT_F32);
	/* The first part too if it is empty: norm and coefficient are stored on every rank. */
	for (int part = 0; part < SRT_NPARTS; part++) {
		const int64_t nelem = (int64_t)engine->memory.layout.trainable[part];

		if (part == 0 || nelem > 0)
			SRT_TRY(srt_op_clip(stream, srt_part_grads(engine, part),
					    srt_view(engine->staging, engine->memory.staging.state,
						     SRT_U8),
					    norm, max_norm, nelem));
	}
	return srt_grads_clear_padding(engine, stream);
}

srt_status_t srt_engine_unscale(srt_engine_t *engine, srt_view_t scale_state, srt_stream_t *stream)
{
	const srt_layout_t *layout = &engine->memory.layout;
	const srt_staging_t *staging = &engine->memory.staging;
	const srt_view_t found = srt_view(engine->staging, staging->found, SRT_F32);
	const srt_view_t all_found = srt_view(engine->staging, staging->all_found, SRT_F32);

	if (engine->gather_found != NULL) /* Edge: peers' reading of the last flag -> this one. */
		SRT_TRY(srt_coll_wait_readers(engine->gather_found, stream));
	SRT_TRY(srt_zero(stream, found.buffer, found.offset, sizeof(float)));
	for (int part = 0; part < SRT_NPARTS; part++) {
		if (layout->trainable[part] > 0)
			SRT_TRY(srt_op_unscale(stream, srt_part_grads(engine, part), found,
					       scale_state, 1.0f,
					       (int64_t)layout->trainable[part]));
	}
	SRT_TRY(srt_grads_clear_padding(engine, stream));
	engine->found_inf = true;
	if (engine->gather_found == NULL)
		return srt_op_absmax(stream, srt_found_inf(engine), found, 1, 0);
	/* The flags of all ranks, by the pattern of the norm's maximum. Also of ranks that have the
	 * same gradients: the program may have written to those of one. */
	SRT_TRY(srt_coll_start(engine->gather_found, NULL, stream));
	return srt_op_absmax(stream, srt_found_inf(engine), all_found, engine->world, 0);
}
