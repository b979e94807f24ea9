/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Buffers of units: tensors that are not trained, such as running statistics. Each rank has all of
 * them, in one run of memory, so that a broadcast from rank 0 is one collective.
 */
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "collectives/comm.h"
#include "runtime/engine/declare/declare.h"

void srt_unit_buffer_free(srt_unit_buffer_t *buffer)
{
	free(buffer->name);
	free(buffer);
}

srt_unit_buffer_t *srt_buffers_find(const srt_engine_t *engine, const char *name)
{
	return srt_names_find(&engine->declared.unit_buffers, name);
}

static srt_status_t check_buffer(const srt_unit_t *unit, const char *name, srt_dtype_t dtype,
				 int ndim, const int64_t *shape)
{
	srt_engine_t *engine = unit->engine;

	if (engine->build_begun)
		return srt_fail(SRT_ERR_STATE,
				"buffer '%s' is declared after srt_engine_build(): declare all "
				"buffers first",
				name);
	if (srt_engine_param_find(engine, name) != NULL || srt_buffers_find(engine, name) != NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"buffer '%s' is declared twice: names of parameters and buffers "
				"must be unique in an engine",
				name);
	if (srt_dtype_bits(dtype) < 8)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"buffer '%s' has dtype %s (%d), must have that of elements of "
				"whole bytes",
				name, srt_dtype_name(dtype), (int)dtype);
	if (ndim < 0 || ndim > SRT_MAX_DIMS)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"buffer '%s' has %d dimensions, must have 0 to %d", name, ndim,
				SRT_MAX_DIMS);
	for (int i = 0; i < ndim; i++) {
		if (shape[i] < 0)
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"buffer '%s' has size %lld in dimension %d, must be at "
					"least 0",
					name, (long long)shape[i], i);
	}
	return SRT_OK;
}

/* Sizes of the buffer and its place after the engine's others. */
static srt_status_t place_buffer(srt_unit_buffer_t *buffer, const int64_t *shape)
{
	srt_engine_t *engine = buffer->unit->engine;
	size_t nelem = 1, end;
	bool fits = true;

	for (int i = 0; i < buffer->ndim; i++) {
		buffer->shape[i] = shape[i];
		fits = fits && srt_mul_size(nelem, (size_t)shape[i], &nelem);
	}
	fits = fits && nelem <= INT64_MAX / 16 &&
	       srt_dtype_nbytes(buffer->dtype, nelem, &buffer->nbytes) == SRT_OK &&
	       srt_add_size(engine->unit_buffers.nbytes, buffer->nbytes, &end) &&
	       end <= SIZE_MAX / 16;
	if (!fits)
		return srt_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"buffer '%s' is too large: the buffers do not fit the address space",
			buffer->name);
	buffer->nelem = (int64_t)nelem;
	buffer->offset = engine->unit_buffers.nbytes;
	engine->unit_buffers.nbytes = srt_align_up(end, SRT_TENSOR_ALIGN);
	return SRT_OK;
}

