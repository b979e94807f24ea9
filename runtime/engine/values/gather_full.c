/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gathering an unsharded tensor into host memory, for saving, hashing and tests, as a whole or in
 * pieces, or into memory of the device (full_params.c). Blocking.
 *
 * Values use the unit's slot and gather, so a walk over the parameters of a unit gathers it once.
 * Gradients, optimizer states and values with a copy in another compute dtype have no persistent
 * gather: each call creates buffers and a collective, and frees them. So does the gathering of
 * cells (cell.c).
 */
#include <stdlib.h>

#include "collectives/comm.h"
#include "runtime/engine/checks/checks.h"
#include "runtime/engine/declare/declare.h"
#include "runtime/engine/layout/layout.h"
#include "runtime/engine/layout/shard.h"
#include "runtime/engine/step/step.h"
#include "runtime/engine/values/gather_full.h"

srt_status_t srt_gather_copy(srt_view_t src, size_t nbytes, const srt_gather_sink_t *sink,
			     srt_stream_t *stream)
{
	if (sink->to.buffer != NULL && nbytes > 0)
		return srt_buffer_copy(sink->to.buffer, sink->to.offset, src.buffer, src.offset,
				       nbytes, stream);
	if (sink->host == NULL || nbytes == 0)
		return srt_stream_sync(stream);
	for (size_t at = 0, n; at < nbytes; at += n) {
		n = nbytes - at < sink->host_nbytes ? nbytes - at : sink->host_nbytes;
		SRT_TRY(srt_buffer_copy_to_host(sink->host, src.buffer, src.offset + at, n,
						stream));
		if (sink->take != NULL)
			sink->take(sink->arg, sink->host, at, n);
	}
	return SRT_OK;
}

static srt_status_t take_cell(srt_param_t *param, srt_view_t cell, const srt_gather_sink_t *sink,
			      srt_stream_t *stream);

static srt_status_t gather_value(srt_param_t *param, const srt_gather_sink_t *sink,
				 srt_stream_t *stream)
{
	const srt_engine_t *engine = param->unit->engine;
	srt_status_t status;

	SRT_TRY(srt_unshard_begin(param->unit, stream));
	if (engine->writes.unseen || engine->writes.open) /* before the program's next change */
		SRT_TRY(srt_unshard_wait_shard_read(param->unit, stream));
	status = take_cell(param, param->views.unsharded, sink, stream);
	if (status == SRT_OK)
		status = srt_unshard_end(param->unit, stream);
	return status;
}

/* What is gathered: the shards of a cell, or the cells of a tensor. */
typedef enum level { LEVEL_SHARDS, LEVEL_CELLS } level_t;

/* The segments of the gather's i-th rank. Returns how many; list NULL: counts them. */
static size_t list_segments(const srt_param_t *param, level_t level, int i,
			    srt_coll_segment_t *list)
{
	const srt_engine_t *engine = param->unit->engine;
	int64_t at = 0, end, n, first;
	size_t count = 0;

	if (level == LEVEL_SHARDS) {
		n = srt_shard_range(param, srt_shard_rank(engine, engine->rank, i), engine->world,
				    &first);
		if (list != NULL)
			list[0] = (srt_coll_segment_t){
				.full_offset = (size_t)first,
				.nelem = (size_t)n,
			};
		return n > 0;
	}
	for (end = srt_cell_nelem(param, i); at < end; at += n) {
		n = srt_cell_run(param, i, at, &first);
		if (list != NULL)
			list[count] = (srt_coll_segment_t){
				.full_offset = (size_t)first,
				.shard_offset = (size_t)at,
				.nelem = (size_t)n,
			};
		count++;
	}
	return count;
}

static srt_status_t create_gather(srt_param_t *param, level_t level, srt_view_t part,
				  srt_view_t full, srt_coll_t **coll)
{
	srt_engine_t *engine = param->unit->engine;
	srt_comm_t *comm = level == LEVEL_SHARDS ? engine->comms.shard : engine->comms.tensor;
	size_t total = 0, at = 0;
	srt_owners_t owners = { 0 };
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	for (int i = 0; i < comm->size; i++)
		total += list_segments(param, level, i, NULL);
	owners.owner =
		srt_comm_calloc(comm, (size_t)comm->size, sizeof(*owners.owner), param->name);
	owners.segments = srt_comm_calloc(comm, total + 1, sizeof(*owners.segments), param->name);
	if (owners.owner != NULL && owners.segments != NULL) {
		const srt_coll_desc_t desc = {
			.size = sizeof(srt_coll_desc_t),
			.kind = SRT_COLL_ALL_GATHER,
			.name = param->name,
			.dtype = param->dtype,
			.full = full,
			.shard = part,
			.owners = owners.owner,
		};

		for (int i = 0; i < comm->size; i++) {
			owners.owner[i].segments = owners.segments + at;
			owners.owner[i].nsegments =
				list_segments(param, level, i, owners.segments + at);
			at += owners.owner[i].nsegments;
		}
		status = srt_coll_create(comm, &desc, coll);
	}
	srt_owners_free(&owners);
	return status;
}

