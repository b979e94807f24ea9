/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Driving the worker. A thread that waits drives it: it spins while there is progress and a little
 * longer, and then sleeps until the worker has events, in short slices before which it checks the
 * reasons to give up (persistent/wait.h). Of several threads that wait, one drives, and the others
 * sleep on a condition. If no thread waits while sends are pending, the worker's own thread drives;
 * else that thread sleeps.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "collectives/persistent/wait.h"
#include "collectives/transports/ucx/internal.h"

/* How long a wait spins without progress: longer than an interruption of the peer. */
#define SPIN_S 200e-6
/* The time before a yield if ranks share cores. */
#define YIELD_S 20e-6
/* The longest spin before the reasons to give up are checked. */
#define SPIN_MAX_S 0.01
/* Longest sleep for the end of an earlier start. */
#define AWAIT_START_S 0.001
/* The first sleep while the worker cannot be armed; it doubles BUSY_DOUBLINGS times. */
#define BUSY_US 20
#define BUSY_DOUBLINGS 6
/* How often a thread that spins lets others take the mutex, and for how many pauses. */
#define YIELD_EVERY 64
#define YIELD_PAUSES 500

/* A wait of srt_ucx_wait(). */
typedef struct message_wait {
	srt_coll_start_t *start;
	srt_ucx_event_t event;
	uint32_t value;
} message_wait_t;

static bool has_reached(uint32_t have, uint32_t value)
{
	return (int32_t)(have - value) >= 0;
}

bool srt_ucx_happened(const srt_coll_start_t *start, srt_ucx_event_t event, uint32_t value)
{
	const srt_ucx_start_t *s = srt_ucx_start_of(start);
	const srt_ucx_slots_t *slots = srt_ucx_slots_of(start->coll);

	switch (event) {
	case SRT_UCX_RECEIVED:
		return s->nrecvs[value % 2] == 0;
	case SRT_UCX_SENT:
		return s->nsends[value % 2] == 0;
	case SRT_UCX_PHASE_SENT:
		return s->phase_sends[value] == 0;
	case SRT_UCX_ALL_SENT:
		return s->npublished >= s->npublish && s->nsends[0] + s->nsends[1] == 0;
	case SRT_UCX_RELEASED:
		return has_reached(slots->nreleased, value);
	case SRT_UCX_PUBLISHED:
		return has_reached(slots->npublished, value);
	case SRT_UCX_SLOT_SENT:
		return slots->nusing[value % SRT_STAGING_NSLOTS] == 0;
	}
	return true;
}

/* Whether the wait is for a message: a receive, or a send to a peer. */
static bool waits_for(const message_wait_t *w, const srt_ucx_op_t *op)
{
	return op->is_send != (w->event == SRT_UCX_RECEIVED);
}

/* Whether the wait is for an earlier start of this rank, on another stream. */
static bool waits_for_itself(const message_wait_t *w)
{
	return w->event == SRT_UCX_RELEASED || w->event == SRT_UCX_PUBLISHED ||
	       w->event == SRT_UCX_SLOT_SENT;
}

/* The ranks whose messages the wait is for. Called with the mutex held. */
static srt_ucx_ranks_t find_late(const message_wait_t *w)
{
	srt_ucx_ranks_t late = { { 0 } };
	const bool receives = w->event == SRT_UCX_RECEIVED;

	if (waits_for_itself(w))
		srt_ucx_ranks_add(&late, w->start->coll->comm->rank);
	else
		srt_ucx_add_peers(w->start, !receives, receives, &late);
	return late;
}

/* Called without the mutex. */
static void add_late(const void *arg, srt_late_ranks_t *late)
{
	const message_wait_t *w = arg;
	const srt_comm_t *comm = w->start->coll->comm;
	srt_ucx_worker_t *worker = srt_ucx_worker_of(comm);
	srt_ucx_ranks_t waited_for;

	srt_ucx_lock(worker);
	waited_for = find_late(w);
	srt_ucx_unlock(worker);
	for (int r = 0; r < comm->size; r++) {
		if (srt_ucx_ranks_has(&waited_for, r))
			srt_late_ranks_add(late, comm->world_rank[r]);
	}
}

