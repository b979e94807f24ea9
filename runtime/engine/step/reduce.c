/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduction: the unsharded gradients of a unit, written by the program -> the owners' shards.
 *
 *     unsharded_grad, compute dtype   as the program wrote it
 *     summed_grad, reduce dtype       the same memory if the dtypes are equal, else converted
 *     summed over ranks               sharded: reduce-scatter; ddp: all-reduce in place; hybrid:
 *                                     reduce-scatter within a replica, then all-reduce of the
 *                                     shards over the replicas; one rank: nothing
 *     device_grad, stored dtype       the shard; the sum is converted if the dtypes differ; with
 *                                     offload it goes to the host: offload.c
 *
 * The sum is the tree of docs/numerics.md with the divisions of srt_average_t. With several
 * micro-batches either each one is reduced and the reduced shards are added, or unreduced gradients
 * are added, in the dtype that srt_unit_types_t names, and reduced at the last one. In each mode
 * all strategies do the same additions in the same order. unit->flow says what is done of this, and
 * which of these tensors share memory (flow.c).
 *
 * A gradient that this rank does not have counts as +0. Units that did not run backward are
 * reduced at the end of the micro-batch, in order of declaration.
 */
#include "device/device.h"
#include "runtime/engine/checks/audit.h"
#include "runtime/engine/layout/layout.h"
#include "runtime/engine/step/step.h"

static bool is_last_microbatch(const srt_engine_t *engine)
{
	return engine->step.microbatch == engine->step.nmicrobatches - 1;
}

/* Makes the memory of the unit's unsharded gradients writable for `stream`. */
srt_status_t srt_reduce_prepare(srt_unit_t *unit, srt_stream_t *stream)
{
	srt_engine_t *engine = unit->engine;
	srt_slot_t *slot = unit->slot[SRT_SLOT_GRADS];

	if (slot == NULL)
		return SRT_OK;
	if (slot->writer != NULL && slot->writer != unit)
		return srt_fail(
			SRT_ERR_STATE,
			"unit '%s' needs the gradient memory of unit '%s', whose backward pass has "
			"not ended: end it first, or declare them as parent and child",
			unit->name, slot->writer->name);
	/* Edge: norm and optimizer of the last step, which read the arena -> new gradients. */
	SRT_TRY(srt_stream_wait_event(stream, engine->order.stepped));
	if (slot->holder != NULL) {
		/* Edge: this rank's reading of the slot's last gradients -> new gradients. */
		SRT_TRY(srt_stream_wait_event(stream, slot->holder->grads.reduced));
		/* Edge: the peers' reductions, which read the slot -> new gradients. */
		if (!slot->holder->flow.sums_apart && slot->holder->grads.reduce != NULL)
			SRT_TRY(srt_coll_wait_readers(slot->holder->grads.reduce, stream));
		slot->holder = NULL;
	}
	if (unit->grads.keeps_grads) /* Edge: additions of earlier micro-batches -> this one's. */
		SRT_TRY(srt_stream_wait_event(stream, unit->grads.reduced));
	slot->writer = unit;
	return SRT_OK;
}

/* What no micro-batch wrote takes part in the sum as +0. */
static srt_status_t zero_missing(srt_unit_t *unit, srt_stream_t *stream)
{
	size_t elem = srt_dtype_size(unit->types.reduce);

	for (size_t i = 0; i < unit->nparams; i++) {
		srt_param_t *param = unit->params[i];
		bool missing = unit->flow.sums_apart ? !param->grad.summed : !param->grad.written;

		if (!param->frozen && missing && param->nelem > 0)
			SRT_TRY(srt_buffer_zero(param->views.summed_grad.buffer,
						param->views.summed_grad.offset,
						(size_t)param->nelem * elem, stream));
		param->grad.written = param->grad.summed = false;
	}
	return SRT_OK;
}

