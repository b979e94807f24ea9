/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The transport by NCCL (collectives/transports/nccl/nccl.h), for whole collectives
 * and for their rounds.
 *
 *     gather    one round, from the owners' runs to their places in everybody's full; no scratch.
 *               Where the i-th runs of all owners are of one size and lie one behind the other in
 *               the order of ranks, they are one all-gather; the root's runs are broadcasts;
 *               all others are sends and receives, in one group
 *     pairs     one round of sends and receives, from and to their places; no scratch
 *     scatter   in rounds that fit the scratch: of everybody's full, each owner's runs to the
 *               owner's scratch, from which it sums in the order of the tree (tree_sum.c)
 *
 * Bytes that a rank sends: all others' parts of its full for a sum, its own part to each other
 * rank for a gather; as many as a ring moves.
 */
#include <stdio.h>
#include <stdlib.h>

#include "collectives/collective.h"

#define PART_ALIGN ((size_t)64)
/* Sends and receives that NCCL gets in one group, at most. */
#define GROUP_CALLS 1024

static size_t round_nbytes(const srt_coll_t *coll, srt_flow_t flow)
{
	if (flow != SRT_FLOW_SCATTER)
		return SIZE_MAX;
	return srt_nccl_scratch_nbytes(coll->comm->size) / (size_t)(coll->comm->size - 1) /
	       PART_ALIGN * PART_ALIGN;
}

/* Where the peer's part of a sum lies in scratch. */
static srt_view_t scratch_of(const srt_coll_t *coll, int peer)
{
	size_t place = (size_t)(peer < coll->comm->rank ? peer : peer - 1);

	return srt_view(coll->nccl->scratch, place * round_nbytes(coll, SRT_FLOW_SCATTER),
			coll->dtype);
}

static srt_view_t locate(const srt_coll_start_t *start, uint32_t round, int peer,
			 const srt_piece_t *piece)
{
	const srt_coll_t *coll = start->coll;
	srt_flow_t flow = srt_coll_flow(coll, round);
	srt_view_t base;

	/* What was received lies at its place. */
	if (flow == SRT_FLOW_GATHER)
		return srt_view_at(&coll->full, piece->full_offset);
	if (flow == SRT_FLOW_PAIRS)
		return srt_view_at(&coll->shard, piece->shard_offset);
	base = scratch_of(coll, peer);
	return srt_view_at(&base, piece->at);
}

/* Nothing to be done before or after peers' parts: the exchange has brought them. */
static srt_status_t nothing(srt_coll_start_t *start, uint32_t round, int peer, srt_stream_t *stream)
{
	(void)start;
	(void)round;
	(void)peer;
	(void)stream;
	return SRT_OK;
}

/* ---- one round -------------------------------------------------------------------------- */

static srt_status_t send(const srt_coll_t *coll, const srt_view_t *from, size_t nbytes, int peer)
{
	const srt_nccl_t *v = coll->nccl;

	return v->ops->send(v->impl, from->buffer->impl, from->offset, nbytes, peer);
}

static srt_status_t recv(const srt_coll_t *coll, const srt_view_t *to, size_t nbytes, int peer)
{
	const srt_nccl_t *v = coll->nccl;

	return v->ops->recv(v->impl, to->buffer->impl, to->offset, nbytes, peer);
}

/* What one group has: of the messages from each rank to each other, numbered from 0, those from
 * `first` to before `end`. So both ends of a message put it into the same group. */
typedef struct slice {
	size_t first, end;
	bool more; /* there are later ones */
} slice_t;

static bool has(slice_t *slice, size_t i)
{
	slice->more = slice->more || i >= slice->end;
	return i >= slice->first && i < slice->end;
}

/* Both sides go through the same pieces in the same order. */
static srt_status_t swap_parts(const srt_coll_t *coll, uint32_t round, slice_t *slice, int peer)
{
	srt_view_t scratch = scratch_of(coll, peer);
	srt_piece_at_t out = { 0 }, in = { 0 };
	srt_piece_t piece;

	for (size_t i = 0; srt_piece_next(coll, round, peer, &out, &piece); i++) {
		srt_view_t from = srt_view_at(&coll->full, piece.full_offset);

		if (has(slice, i))
			SRT_TRY(send(coll, &from, piece.nbytes, peer));
	}
	for (size_t i = 0; srt_piece_next(coll, round, coll->comm->rank, &in, &piece); i++) {
		srt_view_t to = srt_view_at(&scratch, piece.at);

		if (has(slice, i))
			SRT_TRY(recv(coll, &to, piece.nbytes, peer));
	}
	return SRT_OK;
}

