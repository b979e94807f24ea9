/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages of starts. Bits of a tag, from the highest:
 *
 *     communicator   16   its number (srt_ucx_comm.number)
 *     sender         14   rank in the communicator
 *     start          16   number of the start on the communicator, modulo 2^16
 *     collective     18   its id, modulo 2^18
 *
 * Messages of one tag arrive in the order of sending, which is that of rounds. A message of several
 * parts is sent from, or received to, a table of UCX (UCP_DATATYPE_IOV).
 */
#include <stdlib.h>
#include <string.h>

#include "collectives/transports/ucx/internal.h"

/* Bytes of one-way messages that may wait in the memory of a rank of this node. Each counts as one
 * of UCX's buffers at least, and starts stay in the logs that are compared. */
#define AHEAD_NBYTES ((size_t)1 << 20)
#define AHEAD_EACH (2 * AHEAD_NBYTES / SRT_START_LOG_LENGTH)

#define SENDER_BITS 14
#define START_BITS 16
#define COLL_BITS 18

static uint64_t make_tag(const srt_coll_start_t *start, int sender)
{
	const srt_comm_t *comm = start->coll->comm;
	uint64_t tag = srt_ucx_comm_of(comm)->number;

	tag = tag << SENDER_BITS | (uint64_t)sender;
	tag = tag << START_BITS | (start->number & ((1u << START_BITS) - 1));
	return tag << COLL_BITS | (start->coll->id & ((1u << COLL_BITS) - 1));
}

/* ---- operations ---------------------------------------------------------------------------- */

srt_ucx_op_t *srt_ucx_op_begin(srt_coll_start_t *start, uint32_t round, int peer, bool is_send)
{
	srt_ucx_worker_t *w = srt_ucx_worker_of(start->coll->comm);
	srt_ucx_op_t *op = w->free_ops;

	if (op != NULL)
		w->free_ops = op->next;
	else
		op = srt_calloc(1, sizeof(*op), "a message");
	if (op == NULL)
		return NULL;
	*op = (srt_ucx_op_t){
		.worker = w,
		.start = start,
		.peer = peer,
		.is_send = is_send,
		.round = round,
		.phase = srt_coll_phase_index(start->coll, round),
		.iov = op->iov,
		.iov_capacity = op->iov_capacity,
	};
	return op;
}

bool srt_ucx_op_add(srt_ucx_op_t *op, void *address, size_t nbytes)
{
	op->nbytes += nbytes;
	if (op->niov > 0) {
		ucp_dt_iov_t *last = &op->iov[op->niov - 1];

		if ((char *)last->buffer + last->length == (char *)address) {
			last->length += nbytes;
			return true;
		}
	}
	if (op->niov == op->iov_capacity) {
		size_t capacity = op->iov_capacity > 0 ? 2 * op->iov_capacity : 4;
		ucp_dt_iov_t *iov = realloc(op->iov, capacity * sizeof(*iov));

		if (iov == NULL) {
			(void)srt_fail(SRT_ERR_OUT_OF_MEMORY, "out of memory for a message");
			return false;
		}
		op->iov = iov;
		op->iov_capacity = capacity;
	}
	op->iov[op->niov++] = (ucp_dt_iov_t){ .buffer = address, .length = nbytes };
	return true;
}

static void enlist(srt_ucx_op_t *op)
{
	srt_ucx_start_t *s = srt_ucx_start_of(op->start);

	op->next = s->ops;
	op->previous = NULL;
	if (s->ops != NULL)
		s->ops->previous = op;
	s->ops = op;
	if (op->is_send) {
		s->nsends[op->round % 2]++;
		s->phase_sends[op->phase]++;
		op->worker->nsends++;
		if (op->nusers != NULL)
			(*op->nusers)++;
	} else {
		s->nrecvs[op->round % 2]++;
	}
	srt_coll_start_hold(op->start);
}

static srt_ucx_endpoint_t *endpoint_of(const srt_ucx_op_t *op)
{
	return &op->worker->endpoints[op->start->coll->comm->world_rank[op->peer]];
}

