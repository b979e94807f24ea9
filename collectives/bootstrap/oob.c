/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Out-of-band exchanges of small data, blocking. Used at creation and at most once per step, not
 * for tensors. If the ranks share memory, each writes its data there once (shm/post.c). Else, and
 * to pass descriptors, they send over the control channel: every rank to every rank of its node,
 * and one rank of each node to rank 0, which answers with the data of all.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/bootstrap/exchange.h"
#include "collectives/comm.h"
#include "collectives/flight/flight.h"
#include "collectives/shm/control.h"

/* Bytes of all ranks together in one exchange: well below what a rank queues. */
#define MAX_EXCHANGE ((size_t)4 << 20)
#define ROOT_S 1.0 /* how much later than rank 0, which knows the late one, others give up */

/* An exchange, up to its first failure. */
typedef struct progress {
	const char *what;
	uint32_t seq;
	double start;
	srt_control_result_t result;
	int peer; /* the last one */
	char theirs[SRT_CONTROL_WHAT];
	/* In the flight recorder, but of an exchange between nodes: */
	uint32_t call;
	int wait;
	double since;
} progress_t;

/* Begins an exchange that the flight recorder records. */
static progress_t begin_exchange(srt_comm_t *comm, const char *what, size_t nbytes)
{
	const uint32_t seq = comm->oob_seqno++;

	return (progress_t){
		.what = what,
		.seq = seq,
		.start = srt_awake_s(),
		.call = srt_flight_begin(comm->flight, "exchange", SRT_U8, seq + 1, nbytes, what),
		.wait = -1,
		.since = srt_now_s(),
	};
}

/* Records that the exchange waits for the rank. */
static void record_wait(const srt_comm_t *comm, progress_t *p, int rank)
{
	srt_flight_wait_t record = {
		.number = p->seq + 1,
		.kind = "exchange",
		.round = SRT_FLIGHT_NO_ROUND,
		.since_s = p->since,
	};

	srt_flight_wait_add(&record, comm->world_rank[rank]);
	p->wait = srt_flight_wait(comm->flight, p->wait, &record, p->what);
}

/* Receives the message of m.rank. Sets the fields that all messages of the exchange share. */
static void receive(srt_comm_t *comm, progress_t *p, srt_expected_t m)
{
	m.seq = p->seq;
	m.what = p->what;
	m.start = p->start;
	p->peer = m.rank;
	p->result = srt_exchange_receive(comm, &m, p->theirs);
}

static srt_status_t end_exchange(srt_comm_t *comm, progress_t *p)
{
	const bool failed = p->result != SRT_CONTROL_OK;
	const srt_status_t status =
		srt_exchange_fail(comm, p->seq, p->result, p->peer, p->what, p->theirs, p->start);

	srt_flight_wait_end(comm->flight, p->wait, failed);
	srt_flight_end(comm->flight, p->call, failed ? SRT_FLIGHT_FAILED : SRT_FLIGHT_COMPLETE);
	return status;
}

/* After a failed send: whether the peer has ended, and not another cause. */
static bool has_ended(srt_control_channel_t *channel, int world_rank)
{
	return errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN ||
	       srt_control_peer_state(channel, world_rank) != SRT_PEER_ALIVE;
}

srt_status_t srt_comm_exchange_fds(srt_comm_t *comm, const char *what, const bool *to,
				   const void *send, size_t nbytes, int fd, const bool *from,
				   void *recv, int *fds)
{
	srt_control_channel_t *channel = comm->bootstrap->control;
	progress_t p;
	int done = 1;

	if (srt_comm_poisoned(comm))
		return srt_exchange_refuse(comm, comm->oob_seqno, what, 0);
	p = begin_exchange(comm, what, nbytes);
	/* Each rank starts with rank + 1, so that they do not all send to the same peer. */
	for (int k = 1; k < comm->size && p.result == SRT_CONTROL_OK; k++) {
		const int r = (comm->rank + k) % comm->size;

		if (to != NULL && !to[r])
			continue;
		record_wait(comm, &p, r);
		p.peer = r;
		p.result = srt_control_send(channel, comm->world_rank[r], comm->id, p.seq, what,
					    send, nbytes, fd, &comm->poison,
					    p.start + comm->bootstrap->timeout_s);
		if (p.result == SRT_CONTROL_GONE && has_ended(channel, comm->world_rank[r]))
			p.result = SRT_CONTROL_OK; /* it may have sent its own message */
	}
	for (; done < comm->size && p.result == SRT_CONTROL_OK; done++) {
		const int r = (comm->rank + done) % comm->size;

		if (fds != NULL)
			fds[r] = -1;
		if (from != NULL && !from[r])
			continue;
		record_wait(comm, &p, r);
		receive(comm, &p,
			(srt_expected_t){ .rank = r,
					  .data = (unsigned char *)recv + (size_t)r * nbytes,
					  .nbytes = nbytes,
					  .fd = fds != NULL ? &fds[r] : NULL,
					  .from = from,
					  .place = done });
	}
	for (int k = 1; p.result != SRT_CONTROL_OK && fds != NULL && k < done - 1; k++) {
		const int r = (comm->rank + k) % comm->size;

		if (fds[r] >= 0)
			close(fds[r]);
	}
	return end_exchange(comm, &p);
}

