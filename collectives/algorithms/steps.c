/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The common parts of algorithms, submitted to a stream: the rounds of a phase (offer, wait,
 * consume, release), and the rounds that consume by copies.
 */
#include "collectives/collective.h"

/* ---- rounds --------------------------------------------------------------------------- */

/* Whether this rank reads a peer's part of the phase (i_read), or a peer reads this rank's. */
static bool any_reads(const srt_coll_t *coll, srt_phase_t phase, bool i_read)
{
	int me = coll->comm->rank;

	for (int r = 0; r < coll->comm->size; r++) {
		if (r != me && (i_read ? srt_phase_reads(coll, phase, me, r) :
					 srt_phase_reads(coll, phase, r, me)))
			return true;
	}
	return false;
}

/* Offers this rank's part of the round to the peers. */
static srt_status_t offer_round(srt_coll_start_t *start, uint32_t round, srt_stream_t *stream)
{
	srt_coll_t *coll = start->coll;

	if (coll->comm->size == 1)
		return SRT_OK;
	if (!coll->has_slots && !any_reads(coll, srt_coll_phase(coll, round), false))
		return SRT_OK;
	SRT_TRY(coll->transport->offer(start, round, stream));
	return srt_host_step_add(start, SRT_ACTION_PUBLISH, round, stream);
}

/* Waits for the parts of the peers that this rank reads. */
static srt_status_t await_round(srt_coll_start_t *start, uint32_t round, srt_stream_t *stream)
{
	if (start->coll->comm->size == 1)
		return SRT_OK;
	if (!any_reads(start->coll, srt_coll_phase(start->coll, round), true))
		return SRT_OK;
	return srt_host_step_add(start, SRT_ACTION_AWAIT, round, stream);
}

/* This rank has read its peers' parts. */
static srt_status_t release_round(srt_coll_start_t *start, uint32_t round, srt_stream_t *stream)
{
	const srt_coll_t *coll = start->coll;
	int me = coll->comm->rank;
	bool reads = false;

	if (coll->comm->size == 1)
		return SRT_OK;
	/* Without slots a start has one release, after its last round. */
	for (int r = 0; r < coll->comm->size; r++)
		reads = reads || (r != me && srt_coll_reads(coll, me, r));
	if (!coll->has_slots && (!reads || round + 1 < coll->nrounds))
		return SRT_OK;
	return srt_host_step_add(start, SRT_ACTION_RELEASE, round, stream);
}

/* All rounds of a phase, by its index in the algorithm. */
static srt_status_t submit_phase(srt_coll_start_t *start, int f,
				 const srt_coll_epilogue_t *epilogue, srt_stream_t *stream)
{
	const srt_coll_t *coll = start->coll;
	srt_consume_fn *consume = coll->algorithm->consume[f];
	uint32_t end = coll->phase_begin[f + 1];

	SRT_TRY(offer_round(start, coll->phase_begin[f], stream));
	for (uint32_t round = coll->phase_begin[f]; round < end; round++) {
		/* Staged, these copies overlap with the peers' reading of this round. */
		if (round + 1 < end)
			SRT_TRY(offer_round(start, round + 1, stream));
		SRT_TRY(await_round(start, round, stream));
		if (consume == NULL)
			continue;
		SRT_TRY(consume(start, round, epilogue, stream));
		SRT_TRY(release_round(start, round, stream));
	}
	return SRT_OK;
}

srt_status_t srt_step_submit_phases(srt_coll_start_t *start, const srt_coll_epilogue_t *epilogue,
				    srt_stream_t *stream)
{
	for (int f = 0; f < start->coll->algorithm->nphases; f++)
		SRT_TRY(submit_phase(start, f, epilogue, stream));
	return srt_host_step_submit(start, stream);
}

srt_status_t srt_step_submit_pushed(srt_coll_start_t *start, const srt_coll_epilogue_t *epilogue,
				    srt_stream_t *stream)
{
	const srt_coll_t *coll = start->coll;

	SRT_TRY(offer_round(start, 0, stream));
	SRT_TRY(await_round(start, 0, stream));
	SRT_TRY(coll->algorithm->consume[0](start, 0, epilogue, stream));
	SRT_TRY(release_round(start, 1, stream));
	SRT_TRY(offer_round(start, 1, stream));
	SRT_TRY(await_round(start, 1, stream));
	return srt_host_step_submit(start, stream);
}

/* ---- copies --------------------------------------------------------------------------- */

srt_status_t srt_step_copy_end(srt_coll_start_t *start, srt_step_copies_t *copies,
			       srt_stream_t *stream)
{
	size_t nbytes = copies->nbytes;

	copies->nbytes = 0;
	if (nbytes == 0)
		return SRT_OK;
	SRT_TRY(srt_host_step_submit(start, stream));
	return srt_buffer_copy(copies->dst.buffer, copies->dst.offset, copies->src.buffer,
			       copies->src.offset, nbytes, stream);
}

