/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a rank sends, counted where the library hands it on: messages to UCX, by its table of
 * functions; frames to the control channel and starts of collectives, by the linker's --wrap.
 *
 * In a model, ranks of other nodes have no process. What is sent to them ends here, and what is
 * expected of them comes at once: frames with the bytes that this rank gives to the same exchange,
 * and messages of UCX without bytes. Messages of UCX within the node end here too.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "bench/scale.h"
#include "collectives/bootstrap/control_channel_internal.h"
#include "collectives/transports/ucx/internal.h"

static bool models;
static int node_size;
static const srt_bootstrap_t *bootstrap;
static srt_ucx_library_t ucx; /* UCX's own functions */

static _Atomic uint64_t data_messages[2], data_bytes[2], data_rounds, connections;
static _Atomic uint64_t control_messages[2], control_bytes[2], exchanges;

static bool is_far(int world_rank)
{
	return bootstrap->node_of != NULL &&
	       bootstrap->node_of[world_rank] != bootstrap->node_of[bootstrap->rank];
}

scale_count_t scale_links_data(void)
{
	return (scale_count_t){
		.messages = { data_messages[0], data_messages[1] },
		.bytes = { data_bytes[0], data_bytes[1] },
		.rounds = data_rounds,
	};
}

scale_count_t scale_links_control(void)
{
	return (scale_count_t){
		.messages = { control_messages[0], control_messages[1] },
		.bytes = { control_bytes[0], control_bytes[1] },
		.rounds = exchanges,
	};
}

uint64_t scale_links_connections(void)
{
	return connections;
}

/* ---- UCX; called with the worker's mutex held ------------------------------------------------ */

/* A receive of the model, until the worker makes progress. */
typedef struct pending {
	struct pending *next;
	ucp_tag_recv_nbx_callback_t callback;
	srt_ucx_op_t *op;
} pending_t;

static pending_t *receives, *free_receives;

static void count_message(const srt_ucx_op_t *op)
{
	static const srt_coll_start_t *start;
	static uint32_t number, round;
	const srt_comm_t *comm = op->start->coll->comm;
	const bool far = is_far(comm->world_rank[op->peer]);

	data_messages[far]++;
	data_bytes[far] += op->nbytes;
	if (op->start != start || op->start->number != number || op->round != round)
		data_rounds++;
	start = op->start;
	number = op->start->number;
	round = op->round;
}

static ucs_status_ptr_t send_message(ucp_ep_h ep, const void *buffer, size_t count, ucp_tag_t tag,
				     const ucp_request_param_t *param)
{
	count_message(param->user_data);
	return models ? NULL : ucx.ucp_tag_send_nbx(ep, buffer, count, tag, param);
}

static ucs_status_ptr_t send_sync(ucp_ep_h ep, const void *buffer, size_t count, ucp_tag_t tag,
				  const ucp_request_param_t *param)
{
	count_message(param->user_data);
	return models ? NULL : ucx.ucp_tag_send_sync_nbx(ep, buffer, count, tag, param);
}

/* What a rank that waits for long tells others: on a busy machine also those of modelled nodes. */
static ucs_status_ptr_t drop_told(ucp_ep_h ep, unsigned id, const void *header,
				  size_t header_nbytes, const void *buffer, size_t count,
				  const ucp_request_param_t *param)
{
	(void)ep;
	(void)id;
	(void)header;
	(void)header_nbytes;
	(void)buffer;
	(void)count;
	(void)param;
	return NULL;
}

static ucs_status_t create_endpoint(ucp_worker_h worker, const ucp_ep_params_t *params,
				    ucp_ep_h *ep)
{
	connections++;
	if (!models)
		return ucx.ucp_ep_create(worker, params, ep);
	*ep = (ucp_ep_h)(void *)&ucx; /* never used */
	return UCS_OK;
}

static ucs_status_ptr_t close_endpoint(ucp_ep_h ep, const ucp_request_param_t *param)
{
	(void)ep;
	(void)param;
	return NULL;
}

