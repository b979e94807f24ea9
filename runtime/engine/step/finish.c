/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Between the backward passes and the step: the reductions are completed, and the program may read
 * and change the gradient shards: clip them, unscale them, or write to them itself.
 */
#include "device/device.h"
#include "runtime/engine/checks/verify.h"
#include "runtime/engine/declare/declare.h"
#include "runtime/engine/layout/layout.h"
#include "runtime/engine/step/step.h"
#include "runtime/ops/step.h"

srt_status_t srt_finish_check(const srt_engine_t *engine, const char *call)
{
	SRT_TRY(srt_full_check(engine, call));
	if (engine->units[0]->pass.in_forward)
		return srt_fail(SRT_ERR_STATE,
				"%s() inside the forward pass of root '%s': call "
				"srt_unit_forward_end() first",
				call, engine->units[0]->name);
	if (engine->step.microbatch != engine->step.nmicrobatches - 1)
		return srt_fail(SRT_ERR_STATE,
				"%s() after micro-batch %d of %d: run the others first, or drop "
				"them with srt_engine_reset()",
				call, engine->step.microbatch + 1, engine->step.nmicrobatches);
	if (!engine->step.backward_begun && engine->declared.ntrainable > 0)
		return srt_fail(SRT_ERR_STATE,
				"%s() without a backward pass in micro-batch %d of %d", call,
				engine->step.microbatch + 1, engine->step.nmicrobatches);
	return SRT_OK;
}

srt_status_t srt_finish_check_grad(const srt_param_t *param)
{
	const srt_engine_t *engine = param->unit->engine;

	if (param->frozen)
		return srt_fail(SRT_ERR_NOT_FOUND, "parameter '%s' is frozen: it has no gradient",
				param->name);
	if (engine->step.any_backward && !engine->step.finished)
		return srt_fail(SRT_ERR_STATE,
				"the gradient of parameter '%s' is not reduced yet: call "
				"srt_engine_finish_backward() first",
				param->name);
	return SRT_OK;
}

srt_status_t srt_finish_check_stream(const srt_engine_t *engine, const char *call,
				     const srt_stream_t *stream)
{
	SRT_TRY(srt_full_check(engine, call));
	if (!engine->step.finished)
		return srt_fail(SRT_ERR_STATE,
				"%s() before srt_engine_finish_backward(): the gradients are not "
				"reduced yet",
				call);
	if (stream != engine->step.finish_stream)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s() with another stream than that of "
				"srt_engine_finish_backward()",
				call);
	return SRT_OK;
}

srt_status_t srt_finish_reductions(srt_engine_t *engine, srt_stream_t *stream)
{
	srt_stream_t *home;

	if (engine->step.finished)
		return SRT_OK;
	/* The units that ran no backward are reduced too. */
	SRT_TRY(srt_reduce_end_microbatch(engine, stream));
	SRT_TRY(srt_reduce_join(engine, stream));
	SRT_TRY(srt_download_arena(engine, stream));
	/* The parameters that have a gradient on any rank; the others are not stepped. */
	SRT_TRY(srt_reduce_flags(engine, stream));
	SRT_TRY(srt_home_enter(engine, stream, &home));
	if (engine->step.found_inf)
		SRT_TRY(srt_buffer_zero(engine->storage.staging, srt_found_inf(engine).offset,
					sizeof(float), home));
	engine->step.found_inf = false;
	return srt_home_leave(engine, stream);
}

/* Before the program changes gradient shards: where peers sum from them, they must have read. */
static srt_status_t wait_readers(srt_engine_t *engine, srt_stream_t *stream)
{
	for (size_t u = 0; u < engine->nunits; u++) {
		srt_unit_t *unit = engine->units[u];

		/* Edge: the peers' reductions -> the changes. */
		if (unit->grads.reduce != NULL && unit->flow.sums_in_shard)
			SRT_TRY(srt_coll_wait_readers(unit->grads.reduce, stream));
	}
	return SRT_OK;
}

/* Edge: the reduced or changed gradients -> reads of them, perhaps on another stream. */
static srt_status_t grads_changed(srt_engine_t *engine, srt_stream_t *stream)
{
	return srt_event_record(engine->order.stepped, stream);
}

srt_status_t srt_engine_finish_backward(srt_engine_t *engine, srt_stream_t *stream)
{
	srt_stream_t *home;

	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_engine_require_built(engine, "srt_engine_finish_backward"));
	if (engine->step.finished)
		return srt_fail(SRT_ERR_STATE,
				"srt_engine_finish_backward() was called before in this step");
	SRT_TRY(srt_finish_check(engine, "srt_engine_finish_backward"));
	if (engine->declared.ntrainable == 0)
		engine->step.any_backward =
			true; /* a step without gradients: REDUCED all the same */
	SRT_TRY(srt_verify_order(engine, SRT_ACTION_FINISH, NULL));
	SRT_TRY(srt_finish_reductions(engine, stream));
	SRT_TRY(wait_readers(engine, stream));
	engine->step.finished = true;
	engine->step.finish_stream = stream;
	SRT_TRY(srt_home_enter(engine, stream, &home));
	return grads_changed(engine, home);
}