/* Records the wait, or the ranks that it is still for. Called with the mutex held. */
static int record_wait(const message_wait_t *w, int slot, double since)
{
	const srt_comm_t *comm = w->start->coll->comm;
	srt_flight_wait_t record = {
		.number = w->start->number,
		.kind = w->start->coll->algorithm->name,
		.why = waits_for_itself(w)          ? SRT_FLIGHT_ITSELF :
		       w->event == SRT_UCX_RECEIVED ? SRT_FLIGHT_DATA :
						      SRT_FLIGHT_READERS,
		.round = w->event == SRT_UCX_RECEIVED ? w->value : SRT_FLIGHT_NO_ROUND,
		.since_s = since,
	};
	const srt_ucx_ranks_t late = find_late(w);

	for (int r = 0; r < comm->size; r++) {
		if (srt_ucx_ranks_has(&late, r))
			srt_flight_wait_add(&record, comm->world_rank[r]);
	}
	return srt_flight_wait(comm->flight, slot, &record, w->start->coll->name);
}

/* ---- progress ------------------------------------------------------------------------------ */

void srt_ucx_notify(srt_ucx_worker_t *w)
{
	pthread_cond_broadcast(&w->changed);
	if (w->driving)
		(void)w->ucx->ucp_worker_signal(w->worker);
}

bool srt_ucx_progress(srt_ucx_worker_t *w)
{
	const uint64_t before = w->nevents;
	bool any = false;

	while (w->ucx->ucp_worker_progress(w->worker) != 0)
		any = true;
	if (any)
		w->nbusy = 0;
	if (w->nevents != before && w->nwaiting > 1)
		srt_ucx_notify(w);
	return any;
}

/* Called with the mutex held, and without it while threads that wait for it take it; so does the
 * core if ranks share it. */
static void yield(srt_ucx_worker_t *w, bool core)
{
	srt_ucx_unlock(w);
	if (core)
		sched_yield();
	else
		srt_wait_relax();
	for (int n = 0; w->nlocking > 0 && n < YIELD_PAUSES; n++)
		srt_wait_relax();
	srt_ucx_lock(w);
}

/* Makes progress until done(arg), until there was none for a while, or for SPIN_MAX_S. Called with
 * the mutex held. */
static bool spin_until(srt_ucx_worker_t *worker, bool (*done)(const void *arg), const void *arg)
{
	const bool spins = srt_bootstrap_spins(worker->bootstrap);
	const double begin = srt_now_s(), idle_s = spins ? SPIN_S : YIELD_S;
	double since = begin, now;
	bool any = false;

	for (int n = 1;; n++) {
		any = srt_ucx_progress(worker) || any;
		if (done(arg))
			return true;
		if (spins && n % YIELD_EVERY != 0)
			continue;
		now = srt_now_s();
		if (any)
			since = now;
		if (now - since > idle_s || now - begin > SPIN_MAX_S)
			return false;
		any = false;
		yield(worker, !spins);
	}
}

void srt_ucx_drive_for(srt_ucx_worker_t *w, const uint32_t *pending, double seconds)
{
	const double since = srt_awake_s();

	do {
		srt_ucx_progress(w);
	} while (pending != NULL && *pending != 0 && srt_awake_s() - since < seconds);
}

bool srt_ucx_sleep(srt_ucx_worker_t *w, double seconds)
{
	struct pollfd events = { .fd = w->efd, .events = POLLIN };
	int nready;

	/* Busy: there are events already, or a peer's queue is full. */
	if (w->ucx->ucp_worker_arm(w->worker) != UCS_OK) {
		const uint32_t busy_us = BUSY_US << w->nbusy;

		w->nbusy += w->nbusy < BUSY_DOUBLINGS;
		srt_ucx_unlock(w);
		usleep(busy_us);
		srt_ucx_lock(w);
		return false;
	}
	srt_ucx_unlock(w);
	nready = poll(&events, 1, (int)(seconds * 1000) + 1);
	srt_ucx_lock(w);
	return nready > 0;
}

