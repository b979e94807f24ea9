/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The worker's own thread, which drives it while sends are pending and no thread waits: a rank that
 * computes answers the ranks that receive from it.
 */
#include <string.h>
#include <unistd.h>

#include "collectives/transports/ucx/internal.h"

/* Longest sleep while sends are pending. */
#define SLICE_S 0.01
/* How long sends stay without a wait before the thread drives. */
#define DELAY_US 100

void srt_ucx_thread_wake(srt_ucx_worker_t *w)
{
	if (w->nsends == 0)
		return;
	/* Space in a peer's queue is no event: the thread that sleeps until there is one looks. */
	if (w->driving)
		(void)w->ucx->ucp_worker_signal(w->worker);
	if (w->nwaiting > 0)
		return;
	if (w->thread_sleeps)
		pthread_cond_signal(&w->thread_cond);
	/* The thread that waited has taken the events for which this one sleeps. */
	else if (w->thread_polls)
		(void)w->ucx->ucp_worker_signal(w->worker);
}

/* Threads that send and wait by turns drive often enough: sleeps, without the mutex, until none of
 * them has begun to drive for the delay. */
static void rest(srt_ucx_worker_t *w)
{
	uint32_t before;

	srt_ucx_unlock(w);
	do {
		before = w->nwaits;
		usleep(DELAY_US);
	} while (before != w->nwaits);
	srt_ucx_lock(w);
}

/* Drives until nothing is pending or another thread does. */
static void drive_alone(srt_ucx_worker_t *w)
{
	const uint32_t before = w->nwaits;

	while (!w->stopping && w->nwaits == before) {
		srt_ucx_progress(w);
		if (w->nsends == 0)
			return;
		w->thread_polls = true;
		srt_ucx_sleep(w, SLICE_S);
		w->thread_polls = false;
	}
}

static void *run_thread(void *arg)
{
	srt_ucx_worker_t *w = arg;

	srt_ucx_lock(w);
	while (rest(w), !w->stopping) {
		if (w->nsends > 0 && w->nwaiting == 0) {
			drive_alone(w);
			continue;
		}
		w->thread_sleeps = true;
		pthread_cond_wait(&w->thread_cond, &w->mutex);
		w->thread_sleeps = false;
	}
	srt_ucx_unlock(w);
	return NULL;
}

srt_status_t srt_ucx_thread_start(srt_ucx_worker_t *w)
{
	int err = srt_thread_create(&w->thread, run_thread, w);

	w->has_thread = err == 0;
	if (err != 0)
		return srt_fail(SRT_ERR_SYSTEM, "rank %d cannot start a thread for UCX: %s",
				w->bootstrap->rank, strerror(err));
	return SRT_OK;
}

void srt_ucx_thread_stop(srt_ucx_worker_t *w)
{
	if (!w->has_thread)
		return;
	srt_ucx_lock(w);
	w->stopping = true;
	pthread_cond_signal(&w->thread_cond);
	srt_ucx_unlock(w);
	pthread_join(w->thread, NULL);
	w->has_thread = false;
}
