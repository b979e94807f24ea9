/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A step, in order.
 *
 * Before the step, unit by unit: parameters were gathered (unshard.c), used by the program,
 * gathered again for the backward pass, and the unit's gradients were reduced (reduce.c). All work
 * is queued on streams: the host does not wait.
 */
#include <math.h>

#include "runtime/engine/checks/checks.h"
#include "runtime/engine/checks/verify.h"
#include "runtime/engine/declare/declare.h"
#include "runtime/engine/layout/layout.h"
#include "runtime/engine/step/step.h"

static srt_status_t check_step(const srt_engine_t *engine, const srt_stream_t *stream)
{
	SRT_TRY(srt_engine_require_built(engine, "srt_engine_step"));
	if (engine->writes.open)
		return srt_fail(SRT_ERR_STATE, "srt_engine_step() after srt_engine_write_begin(): "
					       "call srt_engine_write_end() first");
	SRT_TRY(srt_optim_check_lr(engine->optim, "srt_engine_step"));
	if (!engine->step.finished)
		return srt_finish_check(engine, "srt_engine_step");
	return srt_finish_check_stream(engine, "srt_engine_step", stream);
}

/* What the step has to find out about the gradients: their norm, and whether all are finite. */
static srt_status_t measure_gradients(srt_engine_t *engine, srt_stream_t *stream)
{
	const srt_engine_options_t *options = &engine->options;

	if (!engine->step.clipped && options->norm_p != 0)
		SRT_TRY(srt_grad_norm_compute(engine, options->norm_p, stream));
	if (options->skip_nonfinite)
		SRT_TRY(srt_grad_norm_check_finite(engine, stream));
	return SRT_OK;
}

static srt_status_t queue_step(srt_engine_t *engine, srt_stream_t *stream)
{
	srt_stream_t *home;

	/* 1. All gradient shards are complete. With offload the rest is done on the host. */
	SRT_TRY(srt_finish_reductions(engine, stream));
	SRT_TRY(srt_home_enter(engine, stream, &home));

	/* 2. The norm over all ranks; the step's scalars with the clip coefficient. */
	SRT_TRY(measure_gradients(engine, home));
	SRT_TRY(srt_engine_optim_advance(engine, home));

	/* 3. After all reads of the old values the owned shards are stepped. */
	for (size_t u = 0; u < engine->nunits; u++)
		SRT_TRY(srt_unshard_wait_readers(engine->units[u], home));
	SRT_TRY(srt_engine_optim_step(engine, home));
	SRT_TRY(srt_unshard_changed(engine, home));
	SRT_TRY(srt_home_leave(engine, stream));

	/* 4. The next step begins without gradients and uses; its calls are compared without
	 * waiting. */
	srt_reduce_clear(engine);
	for (size_t u = 0; u < engine->nunits; u++)
		engine->units[u]->pass.uses = 0;
	engine->checks.order_checked = true;
	return srt_verify_end(engine, SRT_ACTION_STEP);
}

srt_status_t srt_engine_step(srt_engine_t *engine, srt_stream_t *stream)
{
	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(stream);
	SRT_TRY(check_step(engine, stream));
	SRT_TRY(srt_verify_order(engine, SRT_ACTION_STEP, NULL));
	if (!engine->checks.order_checked && !engine->options.trust_replicas)
		SRT_TRY(srt_replicas_compare(engine, stream));
	SRT_TRY(srt_check_before_step(engine, stream));
	if (engine->checks.on)
		SRT_TRY(srt_replicas_compare(engine, stream));
	SRT_TRY(queue_step(engine, stream));
	SRT_TRY(srt_check_after_step(engine, stream));
	engine->step.nsteps++;
	engine->step.norm_is_set = false;
	return SRT_OK;
}

/* A step with such gradients was made all the same; without this the loss tells it later, if at
 * all. */
static void warn_nonfinite(srt_engine_t *engine, const srt_k_step_state_t *state)
{
	if (engine->step.warned_nonfinite || isfinite(state->grad_norm) ||
	    state->found_inf != 0.0f ||
	    engine->step.norm_is_set) /* perhaps of a step that was skipped */
		return;
	engine->step.warned_nonfinite = true;
	srt_log(SRT_LOG_WARN,
		"rank %d: the norm of the gradients is %g in step %d, and the values were stepped "
		"by them: set option skip_nonfinite to skip such steps",
		engine->rank, (double)state->grad_norm, (int)state->step);
}

srt_status_t srt_engine_get_step_info(srt_engine_t *engine, srt_step_info_t *info,
				      srt_stream_t *stream)
{
	srt_k_step_state_t state;

	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(info);
	SRT_TRY(srt_struct_check(info, "srt_step_info_t"));
	SRT_TRY(srt_engine_require_built(engine, "srt_engine_get_step_info"));
	/* Edge: the last step, perhaps on another stream -> this read of its results. */
	SRT_TRY(srt_stream_wait_event(stream, engine->order.stepped));
	SRT_TRY(srt_buffer_copy_to_host(&state, srt_tables_device(engine),
					engine->memory.staging.state, sizeof(state), stream));
	warn_nonfinite(engine, &state);
	return srt_step_info_write(info, &state);
}

srt_status_t srt_engine_copy_step_info(srt_engine_t *engine, srt_buffer_t *to, size_t offset,
				       srt_stream_t *stream)
{
	srt_stream_t *home;

	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(to);
	SRT_TRY(srt_engine_require_built(engine, "srt_engine_copy_step_info"));
	/* Edge: the last step, perhaps on another stream -> this read of its results. */
	SRT_TRY(srt_stream_wait_event(stream, engine->order.stepped));
	SRT_TRY(srt_buffer_copy(to, offset, srt_tables_device(engine), engine->memory.staging.state,
				sizeof(srt_k_step_state_t), stream));
	/* Edge: this read -> the next step or change, perhaps on another stream. */
	SRT_TRY(srt_home_enter(engine, stream, &home));
	return srt_unshard_changed(engine, home);
}