/* The parts at `local` on each rank -> the cell or the tensor, and from there to the sink. */
static srt_status_t gather_parts(srt_param_t *param, level_t level, srt_view_t local,
				 const srt_gather_sink_t *sink, srt_stream_t *stream)
{
	const srt_engine_t *engine = param->unit->engine;
	const bool shards = level == LEVEL_SHARDS;
	const srt_comm_t *comm = shards ? engine->comms.shard : engine->comms.tensor;
	const size_t nbytes = shards ? param->shard.nbytes : param->nbytes;
	const size_t full_nbytes = shards ? param->nbytes : param->whole_nbytes;
	srt_buffer_t *part = NULL, *full = NULL;
	srt_coll_t *coll = NULL;
	srt_status_t status;
	char doing[160];

	snprintf(doing, sizeof(doing), "gathering tensor '%s'", param->name);
	status = srt_buffer_create(engine->device, srt_comm_mem_kind(comm), nbytes, param->name,
				   &part);
	if (status == SRT_OK)
		status = srt_buffer_create(engine->device, srt_comm_gathered_kind(comm),
					   full_nbytes, param->name, &full);
	status = srt_comm_status_consensus(engine->comm, doing, status);
	if (status != SRT_OK)
		goto free_buffers;
	status = create_gather(param, level, srt_view(part, 0, param->dtype),
			       srt_view(full, 0, param->dtype), &coll);
	if (status != SRT_OK)
		goto free_buffers;
	if (nbytes > 0)
		status = srt_buffer_copy(part, 0, local.buffer, local.offset, nbytes, stream);
	if (status == SRT_OK)
		status = srt_coll_start(coll, NULL, stream);
	if (status == SRT_OK && shards)
		status = take_cell(param, srt_view(full, 0, param->dtype), sink, stream);
	else if (status == SRT_OK)
		status =
			srt_gather_copy(srt_view(full, 0, param->dtype), full_nbytes, sink, stream);
	/* Edge: the peers' reads of `part` -> its destruction. */
	if (status == SRT_OK)
		status = srt_coll_wait_readers(coll, stream);
	if (status == SRT_OK)
		status = srt_stream_sync(stream);
	srt_coll_destroy(coll);
free_buffers:
	srt_buffer_destroy(full);
	srt_buffer_destroy(part);
	return status;
}

/* This rank's cell -> the tensor. */
static srt_status_t take_cell(srt_param_t *param, srt_view_t cell, const srt_gather_sink_t *sink,
			      srt_stream_t *stream)
{
	if (param->is_cut)
		return gather_parts(param, LEVEL_CELLS, cell, sink, stream);
	return srt_gather_copy(cell, param->nbytes, sink, stream);
}

/* Fails unless a rank had a gradient in the last step; the same result on all ranks. */
static srt_status_t check_used(srt_param_t *param, srt_stream_t *stream)
{
	srt_engine_t *engine = param->unit->engine;
	srt_k_param_state_t state;

	SRT_TRY(srt_buffer_copy_to_host(&state, srt_tables_device(engine),
					engine->memory.staging.params +
						(size_t)param->trainable * sizeof(state),
					sizeof(state), stream));
	if (state.used == 0)
		return srt_fail(SRT_ERR_NOT_FOUND,
				"parameter '%s' has no gradient: no rank called "
				"srt_param_grad_ready() in the last step",
				param->name);
	return SRT_OK;
}

