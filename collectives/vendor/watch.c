/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The watcher: a thread of each communicator by the vendor's library, which sleeps while no start
 * is under way. Otherwise it looks every few milliseconds for what makes waiting pointless: the
 * communicator's poison (a death, an abort, a mismatch, a deadline of a host function), a failure
 * that the vendor's library reports, a start that runs past the deadline. It poisons where nobody
 * has yet, and then aborts the vendor's communicator: what hangs on the device ends, the stream
 * goes on to the host function behind it, and that one fails with the poison's sentence.
 *
 * Every rank's watcher does this for itself, as an abort is local.
 */
#include <signal.h>
#include <string.h>
#include <time.h>

#include "collectives/collective.h"

#define SLICE_NS 5000000
/* The vendor's library may notice a rank's death before its socket ends: the death is what all
 * shall say, so its failure has to wait. */
#define GRACE_S 0.3

void srt_vendor_abort(srt_vendor_t *v)
{
	pthread_mutex_lock(&v->calls);
	if (!v->aborted)
		v->ops->stop(v->impl);
	v->aborted = true;
	pthread_mutex_unlock(&v->calls);
}

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

static void poison_late(srt_vendor_t *v, const srt_coll_t *coll, double waited_s)
{
	srt_comm_poison(v->comm, SRT_ERR_TIMEOUT, true,
			"%s of \"%s\": all ranks have started it, but rank %d has not finished it "
			"within %.3g s (SHARDRT_TIMEOUT)",
			coll->algorithm->name, coll->name, v->comm->world_rank[v->comm->rank],
			waited_s);
}

static void poison_failed(srt_vendor_t *v, srt_status_t status)
{
	srt_comm_poison(v->comm, status, true, "rank %d: %s", v->comm->world_rank[v->comm->rank],
			srt_last_error());
}

/* One look; under the mutex, which is given up meanwhile. */
static void look(srt_vendor_t *v, double *failed_since)
{
	double waited_s = v->running != NULL ? srt_now_s() - v->running_since : 0;

	/* running may not be destroyed while a start of it is under way. */
	if (waited_s > v->comm->bootstrap->timeout_s)
		poison_late(v, v->running, waited_s);
	pthread_mutex_unlock(&v->mutex);
	if (!srt_comm_poisoned(v->comm)) {
		srt_status_t status = ask(v);

		if (status == SRT_OK)
			*failed_since = 0;
		else if (*failed_since == 0)
			*failed_since = srt_now_s();
		else if (srt_now_s() - *failed_since > GRACE_S)
			poison_failed(v, status);
	}
	if (srt_comm_poisoned(v->comm))
		srt_vendor_abort(v);
	pthread_mutex_lock(&v->mutex);
}

static void *watch(void *arg)
{
	srt_vendor_t *v = arg;
	double failed_since = 0;
	bool over = false; /* aborted: nothing is left to be watched */

	pthread_mutex_lock(&v->mutex);
	while (!v->stopping) {
		struct timespec t;

		if (over || v->npending == 0) {
			pthread_cond_wait(&v->changed, &v->mutex);
			continue;
		}
		clock_gettime(CLOCK_MONOTONIC, &t);
		t.tv_nsec += SLICE_NS;
		if (t.tv_nsec >= 1000000000) {
			t.tv_sec++;
			t.tv_nsec -= 1000000000;
		}
		pthread_cond_timedwait(&v->changed, &v->mutex, &t);
		if (v->stopping)
			break;
		look(v, &failed_since);
		over = srt_comm_poisoned(v->comm);
	}
	pthread_mutex_unlock(&v->mutex);
	return NULL;
}

srt_status_t srt_vendor_watch(srt_vendor_t *v)
{
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
	return SRT_OK;
}

void srt_vendor_unwatch(srt_vendor_t *v)
{
	if (!v->watched)
		return;
	pthread_mutex_lock(&v->mutex);
	v->stopping = true;
	pthread_cond_signal(&v->changed);
	pthread_mutex_unlock(&v->mutex);
	pthread_join(v->watcher, NULL);
	v->watched = false;
}

void srt_vendor_forget(srt_vendor_t *v, const srt_coll_t *coll)
{
	/* Nothing waits any more: host functions see the poison, the vendor's library its abort. */
	if (v->impl != NULL && srt_comm_poisoned(v->comm)) {
		srt_vendor_abort(v);
		(void)srt_stream_sync(v->stream);
	}
	pthread_mutex_lock(&v->mutex);
	if (v->running == coll)
		v->running = NULL;
	pthread_mutex_unlock(&v->mutex);
}

void srt_vendor_starts(srt_vendor_t *v)
{
	pthread_mutex_lock(&v->mutex);
	v->nstarts++;
	/* Else it is awake, or will look again by itself. */
	if (v->npending++ == 0)
		pthread_cond_signal(&v->changed);
	pthread_mutex_unlock(&v->mutex);
}

void srt_vendor_began(srt_vendor_t *v, const srt_coll_t *coll)
{
	pthread_mutex_lock(&v->mutex);
	v->running = coll;
	v->running_since = srt_now_s();
	pthread_mutex_unlock(&v->mutex);
}

/* On the stream's thread: what has gone wrong must be known before the stream goes on. */
static bool went_well(srt_vendor_t *v)
{
	srt_status_t status = ask(v);
	double since = srt_now_s();

	if (status == SRT_OK)
		return !srt_comm_poisoned(v->comm);
	while (!srt_comm_poisoned(v->comm) && srt_now_s() - since < GRACE_S)
		nanosleep(&(struct timespec){ .tv_nsec = SLICE_NS }, NULL);
	poison_failed(v, status);
	return false;
}

bool srt_vendor_ended(srt_vendor_t *v)
{
	srt_shm_word_t *mine = &v->words[(size_t)v->comm->rank * SRT_SHM_NWORDS + SRT_SHM_RELEASE];

	if (!went_well(v))
		return false;
	pthread_mutex_lock(&v->mutex);
	v->running = NULL;
	v->npending--;
	/* For peers that destroy theirs: this rank needs nothing of them any more. */
	srt_shm_set(mine, v->nstarts - v->npending);
	pthread_mutex_unlock(&v->mutex);
	return true;
}