/* Where a run of this rank is read. */
static srt_view_t own_run(const srt_coll_t *coll, const srt_run_t *run)
{
	const srt_view_t *source = &coll->source[coll->comm->rank];
	bool shard = coll->algorithm->source == SRT_SOURCE_SHARD;

	return srt_view_at(source, shard ? run->shard_offset : run->full_offset);
}

static srt_status_t gather_alike(const srt_coll_t *coll, size_t i)
{
	const srt_nccl_t *v = coll->nccl;
	const srt_run_t *first = &coll->owner[0].runs[i];
	srt_view_t from = own_run(coll, &coll->owner[coll->comm->rank].runs[i]);

	return v->ops->all_gather(v->impl, coll->full.buffer->impl,
				  coll->full.offset + first->full_offset, from.buffer->impl,
				  from.offset, first->nbytes);
}

static srt_status_t gather_root(const srt_coll_t *coll, const srt_run_t *run)
{
	const srt_nccl_t *v = coll->nccl;

	return v->ops->broadcast(v->impl, coll->full.buffer->impl,
				 coll->full.offset + run->full_offset, run->nbytes, coll->root);
}

static bool is_alike(const srt_coll_t *coll, size_t run)
{
	return coll->uniform != NULL && coll->uniform[run];
}

/* To and from one peer, what is left. */
static srt_status_t gather_peer(const srt_coll_t *coll, slice_t *slice, int peer)
{
	const srt_runs_t *mine = &coll->owner[coll->comm->rank], *theirs = &coll->owner[peer];

	for (size_t i = 0; i < mine->nruns; i++) {
		srt_view_t from = own_run(coll, &mine->runs[i]);

		if (has(slice, i) && !is_alike(coll, i))
			SRT_TRY(send(coll, &from, mine->runs[i].nbytes, peer));
	}
	for (size_t i = 0; i < theirs->nruns; i++) {
		srt_view_t to = srt_view_at(&coll->full, theirs->runs[i].full_offset);

		if (has(slice, i) && !is_alike(coll, i))
			SRT_TRY(recv(coll, &to, theirs->runs[i].nbytes, peer));
	}
	return SRT_OK;
}

static srt_status_t gather(const srt_coll_t *coll, slice_t *slice)
{
	const srt_comm_t *comm = coll->comm;
	const srt_runs_t *mine = &coll->owner[comm->rank];

	if (coll->algorithm->has_root && coll->nccl->ops->broadcast != NULL) {
		const srt_runs_t *root = &coll->owner[coll->root];

		for (size_t i = 0; i < root->nruns; i++) {
			if (has(slice, i))
				SRT_TRY(gather_root(coll, &root->runs[i]));
		}
		return SRT_OK;
	}
	for (size_t i = 0; i < mine->nruns; i++) {
		if (has(slice, i) && is_alike(coll, i))
			SRT_TRY(gather_alike(coll, i));
	}
	for (int k = 1; k < comm->size; k++)
		SRT_TRY(gather_peer(coll, slice, (comm->rank + k) % comm->size));
	return SRT_OK;
}

/* Messages to and from one peer. */
static srt_status_t swap_messages(const srt_coll_t *coll, slice_t *slice, int peer)
{
	const srt_runs_t *out = &coll->out[peer], *in = &coll->in[peer];

	for (size_t i = 0; i < out->nruns; i++) {
		srt_view_t from = srt_view_at(&coll->full, out->runs[i].full_offset);

		if (has(slice, i))
			SRT_TRY(send(coll, &from, out->runs[i].nbytes, peer));
	}
	for (size_t i = 0; i < in->nruns; i++) {
		srt_view_t to = srt_view_at(&coll->shard, in->runs[i].shard_offset);

		if (has(slice, i))
			SRT_TRY(recv(coll, &to, in->runs[i].nbytes, peer));
	}
	return SRT_OK;
}

