/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The two threads of an NCCL communicator, while starts are in flight:
 *
 *   poller     asks the driver every few milliseconds which starts have ended (order.c), and NCCL
 *              whether it has failed. It blocks while the driver's queue is full.
 *   watchdog   never calls the driver. It decides from the host's state that the starts cannot
 *              complete: the communicator is poisoned (a death, an abort, a mismatch), the poller
 *              has found a failure or does not return, a rank has left, a start is past the
 *              deadline. It poisons the communicator and then ends the starts:
 *
 *     1. If a start is in flight, the device fails, so that no results are used that depend on
 *        bytes which did not arrive.
 *     2. The NCCL communicator is aborted: its work on the device ends, and streams continue.
 *
 * An abort may last until all peers have aborted (NCCL's proxies wait for each other) and until
 * earlier work on the stream has ended. So every rank's watchdog aborts its own communicator, even
 * if no start is in flight, and holds no lock meanwhile.
 */
#include <stdio.h>
#include <string.h>

#include "collectives/persistent/wait.h"
#include "collectives/transports/nccl/nccl.h"

#define SLICE_S 0.005
#define IDLE_S 0.1 /* between checks of the poison while no start is in flight */

/* ---- aborting ------------------------------------------------------------------------------- */

/* Sets the last error to the poison and the oldest start. Called with the mutex held. */
static srt_status_t describe_poison(const srt_nccl_t *v)
{
	const srt_coll_t *coll = v->in_flight[v->nended % SRT_NCCL_MAX_IN_FLIGHT].coll;
	double waited_s = v->began_at > 0 ? srt_awake_s() - v->began_at : 0;

	if (coll == NULL)
		return srt_comm_fail(v->comm, waited_s, "communicator \"%s\"", v->comm->name);
	return srt_comm_fail(v->comm, waited_s, "%s of \"%s\"", coll->algorithm->name, coll->name);
}

void srt_nccl_fail_in_flight(srt_nccl_t *v)
{
	pthread_mutex_lock(&v->mutex);
	if (!v->closed && v->nended != v->nstarts) {
		srt_status_t status = describe_poison(v);

		srt_device_fail(v->comm->device, status, srt_error_last());
	}
	v->closed = true;
	pthread_cond_broadcast(&v->changed);
	pthread_mutex_unlock(&v->mutex);
}

void srt_nccl_abort(srt_nccl_t *v)
{
	srt_nccl_fail_in_flight(v);
	if (!atomic_exchange(&v->aborted, true))
		v->ops->abort(v->impl);
}

void srt_nccl_detach(srt_nccl_t *v, const srt_coll_t *coll)
{
	/* The stream ends soon: host functions see the poison, and NCCL is aborted. */
	if (v->impl != NULL && srt_comm_poisoned(v->comm)) {
		srt_nccl_abort(v);
		(void)srt_stream_sync(v->stream);
	}
	pthread_mutex_lock(&v->mutex);
	for (size_t i = 0; i < SRT_NCCL_MAX_IN_FLIGHT; i++) {
		if (v->in_flight[i].coll == coll)
			v->in_flight[i].coll = NULL;
	}
	pthread_mutex_unlock(&v->mutex);
}

/* ---- the watchdog: called with the mutex held ---------------------------------------------- */

/* The ranks whose flag has not reached the number of the oldest start. */
static srt_late_ranks_t find_late(const srt_nccl_t *v, srt_shm_flag_id_t id)
{
	srt_late_ranks_t late = { 0 };

	for (int r = 0; r < v->comm->size; r++) {
		if (!srt_shm_flag_reached(srt_shm_flag_of(v->progress, r, id), v->nended + 1))
			srt_late_ranks_add(&late, v->comm->world_rank[r]);
	}
	return late;
}

/* The oldest start takes longer than a wait may take without a warning. */
static void warn_late_start(srt_nccl_t *v, double waited_s)
{
	const srt_coll_t *coll = v->in_flight[v->nended % SRT_NCCL_MAX_IN_FLIGHT].coll;
	const srt_late_ranks_t late = find_late(v, SRT_SHM_PUBLISH);

	if (v->warned || coll == NULL)
		return;
	v->warned = true;
	srt_log(SRT_LOG_WARN,
		"rank %d has waited %.3g s in %s of \"%s\" on communicator \"%s\"; %s%s%s reached it; "
		"all ranks must call the same functions in the same order",
		v->comm->world_rank[v->comm->rank], waited_s, coll->algorithm->name, coll->name,
		v->comm->name,
		late.n == 0 ? "all ranks have" :
		late.n == 1 ? "rank " :
			      "ranks ",
		late.list,
		late.n == 0 ? "" :
		late.n == 1 ? " has not" :
			      " have not");
}

/* Poisons: the oldest start is past the deadline. */
static void poison_late_start(srt_nccl_t *v, double waited_s)
{
	const srt_coll_t *coll = v->in_flight[v->nended % SRT_NCCL_MAX_IN_FLIGHT].coll;
	const char *kind = coll != NULL ? coll->algorithm->name : "a start";
	const char *name = coll != NULL ? coll->name : "?";
	srt_late_ranks_t late = find_late(v, SRT_SHM_PUBLISH);

	if (late.n > 0)
		srt_comm_poison(v->comm, SRT_ERR_TIMEOUT, true,
				"%s of \"%s\": rank %d gave up after %.3g s (SHARDRT_TIMEOUT): "
				"rank%s %s did not reach it",
				kind, name, v->comm->world_rank[v->comm->rank], waited_s,
				late.n == 1 ? "" : "s", late.list);
	if (late.n > 0)
		return;
	late = find_late(v, SRT_SHM_RELEASE);
	srt_comm_poison(
		v->comm, SRT_ERR_TIMEOUT, true,
		"%s of \"%s\": rank %d gave up after %.3g s (SHARDRT_TIMEOUT): all ranks started "
		"it, but rank%s %s did not finish it",
		kind, name, v->comm->world_rank[v->comm->rank], waited_s, late.n == 1 ? "" : "s",
		late.list);
}

/* Poisons if a rank has left in order without its part of the oldest start. A rank that never
 * announced the start is the cause. A rank that did announce it has left because of another rank,
 * whose message may arrive a little later. */
static void poison_left(const srt_nccl_t *v, double *left_since)
{
	const srt_comm_t *comm = v->comm;
	int culprit = -1;

	for (int r = 0; v->nended != v->nstarts && r < comm->size; r++) {
		/* Read the state before the flags. */
		if (r == comm->rank ||
		    srt_control_peer_state(comm->bootstrap->control, comm->world_rank[r]) !=
			    SRT_PEER_LEFT ||
		    srt_shm_flag_reached(srt_shm_flag_of(v->progress, r, SRT_SHM_RELEASE),
					 v->nended + 1))
			continue;
		if (!srt_shm_flag_reached(srt_shm_flag_of(v->announced, r, SRT_SHM_PUBLISH),
					  v->nended + 1)) {
			srt_comm_poison_left(v->comm, r);
			return;
		}
		culprit = r;
	}
	if (culprit < 0)
		*left_since = 0;
	else if (*left_since == 0)
		*left_since = srt_awake_s();
	else if (srt_awake_s() - *left_since > SRT_NCCL_GRACE_S)
		srt_comm_poison_left(v->comm, culprit);
}

/* Poisons if this rank destroys the collective of the oldest start, which waits for other ranks. */
static void poison_destroyed(srt_nccl_t *v)
{
	const srt_coll_t *coll = v->in_flight[v->nended % SRT_NCCL_MAX_IN_FLIGHT].coll;

	if (coll == NULL || v->began_at == 0 || !atomic_load(&coll->is_closing))
		v->closing_since = 0;
	else if (v->closing_since == 0)
		v->closing_since = srt_awake_s();
	else if (srt_awake_s() - v->closing_since >= v->comm->bootstrap->close_s)
		srt_comm_poison(v->comm, SRT_ERR_ABORTED, true,
				"%s while %s of \"%s\" waited for other ranks", coll->closing_text,
				coll->algorithm->name, coll->name);
}

/* Poisons if the oldest start cannot complete. */
static void check_in_flight(srt_nccl_t *v, double *left_since)
{
	const srt_comm_t *comm = v->comm;
	double now = srt_awake_s(), timeout_s = comm->bootstrap->timeout_s;

	if (v->began_at > 0 && now - v->began_at > srt_wait_warn_s(comm))
		warn_late_start(v, now - v->began_at);
	if (v->began_at > 0 && now - v->began_at > timeout_s)
		poison_late_start(v, now - v->began_at);
	else if (now - v->polled_at > timeout_s)
		poison_late_start(v, now - v->polled_at);
	poison_left(v, left_since);
	poison_destroyed(v);
	if (v->failure != SRT_OK && now - v->failed_since > SRT_NCCL_GRACE_S)
		srt_comm_poison(v->comm, v->failure, true, "rank %d: %s",
				comm->world_rank[comm->rank], v->failure_text);
}

static bool has_in_flight(const srt_nccl_t *v)
{
	return !v->closed && v->nended != v->nstarts;
}

static void *run_watchdog(void *arg)
{
	srt_nccl_t *v = arg;
	double left_since = 0;

	pthread_mutex_lock(&v->mutex);
	while (!v->stopping && !srt_comm_poisoned(v->comm)) {
		bool in_flight = has_in_flight(v);

		if (in_flight)
			check_in_flight(v, &left_since);
		if (!srt_comm_poisoned(v->comm))
			srt_cond_wait_s(&v->changed, &v->mutex, in_flight ? SLICE_S : IDLE_S);
	}
	pthread_mutex_unlock(&v->mutex);
	if (srt_comm_poisoned(v->comm))
		srt_nccl_abort(v);
	return NULL;
}

/* ---- the poller ----------------------------------------------------------------------------- */

/* Polls the starts and NCCL. Returns a failure of the stream or of NCCL. */
static srt_status_t poll_driver(srt_nccl_t *v)
{
	int pending;

	SRT_TRY(srt_nccl_poll(v));
	return atomic_load(&v->aborted) ? SRT_OK : v->ops->poll(v->impl, &pending);
}

static void *run_poller(void *arg)
{
	srt_nccl_t *v = arg;

	pthread_mutex_lock(&v->mutex);
	while (!v->stopping) {
		srt_status_t status;

		if (!has_in_flight(v)) {
			pthread_cond_wait(&v->changed, &v->mutex);
			continue;
		}
		pthread_mutex_unlock(&v->mutex);
		status = poll_driver(v);
		pthread_mutex_lock(&v->mutex);
		v->polled_at = srt_awake_s();
		if (v->failure == SRT_OK && status != SRT_OK) {
			v->failed_since = v->polled_at;
			snprintf(v->failure_text, sizeof(v->failure_text), "%s", srt_error_last());
		}
		v->failure = status;
		srt_cond_wait_s(&v->changed, &v->mutex, SLICE_S);
	}
	pthread_mutex_unlock(&v->mutex);
	return NULL;
}

/* ---- both ----------------------------------------------------------------------------------- */

srt_status_t srt_nccl_watchdog_start(srt_nccl_t *v)
{
	int err = srt_thread_create(&v->watchdog, run_watchdog, v);

	v->nthreads += err == 0;
	if (err == 0)
		err = srt_thread_create(&v->poller, run_poller, v);
	v->nthreads += err == 0;
	if (err != 0)
		return srt_fail(SRT_ERR_SYSTEM,
				"communicator \"%s\": cannot start its watchdog: %s", v->comm->name,
				strerror(err));
	return SRT_OK;
}

void srt_nccl_watchdog_stop(srt_nccl_t *v)
{
	pthread_mutex_lock(&v->mutex);
	v->stopping = true;
	pthread_cond_broadcast(&v->changed);
	pthread_mutex_unlock(&v->mutex);
	if (v->nthreads > 0)
		pthread_join(v->watchdog, NULL);
	if (v->nthreads > 1)
		pthread_join(v->poller, NULL);
	v->nthreads = 0;
}