static void delist(srt_ucx_op_t *op)
{
	srt_ucx_start_t *s = srt_ucx_start_of(op->start);

	if (op->is_sync && --endpoint_of(op)->nsyncing == 0)
		endpoint_of(op)->ahead_nbytes = 0;

	if (op->previous != NULL)
		op->previous->next = op->next;
	else
		s->ops = op->next;
	if (op->next != NULL)
		op->next->previous = op->previous;
	if (op->is_send) {
		s->nsends[op->round % 2]--;
		s->phase_sends[op->phase]--;
		op->worker->nsends--;
		if (op->nusers != NULL)
			(*op->nusers)--;
	} else {
		s->nrecvs[op->round % 2]--;
	}
	srt_coll_start_release(op->start, SRT_OK);
}

static void recycle(srt_ucx_op_t *op)
{
	op->next = op->worker->free_ops;
	op->worker->free_ops = op;
}

/* The message is complete; length: of a receive. */
static void complete(srt_ucx_op_t *op, ucs_status_t status, size_t length)
{
	srt_ucx_worker_t *w = op->worker;
	srt_ucx_start_t *s = op->start != NULL ? srt_ucx_start_of(op->start) : NULL;

	if (s == NULL)
		return;
	if (status == UCS_OK && !op->is_send && length != op->nbytes)
		status = UCS_ERR_INVALID_PARAM;
	s->is_broken = s->is_broken || (status != UCS_OK && !op->is_send);
	/* The first failure, but a receive's rather than a send's. What this rank cancels is no
	 * failure. */
	if (status != UCS_OK && (s->failure == NULL || (s->failed_send && !op->is_send)) &&
	    !srt_comm_poisoned(op->start->coll->comm)) {
		s->failed_rank = op->peer;
		s->failed_send = op->is_send;
		s->failed_since = srt_awake_s();
		s->failure = w->ucx->ucs_status_string(status);
	}
	delist(op);
	w->nevents++;
	recycle(op);
}

void srt_ucx_give_up(srt_coll_start_t *start)
{
	const srt_coll_t *coll = start->coll;

	while (srt_ucx_start_of(start)->ops != NULL) {
		srt_ucx_op_t *op = srt_ucx_start_of(start)->ops;

		op->kept = (srt_ucx_kept_t){ coll->full.buffer, coll->shard.buffer,
					     srt_ucx_slots_of(coll) };
		if (op->kept.full != NULL)
			srt_buffer_hold(op->kept.full);
		if (op->kept.shard != NULL)
			srt_buffer_hold(op->kept.shard);
		srt_ucx_slots_keep(op->kept.slots);
		delist(op);
		op->start = NULL;
		op->next = op->worker->given_up;
		op->worker->given_up = op;
	}
}

void srt_ucx_release_kept(srt_ucx_worker_t *w)
{
	for (const srt_ucx_op_t *op = w->given_up; op != NULL; op = op->next) {
		srt_buffer_destroy(op->kept.full);
		srt_buffer_destroy(op->kept.shard);
		srt_ucx_slots_release(op->kept.slots);
	}
}

static void handle_sent(void *request, ucs_status_t status, void *arg)
{
	srt_ucx_op_t *op = arg;
	const srt_ucx_library_t *ucx = op->worker->ucx;

	complete(op, status, 0);
	ucx->ucp_request_free(request);
}

static void handle_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
			    void *arg)
{
	srt_ucx_op_t *op = arg;
	const srt_ucx_library_t *ucx = op->worker->ucx;

	complete(op, status, info->length);
	ucx->ucp_request_free(request);
}

/* ---- posting ------------------------------------------------------------------------------- */

/* A rank that receives nothing from a peer could be ahead of it without limit. So its sends
 * complete when they are received; those that are copied, only if too much is on the way. Over tcp
 * always: a send that is complete may still need progress. */
static void count_one_way(srt_ucx_op_t *op, bool is_copied)
{
	srt_ucx_endpoint_t *endpoint = endpoint_of(op);
	const size_t nbytes = op->nbytes > AHEAD_EACH ? op->nbytes : AHEAD_EACH;

	op->is_sync = !is_copied || endpoint->nsyncing > 0 ||
		      endpoint->ahead_nbytes + nbytes > AHEAD_NBYTES;
	if (op->is_sync)
		endpoint->nsyncing++;
	else
		endpoint->ahead_nbytes += nbytes;
}

