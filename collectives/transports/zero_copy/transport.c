/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The zero copy transport: peers map every source buffer and read it. A phase is one round. If a
 * device needs it, the accesses of the device and of its peers to the same bytes are ordered by the
 * backend's peer_begin. If no rank's device does, ranks push the sums of an all-reduce: a rank
 * writes them to its peers' memory while the lines are in its caches, since it has just read them.
 * So each rank's bytes are read once and written once, and no rank reads what another one has just
 * written.
 */
#include <stdlib.h>

#include "collectives/collective.h"
#include "collectives/shm/flags.h"
#include "collectives/transports/capabilities.h"
#include "collectives/transports/zero_copy/import_cache.h"

/* The transport_data of a collective. */
typedef struct mapping {
	srt_export_t *own;
	srt_import_t **imports; /* [size] */
	srt_view_t source[];    /* [size] all ranks' sources, mapped here; buffer NULL = none */
} mapping_t;

static srt_status_t create_comm(srt_comm_t *comm)
{
	comm->transport_data =
		srt_comm_calloc(comm, 1, sizeof(srt_import_cache_t), "creating a communicator");
	return comm->transport_data != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
}

static void destroy_comm(srt_comm_t *comm)
{
	free(comm->transport_data);
}

/* The id of the source's buffer, if it is not new. */
static uint64_t get_connect_info(const srt_comm_t *comm, const srt_coll_desc_t *desc)
{
	const bool shard = srt_coll_algorithm(desc->kind)->source == SRT_SOURCE_SHARD;

	if (comm->size == 1)
		return 0;
	return srt_import_cache_id(comm, shard ? desc->shard.buffer : desc->full.buffer);
}

static bool has_begin(const srt_coll_t *coll)
{
	return coll->comm->device->caps.peer_begin != 0;
}

/* Whether ranks write sums to their peers' memory: the same on all of them. */
static bool pushes_sums(const srt_coll_t *coll)
{
	bool pushes = coll->kind == SRT_COLL_ALL_REDUCE;

	for (int r = 0; r < coll->comm->size; r++)
		pushes = pushes && !srt_capabilities_of(coll->comm, r)->peer_begin;
	return pushes;
}

/* The end of the bytes of a rank's source that are read, from its view. */
static size_t find_source_end(const srt_coll_t *coll, int rank)
{
	bool shard = coll->algorithm->source == SRT_SOURCE_SHARD;
	size_t end = 0;

	if (shard)
		return coll->owner[rank].shard_end;
	if (coll->algorithm->has_pairs)
		return coll->in[rank].full_end;
	for (int r = 0; r < coll->comm->size; r++) {
		if (coll->owner[r].full_end > end)
			end = coll->owner[r].full_end;
	}
	return end;
}

