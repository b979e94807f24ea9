/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Out-of-band exchanges of small data over the control channel, blocking: every rank sends to every
 * rank. Used at creation and at most once per step, not for tensors.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/comm.h"
#include "collectives/flight.h"

#define NEWS_S 5.0 /* how late the progress thread may be on a busy machine */

/* Poisons the communicator according to the result of a send or receive, and fails. */
static srt_status_t fail_transfer(srt_comm_t *comm, srt_control_result_t result, int rank,
				  const char *what, const char *theirs, double start)
{
	int world_rank = comm->world_rank[rank];

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
		srt_comm_poison(comm, SRT_ERR_TIMEOUT, true,
				"rank %d gave up after %g s (SHARDRT_TIMEOUT): rank %d did not "
				"reach it: %s",
				comm->world_rank[comm->rank], comm->bootstrap->timeout_s,
				world_rank, what);
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

srt_status_t srt_comm_oob_allgather_for(srt_comm_t *comm, const char *what, const void *send,
					size_t nbytes, void *recv)
{
	unsigned char *all = recv;
	unsigned char *parts;
	srt_status_t status = SRT_OK;

	if (srt_comm_poisoned(comm))
		return srt_comm_fail(comm, 0, "%s", what);
	if (nbytes > 0)
		memmove(all + (size_t)comm->rank * nbytes, send, nbytes);
	if (comm->size == 1)
		return SRT_OK;
	if (nbytes <= SRT_CONTROL_MAX_PAYLOAD)
		return srt_comm_exchange_fds(comm, what, NULL, all + (size_t)comm->rank * nbytes,
					     nbytes, -1, NULL, all, NULL);
	parts = srt_comm_calloc(comm, (size_t)comm->size, SRT_CONTROL_MAX_PAYLOAD, what);
	if (parts == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t at = 0; at < nbytes && status == SRT_OK; at += SRT_CONTROL_MAX_PAYLOAD) {
		size_t n = nbytes - at;
		if (n > SRT_CONTROL_MAX_PAYLOAD)
			n = SRT_CONTROL_MAX_PAYLOAD;
		status = srt_comm_exchange_fds(comm, what, NULL,
					       all + (size_t)comm->rank * nbytes + at, n, -1, NULL,
					       parts, NULL);
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
