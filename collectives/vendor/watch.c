/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The watcher: a thread of each communicator by the vendor's library. While a start is under way
 * it looks every few milliseconds which have ended (order.c), and for what makes waiting pointless:
 * the communicator's poison (a death, an abort, a mismatch), a failure that the vendor's library or
 * the stream reports, a start that runs past the deadline. It poisons where nobody has yet, and
 * then ends it:
 *
 *     1. the guard fails for all starts that have not ended, so that nobody who waits for what
 *        stands behind them, on whatever stream, takes it for good
 *     2. so do those of other communicators of the process with starts that stand behind these,
 *        and their watchers abort them: their peers must not get what came of wrong bytes
 *     3. the vendor's communicator is aborted: what hangs on the device ends, streams go on
 *
 * An abort may last until all peers have aborted (NCCL's proxies wait for each other's), and until
 * what stands before its work on a stream has ended. So every rank's watcher does this for itself,
 * with nothing under way too; no lock is held; and 3 does not wait for the aborts of 2.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "collectives/collective.h"

#define SLICE_S 0.005
#define IDLE_S 0.1 /* between two looks for a poison while no start is under way */
/* The vendor's library may notice a rank's death before its socket ends: the death is what all
 * shall say, so its failure has to wait, also where the thread that reads the sockets is late. */
#define GRACE_S 1.0

/* ---- ending ------------------------------------------------------------------------------- */

/* The poison, and what this rank was doing, as the last error. Under the mutex. */
static srt_status_t describe(const srt_vendor_t *v)
{
	const srt_coll_t *coll = v->turn[v->nended % SRT_VENDOR_NTURNS].coll;
	double waited_s = v->since > 0 ? srt_awake_s() - v->since : 0;

	if (v->nended == v->nstarts || coll == NULL)
		return srt_comm_fail(v->comm, waited_s, "communicator \"%s\"", v->comm->name);
	return srt_comm_fail(v->comm, waited_s, "%s of \"%s\"", coll->algorithm->name, coll->name);
}

/* Whether there were starts under way; *first is the oldest. Its sentence stays the last error. */
static bool fail_guard(srt_vendor_t *v, uint32_t *first)
{
	bool pending = false;

	pthread_mutex_lock(&v->mutex);
	if (!v->over) {
		srt_status_t status;

		(void)srt_vendor_look(v);
		pending = v->nended != v->nstarts;
		*first = v->nended + 1;
		status = describe(v);
		srt_guard_fail(v->guard, *first, status, srt_last_error());
		v->over = true;
		pthread_cond_signal(&v->changed);
	}
	pthread_mutex_unlock(&v->mutex);
	return pending;
}

static void stop(srt_vendor_t *v)
{
	bool first;

	pthread_mutex_lock(&v->calls);
	first = !v->aborted;
	v->aborted = true;
	pthread_mutex_unlock(&v->calls);
	if (first)
		v->ops->stop(v->impl);
}

/* Until the watcher has begun to abort it: what is on the device is told at once. */
static void await_stop(srt_vendor_t *v)
{
	const struct timespec ms = { .tv_nsec = 1000000 };
	bool aborted = false;

	for (int i = 0; i < 200 && !aborted; i++) {
		nanosleep(&ms, NULL);
		pthread_mutex_lock(&v->calls);
		aborted = v->aborted;
		pthread_mutex_unlock(&v->calls);
	}
	nanosleep(&ms, NULL);
}

/* Those whose starts stand behind v's, from `first` on. */
static void end_others(const srt_vendor_t *v, uint32_t first)
{
	srt_bootstrap_t *b = v->comm->bootstrap;
	char text[SRT_PEERS_TEXT];
	uint32_t unused;

	snprintf(text, sizeof(text), "%s", srt_last_error());
	pthread_mutex_lock(&b->vendors_lock);
	for (srt_vendor_t *o = b->vendors; o != NULL; o = o->next) {
		if (o == v || !srt_guards_have(&o->stream->guards, v->guard, first))
			continue;
		srt_comm_poison(o->comm, (srt_status_t)atomic_load(&v->comm->poison), true,
				"what communicator \"%s\" was to move has not come about: %s",
				o->comm->name, text);
		(void)fail_guard(o, &unused);
		await_stop(o);
	}
	pthread_mutex_unlock(&b->vendors_lock);
}