srt_status_t srt_reduce_store(srt_view_t y, srt_view_t x, int64_t nelem, bool add,
			      srt_stream_t *stream)
{
	if (nelem == 0)
		return SRT_OK;
	if (add)
		return srt_op_accumulate(y, x, nelem, stream);
	if (y.dtype != x.dtype)
		return srt_op_cast(y, x, nelem, stream);
	return srt_buffer_copy(y.buffer, y.offset, x.buffer, x.offset,
			       (size_t)nelem * srt_dtype_size(y.dtype), stream);
}

/* The sum of 2^level micro-batches; 2^level of them follow before it is added to another one. */
static srt_view_t partial_sum(const srt_param_t *param, int level)
{
	srt_view_t view = param->views.summed_grad;

	view.offset +=
		(size_t)(1 + level) * param->unit->trainable_nelem * srt_dtype_size(view.dtype);
	return view;
}

/*
 * A micro-batch in the tree of all micro-batches of the step (docs/numerics.md, Accumulation). The
 * levels are a binary counter: the sum of this micro-batch and those before it that are complete
 * with it goes to the level that the counter's carry reaches, after the last one to summed_grad.
 */
static srt_status_t add_leaf(srt_param_t *param, srt_stream_t *stream)
{
	const srt_engine_t *engine = param->unit->engine;
	srt_view_t sum = param->views.summed_grad;
	int ncarries = 0;

	while ((engine->step.microbatch >> ncarries & 1) != 0)
		ncarries++;
	if (!is_last_microbatch(engine))
		sum = partial_sum(param, ncarries);
	if (param->grad.written)
		SRT_TRY(srt_reduce_store(sum, param->views.unsharded_grad, param->nelem, false,
					 stream));
	else if (param->nelem > 0)
		SRT_TRY(srt_buffer_zero(sum.buffer, sum.offset,
					(size_t)param->nelem * srt_dtype_size(sum.dtype), stream));
	for (int level = 0; level < ncarries; level++)
		SRT_TRY(srt_reduce_store(sum, partial_sum(param, level), param->nelem, true,
					 stream));
	return SRT_OK;
}

/* The gradients of this micro-batch -> summed_grad, in the reduce dtype. */
static srt_status_t add_to_sums(srt_unit_t *unit, srt_stream_t *stream)
{
	srt_stream_t *comm_stream = unit->engine->comm_stream;
	srt_slot_t *slot = unit->slot[SRT_SLOT_SUMS];

	/* Edge: the program's gradients -> their conversion. */
	SRT_TRY(srt_order_streams(unit->engine, stream, comm_stream));
	if (slot->holder != NULL) {
		/* Edge: the peers' reductions, which read the sums -> the new ones. */
		SRT_TRY(srt_coll_wait_readers(slot->holder->grads.reduce, comm_stream));
		slot->holder = NULL;
	}
	for (size_t i = 0; i < unit->nparams; i++) {
		srt_param_t *param = unit->params[i];

		if (param->frozen)
			continue;
		if (unit->flow.is_tree)
			SRT_TRY(add_leaf(param, comm_stream));
		else if (param->grad.written)
			SRT_TRY(srt_reduce_store(param->views.summed_grad,
						 param->views.unsharded_grad, param->nelem,
						 param->grad.summed, comm_stream));
		param->grad.summed |= param->grad.written || unit->flow.is_tree;
		param->grad.written = false;
	}
	unit->slot[SRT_SLOT_GRADS]->writer = NULL;
	unit->slot[SRT_SLOT_GRADS]->holder = unit;
	unit->grads.keeps_grads = false;
	return srt_event_record(unit->grads.reduced, comm_stream);
}