static ucs_status_ptr_t receive_message(ucp_worker_h worker, void *buffer, size_t count,
					ucp_tag_t tag, ucp_tag_t mask,
					const ucp_request_param_t *param)
{
	pending_t *p = free_receives;

	(void)buffer;
	(void)count;
	(void)tag;
	(void)mask;
	if (p != NULL)
		free_receives = p->next;
	else
		p = calloc(1, sizeof(*p));
	if (p == NULL)
		return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
	*p = (pending_t){ .next = receives, .callback = param->cb.recv, .op = param->user_data };
	receives = p;
	if (p->op->worker->driving) /* a thread sleeps until there are events */
		(void)ucx.ucp_worker_signal(worker);
	return p;
}

static unsigned make_progress(ucp_worker_h worker)
{
	pending_t *p = receives;
	unsigned n = 0;

	receives = NULL;
	for (pending_t *next; p != NULL; p = next, n++) {
		const ucp_tag_recv_info_t info = { .length = p->op->nbytes };

		next = p->next;
		p->callback(p, UCS_OK, &info, p->op);
	}
	return n + ucx.ucp_worker_progress(worker);
}

static void free_request(void *request)
{
	pending_t *p = request;

	p->next = free_receives;
	free_receives = p;
}

static void replace_functions(void)
{
	const srt_ucx_library_t *library;
	srt_ucx_library_t *table;

	if (srt_ucx_library(&library) != SRT_OK)
		return; /* the library says why, if it needs UCX */
	table = (srt_ucx_library_t *)(uintptr_t)library;
	ucx = *table;
	table->ucp_tag_send_nbx = send_message;
	table->ucp_tag_send_sync_nbx = send_sync;
	table->ucp_ep_create = create_endpoint;
	if (!models)
		return;
	table->ucp_am_send_nbx = drop_told;
	table->ucp_ep_close_nbx = close_endpoint;
	table->ucp_tag_recv_nbx = receive_message;
	table->ucp_worker_progress = make_progress;
	table->ucp_request_free = free_request;
}

void scale_links_begin(bool is_model, int node)
{
	models = is_model;
	node_size = node;
	replace_functions();
}

/* ---- memory of the node ---------------------------------------------------------------------- */

__typeof__(srt_coll_start) __real_srt_coll_start, __wrap_srt_coll_start;
__typeof__(srt_coll_start_stage) __real_srt_coll_start_stage, __wrap_srt_coll_start_stage;

/* Ranks of a node read each other's memory: what this rank reads. */
static void count_reads(const srt_coll_t *coll)
{
	const int me = coll->comm->rank;

	for (int f = 0; coll->comm->shm != NULL && f < coll->algorithm->nphases; f++) {
		const srt_phase_t phase = coll->algorithm->phases[f];

		for (int r = 0; phase != SRT_PHASE_SIGNAL && r < coll->comm->size; r++) {
			if (r != me && srt_phase_reads(coll, phase, me, r))
				data_bytes[0] += srt_coll_incoming(coll, phase, r)->nbytes;
		}
	}
}

srt_status_t __wrap_srt_coll_start(srt_coll_t *coll, const srt_coll_epilogue_t *epilogue,
				   srt_stream_t *stream)
{
	count_reads(coll);
	return __real_srt_coll_start(coll, epilogue, stream);
}

srt_status_t __wrap_srt_coll_start_stage(srt_coll_start_t *whole, srt_coll_t *coll,
					 const srt_coll_epilogue_t *epilogue, srt_stream_t *stream)
{
	count_reads(coll);
	return __real_srt_coll_start_stage(whole, coll, epilogue, stream);
}

/* ---- the control channel --------------------------------------------------------------------- */

/* What this rank gives to the exchange, NULL: zeros; and the part of it that is exchanged now. */
static const unsigned char *mine;
static size_t part_at, part_nbytes;

srt_status_t __real_srt_comm_create_world(srt_bootstrap_t *b, srt_device_t *device,
					  srt_comm_t **comm);
srt_status_t __wrap_srt_comm_create_world(srt_bootstrap_t *b, srt_device_t *device,
					  srt_comm_t **comm);
