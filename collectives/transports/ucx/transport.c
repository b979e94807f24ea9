/* SPDX-License-Identifier: BSD-3-Clause */
/* The UCX transport's table: communicators and collectives. See ucx.h. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/transports/ucx/internal.h"

#define NUMBERS (1u << 16) /* communicators that tags can name */
/* Longest wait for the messages of a collective that is being destroyed to be cancelled. */
#define CANCEL_S 0.2
/* Longest wait for sent bytes to leave this process when a communicator is destroyed. */
#define FLUSH_S 1.0

/* ---- communicators --------------------------------------------------------------------------- */

/* What a rank tells the others when a communicator is created. */
typedef struct introduction {
	uint64_t address_nbytes;
	uint32_t next_number;
	uint32_t direct;
} introduction_t;

/* Stores the addresses of the ranks' workers. */
static srt_status_t store_addresses(srt_ucx_comm_t *c, const introduction_t *all,
				    const unsigned char *blobs, size_t each)
{
	const srt_comm_t *comm = c->comm;

	for (int r = 0; r < comm->size; r++) {
		srt_ucx_endpoint_t *endpoint = &c->worker->endpoints[comm->world_rank[r]];
		const size_t n = (size_t)all[r].address_nbytes;

		if (r == comm->rank || endpoint->address != NULL)
			continue;
		endpoint->address = srt_calloc(n, 1, "the address of a rank");
		if (endpoint->address == NULL)
			return SRT_ERR_OUT_OF_MEMORY;
		memcpy(endpoint->address, blobs + (size_t)r * each, n);
		endpoint->address_nbytes = n;
	}
	return SRT_OK;
}

/* Collective: exchanges the addresses, which differ in length. */
static srt_status_t exchange_addresses(srt_ucx_comm_t *c, const char *what,
				       const introduction_t *all)
{
	srt_comm_t *comm = c->comm;
	unsigned char *blobs, *mine;
	srt_status_t status;
	size_t each = 0;

	for (int r = 0; r < comm->size; r++) {
		if (all[r].address_nbytes > each)
			each = (size_t)all[r].address_nbytes;
	}
	blobs = srt_comm_calloc(comm, (size_t)comm->size + 1, each, what);
	if (blobs == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	mine = blobs + (size_t)comm->size * each;
	memcpy(mine, c->worker->address, c->worker->address_nbytes);
	status = srt_comm_oob_allgather_for(comm, what, mine, each, blobs);
	if (status == SRT_OK)
		status =
			srt_comm_status_consensus(comm, what, store_addresses(c, all, blobs, each));
	free(blobs);
	return status;
}

static srt_status_t introduce(srt_ucx_comm_t *c, const char *what, introduction_t *all)
{
	srt_comm_t *comm = c->comm;
	const introduction_t mine = {
		.address_nbytes = c->worker->address_nbytes,
		.next_number = c->worker->next_number,
		.direct = c->direct,
	};

	SRT_TRY(srt_comm_oob_allgather_for(comm, what, &mine, sizeof(mine), all));
	c->all_direct = true;
	for (int r = 0; r < comm->size; r++) {
		c->all_direct = c->all_direct && all[r].direct;
		if (all[r].next_number > c->number)
			c->number = all[r].next_number;
	}
	if (c->number >= NUMBERS)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"communicator \"%s\": %u communicators were created over UCX, and "
				"there are no more numbers",
				comm->name, NUMBERS);
	return exchange_addresses(c, what, all);
}

/* This rank's part of the creation. */
static srt_status_t create_local(srt_ucx_comm_t *c)
{
	srt_comm_t *comm = c->comm;

	if (comm->size > SRT_UCX_MAX_RANKS)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"communicator \"%s\": UCX connects at most %d ranks, not %d",
				comm->name, SRT_UCX_MAX_RANKS, comm->size);
	c->direct = comm->device->caps.host_memory != 0;
	c->slot_nbytes = srt_staging_slot_nbytes(comm->size);
	comm->start_log = srt_calloc((size_t)comm->size * SRT_START_LOG_LENGTH,
				     sizeof(*comm->start_log), "a communicator");
	if (comm->start_log == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	return srt_ucx_worker_acquire(comm->bootstrap, &c->worker);
}