/* An exchange in shared memory: one write for all ranks. all: [size][nbytes], with this rank's. */
static srt_status_t exchange_shared(srt_comm_t *comm, const char *what, size_t nbytes,
				    unsigned char *all)
{
	progress_t p = begin_exchange(comm, what, nbytes);
	size_t at = 0;

	for (bool more = true; p.result == SRT_CONTROL_OK && more; more = at < nbytes) {
		p.start = srt_awake_s(); /* each part has the time limit */
		srt_shm_post(comm, what, all + (size_t)comm->rank * nbytes + at, nbytes - at);
		for (int k = 1; k < comm->size && p.result == SRT_CONTROL_OK; k++) {
			const int r = (comm->rank + k) % comm->size;

			record_wait(comm, &p, r);
			receive(comm, &p,
				(srt_expected_t){ .rank = r,
						  .data = all + (size_t)r * nbytes + at,
						  .nbytes = nbytes - at,
						  .shared = true,
						  .place = k });
		}
		at += SRT_SHM_POST_NBYTES;
	}
	return end_exchange(comm, &p);
}

/* ---- between nodes ------------------------------------------------------------------------- */

bool srt_comm_same_node(const srt_comm_t *comm, int a, int b)
{
	const uint16_t *node_of = comm->bootstrap->node_of;

	return node_of == NULL || node_of[comm->world_rank[a]] == node_of[comm->world_rank[b]];
}

/* A message of any size, in parts. */
typedef struct block {
	unsigned char *bytes;
	size_t nbytes;
} block_t;

static size_t part_nbytes(const block_t *block, size_t at)
{
	const size_t left = block->nbytes - at;

	return left < SRT_CONTROL_MAX_PAYLOAD ? left : SRT_CONTROL_MAX_PAYLOAD;
}

static void send_block(srt_comm_t *comm, progress_t *p, int to, const block_t *block)
{
	size_t at = 0;

	for (bool more = true; p->result == SRT_CONTROL_OK && more; more = at < block->nbytes) {
		const size_t n = part_nbytes(block, at);

		p->peer = to;
		p->result = srt_control_send(comm->bootstrap->control, comm->world_rank[to],
					     comm->id, p->seq, p->what, block->bytes + at, n, -1,
					     &comm->poison, p->start + comm->bootstrap->timeout_s);
		at += n;
	}
}

static void receive_block(srt_comm_t *comm, progress_t *p, int from, const block_t *block)
{
	size_t at = 0;

	for (bool more = true; p->result == SRT_CONTROL_OK && more; more = at < block->nbytes) {
		const size_t n = part_nbytes(block, at);

		receive(comm, p,
			(srt_expected_t){ .rank = from,
					  .data = block->bytes + at,
					  .nbytes = n,
					  .place = comm->size });
		at += n;
	}
}

/* The communicator's ranks of the node of `rank`, in their order. members: [size]. Returns how many
 * they are; the first one speaks for them. */
static int find_members(const srt_comm_t *comm, int rank, int *members)
{
	const uint16_t *node_of = comm->bootstrap->node_of;
	int n = 0;

	for (int r = 0; r < comm->size; r++) {
		if (node_of[comm->world_rank[r]] == node_of[comm->world_rank[rank]])
			members[n++] = r;
	}
	return n;
}

/* The first ranks of the nodes, in their order: rank 0 first. speakers: [size]. Returns how many
 * nodes there are, 0 if there is no memory. */
static int find_speakers(srt_comm_t *comm, const char *what, int *speakers)
{
	const srt_bootstrap_t *b = comm->bootstrap;
	bool *seen = srt_comm_calloc(comm, (size_t)b->world_size, sizeof(*seen), what);
	int n = 0;

	for (int r = 0; seen != NULL && r < comm->size; r++) {
		const uint16_t node = b->node_of[comm->world_rank[r]];

		if (!seen[node])
			speakers[n++] = r;
		seen[node] = true;
	}
	free(seen);
	return n;
}

/* Copies between the places of ranks in `all` and a block of theirs. */
static void pack(const int *members, int n, unsigned char *all, size_t each, const block_t *block,
		 bool in)
{
	for (int i = 0; i < n && each > 0; i++) {
		unsigned char *place = all + (size_t)members[i] * each;
		unsigned char *packed = block->bytes + (size_t)i * each;

		memcpy(in ? place : packed, in ? packed : place, each);
	}
}

