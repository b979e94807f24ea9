/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NCCL transport (nccl.h): whole collectives.
 *
 *     gather one round, from the owners' extents to all ranks' full; no scratch. Extents that are
 *               uniform over the owners are one all-gather, the root's extents are broadcasts, all
 *               others are sends and receives in one group (group.c)
 *     pairs     one round of sends and receives; no scratch
 *     scatter   in rounds that fit the scratch: of all ranks' full, each owner's extents to the
 *               owner's scratch, from which the tree sum reads them (tree_sum.c)
 *
 * A rank sends, for a sum, all other ranks' parts of its full; for a gather, its own part to each
 * other rank. A ring moves as many bytes.
 */
#include <stdlib.h>

#include "collectives/transports/nccl/nccl.h"

static size_t get_round_nbytes(const srt_coll_t *coll, srt_phase_t phase)
{
	return phase == SRT_PHASE_SCATTER ? srt_nccl_part_nbytes(coll->comm->size) : SIZE_MAX;
}

static srt_view_t locate_received(const srt_coll_start_t *start, uint32_t round, int peer,
				  const srt_chunk_t *chunk)
{
	const srt_coll_t *coll = start->coll;
	srt_phase_t phase = srt_coll_phase(coll, round);
	srt_view_t base;

	/* NCCL has received to the destination. */
	if (phase == SRT_PHASE_GATHER)
		return srt_view_at(&coll->full, chunk->full_offset);
	if (phase == SRT_PHASE_PAIRS)
		return srt_view_at(&coll->shard, chunk->shard_offset);
	base = srt_nccl_part(coll, peer);
	return srt_view_at(&base, chunk->at);
}

/* The peers' parts have been received by the exchange. */
static srt_status_t acquire_nothing(srt_coll_start_t *start, uint32_t round, int peer,
				    srt_stream_t *stream)
{
	(void)start;
	(void)round;
	(void)peer;
	(void)stream;
	return SRT_OK;
}

static size_t count_extents(const srt_coll_t *coll)
{
	size_t most = 0;

	for (int r = 0; r < coll->comm->size; r++) {
		if (coll->owner[r].nextents > most)
			most = coll->owner[r].nextents;
	}
	return most;
}