/* The sums over ranks -> the shards in the stored dtype, where they are not there yet. */
static srt_status_t store_reduced(srt_unit_t *unit, srt_stream_t *stream)
{
	const srt_unit_flow_t *flow = &unit->flow;

	for (size_t i = 0; flow->stores && i < unit->nparams; i++) {
		const srt_param_t *param = unit->params[i];
		const srt_param_views_t *views = &param->views;

		if (!param->frozen)
			SRT_TRY(srt_reduce_store(flow->downloads ? views->reduced_grad :
								   views->device_grad,
						 flow->is_sharded ? views->reduced_grad :
								    views->summed_grad,
						 param->shard.nelem,
						 !flow->downloads && unit->grads.has_reduced,
						 stream));
	}
	return srt_download(unit);
}

/* One rank: what a reduction over ranks would do besides adding. */
static srt_status_t divide_sums(srt_unit_t *unit, srt_stream_t *stream)
{
	const float divisors[] = { unit->flow.predivisor, unit->flow.divisor };

	for (size_t i = 0; i < 2 * unit->nparams; i++) {
		const srt_param_t *param = unit->params[i / 2];
		const float divisor = divisors[i % 2];

		if (!param->frozen && param->nelem > 0 && divisor != 1.0f)
			SRT_TRY(srt_op_divide(param->views.summed_grad, param->views.summed_grad,
					      divisor, param->nelem, stream));
	}
	return SRT_OK;
}

/* The sums within the replicas -> the sum over the replicas, divided, in the reduce dtype. */
static srt_status_t sum_replicas(srt_unit_t *unit, srt_stream_t *stream)
{
	const float divisor = unit->flow.divisor;
	const bool rounds = unit->grads.reduced_sums.buffer != NULL;
	const int64_t nelem = (int64_t)unit->grads.shard_nelem;
	srt_coll_epilogue_t epilogue = SRT_COLL_EPILOGUE_INIT;

	if (!rounds)
		epilogue.divisor = divisor;
	SRT_TRY(srt_coll_start(unit->grads.all_reduce, &epilogue, stream));
	unit->engine->step.partial_user = unit;
	unit->grads.has_partial = false;
	if (!rounds || nelem == 0)
		return SRT_OK;
	SRT_TRY(srt_reduce_store(unit->grads.reduced_sums, unit->grads.partial_sums, nelem, false,
				 stream));
	if (divisor == 1.0f)
		return SRT_OK;
	return srt_op_divide(unit->grads.reduced_sums, unit->grads.reduced_sums, divisor, nelem,
			     stream);
}

/* The sums over all ranks are queued on `stream`: they go to the shards. */
static srt_status_t end_reduction(srt_unit_t *unit, srt_stream_t *stream)
{
	SRT_TRY(store_reduced(unit, stream));
	unit->grads.has_reduced = true;
	SRT_TRY(srt_event_record(unit->grads.reduced, stream));
	return srt_audit_end(unit, SRT_AUDIT_REDUCED);
}

/* start_reduction() for shards that have replicas. */
static srt_status_t start_hybrid(srt_unit_t *unit, srt_stream_t *stream)
{
	srt_engine_t *engine = unit->engine;
	const srt_unit_flow_t *flow = &unit->flow;
	srt_coll_epilogue_t epilogue = SRT_COLL_EPILOGUE_INIT;
	/* Whose sums the memory had last: its own, or those of a unit that shares it. */
	const srt_unit_t *last = flow->defers_replicas ? unit : engine->step.partial_user;

	epilogue.predivisor = flow->predivisor;
	epilogue.accumulate = unit->grads.has_partial;
	if (last != NULL && !unit->grads.has_partial)
		/* Edge: the peers' reading of the last sums -> the new ones. */
		SRT_TRY(srt_coll_wait_readers(last->grads.all_reduce, stream));
	SRT_TRY(srt_audit_begin(unit, SRT_AUDIT_PARTIAL));
	SRT_TRY(srt_coll_start(unit->grads.reduce, &epilogue, stream));
	unit->slot[flow->summed_slot]->holder = unit;
	unit->grads.has_partial = true;
	SRT_TRY(srt_audit_end(unit, SRT_AUDIT_PARTIAL));
	if (flow->defers_replicas && !is_last_microbatch(engine))
		return srt_event_record(unit->grads.reduced, stream);
	SRT_TRY(srt_audit_begin(unit, SRT_AUDIT_REDUCED));
	SRT_TRY(sum_replicas(unit, stream));
	return end_reduction(unit, stream);
}