/* ---- waits --------------------------------------------------------------------------------- */

/* The world ranks of the messages that the wait is for; a rank that has left does not receive any
 * more. Called with the mutex held. Returns a rank that has left or whose connection is lost and of
 * which a receive is expected, or -1. */
static int find_gone(const message_wait_t *w)
{
	const srt_comm_t *comm = w->start->coll->comm;
	srt_ucx_worker_t *worker = srt_ucx_worker_of(comm);

	for (const srt_ucx_op_t *op = srt_ucx_start_of(w->start)->ops, *next; op != NULL;
	     op = next) {
		const int world_rank = comm->world_rank[op->peer];
		const bool left = srt_control_peer_state(comm->bootstrap->control, world_rank) ==
				  SRT_PEER_LEFT;

		next = op->next;
		if (!waits_for(w, op))
			continue;
		if (!op->is_send && (left || worker->endpoints[world_rank].failure != UCS_OK))
			return op->peer;
		if (op->is_send && left) {
			srt_ucx_close_endpoint(worker, world_rank);
			return -1;
		}
	}
	return -1;
}

/* A message has failed: waits for the news of a death, and poisons without it. Called without the
 * mutex. */
static void check_failure(const message_wait_t *w)
{
	srt_comm_t *comm = w->start->coll->comm;
	srt_ucx_start_t *s = srt_ucx_start_of(w->start);
	srt_ucx_start_t seen;
	bool left;

	srt_ucx_lock(srt_ucx_worker_of(comm));
	seen = *s;
	left = seen.failure != NULL &&
	       srt_control_peer_state(comm->bootstrap->control,
				      comm->world_rank[seen.failed_rank]) == SRT_PEER_LEFT;
	if (left && seen.failed_send)
		s->failure = NULL;
	srt_ucx_unlock(srt_ucx_worker_of(comm));
	if (seen.failure == NULL || (left && seen.failed_send))
		return;
	if (left) {
		srt_comm_poison_left(comm, seen.failed_rank);
		return;
	}
	if (srt_awake_s() - seen.failed_since < SRT_UCX_GRACE_S)
		return;
	srt_comm_poison(comm, SRT_ERR_SYSTEM, true,
			"%s of \"%s\": rank %d %s rank %d failed: UCX: %s",
			w->start->coll->algorithm->name, w->start->coll->name,
			comm->world_rank[comm->rank],
			seen.failed_send ? "sending to" : "receiving from",
			comm->world_rank[seen.failed_rank], seen.failure);
}

static bool is_complete(const void *arg)
{
	const message_wait_t *w = arg;

	return srt_ucx_start_of(w->start)->failure == NULL &&
	       !srt_ucx_start_of(w->start)->is_broken &&
	       srt_ucx_happened(w->start, w->event, w->value);
}

/* Called with the mutex held. One of the threads that wait drives. */
static void sleep_in_wait(srt_ucx_worker_t *worker, double slice_s, bool (*done)(const void *arg),
			  const void *arg)
{
	bool woken;

	if (worker->driving) {
		srt_cond_wait_s(&worker->changed, &worker->mutex, slice_s);
		return;
	}
	worker->driving = true;
	woken = srt_ucx_sleep(worker, slice_s);
	worker->driving = false;
	if (srt_ucx_progress(worker) || woken)
		spin_until(worker, done, arg);
	if (worker->nwaiting > 1)
		pthread_cond_broadcast(&worker->changed);
}