/* Rank 0: takes the blocks of the other nodes, and sends `whole` to each. tables: [2][size] */
static void exchange_at_root(srt_comm_t *comm, progress_t *at, const block_t *whole, block_t *block,
			     int *tables)
{
	const size_t each = whole->nbytes / (size_t)comm->size;
	int *members = tables, *speakers = tables + comm->size;
	const int nnodes = find_speakers(comm, at->what, speakers);

	if (nnodes == 0)
		at->result = SRT_CONTROL_NO_MEMORY;
	for (int i = 1; i < nnodes; i++) {
		const int n = find_members(comm, speakers[i], members);

		block->nbytes = (size_t)n * each;
		receive_block(comm, at, speakers[i], block);
		if (at->result == SRT_CONTROL_OK)
			pack(members, n, whole->bytes, each, block, true);
	}
	for (int i = 1; i < nnodes; i++)
		send_block(comm, at, speakers[i], whole);
}

/*
 * The ranks of a node have each other's data in `all`. The first rank of each node sends them to
 * rank 0, which sends those of all ranks back; they are passed on within the node. So rank 0, whose
 * relay all messages between nodes pass, has two messages a node, not two a pair of nodes.
 */
static void run_exchange(srt_comm_t *comm, progress_t *at, const block_t *whole, block_t *block,
			 int *tables)
{
	const size_t each = whole->nbytes / (size_t)comm->size;
	const int n = find_members(comm, comm->rank, tables), speaker = tables[0];

	if (comm->rank == 0) {
		exchange_at_root(comm, at, whole, block, tables + n);
	} else if (comm->rank == speaker) {
		block->nbytes = (size_t)n * each;
		pack(tables, n, whole->bytes, each, block, false);
		send_block(comm, at, 0, block);
	}
	if (comm->rank != 0)
		receive_block(comm, at, comm->rank == speaker ? 0 : speaker, whole);
	for (int i = 1; comm->rank == speaker && i < n; i++)
		send_block(comm, at, tables[i], whole);
}

static srt_status_t exchange_nodes(srt_comm_t *comm, const char *what, size_t n, unsigned char *all)
{
	const size_t size = (size_t)comm->size;
	int *tables = srt_comm_calloc(comm, 3 * size, sizeof(*tables), what);
	unsigned char *buffer = srt_comm_calloc(comm, size, n > 0 ? n : 1, what);
	progress_t at = { .what = what,
			  .seq = comm->oob_seqno++,
			  .start = srt_awake_s() + (comm->rank == 0 ? 0 : ROOT_S) };
	const block_t whole = { all, size * n };
	block_t block = { .bytes = buffer };
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;
	char stopped[160];

	if (tables == NULL || buffer == NULL)
		goto free_tables;
	run_exchange(comm, &at, &whole, &block, tables);
	if (at.result == SRT_CONTROL_TIMEOUT) {
		srt_wait_list_stopped(comm, stopped, sizeof(stopped));
		srt_comm_poison(comm, SRT_ERR_TIMEOUT, true,
				"rank %d gave up after %g s (SHARDRT_TIMEOUT): rank %d, or a rank "
				"that it waits for, did not reach it: %s%s",
				comm->world_rank[comm->rank], comm->bootstrap->timeout_s,
				comm->world_rank[at.peer], what, stopped);
	}
	status = at.result == SRT_CONTROL_OK ? SRT_OK :
					       srt_exchange_fail(comm, at.seq, at.result, at.peer,
								 what, at.theirs, at.start);
free_tables:
	free(buffer);
	free(tables);
	return status;
}

