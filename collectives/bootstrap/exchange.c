/* SPDX-License-Identifier: BSD-3-Clause */
/* One message of an exchange, and the failures of exchanges: see exchange.h. */
#include "collectives/bootstrap/exchange.h"

#include <unistd.h>

#include "collectives/comm.h"
#include "collectives/shm/control.h"

#define SLICE_S 0.01 /* between looks at what ends a wait */
#define NEWS_S 5.0   /* how late the progress thread may be on a busy machine */

srt_status_t srt_exchange_refuse(srt_comm_t *comm, uint32_t seq, const char *what, double waited_s)
{
	srt_comm_give_up(comm, seq);
	return srt_comm_fail(comm, waited_s, "%s", what);
}

srt_status_t srt_exchange_fail(srt_comm_t *comm, uint32_t seq, srt_control_result_t result,
			       int rank, const char *what, const char *theirs, double start)
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
	return srt_exchange_refuse(comm, seq, what, srt_awake_s() - start);
}

static srt_control_result_t receive_until(srt_comm_t *comm, const srt_expected_t *m,
					  const atomic_int *stop, double deadline,
					  char theirs[SRT_CONTROL_WHAT])
{
	if (m->shared)
		return srt_shm_read_post(comm, m->rank, m->what, m->data, m->nbytes, stop, deadline,
					 theirs);
	return srt_control_recv(comm->bootstrap->control, comm->world_rank[m->rank], comm->id,
				m->seq, m->what, m->data, m->nbytes, m->fd, stop, deadline, theirs);
}

static bool may_come(const srt_comm_t *comm, const srt_expected_t *m, int rank)
{
	if (m->shared)
		return srt_shm_may_post(comm, rank);
	return srt_control_may_come(comm->bootstrap->control, comm->world_rank[rank], comm->id,
				    m->seq);
}

/* Whether a message that this rank waits for next cannot come any more. */
static bool lacks_another(const srt_comm_t *comm, const srt_expected_t *m)
{
	for (int k = m->place + 1; k < comm->size; k++) {
		const int r = (comm->rank + k) % comm->size;

		if ((m->from == NULL || m->from[r]) && !may_come(comm, m, r))
			return true;
	}
	return false;
}

/*
 * Another rank has ended. It may have had all messages of this exchange, and have left because of
 * what they say: then the ranks that are alive have sent theirs to this rank too, and it must
 * learn the same. Else one of them gives up, ends, or does not come for a while.
 */
static srt_control_result_t receive_after_end(srt_comm_t *comm, const srt_expected_t *m,
					      char theirs[SRT_CONTROL_WHAT])
{
	static const atomic_int never;
	const double end = srt_awake_s() + NEWS_S;
	srt_control_result_t result;

	do {
		result = receive_until(comm, m, &never, srt_awake_s() + SLICE_S, theirs);
	} while (result == SRT_CONTROL_TIMEOUT && srt_awake_s() < end &&
		 atomic_load(&comm->given_up) > m->seq && !lacks_another(comm, m));
	return result == SRT_CONTROL_TIMEOUT ? SRT_CONTROL_STOPPED : result;
}

srt_control_result_t srt_exchange_receive(srt_comm_t *comm, const srt_expected_t *m,
					  char theirs[SRT_CONTROL_WHAT])
{
	const double timeout_s = comm->bootstrap->timeout_s;
	srt_control_result_t result = SRT_CONTROL_TIMEOUT;
	double deadline = m->start + srt_wait_warn_s(comm);

	srt_wait_publish(comm, m->what);
	for (int late = 0; late < 2 && result == SRT_CONTROL_TIMEOUT; late++) {
		if (late) {
			srt_wait_warn(comm, m->what, srt_awake_s() - m->start);
			deadline = m->start + timeout_s;
		}
		result = receive_until(comm, m, &comm->poison, deadline, theirs);
	}
	if (result == SRT_CONTROL_STOPPED && atomic_load(&comm->poison) == SRT_ERR_PEER_DEAD)
		result = receive_after_end(comm, m, theirs);
	srt_wait_publish(comm, "");
	return result;
}