/* A receive of a rank that has left, or whose connection is lost, may still arrive. */
static void check_gone(const message_wait_t *w, int rank, double *since)
{
	srt_comm_t *comm = w->start->coll->comm;
	const char *reason;

	if (rank < 0) {
		*since = 0;
		return;
	}
	if (*since == 0)
		*since = srt_awake_s();
	if (srt_awake_s() - *since < SRT_UCX_GRACE_S)
		return;
	if (srt_control_peer_state(comm->bootstrap->control, comm->world_rank[rank]) ==
	    SRT_PEER_LEFT) {
		srt_comm_poison_left(comm, rank);
		return;
	}
	reason = srt_ucx_worker_of(comm)->ucx->ucs_status_string(
		srt_ucx_worker_of(comm)->endpoints[comm->world_rank[rank]].failure);
	srt_comm_poison(comm, SRT_ERR_SYSTEM, true,
			"rank %d lost its connection to rank %d: UCX: %s",
			comm->world_rank[comm->rank], comm->world_rank[rank], reason);
}

/* Waits by sleeping. *slot: of the wait's record. */
static srt_status_t sleep_until_complete(const message_wait_t *w, int *slot)
{
	const double recorded_since = srt_now_s();
	srt_ucx_worker_t *worker = srt_ucx_worker_of(w->start->coll->comm);
	double gone_since = 0;
	srt_wait_checks_t checks;

	srt_wait_begin(&checks, w->start, add_late, w,
		       w->event == SRT_UCX_RECEIVED ? "reach" : "finish");
	for (;;) {
		double slice_s = 0;
		bool complete;
		int gone;

		check_failure(w);
		SRT_TRY(srt_wait_check(&checks, &slice_s));
		srt_ucx_lock(worker);
		gone = find_gone(w); /* before the messages: a rank may send and then leave */
		srt_ucx_progress(worker);
		complete = is_complete(w);
		if (!complete) {
			*slot = record_wait(w, *slot, recorded_since);
			sleep_in_wait(worker, slice_s, is_complete, w);
			complete = is_complete(w);
		}
		srt_ucx_unlock(worker);
		if (complete)
			return SRT_OK;
		check_gone(w, gone, &gone_since);
	}
}

srt_status_t srt_ucx_wait(srt_coll_start_t *start, srt_ucx_event_t event, uint32_t value)
{
	const message_wait_t w = { .start = start, .event = event, .value = value };
	srt_ucx_worker_t *worker = srt_ucx_worker_of(start->coll->comm);
	srt_status_t status = SRT_OK;
	int slot = -1;
	bool complete;

	if (srt_comm_poisoned(start->coll->comm))
		return srt_wait_fail(start, 0);
	srt_ucx_lock(worker);
	worker->nwaiting++;
	complete = is_complete(&w);
	if (!complete) {
		worker->nwaits++;
		complete = spin_until(worker, is_complete, &w);
	}
	srt_ucx_unlock(worker);
	if (!complete) {
		status = sleep_until_complete(&w, &slot);
		srt_flight_wait_end(start->coll->comm->flight, slot, status != SRT_OK);
		srt_wait_publish(start->coll->comm, "");
	}
	srt_ucx_lock(worker);
	worker->nwaiting--;
	if (status != SRT_OK)
		srt_ucx_cancel(start);
	srt_ucx_thread_wake(worker);
	srt_ucx_unlock(worker);
	return status;
}

static bool has_ended(const void *arg)
{
	const srt_coll_start_t *start = arg;

	return atomic_load_explicit(&((srt_coll_start_t *)(uintptr_t)start)->npending,
				    memory_order_acquire) == 0;
}

void srt_ucx_await_start(srt_coll_start_t *start)
{
	srt_ucx_worker_t *w = srt_ucx_worker_of(start->coll->comm);

	srt_ucx_lock(w);
	w->nwaiting++;
	w->nwaits++;
	/* One thread of a rank spins. */
	if (w->nwaiting > 1 || !spin_until(w, has_ended, start))
		sleep_in_wait(w, AWAIT_START_S, has_ended, start);
	w->nwaiting--;
	srt_ucx_thread_wake(w);
	srt_ucx_unlock(w);
}
