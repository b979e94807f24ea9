/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The transport through staging memory (staging.h), for devices whose memory peers cannot map.
 *
 *     gather    a slot holds a piece of the owner's runs, as they follow each other; every reader
 *               copies it from there to its places
 *     scatter   a slot holds, for each other rank in order, a piece of what that rank owns; the
 *               owner copies its piece out of each peer's slot into scratch, where the sum reads it
 *     pairs     a slot holds, for each other rank in order, a piece of the messages to it, which it
 *               copies from there to their places
 *
 * Bytes moved per rank: what it offers, to its slot, and what it reads, from the peers' slots.
 */
#include "collectives/collective.h"

#define PART_ALIGN ((size_t)64)

static srt_lane_kind_t lane_kind(const srt_coll_algorithm_t *algorithm)
{
	return algorithm->reduces ? SRT_LANE_SUM : SRT_LANE_COPY;
}

static void plan(int nranks, bool sums, srt_coll_memory_t *memory)
{
	memory->scratch += srt_staging_nbytes(nranks, SRT_LANE_COPY);
	memory->mapped += srt_staging_mapped_nbytes(nranks);
	if (!sums)
		return;
	memory->scratch += srt_staging_nbytes(nranks, SRT_LANE_SUM);
	memory->mapped += srt_staging_mapped_nbytes(nranks);
}

/* The lane that this rank has, 0 = none. */
static uint64_t tell(const srt_comm_t *comm, const srt_coll_desc_t *desc)
{
	return srt_lane_id(comm, lane_kind(srt_coll_algorithm(desc->kind)));
}

static srt_status_t connect(srt_coll_t *coll, const char *what, const uint64_t *told)
{
	return srt_lane_take(coll->comm, lane_kind(coll->algorithm), what, told, &coll->lane);
}

static void disconnect(srt_coll_t *coll)
{
	srt_lane_release(coll->lane);
}

static srt_status_t start_rounds(srt_coll_start_t *start, const srt_coll_epilogue_t *epilogue,
				 srt_stream_t *stream)
{
	srt_lane_t *lane = start->coll->lane;

	start->lane_tick = lane->nticks;
	lane->nticks += start->coll->nrounds;
	return srt_step_flows(start, epilogue, stream);
}

/* Place of `other` among the ranks that are not `rank`. */
static size_t place_of(int other, int rank)
{
	return (size_t)(other < rank ? other : other - 1);
}

static size_t round_nbytes(const srt_coll_t *coll, srt_flow_t flow)
{
	size_t slot = coll->lane->slot_nbytes;

	if (flow == SRT_FLOW_GATHER)
		return slot;
	return slot / (size_t)(coll->comm->size - 1) / PART_ALIGN * PART_ALIGN;
}

/* Where the slot of the round begins in rank's segment. */
static srt_view_t slot_of(const srt_coll_start_t *start, uint32_t round, int rank)
{
	const srt_lane_t *lane = start->coll->lane;
	size_t slot = (start->lane_tick + round) % SRT_STAGING_NSLOTS;

	return srt_view(lane->segment[rank], slot * lane->slot_nbytes, start->coll->dtype);
}

/* Copies these runs of this rank's source in the round to `slot`. */
static srt_status_t copy_out(srt_coll_start_t *start, uint32_t round, const srt_runs_t *runs,
			     srt_view_t slot, srt_stream_t *stream)
{
	const srt_coll_t *coll = start->coll;
	const srt_view_t *source = &coll->source[coll->comm->rank];
	bool shard = coll->algorithm->source == SRT_SOURCE_SHARD;
	srt_step_copies_t copies = { 0 };
	srt_piece_at_t at = { 0 };
	srt_piece_t piece;

	while (srt_piece_next_of(coll, round, runs, &at, &piece)) {
		size_t from = shard ? piece.shard_offset : piece.full_offset;

		SRT_TRY(srt_step_copy(start, &copies, srt_view_at(&slot, piece.at),
				      srt_view_at(source, from), piece.nbytes, stream));
	}
	return srt_step_copy_end(start, &copies, stream);
}

static srt_status_t offer(srt_coll_start_t *start, uint32_t round, srt_stream_t *stream)
{
	srt_coll_t *coll = start->coll;
	int me = coll->comm->rank;
	srt_flow_t flow = srt_coll_flow(coll, round);
	size_t each = round_nbytes(coll, flow);
	srt_view_t slot = slot_of(start, round, me);

	SRT_TRY(srt_point_add(start, SRT_ACTION_CLAIM, round, stream));
	if (flow == SRT_FLOW_GATHER)
		return copy_out(start, round, &coll->owner[me], slot, stream);
	for (int r = 0; r < coll->comm->size; r++) {
		if (r != me)
			SRT_TRY(copy_out(start, round, srt_coll_outgoing(coll, flow, r),
					 srt_view_at(&slot, place_of(r, me) * each), stream));
	}
	return SRT_OK;
}

/* Where the peer's part of a scatter lies in scratch. */
static srt_view_t scratch_of(const srt_coll_t *coll, int peer)
{
	size_t each = round_nbytes(coll, SRT_FLOW_SCATTER);

	return srt_view(coll->lane->scratch, place_of(peer, coll->comm->rank) * each, coll->dtype);
}

static srt_status_t acquire(srt_coll_start_t *start, uint32_t round, int peer, srt_stream_t *stream)
{
	srt_coll_t *coll = start->coll;
	int me = coll->comm->rank;
	size_t part = place_of(me, peer) * round_nbytes(coll, SRT_FLOW_SCATTER);
	srt_view_t slot = slot_of(start, round, peer);
	srt_step_copies_t copies = { 0 };

	if (srt_coll_flow(coll, round) != SRT_FLOW_SCATTER)
		return SRT_OK;
	SRT_TRY(srt_step_copy(start, &copies, scratch_of(coll, peer), srt_view_at(&slot, part),
			      srt_piece_nbytes(coll, round, me), stream));
	return srt_step_copy_end(start, &copies, stream);
}

static srt_view_t locate(const srt_coll_start_t *start, uint32_t round, int peer,
			 const srt_piece_t *piece)
{
	const srt_coll_t *coll = start->coll;
	srt_flow_t flow = srt_coll_flow(coll, round);
	srt_view_t slot = slot_of(start, round, peer);

	if (flow == SRT_FLOW_SCATTER)
		slot = scratch_of(coll, peer);
	if (flow == SRT_FLOW_PAIRS)
		slot = srt_view_at(&slot,
				   place_of(coll->comm->rank, peer) * round_nbytes(coll, flow));
	return srt_view_at(&slot, piece->at);
}

/* No fence: the peers read copies. */
const srt_transport_t srt_transport_staged = {
	.name = "staged",
	.plan = plan,
	.tell = tell,
	.connect = connect,
	.disconnect = disconnect,
	.start = start_rounds,
	.round_nbytes = round_nbytes,
	.offer = offer,
	.acquire = acquire,
	.locate = locate,
};
