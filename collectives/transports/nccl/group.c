/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NCCL calls of one round of a collective, in groups. A group only collects calls. The stream's
 * thread makes them when the stream has reached the group.
 */
#include <stdio.h>

#include "collectives/transports/nccl/nccl.h"

/* Sends and receives in one group, at most. */
#define GROUP_CALLS 1024

static srt_status_t append_send(const srt_coll_t *coll, const srt_view_t *from, size_t nbytes,
				int peer)
{
	const srt_nccl_t *v = srt_nccl_of(coll);

	return v->ops->send(v->impl, from->buffer->impl, from->offset, nbytes, peer);
}

static srt_status_t append_recv(const srt_coll_t *coll, const srt_view_t *to, size_t nbytes,
				int peer)
{
	const srt_nccl_t *v = srt_nccl_of(coll);

	return v->ops->recv(v->impl, to->buffer->impl, to->offset, nbytes, peer);
}

/* The messages of one group. The messages from each rank to each other rank are numbered from 0;
 * the group has those in [first, end). So both ends of a message add it to the same group. */
typedef struct slice {
	size_t first, end;
	bool more; /* later messages remain */
} slice_t;

static bool slice_contains(slice_t *slice, size_t i)
{
	slice->more = slice->more || i >= slice->end;
	return i >= slice->first && i < slice->end;
}

/* Both ranks iterate over the same chunks in the same order. */
static srt_status_t append_scatter(const srt_coll_t *coll, uint32_t round, slice_t *slice, int peer)
{
	srt_view_t scratch = srt_nccl_part(coll, peer);
	srt_chunk_iter_t out = { 0 }, in = { 0 };
	srt_chunk_t chunk;

	for (size_t i = 0; srt_chunk_next(coll, round, &coll->owner[peer], &out, &chunk); i++) {
		srt_view_t from = srt_view_at(&coll->full, chunk.full_offset);

		if (slice_contains(slice, i))
			SRT_TRY(append_send(coll, &from, chunk.nbytes, peer));
	}
	for (size_t i = 0; srt_chunk_next(coll, round, &coll->owner[coll->comm->rank], &in, &chunk);
	     i++) {
		srt_view_t to = srt_view_at(&scratch, chunk.at);

		if (slice_contains(slice, i))
			SRT_TRY(append_recv(coll, &to, chunk.nbytes, peer));
	}
	return SRT_OK;
}

/* The source of an extent of this rank. */
static srt_view_t own_extent(const srt_coll_t *coll, const srt_extent_t *extent)
{
	bool shard = coll->algorithm->source == SRT_SOURCE_SHARD;

	return srt_view_at(&coll->source, shard ? extent->shard_offset : extent->full_offset);
}

static srt_status_t append_all_gather(const srt_coll_t *coll, size_t i)
{
	const srt_nccl_t *v = srt_nccl_of(coll);
	const srt_extent_t *first = &coll->owner[0].extents[i];
	srt_view_t from = own_extent(coll, &coll->owner[coll->comm->rank].extents[i]);

	return v->ops->all_gather(v->impl, coll->full.buffer->impl,
				  coll->full.offset + first->full_offset, from.buffer->impl,
				  from.offset, first->nbytes);
}

static srt_status_t append_broadcast(const srt_coll_t *coll, const srt_extent_t *extent)
{
	const srt_nccl_t *v = srt_nccl_of(coll);

	return v->ops->broadcast(v->impl, coll->full.buffer->impl,
				 coll->full.offset + extent->full_offset, extent->nbytes,
				 coll->root);
}

static bool is_uniform(const srt_coll_t *coll, size_t extent)
{
	const srt_nccl_coll_t *data = coll->transport_data;

	return data->uniform[extent];
}

/* To and from one peer: the extents that no all-gather moves. */
static srt_status_t append_gather_peer(const srt_coll_t *coll, slice_t *slice, int peer)
{
	const srt_extents_t *mine = &coll->owner[coll->comm->rank], *theirs = &coll->owner[peer];

	for (size_t i = 0; i < mine->nextents; i++) {
		srt_view_t from = own_extent(coll, &mine->extents[i]);

		if (slice_contains(slice, i) && !is_uniform(coll, i))
			SRT_TRY(append_send(coll, &from, mine->extents[i].nbytes, peer));
	}
	for (size_t i = 0; i < theirs->nextents; i++) {
		srt_view_t to = srt_view_at(&coll->full, theirs->extents[i].full_offset);

		if (slice_contains(slice, i) && !is_uniform(coll, i))
			SRT_TRY(append_recv(coll, &to, theirs->extents[i].nbytes, peer));
	}
	return SRT_OK;
}