/* Collective. What fails is destroyed with the communicator. */
static srt_status_t create_comm(srt_comm_t *comm)
{
	static const char what[] = "connecting ranks by UCX";
	srt_ucx_comm_t *c = srt_comm_calloc(comm, 1, sizeof(*c), what);
	introduction_t *all;
	srt_status_t status;

	if (c == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	comm->transport_data = c;
	c->comm = comm;
	SRT_TRY(srt_comm_status_consensus(comm, what, create_local(c)));
	all = srt_comm_calloc(comm, (size_t)comm->size, sizeof(*all), what);
	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = introduce(c, what, all);
	free(all);
	if (status != SRT_OK)
		return status;
	srt_ucx_lock(c->worker);
	c->worker->next_number = c->number + 1;
	c->next = c->worker->comms;
	c->worker->comms = c;
	srt_ucx_unlock(c->worker);
	srt_log(SRT_LOG_DEBUG, "communicator \"%s\": collectives by UCX %u.%u.%u", comm->name,
		c->worker->ucx->major, c->worker->ucx->minor, c->worker->ucx->release);
	return SRT_OK;
}

/* Sends that are complete may not have left the process. */
static void flush(srt_ucx_worker_t *w)
{
	const ucp_request_param_t param = { .op_attr_mask = 0 };
	ucs_status_ptr_t request = w->ucx->ucp_worker_flush_nbx(w->worker, &param);
	const double since = srt_awake_s();

	if (!UCS_PTR_IS_PTR(request))
		return;
	while (w->ucx->ucp_request_check_status(request) == UCS_INPROGRESS &&
	       srt_awake_s() - since < FLUSH_S)
		srt_ucx_drive_for(w, NULL, 0);
	w->ucx->ucp_request_free(request);
}

static void destroy_comm(srt_comm_t *comm)
{
	srt_ucx_comm_t *c = comm->transport_data;

	if (c == NULL)
		return;
	if (c->worker != NULL) {
		srt_ucx_lock(c->worker);
		for (srt_ucx_comm_t **link = &c->worker->comms; *link != NULL;
		     link = &(*link)->next) {
			if (*link == c) {
				*link = c->next;
				break;
			}
		}
		if (!srt_comm_poisoned(comm))
			flush(c->worker);
		srt_ucx_drop_messages(c->worker, c);
		srt_ucx_unlock(c->worker);
	}
	free(comm->start_log);
	free(c);
	comm->transport_data = NULL;
}

static srt_status_t plan_memory(const srt_comm_t *comm, const srt_coll_uses_t *uses,
				srt_coll_memory_t *memory)
{
	const bool direct = comm->device->caps.host_memory != 0;

	if (uses->copies)
		memory->scratch += srt_ucx_slots_nbytes(comm->size, SRT_BOUNCE_COPY, direct);
	if (uses->sums)
		memory->scratch += srt_ucx_slots_nbytes(comm->size, SRT_BOUNCE_SUM, direct);
	return SRT_OK;
}

/* ---- collectives ----------------------------------------------------------------------------- */

static srt_status_t connect_coll(srt_coll_t *coll, const char *what, const uint64_t *peer_info)
{
	const srt_bounce_kind_t kind = coll->algorithm->reduces ? SRT_BOUNCE_SUM : SRT_BOUNCE_COPY;
	srt_ucx_slots_t *slots = NULL;

	(void)what;
	(void)peer_info;
	SRT_TRY(srt_ucx_slots_acquire(srt_ucx_comm_of(coll->comm), kind, &slots));
	coll->transport_data = slots;
	coll->has_slots = slots != NULL;
	return SRT_OK;
}

static bool has_messages(const srt_coll_t *coll)
{
	for (uint32_t i = 0; i < coll->nstarts; i++) {
		if (srt_ucx_start_of(&coll->starts[i])->ops != NULL)
			return true;
	}
	return false;
}

/* Drives the worker until the collective has no messages. Called with the mutex held. */
static void await_messages(const srt_coll_t *coll, double seconds, bool in_order)
{
	srt_ucx_worker_t *w = srt_ucx_worker_of(coll->comm);
	const double since = srt_awake_s();

	while (has_messages(coll) && srt_awake_s() - since < seconds &&
	       !(in_order && srt_comm_poisoned(coll->comm))) {
		srt_ucx_drive_for(w, NULL, 0);
		srt_ucx_unlock(w);
		sched_yield();
		srt_ucx_lock(w);
	}
}

/* Ends the messages of a collective. Called with the mutex held. */
static void cancel_messages(const srt_coll_t *coll)
{
	const srt_comm_t *comm = coll->comm;
	srt_ucx_worker_t *w = srt_ucx_worker_of(comm);
	srt_ucx_ranks_t peers = { { 0 } };

	for (uint32_t i = 0; i < coll->nstarts; i++)
		srt_ucx_cancel(&coll->starts[i]);
	srt_ucx_drive_for(w, NULL, 0);
	for (uint32_t i = 0; i < coll->nstarts; i++)
		srt_ucx_add_peers(&coll->starts[i], true, true, &peers);
	for (int r = 0; r < comm->size; r++) {
		if (srt_ucx_ranks_has(&peers, r))
			srt_ucx_close_endpoint(w, comm->world_rank[r]);
	}
	await_messages(coll, CANCEL_S, false);
	for (uint32_t i = 0; i < coll->nstarts; i++)
		srt_ucx_give_up(&coll->starts[i]);
}

/* Peers may still have to receive what this rank sends. */
static void disconnect_coll(srt_coll_t *coll)
{
	srt_comm_t *comm = coll->comm;
	srt_ucx_worker_t *w = srt_ucx_worker_of(comm);

	srt_ucx_lock(w);
	await_messages(coll, comm->bootstrap->close_s, true);
	if (has_messages(coll)) {
		/* Peers must not wait for what is cancelled. */
		srt_ucx_unlock(w);
		srt_comm_poison(comm, SRT_ERR_ABORTED, true, "%s before %s of \"%s\" was complete",
				coll->closing_text, coll->algorithm->name, coll->name);
		srt_ucx_lock(w);
		cancel_messages(coll);
	}
	srt_ucx_unlock(w);
	srt_ucx_slots_release(srt_ucx_slots_of(coll));
}

/* ---- starts ---------------------------------------------------------------------------------- */

static bool is_read(const srt_coll_t *coll, srt_phase_t phase)
{
	for (int r = 0; r < coll->comm->size; r++) {
		if (r != coll->comm->rank && srt_phase_reads(coll, phase, r, coll->comm->rank))
			return true;
	}
	return false;
}

static srt_status_t start_rounds(srt_coll_start_t *start, const srt_coll_epilogue_t *epilogue,
				 srt_stream_t *stream)
{
	srt_coll_t *coll = start->coll;
	srt_ucx_slots_t *slots = srt_ucx_slots_of(coll);
	srt_ucx_start_t *s = srt_ucx_start_of(start);

	*s = (srt_ucx_start_t){ .failed_rank = -1 };
	for (int f = 0; f < coll->algorithm->nphases; f++) {
		if (coll->algorithm->phases[f] != SRT_PHASE_SIGNAL &&
		    is_read(coll, coll->algorithm->phases[f]))
			s->npublish = coll->phase_begin[f + 1];
	}
	if (slots != NULL) {
		start->slot_seqno = slots->nrounds;
		slots->nrounds += coll->nrounds;
	}
	return srt_step_submit_phases(start, epilogue, stream);
}

/* The slot in which this rank's part of the round for a peer is. */
static srt_view_t sent(const srt_coll_start_t *start, uint32_t round, int peer)
{
	return srt_view(srt_ucx_slots_of(start->coll)->sent, srt_ucx_sent_at(start, round, peer),
			start->coll->dtype);
}

static srt_status_t offer_chunks(srt_coll_start_t *start, uint32_t round, srt_stream_t *stream)
{
	srt_coll_t *coll = start->coll;
	const srt_phase_t phase = srt_coll_phase(coll, round);
	const int me = coll->comm->rank;

	if (srt_ucx_slots_of(coll) == NULL || srt_ucx_slots_of(coll)->sent == NULL)
		return SRT_OK;
	SRT_TRY(srt_host_step_add(start, SRT_ACTION_CLAIM, round, stream));
	if (phase == SRT_PHASE_GATHER)
		return srt_step_copy_out(start, round, &coll->owner[me], sent(start, round, me),
					 stream);
	for (int r = 0; r < coll->comm->size; r++) {
		if (r != me)
			SRT_TRY(srt_step_copy_out(start, round, srt_coll_outgoing(coll, phase, r),
						  sent(start, round, r), stream));
	}
	return SRT_OK;
}

/* The part of a peer in the device's scratch, for a sum. */
static srt_view_t scratch_of(const srt_coll_start_t *start, uint32_t round, int peer)
{
	const srt_ucx_slots_t *slots = srt_ucx_slots_of(start->coll);
	const size_t at = srt_ucx_received_at(start, round, peer) % slots->slot_nbytes;

	return srt_view(slots->scratch, at, start->coll->dtype);
}

static srt_view_t received(const srt_coll_start_t *start, uint32_t round, int peer)
{
	return srt_view(srt_ucx_slots_of(start->coll)->received,
			srt_ucx_received_at(start, round, peer), start->coll->dtype);
}

static srt_status_t acquire_chunk(srt_coll_start_t *start, uint32_t round, int peer,
				  srt_stream_t *stream)
{
	srt_coll_t *coll = start->coll;
	srt_step_copies_t copies = { 0 };

	if (srt_ucx_comm_of(coll->comm)->direct || srt_coll_phase(coll, round) != SRT_PHASE_SCATTER)
		return SRT_OK;
	SRT_TRY(srt_step_copy(start, &copies, scratch_of(start, round, peer),
			      received(start, round, peer),
			      srt_chunk_nbytes(coll, round, &coll->owner[coll->comm->rank]),
			      stream));
	return srt_step_copy_end(start, &copies, stream);
}

static srt_view_t locate_chunk(const srt_coll_start_t *start, uint32_t round, int peer,
			       const srt_chunk_t *chunk)
{
	const srt_coll_t *coll = start->coll;
	const srt_phase_t phase = srt_coll_phase(coll, round);
	const bool direct = srt_ucx_comm_of(coll->comm)->direct;
	srt_view_t base;

	/* It has been received at the destination. */
	if (direct && phase == SRT_PHASE_GATHER)
		return srt_view_at(&coll->full, chunk->full_offset);
	if (direct && phase == SRT_PHASE_PAIRS)
		return srt_view_at(&coll->shard, chunk->shard_offset);
	base = direct || phase != SRT_PHASE_SCATTER ? received(start, round, peer) :
						      scratch_of(start, round, peer);
	return srt_view_at(&base, chunk->at);
}

const srt_transport_t srt_transport_ucx = {
	.name = "ucx",
	.describe = srt_ucx_describe,
	.choose = srt_ucx_choose,
	.spans_nodes = true,
	.start_nbytes = sizeof(srt_ucx_start_t),
	.create = create_comm,
	.destroy = destroy_comm,
	.plan = plan_memory,
	.connect = connect_coll,
	.disconnect = disconnect_coll,
	.compare = srt_ucx_compare,
	.tell = srt_ucx_tell,
	.may_report = srt_ucx_may_report,
	.start = start_rounds,
	.wait_readers = srt_host_step_wait_readers,
	.await_start = srt_ucx_await_start,
	.run_action = srt_ucx_run_action,
	.is_idle = srt_ucx_is_idle,
	.round_nbytes = srt_ucx_round_nbytes,
	.offer = offer_chunks,
	.acquire = acquire_chunk,
	.locate = locate_chunk,
};