srt_status_t srt_unit_buffer_create(srt_unit_t *unit, const char *name, srt_dtype_t dtype, int ndim,
				    const int64_t *shape, srt_unit_buffer_t **out)
{
	srt_unit_buffer_t **grown, *buffer;
	srt_engine_t *engine;
	srt_status_t status;

	SRT_NOT_NULL(unit);
	SRT_NOT_NULL(name);
	if (ndim > 0)
		SRT_NOT_NULL(shape);
	SRT_TRY(srt_check_not_null(out, __func__, "buffer"));
	if (name[0] == '\0')
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: name is empty", __func__);
	SRT_TRY(check_buffer(unit, name, dtype, ndim, shape));
	engine = unit->engine;
	SRT_TRY(srt_names_reserve(&engine->declared.unit_buffers));
	grown = srt_realloc(engine->unit_buffers.all, engine->unit_buffers.n + 1, sizeof(*grown),
			    "list of buffers");
	if (grown == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	engine->unit_buffers.all = grown;
	buffer = srt_calloc(1, sizeof(*buffer), name);
	if (buffer == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	buffer->unit = unit;
	buffer->ndim = ndim;
	buffer->dtype = srt_dtype_is_float(dtype) ? srt_dtype_or(unit->types.buffer, dtype) : dtype;
	buffer->name = srt_strdup(name);
	status = buffer->name == NULL ? SRT_ERR_OUT_OF_MEMORY : place_buffer(buffer, shape);
	if (status != SRT_OK) {
		srt_unit_buffer_free(buffer);
		return status;
	}
	engine->unit_buffers.all[engine->unit_buffers.n++] = buffer;
	srt_names_add(&engine->declared.unit_buffers, buffer->name, buffer);
	*out = buffer;
	return SRT_OK;
}

srt_status_t srt_buffers_create_broadcast(srt_engine_t *engine)
{
	const srt_coll_segment_t all = { .nelem = engine->unit_buffers.nbytes };
	size_t world = (size_t)engine->world;
	srt_coll_owner_t *owners;
	srt_coll_desc_t desc = {
		.size = sizeof(srt_coll_desc_t),
		.kind = SRT_COLL_BROADCAST,
		.name = "buffers",
		.dtype = SRT_U8,
		.full = srt_view(engine->unit_buffers.memory, 0, SRT_U8),
	};
	srt_status_t status;

	if (!engine->options.broadcast_buffers || engine->world == 1 ||
	    engine->unit_buffers.nbytes == 0)
		return SRT_OK;
	owners = srt_comm_calloc(engine->comm, world, sizeof(*owners),
				 "creating broadcast of \"buffers\"");
	if (owners == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	owners[0] = (srt_coll_owner_t){ &all, 1 };
	desc.owners = owners;
	status = srt_coll_create(engine->comm, &desc, &engine->unit_buffers.broadcast);
	free(owners);
	return status;
}

srt_status_t srt_buffers_broadcast(srt_engine_t *engine, srt_stream_t *stream)
{
	if (engine->unit_buffers.broadcast == NULL)
		return SRT_OK;
	SRT_TRY(srt_coll_start(engine->unit_buffers.broadcast, NULL, stream));
	/* Edge: the peers' reading of rank 0's buffers -> the program's changes of them. */
	return srt_coll_wait_readers(engine->unit_buffers.broadcast, stream);
}

srt_status_t srt_unit_buffer_view(const srt_unit_buffer_t *buffer, srt_view_t *view)
{
	SRT_NOT_NULL(buffer);
	SRT_NOT_NULL(view);
	SRT_TRY(srt_engine_require_built(buffer->unit->engine, "srt_unit_buffer_view"));
	*view = srt_view(buffer->unit->engine->unit_buffers.memory, buffer->offset, buffer->dtype);
	return SRT_OK;
}

srt_status_t srt_unit_buffer_set(srt_unit_buffer_t *buffer, const void *values,
				 srt_stream_t *stream)
{
	SRT_NOT_NULL(buffer);
	if (buffer->nbytes > 0)
		SRT_NOT_NULL(values);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_engine_require_built(buffer->unit->engine, "srt_unit_buffer_set"));
	buffer->is_unset = false;
	if (buffer->nbytes == 0)
		return SRT_OK;
	return srt_buffer_copy_from_host(buffer->unit->engine->unit_buffers.memory, buffer->offset,
					 values, buffer->nbytes, stream);
}

srt_status_t srt_unit_buffer_get(srt_unit_buffer_t *buffer, void *values, srt_stream_t *stream)
{
	SRT_NOT_NULL(buffer);
	if (buffer->nbytes > 0)
		SRT_NOT_NULL(values);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_engine_require_built(buffer->unit->engine, "srt_unit_buffer_get"));
	if (buffer->nbytes == 0)
		return srt_stream_sync(stream);
	return srt_buffer_copy_to_host(values, buffer->unit->engine->unit_buffers.memory,
				       buffer->offset, buffer->nbytes, stream);
}

const char *srt_unit_buffer_name(const srt_unit_buffer_t *buffer)
{
	return buffer != NULL ? buffer->name : "";
}

int64_t srt_unit_buffer_nelem(const srt_unit_buffer_t *buffer)
{
	return buffer != NULL ? buffer->nelem : 0;
}

size_t srt_engine_buffer_count(const srt_engine_t *engine)
{
	return engine != NULL ? engine->unit_buffers.n : 0;
}

srt_unit_buffer_t *srt_engine_buffer_at(srt_engine_t *engine, size_t i)
{
	return i < srt_engine_buffer_count(engine) ? engine->unit_buffers.all[i] : NULL;
}

srt_unit_buffer_t *srt_engine_buffer_find(srt_engine_t *engine, const char *name)
{
	return engine != NULL && name != NULL ? srt_buffers_find(engine, name) : NULL;
}