static srt_status_t fill_group(const srt_coll_t *coll, uint32_t round, slice_t *slice)
{
	const srt_comm_t *comm = coll->comm;

	if (coll->nccl_sums)
		return srt_nccl_put_sums(coll);
	if (srt_coll_flow(coll, round) == SRT_FLOW_GATHER)
		return gather(coll, slice);
	for (int k = 1; k < comm->size; k++) {
		int peer = (comm->rank + k) % comm->size;

		SRT_TRY(coll->algorithm->has_pairs ? swap_messages(coll, slice, peer) :
						     swap_parts(coll, round, slice, peer));
	}
	return SRT_OK;
}

srt_status_t srt_nccl_end_group(const srt_nccl_t *v, srt_status_t status)
{
	void *group = NULL;
	srt_status_t ended = v->ops->group_end(v->impl, &group);

	status = status == SRT_OK ? ended : status;
	if (!group)
		return status;
	if (status == SRT_OK)
		status = srt_stream_call(v->stream, v->ops->group_run, group);
	if (status != SRT_OK)
		(void)v->ops->group_run(NULL, group); /* frees it */
	return status;
}

/* The caller alone makes groups. No lock is held: the stream may be full until the watchdog has
 * aborted what blocks it. */
static srt_status_t put_group(const srt_coll_t *coll, uint32_t round, slice_t *slice)
{
	const srt_nccl_t *v = coll->nccl;
	srt_status_t status;

	SRT_TRY(v->ops->group_begin(v->impl));
	status = fill_group(coll, round, slice);
	return srt_nccl_end_group(v, status);
}

/* NCCL's message, behind what was to be done. */
static srt_status_t fail_exchange(const srt_coll_t *coll, const char *what, srt_status_t status)
{
	const srt_comm_t *comm = coll->comm;
	char text[SRT_CONTROL_TEXT];

	if (srt_comm_poisoned(comm))
		return srt_comm_fail(comm, 0, "%s", what);
	snprintf(text, sizeof(text), "%s", srt_last_error());
	return srt_fail(status, "rank %d: %s: %s", comm->world_rank[comm->rank], what, text);
}

/* Sends what peers want of this rank in the round, and receives what it wants of them. */
static srt_status_t exchange(const srt_coll_start_t *start, uint32_t round)
{
	const srt_coll_t *coll = start->coll;
	const size_t n = GROUP_CALLS / 2 / (size_t)(coll->comm->size - 1);
	slice_t slice = { .end = n > 0 ? n : 1 };
	srt_status_t status;
	char what[192];

	snprintf(what, sizeof(what), "%s of \"%s\"", coll->algorithm->name, coll->name);
	do {
		if (atomic_load(&coll->nccl->aborted))
			return srt_comm_fail(coll->comm, 0, "%s", what);
		slice.more = false;
		status = put_group(coll, round, &slice);
		slice.first = slice.end;
		slice.end += n > 0 ? n : 1;
	} while (status == SRT_OK && slice.more);
	return status == SRT_OK ? status : fail_exchange(coll, what, status);
}

/* ---- a collective ------------------------------------------------------------------------ */

bool srt_nccl_alike(const srt_coll_t *coll, size_t i)
{
	const srt_run_t *first = &coll->owner[0].runs[i];

	for (int r = 0; r < coll->comm->size; r++) {
		const srt_runs_t *runs = &coll->owner[r];

		if (i >= runs->nruns || runs->runs[i].nbytes != first->nbytes ||
		    runs->runs[i].full_offset != first->full_offset + (size_t)r * first->nbytes)
			return false;
	}
	return true;
}

static srt_status_t find_alike(srt_coll_t *coll)
{
	size_t most = 0;

	for (int r = 0; r < coll->comm->size; r++) {
		if (coll->owner[r].nruns > most)
			most = coll->owner[r].nruns;
	}
	coll->uniform = srt_calloc(most, sizeof(*coll->uniform), "a collective");
	if (coll->uniform == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < coll->owner[0].nruns; i++)
		coll->uniform[i] = srt_nccl_alike(coll, i);
	return SRT_OK;
}

static srt_status_t make_needed(srt_coll_t *coll)
{
	srt_nccl_t *v = coll->comm->nccl;
	bool gathers = v->ops->all_gather != NULL && !coll->algorithm->has_root &&
		       !coll->algorithm->has_pairs;

	coll->nccl = v;
	v->nsums += coll->algorithm->reduces;
	if (gathers)
		SRT_TRY(find_alike(coll));
	coll->nccl_sums = srt_nccl_may_sum(coll);
	if (!coll->algorithm->reduces || v->scratch != NULL)
		return SRT_OK;
	return srt_buffer_create(coll->comm->device, SRT_MEM_DEVICE,
				 srt_nccl_scratch_nbytes(coll->comm->size),
				 "parts of sums over ranks", &v->scratch);
}