void srt_vendor_abort(srt_vendor_t *v)
{
	uint32_t first;

	if (fail_guard(v, &first))
		end_others(v, first);
	stop(v);
}

void srt_vendor_forget(srt_vendor_t *v, const srt_coll_t *coll)
{
	/* Nothing waits any more: host functions see the poison, the vendor's library its abort. */
	if (v->impl != NULL && srt_comm_poisoned(v->comm)) {
		srt_vendor_abort(v);
		(void)srt_stream_sync(v->stream);
	}
	pthread_mutex_lock(&v->mutex);
	for (size_t i = 0; i < SRT_VENDOR_NTURNS; i++) {
		if (v->turn[i].coll == coll)
			v->turn[i].coll = NULL;
	}
	pthread_mutex_unlock(&v->mutex);
}

/* ---- watching ----------------------------------------------------------------------------- */

/* The vendor's failure, if there is one, with its sentence as this thread's last error. */
static srt_status_t ask(srt_vendor_t *v)
{
	srt_status_t status = SRT_OK;
	int pending;

	pthread_mutex_lock(&v->calls);
	if (!v->aborted)
		status = v->ops->poll(v->impl, &pending);
	pthread_mutex_unlock(&v->calls);
	return status;
}

/* The ranks whose word is behind the turn, "1, 3"; how many they are. */
static int list_behind(const srt_vendor_t *v, srt_shm_word_id_t id, uint32_t turn, char *list,
		       size_t n)
{
	int count = 0;
	size_t used = 0;

	list[0] = '\0';
	for (int r = 0; r < v->comm->size; r++) {
		if (srt_shm_reached(&v->turns[(size_t)r * SRT_SHM_NWORDS + id], turn))
			continue;
		if (used + 8 < n)
			used += (size_t)snprintf(list + used, n - used, "%s%d", count ? ", " : "",
						 v->comm->world_rank[r]);
		count++;
	}
	return count;
}

/* The oldest start has run for too long. Under the mutex. */
static void poison_late(srt_vendor_t *v, double waited_s)
{
	const srt_coll_t *coll = v->turn[v->nended % SRT_VENDOR_NTURNS].coll;
	const char *kind = coll != NULL ? coll->algorithm->name : "a start";
	const char *name = coll != NULL ? coll->name : "?";
	char list[128];
	int n = list_behind(v, SRT_SHM_PUBLISH, v->nended + 1, list, sizeof(list));

	if (n > 0)
		srt_comm_poison(v->comm, SRT_ERR_TIMEOUT, true,
				"%s of \"%s\": rank%s %s %s not reached it within %.3g s "
				"(SHARDRT_TIMEOUT)",
				kind, name, n == 1 ? "" : "s", list, n == 1 ? "has" : "have",
				waited_s);
	if (n > 0)
		return;
	n = list_behind(v, SRT_SHM_RELEASE, v->nended + 1, list, sizeof(list));
	srt_comm_poison(v->comm, SRT_ERR_TIMEOUT, true,
			"%s of \"%s\": all ranks have started it, but rank%s %s %s not finished "
			"it within %.3g s (SHARDRT_TIMEOUT)",
			kind, name, n == 1 ? "" : "s", list, n == 1 ? "has" : "have", waited_s);
}

static void poison_failed(srt_vendor_t *v, srt_status_t status)
{
	srt_comm_poison(v->comm, status, true, "rank %d: %s", v->comm->world_rank[v->comm->rank],
			srt_last_error());
}

/* A rank that has left in order and not done its part of the oldest start. One that never came to
 * it is the reason; one that did has left because of another, whose leave may be heard a little
 * later. Under the mutex. */