srt_view_t srt_found_inf(const srt_engine_t *engine)
{
	return srt_view(engine->storage.staging,
			engine->memory.staging.state + offsetof(srt_k_step_state_t, found_inf),
			SRT_F32);
}

srt_view_t srt_found_inf_device(const srt_engine_t *engine)
{
	srt_view_t view = srt_found_inf(engine);

	view.buffer = engine->storage.exchange;
	return view;
}

srt_status_t srt_engine_clip(srt_engine_t *engine, int norm_p, float max_norm, srt_stream_t *stream)
{
	srt_stream_t *home;
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
	SRT_TRY(srt_home_enter(engine, stream, &home));
	SRT_TRY(srt_grad_norm_compute(engine, norm_p, home));
	engine->step.clipped = true;
	norm = srt_view(engine->storage.staging, engine->memory.staging.norm, SRT_F32);
	/* The first part too if it is empty: norm and coefficient are stored on every rank. */
	for (int part = 0; part < SRT_NPARTS; part++) {
		const int64_t nelem = (int64_t)engine->memory.layout.trainable[part];

		if (part == 0 || nelem > 0)
			SRT_TRY(srt_op_clip(srt_part_grads(engine, part),
					    srt_view(engine->storage.staging,
						     engine->memory.staging.state, SRT_U8),
					    norm, max_norm, nelem, home));
	}
	SRT_TRY(srt_grads_clear_padding(engine, home));
	SRT_TRY(grads_changed(engine, home));
	return srt_home_leave(engine, stream);
}

/* This rank's gradients; `found` becomes 1 if one is not finite. */
static srt_status_t unscale_local(srt_engine_t *engine, srt_view_t found, srt_view_t scale_state,
				  srt_stream_t *home)
{
	const srt_layout_t *layout = &engine->memory.layout;

	SRT_TRY(srt_buffer_zero(found.buffer, found.offset, sizeof(float), home));
	for (int part = 0; part < SRT_NPARTS; part++) {
		if (layout->trainable[part] > 0)
			SRT_TRY(srt_op_unscale(srt_part_grads(engine, part), found, scale_state,
					       1.0f, (int64_t)layout->trainable[part], home));
	}
	return srt_grads_clear_padding(engine, home);
}

/* Gathers the flags of all ranks, by the pattern of the norm's maximum. Also of ranks that have the
 * same gradients: the program may have written to those of one. */
static srt_status_t gather_found(srt_engine_t *engine, srt_stream_t *home)
{
	const srt_staging_t *staging = &engine->memory.staging;
	const srt_table_range_t mine = { staging->found, sizeof(float) };
	const srt_table_range_t all = { staging->all_found, (size_t)engine->world * sizeof(float) };

	if (engine->scalars.gather_found == NULL)
		return srt_op_absmax(srt_found_inf(engine),
				     srt_view(engine->storage.staging, mine.offset, SRT_F32), 1, 0,
				     home);
	SRT_TRY(srt_exchange_start(engine, engine->scalars.gather_found, mine, all, home));
	return srt_op_absmax(srt_found_inf(engine),
			     srt_view(engine->storage.staging, all.offset, SRT_F32), engine->world,
			     0, home);
}

srt_status_t srt_engine_unscale(srt_engine_t *engine, srt_view_t scale_state, srt_stream_t *stream)
{
	const srt_staging_t *staging = &engine->memory.staging;
	const srt_view_t found = srt_found_inf(engine);
	srt_stream_t *home;

	if (engine->home.stream != NULL) {
		SRT_TRY(srt_buffer_copy(engine->storage.staging_alias, staging->scale,
					scale_state.buffer, scale_state.offset,
					sizeof(srt_k_step_state_t), stream));
		scale_state = srt_view(engine->storage.staging, staging->scale, SRT_U8);
	}
	SRT_TRY(srt_home_enter(engine, stream, &home));
	if (engine->scalars.gather_found !=
	    NULL) /* Edge: peers' reading of the last flag -> this one. */
		SRT_TRY(srt_exchange_wait_readers(engine, engine->scalars.gather_found, home));
	SRT_TRY(unscale_local(engine, srt_view(engine->storage.staging, staging->found, SRT_F32),
			      scale_state, home));
	SRT_TRY(grads_changed(engine, home));
	engine->step.found_inf = true;
	SRT_TRY(gather_found(engine, home));
	SRT_TRY(srt_home_leave(engine, stream));
	if (engine->home.stream == NULL)
		return SRT_OK;
	return srt_buffer_copy(engine->storage.exchange, found.offset,
			       engine->storage.staging_alias, found.offset, sizeof(float), stream);
}