/* An exchange of n bytes, which one message holds. all: [size][n], with this rank's bytes. */
static srt_status_t exchange_part(srt_comm_t *comm, const char *what, size_t n, unsigned char *all)
{
	const unsigned char *mine = all + (size_t)comm->rank * n;
	bool *near;
	srt_status_t status;

	if (!srt_comm_spans_nodes(comm))
		return srt_comm_exchange_fds(comm, what, NULL, mine, n, -1, NULL, all, NULL);
	near = srt_comm_calloc(comm, (size_t)comm->size, sizeof(*near), what);
	if (near == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (int r = 0; r < comm->size; r++)
		near[r] = srt_comm_same_node(comm, comm->rank, r);
	status = srt_comm_exchange_fds(comm, what, near, mine, n, -1, near, all, NULL);
	free(near);
	return status == SRT_OK ? exchange_nodes(comm, what, n, all) : status;
}

bool srt_comm_spans_nodes(const srt_comm_t *comm)
{
	for (int r = 0; r < comm->size; r++) {
		if (!srt_comm_same_node(comm, comm->rank, r))
			return true;
	}
	return false;
}

srt_status_t srt_comm_oob_allgather_for(srt_comm_t *comm, const char *what, const void *send,
					size_t nbytes, void *recv)
{
	const size_t size = (size_t)comm->size, share = MAX_EXCHANGE / size;
	const size_t most = share < SRT_CONTROL_MAX_PAYLOAD ? share : SRT_CONTROL_MAX_PAYLOAD;
	unsigned char *all = recv;
	unsigned char *parts;
	srt_status_t status = SRT_OK;

	if (srt_comm_poisoned(comm))
		return srt_exchange_refuse(comm, comm->oob_seqno, what, 0);
	if (nbytes > 0)
		memmove(all + (size_t)comm->rank * nbytes, send, nbytes);
	if (comm->size == 1)
		return SRT_OK;
	if (comm->shm != NULL)
		return exchange_shared(comm, what, nbytes, all);
	if (nbytes <= most)
		return exchange_part(comm, what, nbytes, all);
	parts = srt_comm_calloc(comm, size, most, what);
	if (parts == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t at = 0; at < nbytes && status == SRT_OK; at += most) {
		const size_t n = nbytes - at < most ? nbytes - at : most;

		memcpy(parts + (size_t)comm->rank * n, all + (size_t)comm->rank * nbytes + at, n);
		status = exchange_part(comm, what, n, parts);
		for (int r = 0; r < comm->size && status == SRT_OK; r++) {
			if (r != comm->rank)
				memcpy(all + (size_t)r * nbytes + at, parts + (size_t)r * n, n);
		}
	}
	free(parts);
	return status;
}

/* The ranks have not compared their statuses, because an exchange has failed with `status`. A rank
 * that had failed by itself reports that. */
static srt_status_t report_own(const srt_comm_t *comm, const char *what, srt_status_t own,
			       const char *text, srt_status_t status)
{
	if (own == SRT_OK || own == status || comm->bootstrap->is_child)
		return status;
	return srt_fail(own, "%s: on rank %d: %s", what, comm->world_rank[comm->rank], text);
}

/* The ranks' statuses first: the texts are many bytes, and of no use if all succeeded. */
srt_status_t srt_comm_status_consensus(srt_comm_t *comm, const char *what, srt_status_t status)
{
	const int32_t mine = (int32_t)status;
	char text[SRT_CONTROL_TEXT] = "", (*texts)[SRT_CONTROL_TEXT];
	int32_t *all;
	int failed = 0;

	if (comm->size == 1)
		return status;
	if (status != SRT_OK)
		snprintf(text, sizeof(text), "%s", srt_error_last());
	if (srt_comm_poisoned(comm))
		return report_own(comm, what, status, text,
				  srt_exchange_refuse(comm, comm->oob_seqno, what, 0));
	all = srt_comm_calloc(comm, (size_t)comm->size, sizeof(*all) + sizeof(*texts), what);
	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	texts = (char(*)[SRT_CONTROL_TEXT])(void *)(all + comm->size);
	status = srt_comm_oob_allgather_for(comm, what, &mine, sizeof(mine), all);
	while (status == SRT_OK && failed < comm->size && all[failed] == SRT_OK)
		failed++;
	if (status == SRT_OK && failed < comm->size)
		status = srt_comm_oob_allgather_for(comm, what, text, sizeof(text), texts);
	if (status != SRT_OK) {
		status = report_own(comm, what, (srt_status_t)mine, text, status);
	} else if (failed < comm->size) {
		const bool known = all[failed] > 0 && all[failed] < SRT_STATUS_COUNT;

		texts[failed][SRT_CONTROL_TEXT - 1] = '\0';
		status = srt_fail(known ? (srt_status_t)all[failed] : SRT_ERR_SYSTEM,
				  "%s: on rank %d: %s", what, comm->world_rank[failed],
				  texts[failed]);
	}
	free(all);
	return status;
}

srt_status_t srt_comm_oob_allgather(srt_comm_t *comm, const void *send, size_t nbytes, void *recv)
{
	size_t total;
	char what[128];

	SRT_NOT_NULL(comm);
	if (nbytes > 0) {
		SRT_NOT_NULL(send);
		SRT_NOT_NULL(recv);
	}
	if (!srt_mul_size(nbytes, (size_t)comm->size, &total))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_comm_oob_allgather: %zu bytes of each of %d ranks do not fit "
				"the address space",
				nbytes, comm->size);
	snprintf(what, sizeof(what), "an exchange on communicator \"%s\"", comm->name);
	return srt_comm_oob_allgather_for(comm, what, send, nbytes, recv);
}