static void poison_left(const srt_vendor_t *v, double *left_since)
{
	const srt_comm_t *comm = v->comm;
	int culprit = -1;

	for (int r = 0; v->nended != v->nstarts && r < comm->size; r++) {
		size_t word = (size_t)r * SRT_SHM_NWORDS;

		/* The state before the words. */
		if (r == comm->rank ||
		    srt_peers_state(comm->bootstrap->peers, comm->world_rank[r]) != SRT_PEER_LEFT ||
		    srt_shm_reached(&v->turns[word + SRT_SHM_RELEASE], v->nended + 1))
			continue;
		if (!srt_shm_reached(&v->said[word + SRT_SHM_PUBLISH], v->nended + 1)) {
			srt_comm_poison_left(v->comm, r);
			return;
		}
		culprit = r;
	}
	if (culprit < 0)
		*left_since = 0;
	else if (*left_since == 0)
		*left_since = srt_awake_s();
	else if (srt_awake_s() - *left_since > GRACE_S)
		srt_comm_poison_left(v->comm, culprit);
}

/* One look; under the mutex, which is given up meanwhile. */
static void look(srt_vendor_t *v, double *failed_since, double *left_since)
{
	srt_status_t status = srt_vendor_look(v);
	double waited_s = v->since > 0 ? srt_awake_s() - v->since : 0;

	if (status == SRT_OK && waited_s > v->comm->bootstrap->timeout_s)
		poison_late(v, waited_s);
	poison_left(v, left_since);
	pthread_mutex_unlock(&v->mutex);
	if (!srt_comm_poisoned(v->comm)) {
		if (status == SRT_OK)
			status = ask(v);
		if (status == SRT_OK)
			*failed_since = 0;
		else if (*failed_since == 0)
			*failed_since = srt_awake_s();
		else if (srt_awake_s() - *failed_since > GRACE_S)
			poison_failed(v, status);
	}
	if (srt_comm_poisoned(v->comm))
		srt_vendor_abort(v);
	pthread_mutex_lock(&v->mutex);
}

/* Under the mutex. */
static bool is_under_way(const srt_vendor_t *v)
{
	return !v->over && v->nended != v->nstarts;
}

static void *watch(void *arg)
{
	srt_vendor_t *v = arg;
	double failed_since = 0, left_since = 0;
	bool ended = false; /* and nothing is left to be watched */

	pthread_mutex_lock(&v->mutex);
	while (!v->stopping) {
		if (ended)
			pthread_cond_wait(&v->changed, &v->mutex);
		else if (is_under_way(v))
			srt_cond_wait_s(&v->changed, &v->mutex, SLICE_S);
		else if (!srt_comm_poisoned(v->comm))
			srt_cond_wait_s(&v->changed, &v->mutex, IDLE_S);
		if (v->stopping || ended)
			continue;
		if (is_under_way(v)) {
			look(v, &failed_since, &left_since);
		} else if (srt_comm_poisoned(v->comm)) {
			pthread_mutex_unlock(&v->mutex);
			srt_vendor_abort(v);
			pthread_mutex_lock(&v->mutex);
			ended = true;
		}
	}
	pthread_mutex_unlock(&v->mutex);
	return NULL;
}

srt_status_t srt_vendor_watch(srt_vendor_t *v)
{
	srt_bootstrap_t *b = v->comm->bootstrap;
	sigset_t all, old;
	int err;

	/* Signals are for the program's own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&v->watcher, NULL, watch, v);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err != 0)
		return srt_fail(SRT_ERR_SYSTEM, "communicator \"%s\": no thread to watch it: %s",
				v->comm->name, strerror(err));
	v->watched = true;
	pthread_mutex_lock(&b->vendors_lock);
	v->next = b->vendors;
	b->vendors = v;
	pthread_mutex_unlock(&b->vendors_lock);
	return SRT_OK;
}

void srt_vendor_unwatch(srt_vendor_t *v)
{
	srt_bootstrap_t *b = v->comm->bootstrap;

	if (!v->watched)
		return;
	pthread_mutex_lock(&b->vendors_lock);
	for (srt_vendor_t **link = &b->vendors; *link != NULL; link = &(*link)->next) {
		if (*link == v) {
			*link = v->next;
			break;
		}
	}
	pthread_mutex_unlock(&b->vendors_lock);
	pthread_mutex_lock(&v->mutex);
	v->stopping = true;
	pthread_cond_signal(&v->changed);
	pthread_mutex_unlock(&v->mutex);
	pthread_join(v->watcher, NULL);
	v->watched = false;
}
