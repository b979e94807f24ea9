/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Out-of-band exchanges of small data over the control channel, blocking: every rank sends to every
 * rank of its node, and one rank of each node to one of every other node. Used at creation and at
 * most once per step, not for tensors.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/comm.h"
#include "collectives/flight.h"

/* Bytes of all ranks together in one exchange: well below what a rank queues. */
#define MAX_EXCHANGE ((size_t)4 << 20)
#define NEWS_S 5.0 /* how late the progress thread may be on a busy machine */

/* Poisons the communicator according to the result of a send or receive, and fails. */
static srt_status_t fail_transfer(srt_comm_t *comm, srt_control_result_t result, int rank,
				  const char *what, const char *theirs, double start)
{
	int world_rank = comm->world_rank[rank];
	char stopped[160];

	switch (result) {
	case SRT_CONTROL_OK:
		return SRT_OK;
	case SRT_CONTROL_STOPPED:
		break;
	case SRT_CONTROL_GONE:
		/* If the rank has died, the progress thread poisons with the reason, but a send may
		 * fail before that thread wakes. */
		for (double since = srt_awake_s();
		     srt_control_peer_state(comm->bootstrap->control, world_rank) ==
			     SRT_PEER_ALIVE &&
		     !srt_comm_poisoned(comm) && srt_awake_s() - since < NEWS_S;)
			usleep(1000);
		srt_comm_poison_left(comm, rank);
		break;
	case SRT_CONTROL_TIMEOUT:
		srt_wait_list_stopped(comm, stopped, sizeof(stopped));
		srt_comm_poison(comm, SRT_ERR_TIMEOUT, true,
				"rank %d gave up after %g s (SHARDRT_TIMEOUT): rank %d did not "
				"reach it: %s%s",
				comm->world_rank[comm->rank], comm->bootstrap->timeout_s,
				world_rank, what, stopped);
		break;
	case SRT_CONTROL_MALFORMED:
		srt_comm_poison(comm, SRT_ERR_MISMATCH, true,
				"rank %d and rank %d exchange different data: they do not call the "
				"same functions in the same order",
				world_rank, comm->world_rank[comm->rank]);
		break;
	case SRT_CONTROL_NO_DESCRIPTOR:
		srt_comm_poison(comm, SRT_ERR_SYSTEM, true,
				"rank %d has no descriptor left for the memory of rank %d; raise "
				"the limit of open files (ulimit -n)",
				comm->world_rank[comm->rank], world_rank);
		break;
	case SRT_CONTROL_OTHER:
		srt_comm_poison(comm, SRT_ERR_MISMATCH, true,
				"rank %d is %s, rank %d is %s: all ranks must call the same "
				"functions in the same order",
				comm->world_rank[comm->rank], what, world_rank, theirs);
		break;
	case SRT_CONTROL_NO_MEMORY:
		srt_comm_poison(comm, SRT_ERR_OUT_OF_MEMORY, true, "rank %d is out of memory",
				comm->world_rank[comm->rank]);
		break;
	}
	return srt_comm_fail(comm, srt_awake_s() - start, "%s", what);
}

/* Receives the message of a rank, and warns if it is long in coming. */
static srt_control_result_t receive(srt_comm_t *comm, int rank, uint32_t seq, const char *what,
				    void *data, size_t nbytes, int *fd, double start,
				    char theirs[SRT_CONTROL_WHAT])
{
	const double timeout_s = comm->bootstrap->timeout_s;
	srt_control_result_t result = SRT_CONTROL_TIMEOUT;
	double deadline = start + srt_wait_warn_s(comm);

	srt_wait_publish(comm, what);
	for (int late = 0; late < 2 && result == SRT_CONTROL_TIMEOUT; late++) {
		if (late) {
			srt_wait_warn(comm, what, srt_awake_s() - start);
			deadline = start + timeout_s;
		}
		result = srt_control_recv(comm->bootstrap->control, comm->world_rank[rank],
					  comm->id, seq, what, data, nbytes, fd, &comm->poison,
					  deadline, theirs);
	}
	srt_wait_publish(comm, "");
	return result;
}

/* Records that the exchange waits for the rank. The slot: see srt_flight_wait(). */
static int record_wait(const srt_comm_t *comm, int slot, uint32_t seq, int rank, double since,
		       const char *what)
{
	srt_flight_wait_t record = {
		.number = seq + 1,
		.kind = "exchange",
		.round = SRT_FLIGHT_NO_ROUND,
		.since_s = since,
	};

	srt_flight_wait_add(&record, comm->world_rank[rank]);
	return srt_flight_wait(comm->flight, slot, &record, what);
}