srt_status_t srt_step_copy(srt_coll_start_t *start, srt_step_copies_t *copies, srt_view_t dst,
			   srt_view_t src, size_t nbytes, srt_stream_t *stream)
{
	/* The source is the destination. */
	if (src.buffer == dst.buffer && src.offset == dst.offset)
		return SRT_OK;
	if (copies->nbytes > 0 && copies->dst.buffer == dst.buffer &&
	    copies->src.buffer == src.buffer && copies->dst.offset + copies->nbytes == dst.offset &&
	    copies->src.offset + copies->nbytes == src.offset) {
		copies->nbytes += nbytes;
		return SRT_OK;
	}
	SRT_TRY(srt_step_copy_end(start, copies, stream));
	*copies = (srt_step_copies_t){ .dst = dst, .src = src, .nbytes = nbytes };
	return SRT_OK;
}

srt_status_t srt_step_copy_out(srt_coll_start_t *start, uint32_t round,
			       const srt_extents_t *extents, srt_view_t slot, srt_stream_t *stream)
{
	const srt_coll_t *coll = start->coll;
	bool shard = coll->algorithm->source == SRT_SOURCE_SHARD;
	srt_step_copies_t copies = { 0 };
	srt_chunk_iter_t at = { 0 };
	srt_chunk_t chunk;

	while (srt_chunk_next(coll, round, extents, &at, &chunk)) {
		size_t from = shard ? chunk.shard_offset : chunk.full_offset;

		SRT_TRY(srt_step_copy(start, &copies, srt_view_at(&slot, chunk.at),
				      srt_view_at(&coll->source, from), chunk.nbytes, stream));
	}
	return srt_step_copy_end(start, &copies, stream);
}

/* Copies this rank's own part of the phase, unless source and destination are one buffer. */
static srt_status_t copy_own(srt_coll_start_t *start, srt_phase_t phase, srt_stream_t *stream)
{
	const srt_coll_t *coll = start->coll;
	const srt_extents_t *mine = srt_coll_incoming(coll, phase, coll->comm->rank);
	bool to_shard = phase == SRT_PHASE_PAIRS;
	srt_step_copies_t copies = { 0 };

	if (to_shard == (coll->algorithm->source == SRT_SOURCE_SHARD))
		return SRT_OK;
	for (size_t i = 0; i < mine->nextents; i++) {
		srt_view_t full = srt_view_at(&coll->full, mine->extents[i].full_offset);
		srt_view_t shard = srt_view_at(&coll->shard, mine->extents[i].shard_offset);

		if (!to_shard && coll->transport->moves_own != NULL &&
		    coll->transport->moves_own(coll, i))
			continue;
		SRT_TRY(srt_step_copy(start, &copies, to_shard ? shard : full,
				      to_shard ? full : shard, mine->extents[i].nbytes, stream));
	}
	return srt_step_copy_end(start, &copies, stream);
}

static srt_status_t copy_peer(srt_coll_start_t *start, uint32_t round, int peer,
			      srt_stream_t *stream)
{
	const srt_coll_t *coll = start->coll;
	srt_phase_t phase = srt_coll_phase(coll, round);
	const srt_extents_t *extents = srt_coll_incoming(coll, phase, peer);
	srt_step_copies_t copies = { 0 };
	srt_chunk_iter_t at = { 0 };
	srt_chunk_t chunk;

	if (srt_chunk_nbytes(coll, round, extents) == 0)
		return SRT_OK;
	SRT_TRY(coll->transport->acquire(start, round, peer, stream));
	while (srt_chunk_next(coll, round, extents, &at, &chunk)) {
		srt_view_t to = phase == SRT_PHASE_PAIRS ?
					srt_view_at(&coll->shard, chunk.shard_offset) :
					srt_view_at(&coll->full, chunk.full_offset);

		SRT_TRY(srt_step_copy(start, &copies, to,
				      coll->transport->locate(start, round, peer, &chunk),
				      chunk.nbytes, stream));
	}
	return srt_step_copy_end(start, &copies, stream);
}

srt_status_t srt_step_copy_round(srt_coll_start_t *start, uint32_t round,
				 const srt_coll_epilogue_t *epilogue, srt_stream_t *stream)
{
	const srt_coll_t *coll = start->coll;
	const srt_comm_t *comm = coll->comm;

	(void)epilogue;
	if (round == coll->phase_begin[srt_coll_phase_index(coll, round)])
		SRT_TRY(copy_own(start, srt_coll_phase(coll, round), stream));
	/* Each rank starts with rank + 1, so that they do not all read the same peer. */
	for (int k = 1; k < comm->size; k++)
		SRT_TRY(copy_peer(start, round, (comm->rank + k) % comm->size, stream));
	return SRT_OK;
}