static srt_status_t connect_coll(srt_coll_t *coll, const char *what, const uint64_t *peer_info)
{
	srt_nccl_t *v = srt_nccl_of(coll);
	bool gathers = v->ops->all_gather != NULL && !coll->algorithm->has_root &&
		       !coll->algorithm->has_pairs;
	srt_nccl_coll_t *data =
		srt_calloc(1, sizeof(*data) + count_extents(coll) * sizeof(*data->uniform),
			   "a collective");

	(void)what;
	(void)peer_info;
	if (data == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	coll->transport_data = data;
	v->nsums += coll->algorithm->reduces;
	for (size_t i = 0; gathers && i < coll->owner[0].nextents; i++)
		data->uniform[i] = srt_extents_are_uniform(coll, i);
	data->sums = srt_nccl_may_sum(coll);
	if (!coll->algorithm->reduces || v->scratch != NULL)
		return SRT_OK;
	return srt_buffer_create(coll->comm->device, SRT_MEM_DEVICE,
				 srt_nccl_scratch_nbytes(coll->comm->size),
				 "parts of sums over ranks", &v->scratch);
}

static void disconnect_coll(srt_coll_t *coll)
{
	srt_nccl_t *v = srt_nccl_of(coll);

	if (coll->transport_data == NULL)
		return;
	srt_nccl_detach(v, coll);
	free(coll->transport_data);
	if (!coll->algorithm->reduces || --v->nsums > 0)
		return;
	srt_buffer_destroy(v->scratch);
	v->scratch = NULL;
}

/* An all-gather by NCCL also copies the own part. */
static bool moves_own(const srt_coll_t *coll, size_t i)
{
	const srt_nccl_coll_t *data = coll->transport_data;

	return data->uniform[i];
}

static srt_status_t submit_phase(srt_coll_start_t *start, int f,
				 const srt_coll_epilogue_t *epilogue, srt_stream_t *stream)
{
	const srt_coll_t *coll = start->coll;

	for (uint32_t round = coll->phase_begin[f]; round < coll->phase_begin[f + 1]; round++) {
		SRT_TRY(srt_nccl_exchange_round(start, round));
		SRT_TRY(coll->algorithm->consume[f](start, round, epilogue, stream));
	}
	return SRT_OK;
}

static srt_status_t submit_work(srt_coll_start_t *start, const srt_coll_epilogue_t *epilogue,
				srt_stream_t *stream)
{
	const srt_nccl_coll_t *data = start->coll->transport_data;

	if (data->sums) {
		SRT_TRY(srt_nccl_exchange_round(start, 0));
		return srt_nccl_finish_sums(start->coll, epilogue, stream);
	}
	for (int f = 0; f < start->coll->algorithm->nphases; f++)
		SRT_TRY(submit_phase(start, f, epilogue, stream));
	return SRT_OK;
}

/* Submits a start to the communicator's stream. The caller's stream waits for it. */
static srt_status_t submit_start(srt_coll_start_t *start, const srt_coll_epilogue_t *epilogue,
				 srt_stream_t *stream)
{
	srt_coll_t *coll = start->coll;
	srt_nccl_t *v = srt_nccl_of(coll);
	srt_nccl_coll_t *data = coll->transport_data;
	srt_nccl_in_flight_t *entry;

	SRT_TRY(srt_nccl_in_flight_add(v, coll, &entry, &data->seqno));
	entry->flight = start->flight;
	/* Edge: the caller's earlier work -> the start */
	SRT_TRY(srt_event_record(v->ready, stream));
	SRT_TRY(srt_stream_wait_event(v->stream, v->ready));
	if (coll->full.buffer != NULL)
		srt_stream_set_add(&coll->full.buffer->streams, v->stream);
	if (coll->shard.buffer != NULL)
		srt_stream_set_add(&coll->shard.buffer->streams, v->stream);
	if (v->scratch != NULL)
		srt_stream_set_add(&v->scratch->streams, v->stream);
	SRT_TRY(srt_event_record(entry->began, v->stream));
	SRT_TRY(submit_work(start, epilogue, v->stream));
	SRT_TRY(srt_event_record(entry->ended, v->stream));
	srt_nccl_in_flight_submitted(v, entry);
	/* Edge: the start -> the caller's later work */
	return srt_stream_wait_event(stream, entry->ended);
}

/* The end of the start: NCCL no longer reads the source. */
static srt_status_t wait_readers(srt_coll_start_t *start, srt_stream_t *stream)
{
	srt_nccl_t *v = srt_nccl_of(start->coll);
	const srt_nccl_coll_t *data = start->coll->transport_data;
	bool ended;

	pthread_mutex_lock(&v->mutex);
	ended = (int32_t)(v->nended - data->seqno) >= 0;
	pthread_mutex_unlock(&v->mutex);
	/* Else the entry still belongs to this start. */
	if (ended)
		return SRT_OK;
	return srt_stream_wait_event(stream,
				     v->in_flight[(data->seqno - 1) % SRT_NCCL_MAX_IN_FLIGHT]
					     .ended);
}

static void abort_starts(const srt_coll_t *coll)
{
	srt_nccl_fail_in_flight(srt_nccl_of(coll));
}

static void destroy_comm(srt_comm_t *comm)
{
	srt_nccl_destroy(comm->transport_data);
}

static srt_status_t plan_memory(const srt_comm_t *comm, const srt_coll_uses_t *uses,
				srt_coll_memory_t *memory)
{
	if (uses->sums)
		memory->scratch += srt_nccl_scratch_nbytes(comm->size);
	return SRT_OK;
}

const srt_transport_t srt_transport_nccl = {
	.name = "nccl",
	.world_only = true,
	.describe = srt_nccl_describe,
	.choose = srt_nccl_choose,
	.records_ends = true,
	.grace_s = SRT_NCCL_GRACE_S,
	.create = srt_nccl_create,
	.destroy = destroy_comm,
	.plan = plan_memory,
	.connect = connect_coll,
	.disconnect = disconnect_coll,
	.announce = srt_nccl_announce,
	.start = submit_start,
	.wait_readers = wait_readers,
	.abort_starts = abort_starts,
	.round_nbytes = get_round_nbytes,
	.acquire = acquire_nothing,
	.locate = locate_received,
	.moves_own = moves_own,
};