/* State k in 8 bits: its fp32 values in a buffer of the device. Local. */
static srt_status_t decode_state(srt_param_t *param, int k, srt_buffer_t **values,
				 srt_stream_t *stream)
{
	srt_engine_t *engine = param->unit->engine;
	const size_t nbytes = param->shard.nbytes;
	float *host = srt_calloc(nbytes + 1, 1, param->name);
	srt_status_t status = host != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;

	if (status == SRT_OK)
		status = srt_coded_read(srt_param_device_view(param, SRT_ROLE_STATE + k),
					srt_param_device_view(param, SRT_ROLE_STATE + 2), k,
					param->shard.nelem, srt_state8_row(param), host, stream);
	if (status == SRT_OK)
		status = srt_buffer_create(engine->device, SRT_MEM_DEVICE, nbytes, param->name,
					   values);
	if (status == SRT_OK && nbytes > 0)
		status = srt_buffer_copy_from_host(*values, 0, host, nbytes, stream);
	free(host);
	return status;
}

/* The parts that are sharded over ranks, or a cell, -> the sink. */
static srt_status_t gather_local(srt_param_t *param, srt_view_t local,
				 const srt_gather_sink_t *sink, srt_stream_t *stream)
{
	const srt_engine_t *engine = param->unit->engine;

	if (!srt_roles_sharded(engine, engine->world))
		return take_cell(param, local, sink, stream);
	return gather_parts(param, LEVEL_SHARDS, local, sink, stream);
}

/* As gather_local(), of state k in 8 bits. Begins only if all ranks had memory to decode theirs. */
static srt_status_t gather_coded(srt_param_t *param, int k, const char *doing,
				 const srt_gather_sink_t *sink, srt_stream_t *stream)
{
	srt_buffer_t *decoded = NULL;
	srt_status_t status = decode_state(param, k, &decoded, stream);

	status = srt_comm_status_consensus(param->unit->engine->comm, doing, status);
	if (status == SRT_OK)
		status = gather_local(param, srt_view(decoded, 0, SRT_F32), sink, stream);
	srt_buffer_destroy(decoded); /* waits for its streams */
	return status;
}

static srt_status_t gather(srt_param_t *param, srt_param_what_t what, const char *doing,
			   const srt_gather_sink_t *sink, srt_stream_t *stream)
{
	srt_engine_t *engine = param->unit->engine;
	const int k = (int)what - (int)SRT_PARAM_STATE0;
	srt_view_t local;

	if (engine->checks.on && srt_unit_in_use(engine->units[0]))
		return srt_fail(SRT_ERR_STATE,
				"parameter '%s' is read inside a pass of root '%s': end the pass "
				"first",
				param->name, engine->units[0]->name);
	/* Edge: the last step, perhaps on another stream -> this read of its results. */
	SRT_TRY(srt_stream_wait_event(stream, engine->order.stepped));
	if (what == SRT_PARAM_VALUE && srt_role_gathered(param->unit) == SRT_ROLE_MASTER)
		return gather_value(param, sink, stream);
	if (what == SRT_PARAM_VALUE) {
		SRT_TRY(srt_check_unchanged(param->unit, stream));
		local = srt_param_device_view(param, SRT_ROLE_MASTER);
	} else if (what == SRT_PARAM_GRAD) {
		SRT_TRY(srt_finish_check_grad(param));
		SRT_TRY(check_used(param, stream));
		local = srt_param_device_view(param, (int)srt_role_stepped(engine));
	} else if (srt_state8_is_coded(param) && k >= 0 && k < engine->memory.nstates) {
		return gather_coded(param, k, doing, sink, stream);
	} else {
		SRT_TRY(srt_param_local(param, what, &local));
		local = srt_param_device_view(param, SRT_ROLE_STATE + k);
	}
	return gather_local(param, local, sink, stream);
}

srt_status_t srt_param_gather(srt_param_t *param, srt_param_what_t what,
			      const srt_gather_sink_t *sink, srt_stream_t *stream)
{
	char doing[160];

	snprintf(doing, sizeof(doing), "gathering tensor '%s'", param->name);
	return srt_comm_share_failure(param->unit->engine->comm, doing, stream,
				      gather(param, what, doing, sink, stream));
}

srt_status_t srt_param_get(srt_param_t *param, srt_param_what_t what, void *unsharded,
			   srt_stream_t *stream)
{
	const srt_gather_sink_t sink = { .host = unsharded, .host_nbytes = SIZE_MAX };

	SRT_NOT_NULL(param);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_engine_require_built(param->unit->engine, "srt_param_get"));
	if (what == SRT_PARAM_VALUE)
		SRT_TRY(srt_writes_before_read(param->unit->engine, stream));
	return srt_param_gather(param, what, &sink, stream);
}