/* Sums over ranks on the communication stream; the unit's sums are complete there. */
static srt_status_t start_reduction(srt_unit_t *unit)
{
	srt_stream_t *stream = unit->engine->comm_stream;
	const srt_unit_flow_t *flow = &unit->flow;
	srt_coll_epilogue_t epilogue = SRT_COLL_EPILOGUE_INIT;

	epilogue.predivisor = flow->predivisor;
	epilogue.divisor = flow->divisor;
	epilogue.accumulate = flow->accumulates && unit->grads.has_reduced;
	SRT_TRY(srt_download_prepare(unit));
	if (unit->grads.all_reduce != NULL)
		return start_hybrid(unit, stream);
	SRT_TRY(srt_audit_begin(unit, SRT_AUDIT_REDUCED));
	if (unit->grads.reduce != NULL) {
		SRT_TRY(srt_coll_start(unit->grads.reduce, &epilogue, stream));
		unit->slot[flow->summed_slot]->holder = unit;
	} else if (!flow->sums_in_shard) {
		SRT_TRY(divide_sums(unit, stream));
		unit->slot[SRT_SLOT_GRADS]->holder = unit;
	}
	return end_reduction(unit, stream);
}

/* The unit's gradients of this micro-batch are final on this rank. */
srt_status_t srt_reduce_begin(srt_unit_t *unit, srt_stream_t *stream)
{
	srt_engine_t *engine = unit->engine;
	const srt_unit_flow_t *flow = &unit->flow;
	const bool deferred = flow->defers && !is_last_microbatch(engine);

	unit->grads.backward_done = true;
	if (unit->slot[SRT_SLOT_GRADS] == NULL)
		return SRT_OK;
	if (deferred && flow->keeps_grads) {
		/* Stays unsharded; the next micro-batch adds to it, perhaps on another stream. */
		unit->grads.keeps_grads = true;
		return srt_event_record(unit->grads.reduced, stream);
	}
	SRT_TRY(srt_audit_record(unit, stream));
	if (flow->sums_apart)
		SRT_TRY(add_to_sums(unit, stream));
	if (deferred)
		return SRT_OK;
	unit->grads.keeps_grads = false;
	SRT_TRY(zero_missing(unit, flow->sums_apart ? engine->comm_stream : stream));
	unit->slot[SRT_SLOT_GRADS]->writer = NULL;
	if (!flow->sums_apart) /* Edge: the program's gradients -> the reduction of them. */
		SRT_TRY(srt_order_streams(engine, stream, engine->comm_stream));
	return start_reduction(unit);
}

/* Ends a micro-batch: reduces the units whose backward did not run in it. */
srt_status_t srt_reduce_end_microbatch(srt_engine_t *engine, srt_stream_t *stream)
{
	for (size_t u = 0; u < engine->nunits; u++) {
		srt_unit_t *unit = engine->units[u];

		if (unit->pass.in_backward)
			return srt_fail(
				SRT_ERR_STATE,
				"the micro-batch ends inside the backward pass of unit '%s': "
				"call srt_unit_backward_end() first",
				unit->name);
		if (!unit->grads.backward_done) {
			SRT_TRY(srt_reduce_prepare(unit, stream));
			SRT_TRY(srt_reduce_begin(unit, stream));
		}
		unit->grads.backward_done = false;
	}
	engine->step.backward_begun = false;
	return SRT_OK;
}

/* Later work on `stream` comes after all reductions of the step. */
srt_status_t srt_reduce_join(srt_engine_t *engine, srt_stream_t *stream)
{
	/* Edge: all reductions of the step -> norm and optimizer. */
	return srt_order_streams(engine, engine->comm_stream, stream);
}