/* Collective: maps every source that this rank reads. */
static srt_status_t map_sources(srt_coll_t *coll, const char *what, const uint64_t *ids)
{
	srt_comm_t *comm = coll->comm;
	const size_t n = (size_t)comm->size;
	const size_t each = sizeof(srt_view_t) + sizeof(srt_import_t *);
	mapping_t *m = srt_comm_calloc(comm, 1, sizeof(*m) + n * each, what);
	srt_view_t source = coll->source;
	srt_offer_t *offers;
	bool *reads_me, *i_read, is_read = false;
	srt_status_t status;

	if (m == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	m->imports = (srt_import_t **)(void *)(m->source + n);
	m->source[comm->rank] = coll->source;
	coll->pushes_sums = pushes_sums(coll);
	coll->transport_data = m;
	offers = srt_comm_calloc(comm, n, sizeof(*offers) + 2 * sizeof(bool), what);
	if (offers == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	reads_me = (bool *)(offers + n);
	i_read = reads_me + n;
	for (int r = 0; r < comm->size; r++) {
		if (r == comm->rank)
			continue;
		reads_me[r] = srt_coll_reads(coll, r, comm->rank);
		i_read[r] = srt_coll_reads(coll, comm->rank, r);
		is_read = is_read || reads_me[r];
	}
	if (!is_read)
		source.buffer = NULL;
	status = srt_import_cache_share(comm, what, &source, ids, reads_me, i_read, &m->own, offers,
					m->imports);
	for (int r = 0; r < comm->size && status == SRT_OK; r++) {
		size_t end;

		if (!i_read[r])
			continue;
		if (m->imports[r] == NULL ||
		    !srt_add_size((size_t)offers[r].offset, find_source_end(coll, r), &end) ||
		    end > m->imports[r]->buffer->nbytes)
			status = srt_fail(SRT_ERR_SYSTEM,
					  "the source buffer of rank %d is too small",
					  comm->world_rank[r]);
		else
			m->source[r] = srt_view(m->imports[r]->buffer, (size_t)offers[r].offset,
						coll->dtype);
	}
	free(offers);
	return status;
}

static void unmap_sources(srt_coll_t *coll)
{
	mapping_t *m = coll->transport_data;

	if (m == NULL)
		return;
	srt_import_cache_release(coll->comm, m->own, m->imports);
	free(m);
}

/* ---- rounds ------------------------------------------------------------------------------- */

static size_t get_round_nbytes(const srt_coll_t *coll, srt_phase_t phase)
{
	(void)coll;
	(void)phase;
	return SIZE_MAX;
}

/* Calls peer_begin for the bounds of some extents of a source. */
static srt_status_t begin_extents(const srt_coll_t *coll, const srt_view_t *source,
				  const srt_extents_t *extents, srt_stream_t *stream)
{
	bool shard = coll->algorithm->source == SRT_SOURCE_SHARD;
	size_t begin = shard ? extents->shard_begin : extents->full_begin;
	size_t end = shard ? extents->shard_end : extents->full_end;

	if (extents->nextents == 0 || source->buffer == NULL)
		return SRT_OK;
	return srt_buffer_peer_begin(source->buffer, source->offset + begin, end - begin, stream);
}

static srt_status_t submit_start(srt_coll_start_t *start, const srt_coll_epilogue_t *epilogue,
				 srt_stream_t *stream)
{
	return start->coll->pushes_sums ? srt_step_submit_pushed(start, epilogue, stream) :
					  srt_step_submit_phases(start, epilogue, stream);
}

/* The bytes of this rank's source that peers read in the phase. */
static srt_status_t offer_source(srt_coll_start_t *start, uint32_t round, srt_stream_t *stream)
{
	const srt_coll_t *coll = start->coll;
	const srt_phase_t phase = srt_coll_phase(coll, round);
	const int me = coll->comm->rank;

	if (!has_begin(coll))
		return SRT_OK;
	SRT_TRY(srt_host_step_submit(start, stream));
	if (phase == SRT_PHASE_GATHER)
		return begin_extents(coll, &coll->source, &coll->owner[me], stream);
	for (int r = 0; phase != SRT_PHASE_SIGNAL && r < coll->comm->size; r++) {
		if (r != me)
			SRT_TRY(begin_extents(coll, &coll->source,
					      srt_coll_outgoing(coll, phase, r), stream));
	}
	return SRT_OK;
}

static srt_status_t acquire_source(srt_coll_start_t *start, uint32_t round, int peer,
				   srt_stream_t *stream)
{
	const srt_coll_t *coll = start->coll;
	const srt_phase_t phase = srt_coll_phase(coll, round);
	const mapping_t *m = coll->transport_data;

	if (!has_begin(coll))
		return SRT_OK;
	SRT_TRY(srt_host_step_submit(start, stream));
	return begin_extents(coll, &m->source[peer], srt_coll_incoming(coll, phase, peer), stream);
}

static srt_view_t locate_source(const srt_coll_start_t *start, uint32_t round, int peer,
				const srt_chunk_t *chunk)
{
	const srt_coll_t *coll = start->coll;
	const mapping_t *m = coll->transport_data;
	bool shard = coll->algorithm->source == SRT_SOURCE_SHARD;

	(void)round;
	return srt_view_at(&m->source[peer], shard ? chunk->shard_offset : chunk->full_offset);
}

const srt_transport_t srt_transport_zero_copy = {
	.name = "zero copy",
	.maps_sources = true,
	.create = create_comm,
	.destroy = destroy_comm,
	.connect_info = get_connect_info,
	.connect = map_sources,
	.disconnect = unmap_sources,
	.start = submit_start,
	.wait_readers = srt_host_step_wait_readers,
	.run_action = srt_flag_run_action,
	.is_idle = srt_flag_action_is_idle,
	.round_nbytes = get_round_nbytes,
	.offer = offer_source,
	.acquire = acquire_source,
	.locate = locate_source,
};
