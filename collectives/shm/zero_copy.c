/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The transport without copies: every source is memory that the peers have mapped. A flow is one
 * round, the parts are the sources as they are. What remains to be done is to make the device's
 * and the peers' looks at the same bytes follow each other (peer_begin of the backend), where the
 * device needs that.
 */
#include "collectives/collective.h"

static size_t round_nbytes(const srt_coll_t *coll, srt_flow_t flow)
{
	(void)coll;
	(void)flow;
	return SIZE_MAX;
}

/* Some runs of a buffer that is laid out like the source. */
static srt_status_t begin_runs(const srt_coll_t *coll, const srt_view_t *source,
			       const srt_runs_t *runs, srt_stream_t *stream)
{
	bool shard = coll->algorithm->source == SRT_SOURCE_SHARD;
	size_t begin = shard ? runs->shard_begin : runs->full_begin;
	size_t end = shard ? runs->shard_end : runs->full_end;

	if (runs->nruns == 0 || source->buffer == NULL)
		return SRT_OK;
	return srt_buffer_peer_begin(source->buffer, source->offset + begin, end - begin, stream);
}

static bool has_begin(const srt_coll_t *coll)
{
	return coll->comm->device->caps.peer_begin != 0;
}

/* All of this rank's source that peers read in the flow. */
static srt_status_t offer(srt_coll_start_t *start, uint32_t round, srt_stream_t *stream)
{
	const srt_coll_t *coll = start->coll;
	const srt_flow_t flow = srt_coll_flow(coll, round);
	const int me = coll->comm->rank;

	if (!has_begin(coll))
		return SRT_OK;
	SRT_TRY(srt_point_put(start, stream));
	if (flow == SRT_FLOW_GATHER)
		return begin_runs(coll, &coll->source[me], &coll->owner[me], stream);
	for (int r = 0; flow != SRT_FLOW_SIGNAL && r < coll->comm->size; r++) {
		if (r != me)
			SRT_TRY(begin_runs(coll, &coll->source[me],
					   srt_coll_outgoing(coll, flow, r), stream));
	}
	return SRT_OK;
}

static srt_status_t acquire(srt_coll_start_t *start, uint32_t round, int peer, srt_stream_t *stream)
{
	const srt_coll_t *coll = start->coll;
	const srt_flow_t flow = srt_coll_flow(coll, round);

	if (!has_begin(coll))
		return SRT_OK;
	SRT_TRY(srt_point_put(start, stream));
	return begin_runs(coll, &coll->source[peer], srt_coll_incoming(coll, flow, peer), stream);
}

static srt_view_t locate(const srt_coll_start_t *start, uint32_t round, int peer,
			 const srt_piece_t *piece)
{
	const srt_coll_t *coll = start->coll;
	bool shard = coll->algorithm->source == SRT_SOURCE_SHARD;

	(void)round;
	return srt_view_at(&coll->source[peer], shard ? piece->shard_offset : piece->full_offset);
}

const srt_transport_t srt_transport_zero_copy = {
	.name = "zero copy",
	.round_nbytes = round_nbytes,
	.offer = offer,
	.acquire = acquire,
	.locate = locate,
};