/* This rank's flags -> staging.flags, unless it has the same flags from the last step. */
static srt_status_t upload_flags(srt_engine_t *engine, srt_stream_t *stream)
{
	bool changed = !engine->scalars.flags_uploaded;

	for (size_t i = 0; i < engine->nparams; i++) {
		const srt_param_t *param = engine->params[i];
		const float flag = param->grad.used ? 1.0f : 0.0f;
		float *old;

		if (param->frozen)
			continue;
		old = &engine->scalars.flags[SRT_FLAG_NELEM * (size_t)param->trainable];
		changed |= *old != flag;
		*old = flag;
	}
	if (!changed)
		return SRT_OK;
	engine->scalars.flags_uploaded = false;
	/* Edge: the peers' reading of the last step's flags -> the new ones. */
	SRT_TRY(srt_coll_wait_readers(engine->scalars.reduce_flags, stream));
	SRT_TRY(srt_buffer_copy_from_host(engine->storage.exchange, engine->memory.staging.flags,
					  engine->scalars.flags,
					  engine->declared.ntrainable * sizeof(srt_k_param_state_t),
					  stream));
	engine->scalars.flags_uploaded = true;
	return SRT_OK;
}

/*
 * Sets srt_k_param_state_t.used: whether any rank has a gradient for the parameter. The host does
 * not wait: each rank's flags (1.0f or 0.0f) are summed on the device, and the bits of the sums are
 * copied to the fields. The bits are zero exactly if all flags are zero.
 */
srt_status_t srt_reduce_flags(srt_engine_t *engine, srt_stream_t *stream)
{
	const srt_staging_t *staging = &engine->memory.staging;
	size_t pitch = sizeof(srt_k_param_state_t), n = engine->declared.ntrainable;
	const srt_copy_rows_t rows = {
		.dst_offset = staging->params + offsetof(srt_k_param_state_t, used),
		.src_offset = staging->used,
		.dst_pitch = pitch,
		.src_pitch = pitch,
		.width = sizeof(float),
		.nrows = n,
	};

	srt_stream_t *home;

	if (n == 0)
		return SRT_OK;
	SRT_TRY(upload_flags(engine, stream));
	SRT_TRY(srt_coll_start(engine->scalars.reduce_flags, NULL, stream));
	if (engine->home.stream != NULL) {
		/* Edge: the last step, which read the old ones -> the copy. */
		SRT_TRY(srt_stream_wait_event(stream, engine->order.stepped));
		SRT_TRY(srt_buffer_copy(engine->storage.staging_alias, staging->used,
					engine->storage.exchange, staging->used, n * pitch,
					stream));
	}
	SRT_TRY(srt_home_enter(engine, stream, &home));
	return srt_copy_rows(home, engine->storage.staging, engine->storage.staging, &rows);
}

/* Ends the step: no gradient of it is left, and the next micro-batch is the first. */
void srt_reduce_clear(srt_engine_t *engine)
{
	for (size_t i = 0; i < engine->nparams; i++) {
		engine->params[i]->grad.written = engine->params[i]->grad.summed = false;
		engine->params[i]->grad.used = false;
	}
	for (size_t u = 0; u < engine->nunits; u++) {
		srt_unit_t *unit = engine->units[u];

		unit->grads.backward_done = false;
		unit->grads.has_reduced = false;
		unit->grads.has_partial = false;
		unit->grads.keeps_grads = false;
		srt_audit_drop(unit);
		if (unit->slot[SRT_SLOT_GRADS] != NULL)
			unit->slot[SRT_SLOT_GRADS]->writer = NULL;
	}
	engine->checks.nonfinite = NULL;
	engine->step.microbatch = 0;
	engine->step.nmicrobatches = 1;
	engine->step.microbatch_over = false;
	engine->step.backward_begun = false;
	engine->step.any_backward = false;
	engine->step.finished = engine->step.clipped = false;
}