static srt_status_t append_gather(const srt_coll_t *coll, slice_t *slice)
{
	const srt_comm_t *comm = coll->comm;
	const srt_extents_t *mine = &coll->owner[comm->rank];

	if (coll->algorithm->has_root && srt_nccl_of(coll)->ops->broadcast != NULL) {
		const srt_extents_t *root = &coll->owner[coll->root];

		for (size_t i = 0; i < root->nextents; i++) {
			if (slice_contains(slice, i))
				SRT_TRY(append_broadcast(coll, &root->extents[i]));
		}
		return SRT_OK;
	}
	for (size_t i = 0; i < mine->nextents; i++) {
		if (slice_contains(slice, i) && is_uniform(coll, i))
			SRT_TRY(append_all_gather(coll, i));
	}
	for (int k = 1; k < comm->size; k++)
		SRT_TRY(append_gather_peer(coll, slice, (comm->rank + k) % comm->size));
	return SRT_OK;
}

/* The messages of an all-to-all or send-recv, to and from one peer. */
static srt_status_t append_messages(const srt_coll_t *coll, slice_t *slice, int peer)
{
	const srt_extents_t *out = &coll->out[peer], *in = &coll->in[peer];

	for (size_t i = 0; i < out->nextents; i++) {
		srt_view_t from = srt_view_at(&coll->full, out->extents[i].full_offset);

		if (slice_contains(slice, i))
			SRT_TRY(append_send(coll, &from, out->extents[i].nbytes, peer));
	}
	for (size_t i = 0; i < in->nextents; i++) {
		srt_view_t to = srt_view_at(&coll->shard, in->extents[i].shard_offset);

		if (slice_contains(slice, i))
			SRT_TRY(append_recv(coll, &to, in->extents[i].nbytes, peer));
	}
	return SRT_OK;
}

static srt_status_t fill_group(const srt_coll_t *coll, uint32_t round, slice_t *slice)
{
	const srt_nccl_coll_t *data = coll->transport_data;
	const srt_comm_t *comm = coll->comm;

	if (data->sums)
		return srt_nccl_append_sums(coll);
	if (srt_coll_phase(coll, round) == SRT_PHASE_GATHER)
		return append_gather(coll, slice);
	for (int k = 1; k < comm->size; k++) {
		int peer = (comm->rank + k) % comm->size;

		SRT_TRY(coll->algorithm->has_pairs ? append_messages(coll, slice, peer) :
						     append_scatter(coll, round, slice, peer));
	}
	return SRT_OK;
}

srt_status_t srt_nccl_end_group(const srt_nccl_t *v, srt_status_t status)
{
	void *group = NULL;
	srt_status_t ended = v->ops->group_end(v->impl, &group);

	status = status == SRT_OK ? ended : status;
	if (group == NULL)
		return status;
	if (status == SRT_OK)
		status = srt_stream_call(v->stream, v->ops->group_run, group);
	if (status != SRT_OK)
		(void)v->ops->group_run(NULL, group); /* only frees it */
	return status;
}

/* Only the caller's thread makes groups. No lock is held here: the stream may be full until the
 * watchdog aborts the work that blocks it. */
static srt_status_t submit_group(const srt_coll_t *coll, uint32_t round, slice_t *slice)
{
	const srt_nccl_t *v = srt_nccl_of(coll);
	srt_status_t status;

	SRT_TRY(v->ops->group_begin(v->impl));
	status = fill_group(coll, round, slice);
	return srt_nccl_end_group(v, status);
}

/* Adds the collective to NCCL's message. */
static srt_status_t fail_round(const srt_coll_t *coll, const char *what, srt_status_t status)
{
	const srt_comm_t *comm = coll->comm;
	char text[SRT_CONTROL_TEXT];

	if (srt_comm_poisoned(comm))
		return srt_comm_fail(comm, 0, "%s", what);
	snprintf(text, sizeof(text), "%s", srt_error_last());
	return srt_fail(status, "rank %d: %s: %s", comm->world_rank[comm->rank], what, text);
}

srt_status_t srt_nccl_exchange_round(const srt_coll_start_t *start, uint32_t round)
{
	const srt_coll_t *coll = start->coll;
	const size_t n = GROUP_CALLS / 2 / (size_t)(coll->comm->size - 1);
	slice_t slice = { .end = n > 0 ? n : 1 };
	srt_status_t status;
	char what[192];

	snprintf(what, sizeof(what), "%s of \"%s\"", coll->algorithm->name, coll->name);
	do {
		if (atomic_load(&srt_nccl_of(coll)->aborted))
			return srt_comm_fail(coll->comm, 0, "%s", what);
		slice.more = false;
		status = submit_group(coll, round, &slice);
		slice.first = slice.end;
		slice.end += n > 0 ? n : 1;
	} while (status == SRT_OK && slice.more);
	return status == SRT_OK ? status : fail_round(coll, what, status);
}
