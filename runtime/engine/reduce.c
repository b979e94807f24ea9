/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduction: the unsharded gradients of a unit, written by the program -> the owners' shards.
 *
 *     zero3     reduce-scatter: each owner sums all ranks' gradients of its rows
 *     ddp       all-reduce in place
 *     one rank  nothing: the unsharded gradient is the shard
 *
 * The sum is the tree of docs/numerics.md, then one division by the number of ranks. With several
 * micro-batches either each one is reduced and the reduced shards are added, or the unsharded
 * gradients are added in place and reduced at the last one. In each mode ddp and zero3 do the same
 * additions in the same order.
 *
 * A gradient that this rank does not have counts as +0. Units that did not run backward are
 * reduced at the end of the micro-batch, in order of declaration.
 */
#include "device/device.h"
#include "runtime/engine/engine.h"

/* Edge: the work on `from` until now -> the work on `to` from now on. */
static srt_status_t order_streams(srt_engine_t *engine, srt_stream_t *from, srt_stream_t *to)
{
	SRT_TRY(srt_event_record(engine->edge, from));
	return srt_stream_wait_event(to, engine->edge);
}

static bool is_last_microbatch(const srt_engine_t *engine)
{
	return engine->microbatch == engine->nmicrobatches - 1;
}

/* Makes the memory of the unit's unsharded gradients writable for `stream`. */
srt_status_t srt_reduce_prepare(srt_unit_t *unit, srt_stream_t *stream)
{
	srt_engine_t *engine = unit->engine;
	srt_slot_t *slot = unit->grad_slot;

	if (slot == NULL)
		return SRT_OK;
	if (slot->writer != NULL && slot->writer != unit)
		return srt_fail(
			SRT_ERR_STATE,
			"unit '%s' needs the gradient memory of unit '%s', whose backward pass has "
			"not ended: end it first, or declare them as parent and child",
			unit->name, slot->writer->name);
	/* Edge: norm and optimizer of the last step, which read the arena -> new gradients. */
	SRT_TRY(srt_stream_wait_event(stream, engine->stepped));
	if (slot->holder != NULL) {
		/* Edge: this rank's reduction of the slot's last gradients -> new gradients. */
		SRT_TRY(srt_stream_wait_event(stream, slot->holder->reduced));
		/* Edge: the peers' reductions, which read the slot -> new gradients. */
		SRT_TRY(srt_coll_wait_readers(slot->holder->reduce, stream));
		slot->holder = NULL;
	}
	if (unit->keeps_grads) /* Edge: additions of earlier micro-batches -> this one's. */
		SRT_TRY(srt_stream_wait_event(stream, unit->reduced));
	slot->writer = unit;
	return SRT_OK;
}

static srt_status_t zero_missing(srt_unit_t *unit, srt_stream_t *stream)
{
	for (size_t i = 0; i < unit->nparams; i++) {
		srt_param_t *param = unit->params[i];

		if (!param->frozen && !param->written && param->nbytes > 0)
			SRT_TRY(srt_zero(stream, param->unsharded_grad.buffer,
					 param->unsharded_grad.offset, param->nbytes));
		param->written = false;
	}
	return SRT_OK;
}

/* ddp with micro-batches reduced in a slot: adds the sum to the arena. */
static srt_status_t add_to_arena(srt_unit_t *unit, srt_stream_t *stream)
{
	for (size_t i = 0; i < unit->nparams; i++) {
		srt_param_t *param = unit->params[i];

		if (param->frozen || param->nbytes == 0)
			continue;
		if (unit->has_reduced)
			SRT_TRY(srt_op_add(stream, param->local_grad, param->local_grad,
					   param->unsharded_grad, param->nelem));
		else
			SRT_TRY(srt_copy(stream, param->local_grad.buffer, param->local_grad.offset,
					 param->unsharded_grad.buffer, param->unsharded_grad.offset,
					 param->nbytes));
	}
	return SRT_OK;
}

static srt_status_t start_reduction(srt_unit_t *unit, srt_stream_t *stream)
{
	srt_engine_t *engine = unit->engine;
	bool shared_slot = srt_plan_grad_location(engine, engine->world) == SRT_GRAD_IN_SHARED_SLOT;
	bool sharded = unit->engine->options.strategy == SRT_STRATEGY_ZERO3;
	srt_coll_epilogue_t epilogue = {
		.divisor = engine->options.reduction == SRT_REDUCE_MEAN ? (float)engine->world : 0,
		.accumulate = sharded && unit->has_reduced,
	};

	/* Edge: the program's gradients -> the reduction that reads them. */
	SRT_TRY(order_streams(engine, stream, engine->comm_stream));
	SRT_TRY(srt_coll_start(unit->reduce, &epilogue, engine->comm_stream));
	if (shared_slot && !sharded)
		SRT_TRY(add_to_arena(unit, engine->comm_stream));
	return srt_event_record(unit->reduced, engine->comm_stream);
}

