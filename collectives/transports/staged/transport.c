/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The staged transport, through bounce buffers (bounce.h), for devices whose memory peers cannot
 * map.
 *
 *     gather    a slot holds a chunk of the owner's extents, which the readers copy from there
 *     scatter   a slot holds, for each other rank in order, a chunk of what that rank owns. The
 *               owner copies its chunk of each peer's slot to scratch, where the sum reads it
 *     pairs     a slot holds, for each other rank in order, a chunk of the messages to that rank,
 *               which copies it from there
 *
 * Bytes moved per rank: the part that it offers, to its slot, and the parts that it reads, from the
 * peers' slots.
 */
#include "collectives/collective.h"
#include "collectives/shm/flags.h"

static srt_bounce_kind_t bounce_kind(const srt_coll_algorithm_t *algorithm)
{
	return algorithm->reduces ? SRT_BOUNCE_SUM : SRT_BOUNCE_COPY;
}

static srt_status_t plan_memory(const srt_comm_t *comm, const srt_coll_uses_t *uses,
				srt_coll_memory_t *memory)
{
	const bool has[] = { [SRT_BOUNCE_COPY] = uses->copies, [SRT_BOUNCE_SUM] = uses->sums };

	for (int kind = SRT_BOUNCE_COPY; kind <= SRT_BOUNCE_SUM; kind++) {
		if (!has[kind])
			continue;
		memory->scratch += srt_staging_nbytes(comm->size, (srt_bounce_kind_t)kind);
		memory->mapped += srt_staging_mapped_nbytes(comm->size);
	}
	return SRT_OK;
}

/* The id of this rank's bounce buffers, 0 = none. */
static uint64_t get_connect_info(const srt_comm_t *comm, const srt_coll_desc_t *desc)
{
	return srt_bounce_id(comm, bounce_kind(srt_coll_algorithm(desc->kind)));
}

static srt_status_t acquire_bounce(srt_coll_t *coll, const char *what, const uint64_t *peer_info)
{
	return srt_bounce_acquire(coll->comm, bounce_kind(coll->algorithm), what, peer_info,
				  &coll->bounce);
}

static void release_bounce(srt_coll_t *coll)
{
	srt_bounce_release(coll->bounce);
}

static srt_status_t start_rounds(srt_coll_start_t *start, const srt_coll_epilogue_t *epilogue,
				 srt_stream_t *stream)
{
	srt_bounce_t *bounce = start->coll->bounce;

	start->bounce_seqno = bounce->nrounds;
	bounce->nrounds += start->coll->nrounds;
	return srt_step_submit_phases(start, epilogue, stream);
}

static size_t get_round_nbytes(const srt_coll_t *coll, srt_phase_t phase)
{
	size_t slot = coll->bounce->slot_nbytes;

	if (phase == SRT_PHASE_GATHER)
		return slot;
	return srt_staging_part_nbytes(slot, coll->comm->size);
}

/* The round's slot in the segment of a rank. */
static srt_view_t slot_of(const srt_coll_start_t *start, uint32_t round, int rank)
{
	const srt_bounce_t *bounce = start->coll->bounce;
	size_t slot = (start->bounce_seqno + round) % SRT_STAGING_NSLOTS;

	return srt_view(bounce->segment[rank], slot * bounce->slot_nbytes, start->coll->dtype);
}

static srt_status_t offer_chunks(srt_coll_start_t *start, uint32_t round, srt_stream_t *stream)
{
	srt_coll_t *coll = start->coll;
	int me = coll->comm->rank;
	srt_phase_t phase = srt_coll_phase(coll, round);
	size_t each = get_round_nbytes(coll, phase);
	srt_view_t slot = slot_of(start, round, me);

	SRT_TRY(srt_host_step_add(start, SRT_ACTION_CLAIM, round, stream));
	if (phase == SRT_PHASE_GATHER)
		return srt_step_copy_out(start, round, &coll->owner[me], slot, stream);
	for (int r = 0; r < coll->comm->size; r++) {
		if (r != me)
			SRT_TRY(srt_step_copy_out(start, round, srt_coll_outgoing(coll, phase, r),
						  srt_view_at(&slot,
							      srt_staging_part(r, me) * each),
						  stream));
	}
	return SRT_OK;
}

/* The part of a peer in the scratch, for a scatter. */
static srt_view_t scratch_of(const srt_coll_t *coll, int peer)
{
	size_t each = get_round_nbytes(coll, SRT_PHASE_SCATTER);

	return srt_view(coll->bounce->scratch, srt_staging_part(peer, coll->comm->rank) * each,
			coll->dtype);
}

static srt_status_t acquire_chunk(srt_coll_start_t *start, uint32_t round, int peer,
				  srt_stream_t *stream)
{
	srt_coll_t *coll = start->coll;
	int me = coll->comm->rank;
	size_t part = srt_staging_part(me, peer) * get_round_nbytes(coll, SRT_PHASE_SCATTER);
	srt_view_t slot = slot_of(start, round, peer);
	srt_step_copies_t copies = { 0 };

	if (srt_coll_phase(coll, round) != SRT_PHASE_SCATTER)
		return SRT_OK;
	SRT_TRY(srt_step_copy(start, &copies, scratch_of(coll, peer), srt_view_at(&slot, part),
			      srt_chunk_nbytes(coll, round, &coll->owner[me]), stream));
	return srt_step_copy_end(start, &copies, stream);
}

static srt_view_t locate_slot_chunk(const srt_coll_start_t *start, uint32_t round, int peer,
				    const srt_chunk_t *chunk)
{
	const srt_coll_t *coll = start->coll;
	srt_phase_t phase = srt_coll_phase(coll, round);
	srt_view_t slot = slot_of(start, round, peer);

	if (phase == SRT_PHASE_SCATTER)
		slot = scratch_of(coll, peer);
	if (phase == SRT_PHASE_PAIRS)
		slot = srt_view_at(&slot, srt_staging_part(coll->comm->rank, peer) *
						  get_round_nbytes(coll, phase));
	return srt_view_at(&slot, chunk->at);
}

/* There is no wait_readers: the peers read copies. */
const srt_transport_t srt_transport_staged = {
	.name = "staged",
	.plan = plan_memory,
	.connect_info = get_connect_info,
	.connects_all = true,
	.connect = acquire_bounce,
	.disconnect = release_bounce,
	.start = start_rounds,
	.run_action = srt_flag_run_action,
	.is_idle = srt_flag_action_is_idle,
	.round_nbytes = get_round_nbytes,
	.offer = offer_chunks,
	.acquire = acquire_chunk,
	.locate = locate_slot_chunk,
};