static srt_status_t connect(srt_coll_t *coll, const char *what, const uint64_t *told)
{
	(void)told;
	return srt_comm_status_consensus(coll->comm, what, make_needed(coll));
}

static void disconnect(srt_coll_t *coll)
{
	srt_nccl_t *v = coll->nccl;

	if (v == NULL)
		return;
	srt_nccl_forget(v, coll);
	free(coll->uniform);
	if (!coll->algorithm->reduces || --v->nsums > 0)
		return;
	srt_buffer_destroy(v->scratch);
	v->scratch = NULL;
}

static srt_status_t put_flow(srt_coll_start_t *start, int f, const srt_coll_epilogue_t *epilogue,
			     srt_stream_t *stream)
{
	const srt_coll_t *coll = start->coll;

	for (uint32_t round = coll->flow_begin[f]; round < coll->flow_begin[f + 1]; round++) {
		SRT_TRY(exchange(start, round));
		SRT_TRY(coll->algorithm->take[f](start, round, epilogue, stream));
	}
	return SRT_OK;
}

static srt_status_t put_start(srt_coll_start_t *start, const srt_coll_epilogue_t *epilogue,
			      srt_stream_t *stream)
{
	if (start->coll->nccl_sums) {
		SRT_TRY(exchange(start, 0));
		return srt_nccl_finish_sums(start->coll, epilogue, stream);
	}
	for (int f = 0; f < start->coll->algorithm->nflows; f++)
		SRT_TRY(put_flow(start, f, epilogue, stream));
	return SRT_OK;
}

/* On the communicator's stream; the caller's waits for it. */
static srt_status_t start_turn(srt_coll_start_t *start, const srt_coll_epilogue_t *epilogue,
			       srt_stream_t *stream)
{
	srt_coll_t *coll = start->coll;
	srt_nccl_t *v = coll->nccl;
	srt_nccl_turn_t *turn;

	SRT_TRY(srt_nccl_take_turn(v, coll, &turn, &coll->turn));
	/* Edge: the caller's earlier work -> the start. */
	SRT_TRY(srt_event_record(v->ready, stream));
	SRT_TRY(srt_stream_wait_event(v->stream, v->ready));
	SRT_TRY(srt_event_record(turn->began, v->stream));
	SRT_TRY(put_start(start, epilogue, v->stream));
	SRT_TRY(srt_event_record(turn->ended, v->stream));
	srt_nccl_put_turn(v, turn);
	/* Edge: the start -> the caller's later work. */
	return srt_stream_wait_event(stream, turn->ended);
}

/* What has been sent is not read any more. */
static srt_status_t fence(srt_coll_start_t *start, srt_stream_t *stream)
{
	const srt_coll_t *coll = start->coll;
	srt_nccl_t *v = coll->nccl;
	bool ended;

	pthread_mutex_lock(&v->mutex);
	ended = (int32_t)(v->nended - coll->turn) >= 0;
	pthread_mutex_unlock(&v->mutex);
	/* Else the turn is still its own. */
	if (ended)
		return SRT_OK;
	return srt_stream_wait_event(stream, v->turn[(coll->turn - 1) % SRT_NCCL_NTURNS].ended);
}

static void give_up(const srt_coll_t *coll)
{
	srt_nccl_give_up(coll->nccl);
}

static void destroy(srt_comm_t *comm)
{
	srt_nccl_destroy(comm->nccl);
}

static void plan(int nranks, bool sums, srt_coll_memory_t *memory)
{
	if (sums)
		memory->scratch += srt_nccl_scratch_nbytes(nranks);
}

const srt_transport_t srt_transport_nccl = {
	.name = "nccl",
	.grace_s = SRT_NCCL_GRACE_S,
	.create = srt_nccl_create,
	.destroy = destroy,
	.plan = plan,
	.connect = connect,
	.disconnect = disconnect,
	.announce = srt_nccl_say,
	.start = start_turn,
	.fence = fence,
	.give_up = give_up,
	.round_nbytes = round_nbytes,
	.acquire = nothing,
	.locate = locate,
};