static ucs_status_ptr_t post_send(srt_ucx_op_t *op, bool one_way, const void *buffer, size_t count,
				  ucp_request_param_t *param)
{
	const srt_comm_t *comm = op->start->coll->comm;
	srt_ucx_worker_t *w = srt_ucx_worker_of(comm);
	const bool is_copied = w->shares_memory && srt_comm_same_node(comm, comm->rank, op->peer);
	uint64_t tag = make_tag(op->start, comm->rank);
	ucp_ep_h ep = NULL;
	ucs_status_t status = srt_ucx_endpoint(w, comm->world_rank[op->peer], &ep);

	if (status != UCS_OK)
		return UCS_STATUS_PTR(status);
	param->cb.send = handle_sent;
	/* Over shared memory a copy is faster than a handshake; UCX has the limit, 256 KiB. Over
	 * tcp the handshake is faster: it saves copies. */
	if (is_copied)
		param->op_attr_mask |= UCP_OP_ATTR_FLAG_FAST_CMPL;
	if (one_way)
		count_one_way(op, is_copied);
	return op->is_sync ? w->ucx->ucp_tag_send_sync_nbx(ep, buffer, count, tag, param) :
			     w->ucx->ucp_tag_send_nbx(ep, buffer, count, tag, param);
}

void srt_ucx_op_post(srt_ucx_op_t *op, bool one_way)
{
	srt_ucx_worker_t *w = op->worker;
	const bool one = op->niov <= 1;
	void *buffer = op->niov == 0 ? NULL : one ? op->iov[0].buffer : op->iov;
	size_t count = op->niov == 0 ? 0 : one ? op->iov[0].length : op->niov;
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
		.datatype = one ? ucp_dt_make_contig(1) : UCP_DATATYPE_IOV,
		.user_data = op,
		.memory_type = UCS_MEMORY_TYPE_HOST,
	};
	ucs_status_ptr_t request;

	enlist(op);
	if (op->is_send) {
		request = post_send(op, one_way, buffer, count, &param);
	} else {
		/* Only the callback gets the length. It may be called at once. */
		param.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
		param.cb.recv = handle_received;
		request =
			w->ucx->ucp_tag_recv_nbx(w->worker, buffer, count,
						 make_tag(op->start, op->peer), UINT64_MAX, &param);
	}
	if (UCS_PTR_IS_PTR(request))
		op->request = request;
	else
		complete(op, UCS_PTR_STATUS(request), 0);
}

void srt_ucx_add_peers(const srt_coll_start_t *start, bool sends, bool receives,
		       srt_ucx_ranks_t *peers)
{
	for (const srt_ucx_op_t *op = srt_ucx_start_of(start)->ops; op != NULL; op = op->next)
		if (op->is_send ? sends : receives)
			srt_ucx_ranks_add(peers, op->peer);
}

void srt_ucx_cancel(srt_coll_start_t *start)
{
	srt_ucx_worker_t *w = srt_ucx_worker_of(start->coll->comm);

	/* A receive that is cancelled may complete at once. */
	for (srt_ucx_op_t *op = srt_ucx_start_of(start)->ops, *next; op != NULL; op = next) {
		next = op->next;
		if (!op->is_send)
			w->ucx->ucp_request_cancel(w->worker, op->request);
	}
}

void srt_ucx_drop_messages(srt_ucx_worker_t *w, const srt_ucx_comm_t *comm)
{
	const int shift = SENDER_BITS + START_BITS + COLL_BITS;
	const uint64_t tag = comm != NULL ? (uint64_t)comm->number << shift : 0;
	const uint64_t mask = comm != NULL ? UINT64_MAX << shift : 0;
	const ucp_request_param_t param = { .op_attr_mask = 0 };
	ucp_tag_recv_info_t info;
	ucp_tag_message_h message;
	char nothing;

	while ((message = w->ucx->ucp_tag_probe_nb(w->worker, tag, mask, 1, &info)) != NULL) {
		ucs_status_ptr_t request =
			w->ucx->ucp_tag_msg_recv_nbx(w->worker, &nothing, 0, message, &param);

		if (UCS_PTR_IS_PTR(request))
			w->ucx->ucp_request_free(request);
	}
}
