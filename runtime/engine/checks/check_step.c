/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SHARDRT_CHECK=1: memory that the program must not read has NaN, and each step looks for NaN and
 * infinity. A gradient that is added to without being cleared, and a view that is used after the
 * end of its unit, show as such. Operations on such a view, or beyond its parameter, are refused.
 * Values that the program changes outside of the calls for it show by their hash: shards, and what
 * was gathered of them. Values of a right program do not change: what is filled here is overwritten
 * before it is read. Slow: tensors are copied to the host.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/comm.h"
#include "runtime/engine/checks/checks.h"
#include "runtime/engine/layout/layout.h"

srt_status_t srt_check_begin_grads(const srt_unit_t *unit, srt_stream_t *stream)
{
	const srt_engine_t *engine = unit->engine;

	for (size_t i = 0; i < unit->nparams; i++) {
		const srt_param_t *param = unit->params[i];
		const size_t elem = srt_dtype_bits(unit->types.compute) / 8;

		if (param->frozen || param->grad.written || param->nelem == 0)
			continue;
		if (engine->options.clear_grads)
			SRT_TRY(srt_buffer_zero(param->views.unsharded_grad.buffer,
						param->views.unsharded_grad.offset,
						(size_t)param->nelem * elem, stream));
		else if (engine->checks.on)
			SRT_TRY(srt_op_fill(param->views.unsharded_grad, NAN, param->nelem,
					    stream));
	}
	return SRT_OK;
}

static bool is_finite(const unsigned char *bytes, size_t nelem, srt_dtype_t dtype)
{
	for (size_t i = 0; i < nelem; i++) {
		uint32_t bits = 0, infinity = 0x7f800000u;

		if (dtype == SRT_F32) {
			memcpy(&bits, bytes + 4 * i, 4);
		} else {
			uint16_t half;

			memcpy(&half, bytes + 2 * i, 2);
			bits = half;
			infinity = dtype == SRT_F16 ? 0x7c00u : 0x7f80u;
		}
		if ((bits & infinity) == infinity)
			return false;
	}
	return true;
}