__typeof__(srt_device_available) __real_srt_device_available, __wrap_srt_device_available;
__typeof__(srt_flight_begin) __real_srt_flight_begin, __wrap_srt_flight_begin;
__typeof__(srt_control_send) __real_srt_control_send, __wrap_srt_control_send;
__typeof__(srt_control_recv) __real_srt_control_recv, __wrap_srt_control_recv;
__typeof__(srt_comm_oob_allgather_for) __real_srt_comm_oob_allgather_for,
	__wrap_srt_comm_oob_allgather_for;
__typeof__(srt_comm_status_consensus) __real_srt_comm_status_consensus,
	__wrap_srt_comm_status_consensus;

/* Other nodes have their own memory. */
size_t __wrap_srt_device_available(srt_device_t *device)
{
	return models ? SIZE_MAX : __real_srt_device_available(device);
}

/* The ranks of a real run on one host are told that they are on several nodes. */
srt_status_t __wrap_srt_comm_create_world(srt_bootstrap_t *b, srt_device_t *device,
					  srt_comm_t **comm)
{
	bootstrap = b;
	if (b->node_of == NULL && node_size > 0 && node_size < b->world_size) {
		b->node_of = calloc((size_t)b->world_size, sizeof(*b->node_of));
		for (int r = 0; b->node_of != NULL && r < b->world_size; r++)
			b->node_of[r] = (uint16_t)(r / node_size);
	}
	return __real_srt_comm_create_world(b, device, comm);
}

srt_status_t __wrap_srt_comm_oob_allgather_for(srt_comm_t *comm, const char *what, const void *send,
					       size_t nbytes, void *recv)
{
	mine = send;
	part_at = part_nbytes = 0;
	return __real_srt_comm_oob_allgather_for(comm, what, send, nbytes, recv);
}

/* The others have succeeded. */
srt_status_t __wrap_srt_comm_status_consensus(srt_comm_t *comm, const char *what,
					      srt_status_t status)
{
	mine = NULL;
	part_at = part_nbytes = 0;
	return __real_srt_comm_status_consensus(comm, what, status);
}

uint32_t __wrap_srt_flight_begin(srt_flight_t *flight, const char *kind, srt_dtype_t dtype,
				 uint32_t number, uint64_t nbytes, const char *name)
{
	if (strcmp(kind, "exchange") == 0) {
		exchanges++;
		part_at += part_nbytes;
		part_nbytes = nbytes;
	}
	return __real_srt_flight_begin(flight, kind, dtype, number, nbytes, name);
}

srt_control_result_t __wrap_srt_control_send(srt_control_channel_t *channel, int to, uint64_t tag,
					     uint32_t seq, const char *what, const void *data,
					     size_t nbytes, int fd, const atomic_int *stop,
					     double deadline)
{
	const bool far = is_far(to);

	control_messages[far]++;
	control_bytes[far] += sizeof(srt_frame_t) + nbytes;
	if (models && far)
		return SRT_CONTROL_OK;
	return __real_srt_control_send(channel, to, tag, seq, what, data, nbytes, fd, stop,
				       deadline);
}

/* The data of ranks that give what this rank gives; a message may be one part of several. */
static void answer(int from, uint64_t tag, uint32_t seq, unsigned char *data, size_t nbytes)
{
	static struct part {
		int from;
		uint32_t seq;
		uint64_t tag;
		size_t at;
	} last;

	if (last.from != from || last.seq != seq || last.tag != tag)
		last = (struct part){ .from = from, .seq = seq, .tag = tag };
	for (size_t i = 0; i < nbytes; i++)
		data[i] = mine != NULL ? mine[part_at + (last.at + i) % part_nbytes] : 0;
	last.at += nbytes;
}

srt_control_result_t __wrap_srt_control_recv(srt_control_channel_t *channel, int from, uint64_t tag,
					     uint32_t seq, const char *what, void *data,
					     size_t nbytes, int *fd, const atomic_int *stop,
					     double deadline, char theirs[SRT_CONTROL_WHAT])
{
	if (!models || !is_far(from))
		return __real_srt_control_recv(channel, from, tag, seq, what, data, nbytes, fd,
					       stop, deadline, theirs);
	answer(from, tag, seq, data, nbytes);
	return SRT_CONTROL_OK;
}
