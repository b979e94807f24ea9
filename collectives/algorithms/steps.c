/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The steps of which algorithms are made, put on a stream: a flow's rounds (offer, wait, take,
 * release), the copies of those that copy; and the pieces of runs that a round moves.
 */
#include "collectives/collective.h"

/* ---- pieces --------------------------------------------------------------------------- */

/* The owner's bytes [*begin, *end) that the round moves, counted over its runs. */
static void round_range(const srt_coll_t *coll, uint32_t round, size_t *begin, size_t *end)
{
	int f = srt_coll_flow_of(coll, round);
	size_t each = coll->transport->round_nbytes(coll, coll->algorithm->flows[f]);

	/* A flow of one round has no limit. */
	*begin = round == coll->flow_begin[f] ? 0 : (round - coll->flow_begin[f]) * each;
	*end = SIZE_MAX - *begin < each ? SIZE_MAX : *begin + each;
}

bool srt_piece_next_of(const srt_coll_t *coll, uint32_t round, const srt_runs_t *runs,
		       srt_piece_at_t *at, srt_piece_t *piece)
{
	size_t begin, end;

	round_range(coll, round, &begin, &end);
	while (at->run < runs->nruns && at->base < end) {
		const srt_run_t *run = &runs->runs[at->run++];
		size_t from = at->base > begin ? at->base : begin;
		size_t to = at->base + run->nbytes < end ? at->base + run->nbytes : end;
		size_t skip = from - at->base;

		at->base += run->nbytes;
		if (from >= to)
			continue;
		*piece = (srt_piece_t){
			.full_offset = run->full_offset + skip,
			.shard_offset = run->shard_offset + skip,
			.at = from - begin,
			.nbytes = to - from,
		};
		return true;
	}
	return false;
}

bool srt_piece_next(const srt_coll_t *coll, uint32_t round, int owner, srt_piece_at_t *at,
		    srt_piece_t *piece)
{
	return srt_piece_next_of(coll, round, &coll->owner[owner], at, piece);
}

size_t srt_piece_nbytes_of(const srt_coll_t *coll, uint32_t round, const srt_runs_t *runs)
{
	size_t begin, end, nbytes = runs->nbytes;

	round_range(coll, round, &begin, &end);
	if (nbytes <= begin)
		return 0;
	return (nbytes < end ? nbytes : end) - begin;
}

size_t srt_piece_nbytes(const srt_coll_t *coll, uint32_t round, int owner)
{
	return srt_piece_nbytes_of(coll, round, &coll->owner[owner]);
}

/* ---- words ---------------------------------------------------------------------------- */

bool srt_coll_reads(const srt_coll_t *coll, int reader, int owner)
{
	for (int f = 0; f < coll->algorithm->nflows; f++) {
		srt_flow_t flow = coll->algorithm->flows[f];

		if (flow != SRT_FLOW_SIGNAL && srt_flow_reads(coll, flow, reader, owner))
			return true;
	}
	return false;
}

/* Whether this rank reads somebody's part of the flow, or somebody reads its own. */
static bool any_reads(const srt_coll_t *coll, srt_flow_t flow, bool i_read)
{
	int me = coll->comm->rank;

	for (int r = 0; r < coll->comm->size; r++) {
		if (r != me && (i_read ? srt_flow_reads(coll, flow, me, r) :
					 srt_flow_reads(coll, flow, r, me)))
			return true;
	}
	return false;
}

/* Offers this rank's part of the round to the peers. */
static srt_status_t offer(srt_coll_start_t *start, uint32_t round, srt_stream_t *stream)
{
	srt_coll_t *coll = start->coll;

	if (coll->comm->size == 1)
		return SRT_OK;
	/* The rounds of a lane are counted by all. */
	if (coll->lane == NULL && !any_reads(coll, srt_coll_flow(coll, round), false))
		return SRT_OK;
	SRT_TRY(coll->transport->offer(start, round, stream));
	return srt_point_add(start, SRT_ACTION_PUBLISH, round, stream);
}

/* Waits for the parts of the peers that this rank reads. */
static srt_status_t await(srt_coll_start_t *start, uint32_t round, srt_stream_t *stream)
{
	if (start->coll->comm->size == 1)
		return SRT_OK;
	if (!any_reads(start->coll, srt_coll_flow(start->coll, round), true))
		return SRT_OK;
	return srt_point_add(start, SRT_ACTION_AWAIT, round, stream);
}

/* This rank has read. */
static srt_status_t release(srt_coll_start_t *start, uint32_t round, srt_stream_t *stream)
{
	const srt_coll_t *coll = start->coll;
	int me = coll->comm->rank;
	bool reads = false;

	if (coll->comm->size == 1)
		return SRT_OK;
	/* Without a lane, sources are whole or not read at all: one release ends a start. */
	for (int r = 0; r < coll->comm->size; r++)
		reads = reads || (r != me && srt_coll_reads(coll, me, r));
	if (coll->lane == NULL && (!reads || round + 1 < coll->nrounds))
		return SRT_OK;
	return srt_point_add(start, SRT_ACTION_RELEASE, round, stream);
}