/* To be freed. Waits for the stream. */
static srt_status_t read_tensor(srt_view_t view, int64_t nelem, srt_stream_t *stream,
				unsigned char **host)
{
	const size_t nbytes = (size_t)nelem * (srt_dtype_bits(view.dtype) / 8);
	srt_status_t status;

	*host = srt_calloc(1, nbytes, "a tensor to be checked");
	if (*host == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_buffer_copy_to_host(*host, view.buffer, view.offset, nbytes, stream);
	if (status != SRT_OK)
		free(*host);
	return status;
}

/* Waits for the stream. */
static srt_status_t check_finite(srt_view_t view, int64_t nelem, srt_stream_t *stream, bool *finite)
{
	unsigned char *host;

	*finite = true;
	if (nelem == 0 || view.dtype == SRT_U8)
		return SRT_OK;
	SRT_TRY(read_tensor(view, nelem, stream, &host));
	*finite = is_finite(host, (size_t)nelem, view.dtype);
	free(host);
	return SRT_OK;
}

/* Waits for the stream. */
static srt_status_t hash_tensor(srt_view_t view, int64_t nelem, srt_stream_t *stream,
				uint64_t *hash)
{
	unsigned char *host;

	*hash = 0;
	if (nelem == 0)
		return SRT_OK;
	SRT_TRY(read_tensor(view, nelem, stream, &host));
	*hash = srt_hash64(0, host, (size_t)nelem * srt_dtype_size(view.dtype));
	free(host);
	return SRT_OK;
}

/* Hash of this rank's shard of the values, and of its copy in the compute dtype. Waits for the
 * stream. */
static srt_status_t hash_values(const srt_param_t *param, srt_stream_t *stream, uint64_t *hash)
{
	uint64_t copy;

	SRT_TRY(hash_tensor(param->views.local, param->shard.nelem, stream, hash));
	if (param->views.local_compute.buffer == NULL)
		return SRT_OK;
	SRT_TRY(hash_tensor(param->views.local_compute, param->shard.nelem, stream, &copy));
	*hash = srt_mix64(*hash, copy);
	return SRT_OK;
}

srt_status_t srt_check_record(srt_param_t *param, srt_stream_t *stream)
{
	return param->unit->engine->checks.on ? hash_values(param, stream, &param->checks.hash) :
						SRT_OK;
}

srt_status_t srt_check_record_all(srt_engine_t *engine, srt_stream_t *stream)
{
	for (size_t i = 0; i < engine->nparams; i++)
		SRT_TRY(srt_check_record(engine->params[i], stream));
	return SRT_OK;
}

srt_status_t srt_check_unchanged(const srt_unit_t *unit, srt_stream_t *stream)
{
	const srt_engine_t *engine = unit->engine;
	srt_stream_t *home;
	uint64_t hash;

	if (!engine->checks.on || engine->writes.open)
		return SRT_OK;
	/* Edge: the library's last change, perhaps on another stream -> this read. */
	SRT_TRY(srt_stream_wait_event(stream, engine->order.stepped));
	SRT_TRY(srt_home_enter(unit->engine, stream, &home));
	for (size_t i = 0; i < unit->nparams; i++) {
		SRT_TRY(hash_values(unit->params[i], home, &hash));
		if (hash != unit->params[i]->checks.hash)
			return srt_fail(
				SRT_ERR_STATE,
				"rank %d: the values of parameter '%s' of unit '%s' were "
				"changed, by the program or by faulty memory: %s",
				srt_comm_world_rank(engine->comm, engine->rank),
				unit->params[i]->name, unit->name,
				engine->writes.unseen ?
					"change values before a forward pass, not from its "
					"begin to the end of its backward pass" :
					"call srt_engine_write_begin() before such a change "
					"and srt_engine_write_end() after it");
	}
	return SRT_OK;
}

srt_status_t srt_check_unsharded(srt_unit_t *unit, srt_stream_t *stream)
{
	const srt_engine_t *engine = unit->engine;
	uint64_t hash;

	if (!engine->checks.on)
		return SRT_OK;
	for (size_t i = 0; i < unit->nparams; i++) {
		srt_param_t *param = unit->params[i];

		SRT_TRY(hash_tensor(param->views.unsharded, param->nelem, stream, &hash));
		if (!unit->is_hashed)
			param->checks.unsharded_hash = hash;
		if (hash != param->checks.unsharded_hash)
			return srt_fail(
				SRT_ERR_STATE,
				"rank %d: the gathered values of parameter '%s' of unit '%s' were "
				"changed, by the program or by faulty memory: a program may only "
				"read them between begin and end of the unit; it changes values "
				"between srt_engine_write_begin() and srt_engine_write_end()",
				srt_comm_world_rank(engine->comm, engine->rank), param->name,
				unit->name);
	}
	unit->is_hashed = true;
	return SRT_OK;
}

/* ---- views that the program gets ----------------------------------------------------------- */

srt_status_t srt_check_view(srt_param_t *param, bool is_grad, srt_view_t *view)
{
	const size_t nbytes = (size_t)param->nelem * srt_dtype_size(view->dtype);
	srt_buffer_t **window = &param->checks.window[is_grad];
	char *name;
	srt_status_t status;

	if (!param->unit->engine->checks.on || view->buffer == NULL)
		return SRT_OK;
	if (*window == NULL) {
		name = srt_asprintf("%s parameter '%s'",
				    is_grad ? "the gradient of" : "the values of", param->name);
		if (name == NULL)
			return SRT_ERR_OUT_OF_MEMORY;
		status = srt_buffer_window(view->buffer, view->offset, nbytes, name, window);
		free(name);
		if (status != SRT_OK)
			return status;
	}
	(*window)->is_closed =
		is_grad ? !param->unit->pass.in_backward : !srt_unit_in_use(param->unit);
	view->buffer = *window;
	return SRT_OK;
}

void srt_check_set_views(const srt_unit_t *unit)
{
	for (size_t i = 0; unit->engine->checks.on && i < unit->nparams; i++) {
		srt_buffer_t *const *window = unit->params[i]->checks.window;

		if (window[false] != NULL)
			window[false]->is_closed = !srt_unit_in_use(unit);
		if (window[true] != NULL)
			window[true]->is_closed = !unit->pass.in_backward;
	}
}

srt_status_t srt_check_end_grads(srt_unit_t *unit, srt_stream_t *stream)
{
	srt_engine_t *engine = unit->engine;

	for (size_t i = 0; engine->checks.on && i < unit->nparams; i++) {
		const srt_param_t *param = unit->params[i];
		bool finite;

		if (!param->grad.ready || engine->checks.nonfinite != NULL)
			continue;
		SRT_TRY(check_finite(param->views.unsharded_grad, param->nelem, stream, &finite));
		if (!finite)
			engine->checks.nonfinite = param;
	}
	return SRT_OK;
}

/* This rank's findings before the optimizer. */
static srt_status_t check_gradients(const srt_engine_t *engine)
{
	const srt_param_t *param = engine->checks.nonfinite;

	SRT_TRY(srt_engine_check(engine));
	if (param == NULL)
		return SRT_OK;
	if (engine->options.skip_nonfinite || engine->step.found_inf) {
		srt_log(SRT_LOG_WARN,
			"rank %d: the gradient of parameter '%s' has an infinity or NaN in step "
			"%llu, which is skipped",
			engine->rank, param->name, (unsigned long long)engine->step.nsteps + 1);
		return SRT_OK;
	}
	return srt_fail(SRT_ERR_STATE,
			"the gradient of parameter '%s' has an infinity or NaN in step %llu: its "
			"compute did not write all elements, added to them although accumulate was "
			"0, used a view after the end of its unit, or overflowed",
			param->name, (unsigned long long)engine->step.nsteps + 1);
}

static srt_status_t check_unchanged_all(const srt_engine_t *engine, srt_stream_t *stream)
{
	for (size_t u = 0; u < engine->nunits; u++)
		SRT_TRY(srt_check_unchanged(engine->units[u], stream));
	return SRT_OK;
}

static srt_status_t check_values(srt_engine_t *engine, const char *when, srt_stream_t *stream)
{
	srt_stream_t *home;

	SRT_TRY(srt_home_enter(engine, stream, &home));
	for (size_t i = 0; i < engine->nparams; i++) {
		const srt_param_t *param = engine->params[i];
		bool finite;

		SRT_TRY(check_finite(param->views.local, param->shard.nelem, home, &finite));
		if (!finite)
			return srt_fail(SRT_ERR_STATE,
					"parameter '%s' has an infinity or NaN %s step %llu",
					param->name, when,
					(unsigned long long)engine->step.nsteps + 1);
	}
	return SRT_OK;
}

srt_status_t srt_check_before_step(srt_engine_t *engine, srt_stream_t *stream)
{
	srt_status_t status;

	if (!engine->checks.on)
		return SRT_OK;
	SRT_TRY(srt_stream_wait_event(stream, engine->order.stepped));
	status = engine->writes.unseen ? SRT_OK : check_unchanged_all(engine, stream);
	if (status == SRT_OK)
		status = check_values(engine, "before", stream);
	if (status == SRT_OK)
		status = check_gradients(engine);
	return srt_comm_status_consensus(engine->comm, "checking the step", status);
}

srt_status_t srt_check_after_step(srt_engine_t *engine, srt_stream_t *stream)
{
	srt_stream_t *home;

	if (!engine->checks.on)
		return SRT_OK;
	SRT_TRY(srt_home_enter(engine, stream, &home));
	SRT_TRY(srt_check_record_all(engine, home));
	return srt_comm_status_consensus(engine->comm, "checking the step",
					 check_values(engine, "after", stream));
}
