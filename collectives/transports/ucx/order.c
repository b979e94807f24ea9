/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The order of starts. A rank keeps a log of its starts, and of what it knows of the other ranks'.
 * A rank that waits for long tells the ranks that are late in which start of which collective it
 * waits. They compare this with their log at once, and with a start that comes later when that
 * waits.
 */
#include <string.h>

#include "collectives/transports/ucx/internal.h"

/* Seconds that a rank waits for the report of the rank before it. */
#define TURN_S 0.25
#define MAX_TURNS 16

/* Tells the world rank `to` what `rank` has started, if that is known here. */
static void tell(const srt_comm_t *comm, int to, int rank, uint32_t start)
{
	srt_ucx_worker_t *w = srt_ucx_worker_of(comm);
	srt_ucx_told_t *told = &w->told[w->ntold++ % w->told_length];
	const ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
		.flags = UCP_AM_SEND_FLAG_EAGER,
	};
	ucs_status_ptr_t request;
	ucp_ep_h ep;

	*told = (srt_ucx_told_t){
		.number = srt_ucx_comm_of(comm)->number,
		.rank = (uint32_t)rank,
		.start = start,
	};
	if (!srt_start_log_read(comm, rank, start, &told->coll) ||
	    srt_ucx_endpoint(w, to, &ep) != UCS_OK)
		return;
	request = w->ucx->ucp_am_send_nbx(ep, 0, told, sizeof(*told), NULL, 0, &param);
	if (UCS_PTR_IS_PTR(request))
		w->ucx->ucp_request_free(request);
}

void srt_ucx_tell(const srt_coll_start_t *start, const srt_comm_t *part)
{
	const srt_comm_t *comm = start->coll->comm;
	const srt_comm_t *to = part != NULL ? part : comm;
	srt_ucx_ranks_t late = { { 0 } };

	srt_ucx_lock(srt_ucx_worker_of(comm));
	if (part == NULL)
		srt_ucx_add_peers(start, true, true, &late);
	for (int r = 0; r < to->size; r++) {
		if (r != to->rank && (part != NULL || srt_ucx_ranks_has(&late, r)))
			tell(comm, to->world_rank[r], comm->rank, start->number);
	}
	srt_ucx_unlock(srt_ucx_worker_of(comm));
}

bool srt_ucx_compare(srt_comm_t *comm, uint32_t start)
{
	bool differs;

	srt_ucx_lock(srt_ucx_worker_of(comm));
	srt_ucx_drive_for(srt_ucx_worker_of(comm), NULL, 0); /* for what other ranks tell */
	differs = srt_start_order_compare(comm, start);
	srt_ucx_unlock(srt_ucx_worker_of(comm));
	return differs;
}

/* If rank 0 does not take part in calls of UCX, the others report in turn. */
bool srt_ucx_may_report(srt_comm_t *comm, uint32_t start, int one, int other)
{
	srt_ucx_comm_t *c = comm->transport_data;
	const int turn = comm->rank < MAX_TURNS ? comm->rank : MAX_TURNS;

	if (comm->rank == 0)
		return true;
	if (c->differs_since > 0)
		return srt_awake_s() - c->differs_since > turn * TURN_S;
	c->differs_since = srt_awake_s();
	tell(comm, comm->world_rank[0], one, start);
	tell(comm, comm->world_rank[0], other, start);
	return false;
}

ucs_status_t srt_ucx_handle_told(void *arg, const void *header, size_t header_nbytes, void *data,
				 size_t nbytes, const ucp_am_recv_param_t *param)
{
	srt_ucx_worker_t *w = arg;
	srt_ucx_comm_t *c = w->comms;
	srt_ucx_told_t told;

	(void)data;
	(void)nbytes;
	(void)param;
	if (header_nbytes != sizeof(told))
		return UCS_OK;
	memcpy(&told, header, sizeof(told));
	while (c != NULL && c->number != told.number)
		c = c->next;
	if (c == NULL || told.rank >= (uint32_t)c->comm->size)
		return UCS_OK;
	srt_start_log_write(c->comm, (int)told.rank, told.start, told.coll);
	(void)srt_start_order_compare(c->comm, told.start);
	w->nevents++;
	return UCS_OK;
}