/* The unit's gradients of this micro-batch are final on this rank. */
srt_status_t srt_reduce_begin(srt_unit_t *unit, srt_stream_t *stream)
{
	srt_engine_t *engine = unit->engine;
	srt_grad_location_t place = srt_plan_grad_location(engine, engine->world);

	unit->backward_done = true;
	if (unit->grad_slot == NULL)
		return SRT_OK;
	if (place != SRT_GRAD_IN_SHARED_SLOT && !is_last_microbatch(engine)) {
		/* Stays unsharded; the next micro-batch adds to it, perhaps on another stream. */
		unit->keeps_grads = true;
		return srt_event_record(unit->reduced, stream);
	}
	unit->keeps_grads = false;
	SRT_TRY(zero_missing(unit, stream));
	unit->grad_slot->writer = NULL;
	if (unit->reduce != NULL) {
		SRT_TRY(start_reduction(unit, stream));
		unit->grad_slot->holder = unit;
	} else { /* Edge: the program's gradients -> the step, which waits for comm_stream. */
		SRT_TRY(order_streams(engine, stream, engine->comm_stream));
	}
	unit->has_reduced = true;
	return SRT_OK;
}

/* Ends a micro-batch: reduces the units whose backward did not run in it. */
srt_status_t srt_reduce_end_microbatch(srt_engine_t *engine, srt_stream_t *stream)
{
	for (size_t u = 0; u < engine->nunits; u++) {
		srt_unit_t *unit = engine->units[u];

		if (unit->in_backward)
			return srt_fail(
				SRT_ERR_STATE,
				"the micro-batch ends inside the backward pass of unit '%s': "
				"call srt_unit_backward_end() first",
				unit->name);
		if (!unit->backward_done) {
			SRT_TRY(srt_reduce_prepare(unit, stream));
			SRT_TRY(srt_reduce_begin(unit, stream));
		}
		unit->backward_done = false;
	}
	engine->backward_begun = false;
	return SRT_OK;
}

/* Later work on `stream` comes after all reductions of the step. */
srt_status_t srt_reduce_join(srt_engine_t *engine, srt_stream_t *stream)
{
	/* Edge: all reductions of the step -> norm and optimizer. */
	return order_streams(engine, engine->comm_stream, stream);
}

/* This rank's flags -> staging.flags, unless it has the same flags from the last step. */
static srt_status_t upload_flags(srt_engine_t *engine, srt_stream_t *stream)
{
	bool changed = !engine->flags_uploaded;

	for (size_t i = 0; i < engine->nparams; i++) {
		const srt_param_t *param = engine->params[i];
		const float flag = param->used ? 1.0f : 0.0f;
		float *old;

		if (param->frozen)
			continue;
		old = &engine->flags[SRT_FLAG_NELEM * (size_t)param->trainable];
		changed |= *old != flag;
		*old = flag;
	}
	if (!changed)
		return SRT_OK;
	engine->flags_uploaded = false;
	/* Edge: the peers' reading of the last step's flags -> the new ones. */
	SRT_TRY(srt_coll_wait_readers(engine->reduce_flags, stream));
	SRT_TRY(srt_copy_from_host(stream, engine->staging, engine->memory.staging.flags,
				   engine->flags, engine->ntrainable * sizeof(srt_param_state_t)));
	engine->flags_uploaded = true;
	return SRT_OK;
}

/*
 * Sets srt_param_state_t.used: whether any rank has a gradient for the parameter. The host does not
 * wait: each rank's flags (1.0f or 0.0f) are summed on the device, and the bits of the sums are
 * copied to the fields. The bits are zero exactly if all flags are zero.
 */
srt_status_t srt_reduce_flags(srt_engine_t *engine, srt_stream_t *stream)
{
	const srt_staging_t *staging = &engine->memory.staging;
	size_t pitch = sizeof(srt_param_state_t), n = engine->ntrainable;
	const srt_copy_rows_t rows = {
		.dst_offset = staging->params + offsetof(srt_param_state_t, used),
		.src_offset = staging->used,
		.dst_pitch = pitch,
		.src_pitch = pitch,
		.width = sizeof(float),
		.nrows = n,
	};

	if (n == 0)
		return SRT_OK;
	SRT_TRY(upload_flags(engine, stream));
	SRT_TRY(srt_coll_start(engine->reduce_flags, NULL, stream));
	return srt_copy_rows(stream, engine->staging, engine->staging, &rows);
}

/* Ends the step: no gradient of it is left, and the next micro-batch is the first. */
void srt_reduce_clear(srt_engine_t *engine)
{
	for (size_t i = 0; i < engine->nparams; i++) {
		engine->params[i]->written = false;
		engine->params[i]->used = false;
	}
	for (size_t u = 0; u < engine->nunits; u++) {
		srt_unit_t *unit = engine->units[u];

		unit->backward_done = false;
		unit->has_reduced = false;
		unit->keeps_grads = false;
		if (unit->grad_slot != NULL)
			unit->grad_slot->writer = NULL;
	}
	engine->microbatch = 0;
	engine->nmicrobatches = 1;
	engine->microbatch_over = false;
	engine->backward_begun = false;
	engine->any_backward = false;
}