srt_status_t srt_comm_exchange_fds(srt_comm_t *comm, const char *what, const bool *to,
				   const void *send, size_t nbytes, int fd, const bool *from,
				   void *recv, int *fds)
{
	srt_control_channel_t *channel = comm->bootstrap->control;
	uint32_t seq = comm->oob_seqno++, call;
	double start = srt_awake_s(), deadline = start + comm->bootstrap->timeout_s;
	const double since = srt_now_s();
	int slot = -1;
	srt_control_result_t result = SRT_CONTROL_OK;
	char theirs[SRT_CONTROL_WHAT] = "";
	int peer = 0, done = 1;
	srt_status_t status;

	if (srt_comm_poisoned(comm))
		return srt_comm_fail(comm, 0, "%s", what);
	call = srt_flight_begin(comm->flight, "exchange", SRT_U8, seq + 1, nbytes, what);
	/* Each rank starts with rank + 1, so that they do not all send to the same peer. */
	for (int k = 1; k < comm->size && result == SRT_CONTROL_OK; k++) {
		peer = (comm->rank + k) % comm->size;
		if (to != NULL && !to[peer])
			continue;
		slot = record_wait(comm, slot, seq, peer, since, what);
		result = srt_control_send(channel, comm->world_rank[peer], comm->id, seq, what,
					  send, nbytes, fd, &comm->poison, deadline);
	}
	for (; done < comm->size && result == SRT_CONTROL_OK; done++) {
		int r = (comm->rank + done) % comm->size;
		if (fds != NULL)
			fds[r] = -1;
		if (from != NULL && !from[r])
			continue;
		peer = r;
		slot = record_wait(comm, slot, seq, peer, since, what);
		result = receive(comm, r, seq, what, (unsigned char *)recv + (size_t)r * nbytes,
				 nbytes, fds != NULL ? &fds[r] : NULL, start, theirs);
	}
	if (result == SRT_CONTROL_OK) {
		srt_flight_wait_end(comm->flight, slot, false);
		srt_flight_end(comm->flight, call, SRT_FLIGHT_COMPLETE);
		return SRT_OK;
	}
	for (int k = 1; fds != NULL && k < done - 1; k++) {
		int r = (comm->rank + k) % comm->size;
		if (fds[r] >= 0)
			close(fds[r]);
	}
	status = fail_transfer(comm, result, peer, what, theirs, start);
	srt_flight_wait_end(comm->flight, slot, true);
	srt_flight_end(comm->flight, call, SRT_FLIGHT_FAILED);
	return status;
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

static srt_control_result_t send_block(srt_comm_t *comm, int to, uint32_t seq, const char *what,
				       const block_t *block, double start)
{
	srt_control_result_t result = SRT_CONTROL_OK;
	size_t at = 0;

	do {
		size_t n = block->nbytes - at;

		n = n < SRT_CONTROL_MAX_PAYLOAD ? n : SRT_CONTROL_MAX_PAYLOAD;
		result = srt_control_send(comm->bootstrap->control, comm->world_rank[to], comm->id,
					  seq, what, block->bytes + at, n, -1, &comm->poison,
					  start + comm->bootstrap->timeout_s);
		at += n;
	} while (result == SRT_CONTROL_OK && at < block->nbytes);
	return result;
}

static srt_control_result_t receive_block(srt_comm_t *comm, int from, uint32_t seq,
					  const char *what, const block_t *block, double start,
					  char theirs[SRT_CONTROL_WHAT])
{
	srt_control_result_t result = SRT_CONTROL_OK;
	size_t at = 0;

	do {
		size_t n = block->nbytes - at;

		n = n < SRT_CONTROL_MAX_PAYLOAD ? n : SRT_CONTROL_MAX_PAYLOAD;
		result = receive(comm, from, seq, what, block->bytes + at, n, NULL, start, theirs);
		at += n;
	} while (result == SRT_CONTROL_OK && at < block->nbytes);
	return result;
}

/* The ranks of a node in the communicator: member[0] speaks for them. */
typedef struct party {
	int *member;
	int n;
} party_t;

/* Sorts the communicator's ranks by node, this rank's first. parties: [size]; members: [size]. */
static int find_parties(const srt_comm_t *comm, party_t *parties, int *members)
{
	const uint16_t *node_of = comm->bootstrap->node_of;
	int nparties = 0;

	for (int k = -1; k < comm->size; k++) {
		const int first = k < 0 ? comm->rank : k;
		const uint16_t node = node_of[comm->world_rank[first]];
		bool known = false;

		for (int p = 0; p < nparties; p++)
			known = known || node_of[comm->world_rank[parties[p].member[0]]] == node;
		if (known)
			continue;
		parties[nparties] = (party_t){ .member = members };
		for (int r = 0; r < comm->size; r++) {
			if (node_of[comm->world_rank[r]] == node)
				parties[nparties].member[parties[nparties].n++] = r;
		}
		members += parties[nparties++].n;
	}
	return nparties;
}

/* Copies between a packed block of a node's ranks and the ranks' places in `all`. */
static void pack(const party_t *party, unsigned char *all, size_t n, unsigned char *packed, bool in)
{
	for (int i = 0; i < party->n && n > 0; i++) {
		unsigned char *place = all + (size_t)party->member[i] * n;

		memcpy(in ? place : packed + (size_t)i * n, in ? packed + (size_t)i * n : place, n);
	}
}

/*
 * The ranks of a node have each other's data in `all`. One rank of each node sends them to one of
 * each other node, and passes on what it receives: two messages a node, not one a pair of ranks.
 */
static srt_status_t exchange_nodes(srt_comm_t *comm, const char *what, size_t n, unsigned char *all)
{
	const size_t size = (size_t)comm->size;
	const uint32_t seq = comm->oob_seqno++;
	const double start = srt_awake_s();
	party_t *parties = srt_comm_calloc(comm, size, sizeof(*parties), what);
	int *members = srt_comm_calloc(comm, size, sizeof(*members), what);
	unsigned char *buffer = srt_comm_calloc(comm, size, n > 0 ? n : 1, what);
	srt_control_result_t result = SRT_CONTROL_OK;
	char theirs[SRT_CONTROL_WHAT] = "";
	srt_status_t status = SRT_OK;
	int nparties, peer = 0, late = 0;
	block_t block = { .bytes = buffer };

	if (parties == NULL || members == NULL || buffer == NULL) {
		status = SRT_ERR_OUT_OF_MEMORY;
		goto free_tables;
	}
	nparties = find_parties(comm, parties, members);
	if (parties[0].member[0] == comm->rank) {
		block.nbytes = (size_t)parties[0].n * n;
		pack(&parties[0], all, n, buffer, false);
		for (int p = 1; p < nparties && result == SRT_CONTROL_OK; p++) {
			peer = late = parties[p].member[0];
			result = send_block(comm, peer, seq, what, &block, start);
		}
	}
	/* The others of this node receive each node's block as it comes. */
	for (int p = 1; p < nparties && result == SRT_CONTROL_OK; p++) {
		const bool speaks = parties[0].member[0] == comm->rank;

		late = parties[p].member[0];
		peer = speaks ? late : parties[0].member[0];
		block.nbytes = (size_t)parties[p].n * n;
		result = receive_block(comm, peer, seq, what, &block, start, theirs);
		for (int i = 1; speaks && i < parties[0].n && result == SRT_CONTROL_OK; i++) {
			peer = parties[0].member[i];
			result = send_block(comm, peer, seq, what, &block, start);
		}
		pack(&parties[p], all, n, buffer, true);
	}
	if (result == SRT_CONTROL_TIMEOUT)
		srt_comm_poison(comm, SRT_ERR_TIMEOUT, true,
				"rank %d gave up after %g s (SHARDRT_TIMEOUT): rank %d, or another "
				"rank of its node, did not reach it: %s",
				comm->world_rank[comm->rank], comm->bootstrap->timeout_s,
				comm->world_rank[late], what);
	if (result != SRT_CONTROL_OK)
		status = fail_transfer(comm, result, peer, what, theirs, start);
free_tables:
	free(buffer);
	free(members);
	free(parties);
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
		return srt_comm_fail(comm, 0, "%s", what);
	if (nbytes > 0)
		memmove(all + (size_t)comm->rank * nbytes, send, nbytes);
	if (comm->size == 1)
		return SRT_OK;
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

srt_status_t srt_comm_status_consensus(srt_comm_t *comm, const char *what, srt_status_t status)
{
	struct verdict {
		int32_t status;
		char text[SRT_CONTROL_TEXT];
	} mine = { .status = (int32_t)status }, *all;

	if (comm->size == 1)
		return status;
	if (srt_comm_poisoned(comm))
		return srt_comm_fail(comm, 0, "%s", what);
	if (status != SRT_OK)
		snprintf(mine.text, sizeof(mine.text), "%s", srt_last_error());
	all = srt_comm_calloc(comm, (size_t)comm->size, sizeof(*all), what);
	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_comm_oob_allgather_for(comm, what, &mine, sizeof(mine), all);
	for (int r = 0; r < comm->size && status == SRT_OK; r++) {
		if (all[r].status == SRT_OK)
			continue;
		all[r].text[sizeof(all[r].text) - 1] = '\0';
		if (all[r].status < 0 || all[r].status >= SRT_STATUS_COUNT)
			all[r].status = SRT_ERR_SYSTEM;
		status = srt_fail((srt_status_t)all[r].status, "%s: on rank %d: %s", what,
				  comm->world_rank[r], all[r].text);
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