/* All rounds of a flow, by its place in the algorithm. */
static srt_status_t put_flow(srt_coll_start_t *start, int f, const srt_coll_epilogue_t *epilogue,
			     srt_stream_t *stream)
{
	const srt_coll_t *coll = start->coll;
	srt_take_fn *take = coll->algorithm->take[f];
	uint32_t end = coll->flow_begin[f + 1];

	SRT_TRY(offer(start, coll->flow_begin[f], stream));
	for (uint32_t round = coll->flow_begin[f]; round < end; round++) {
		/* The copies of a staged part then run while the peers read this round's. */
		if (round + 1 < end)
			SRT_TRY(offer(start, round + 1, stream));
		SRT_TRY(await(start, round, stream));
		if (take == NULL)
			continue;
		SRT_TRY(take(start, round, epilogue, stream));
		SRT_TRY(release(start, round, stream));
	}
	return SRT_OK;
}

srt_status_t srt_step_flows(srt_coll_start_t *start, const srt_coll_epilogue_t *epilogue,
			    srt_stream_t *stream)
{
	for (int f = 0; f < start->coll->algorithm->nflows; f++)
		SRT_TRY(put_flow(start, f, epilogue, stream));
	return srt_point_put(start, stream);
}

/* ---- copies --------------------------------------------------------------------------- */

srt_status_t srt_step_copy_end(srt_coll_start_t *start, srt_step_copies_t *copies,
			       srt_stream_t *stream)
{
	size_t nbytes = copies->nbytes;

	copies->nbytes = 0;
	if (nbytes == 0)
		return SRT_OK;
	SRT_TRY(srt_point_put(start, stream));
	return srt_copy(stream, copies->dst.buffer, copies->dst.offset, copies->src.buffer,
			copies->src.offset, nbytes);
}

srt_status_t srt_step_copy(srt_coll_start_t *start, srt_step_copies_t *copies, srt_view_t dst,
			   srt_view_t src, size_t nbytes, srt_stream_t *stream)
{
	/* Bytes that lie at their place are there already. */
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

/* All of this rank's own part of the flow, unless it is there. */
static srt_status_t copy_own(srt_coll_start_t *start, srt_flow_t flow, srt_stream_t *stream)
{
	const srt_coll_t *coll = start->coll;
	const srt_runs_t *mine = srt_coll_incoming(coll, flow, coll->comm->rank);
	bool to_shard = flow == SRT_FLOW_PAIRS;
	srt_step_copies_t copies = { 0 };

	if (to_shard == (coll->algorithm->source == SRT_SOURCE_SHARD))
		return SRT_OK;
	for (size_t i = 0; i < mine->nruns; i++) {
		srt_view_t full = srt_view_at(&coll->full, mine->runs[i].full_offset);
		srt_view_t shard = srt_view_at(&coll->shard, mine->runs[i].shard_offset);

		/* An exchange of all ranks alike brings the own part too. */
		if (coll->uniform != NULL && coll->uniform[i])
			continue;
		SRT_TRY(srt_step_copy(start, &copies, to_shard ? shard : full,
				      to_shard ? full : shard, mine->runs[i].nbytes, stream));
	}
	return srt_step_copy_end(start, &copies, stream);
}

static srt_status_t copy_peer(srt_coll_start_t *start, uint32_t round, int peer,
			      srt_stream_t *stream)
{
	const srt_coll_t *coll = start->coll;
	srt_flow_t flow = srt_coll_flow(coll, round);
	const srt_runs_t *runs = srt_coll_incoming(coll, flow, peer);
	srt_step_copies_t copies = { 0 };
	srt_piece_at_t at = { 0 };
	srt_piece_t piece;

	if (srt_piece_nbytes_of(coll, round, runs) == 0)
		return SRT_OK;
	SRT_TRY(coll->transport->acquire(start, round, peer, stream));
	while (srt_piece_next_of(coll, round, runs, &at, &piece)) {
		srt_view_t to = flow == SRT_FLOW_PAIRS ?
					srt_view_at(&coll->shard, piece.shard_offset) :
					srt_view_at(&coll->full, piece.full_offset);

		SRT_TRY(srt_step_copy(start, &copies, to,
				      coll->transport->locate(start, round, peer, &piece),
				      piece.nbytes, stream));
	}
	return srt_step_copy_end(start, &copies, stream);
}

srt_status_t srt_step_copy_round(srt_coll_start_t *start, uint32_t round,
				 const srt_coll_epilogue_t *epilogue, srt_stream_t *stream)
{
	const srt_coll_t *coll = start->coll;
	const srt_comm_t *comm = coll->comm;

	(void)epilogue;
	if (round == coll->flow_begin[srt_coll_flow_of(coll, round)])
		SRT_TRY(copy_own(start, srt_coll_flow(coll, round), stream));
	/* Rank + 1 first: not everybody at the same one. */
	for (int k = 1; k < comm->size; k++)
		SRT_TRY(copy_peer(start, round, (comm->rank + k) % comm->size, stream));
	return SRT_OK;
}
