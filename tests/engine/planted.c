/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime/engine/layout/layout.h"
#include "tests/engine/planted.h"
#include "tests/harness/half.h"

struct planted_fault fault;

static void plant(srt_view_t view, srt_stream_t *stream)
{
	const srt_engine_t *engine = fault.param->unit->engine;
	const size_t size = srt_dtype_size(view.dtype);
	const size_t at = view.offset + (size_t)fault.element * size;
	unsigned char bytes[8] = { 0 }, other[8];
	float x;

	srt_coll_t *coll = fault.param->unit->grads.all_reduce != NULL ?
				   fault.param->unit->grads.all_reduce :
				   fault.param->unit->grads.reduce;

	if (fault.planted || fault.rank != srt_comm_rank(engine->comm) ||
	    fault.micro != engine->step.microbatch)
		return;
	if (fault.where != BEFORE_SUM && coll != NULL) /* of a sum in place */
		CHECK_OK_OR_DIE(srt_coll_wait_readers(coll, stream));
	CHECK_OK_OR_DIE(srt_buffer_copy_to_host(bytes, view.buffer, at,
						fault.change == EXCHANGE ? 2 * size : size,
						stream));
	x = fault.change == SET ? fault.delta : half_get(view.dtype, bytes, 0) + fault.delta;
	if (fault.change == EXCHANGE) {
		memcpy(other, bytes + size, size);
		memcpy(other + size, bytes, size);
		CHECK(memcmp(bytes, bytes + size, size) != 0);
	} else {
		half_put(view.dtype, other, 0, x);
		CHECK(memcmp(bytes, other, size) != 0);
	}
	CHECK_OK_OR_DIE(srt_buffer_copy_from_host(view.buffer, at, other,
						  fault.change == EXCHANGE ? 2 * size : size,
						  stream));
	CHECK_OK_OR_DIE(srt_stream_sync(stream));
	fault.planted = true;
}

/* This rank's shard in what the unit's collectives store. */
static srt_view_t summed_shard(const srt_param_t *param)
{
	const srt_unit_t *unit = param->unit;
	srt_view_t view = param->views.reduced_grad, partial = unit->grads.partial_sums;

	if (!srt_roles_sharded(unit->engine, unit->engine->world))
		return param->views.summed_grad;
	if (partial.buffer == NULL || unit->grads.reduced_sums.buffer == NULL)
		return view;
	partial.offset += (view.offset - unit->grads.reduced_sums.offset) /
			  srt_dtype_size(view.dtype) * srt_dtype_size(partial.dtype);
	return partial;
}

srt_status_t __real_srt_coll_start(srt_coll_t *coll, const srt_coll_epilogue_t *epilogue,
				   srt_stream_t *stream);
srt_status_t __wrap_srt_coll_start(srt_coll_t *coll, const srt_coll_epilogue_t *epilogue,
				   srt_stream_t *stream);

srt_status_t __wrap_srt_coll_start(srt_coll_t *coll, const srt_coll_epilogue_t *epilogue,
				   srt_stream_t *stream)
{
	const srt_param_t *param = fault.param;
	srt_status_t status;

	if (param != NULL && fault.where == BEFORE_SUM && coll == param->unit->grads.reduce)
		plant(param->views.summed_grad, stream);
	status = __real_srt_coll_start(coll, epilogue, stream);
	if (param != NULL && status == SRT_OK &&
	    ((fault.where == AFTER_SUM && coll == param->unit->grads.reduce) ||
	     (fault.where == AFTER_SECOND && coll == param->unit->grads.all_reduce)))
		plant(summed_shard(param), stream);
	return status;
}

srt_status_t __real_srt_event_record(srt_event_t *event, srt_stream_t *stream);
srt_status_t __wrap_srt_event_record(srt_event_t *event, srt_stream_t *stream);

srt_status_t __wrap_srt_event_record(srt_event_t *event, srt_stream_t *stream)
{
	const srt_param_t *param = fault.param;
	srt_status_t status = __real_srt_event_record(event, stream);

	if (param == NULL || fault.where != AFTER_STORE || event != param->unit->grads.reduced ||
	    !param->unit->grads.has_reduced)
		return status;
	if (param->unit->engine->options.offload.grads)
		plant(param->views.local_grad, param->unit->engine->home.stream);
	else
		plant(param->views.device_grad, stream);
	return status;
}
