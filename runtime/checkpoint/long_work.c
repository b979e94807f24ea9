/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * See long_work.h. Steps: each exchange has whether the rank has ended its work. A rank that has
 * not waits for a part of SHARDRT_TIMEOUT before the next one. In the last one all ranks have.
 */
#include "runtime/checkpoint/long_work.h"

#include <stdlib.h>

/* Seconds from one exchange to the next; a rank may be late by the rest of SHARDRT_TIMEOUT. */
#define MOST_S 1.0
#define PER_TIMEOUT 8

/* Waits until the work is over, for at most the time between two exchanges. */
static bool wait_for_work(srt_long_work_t *w)
{
	const double s = w->comm->bootstrap->timeout_s / PER_TIMEOUT;
	const double until_s = srt_now_s() + (s < MOST_S ? s : MOST_S);
	bool is_done;

	pthread_mutex_lock(&w->mutex);
	for (double now_s; !w->is_done && (now_s = srt_now_s()) < until_s;)
		srt_cond_wait_s(&w->changed, &w->mutex, until_s - now_s);
	is_done = w->is_done;
	pthread_mutex_unlock(&w->mutex);
	return is_done;
}

/* The number of ranks that have not ended their work; *first: the lowest of them. */
static int count_busy(const srt_comm_t *comm, const unsigned char *done, int *first)
{
	int n = 0;

	for (int r = comm->size - 1; r >= 0; r--) {
		if (done[r])
			continue;
		*first = comm->world_rank[r];
		n++;
	}
	return n;
}

static srt_status_t exchange(srt_long_work_t *w)
{
	srt_comm_t *comm = w->comm;
	unsigned char mine = 0, *done = srt_comm_calloc(comm, (size_t)comm->size, 1, w->doing.text);
	srt_status_t status = done != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
	const double start = srt_awake_s();
	bool warned = false;
	int first = 0, nbusy = 1;

	while (status == SRT_OK && nbusy > 0) {
		mine = wait_for_work(w);
		status = srt_comm_oob_allgather_for(comm, w->doing.text, &mine, 1, done);
		nbusy = status == SRT_OK ? count_busy(comm, done, &first) : 0;
		if (mine && nbusy > 0 && !warned && srt_awake_s() - start > srt_wait_warn_s(comm)) {
			srt_log(SRT_LOG_WARN,
				"rank %d has waited in %s for %d other ranks, of which rank %d is "
				"the first",
				comm->world_rank[comm->rank], w->doing.text, nbusy, first);
			warned = true;
		}
	}
	free(done);
	return status;
}

static void *run_thread(void *arg)
{
	srt_long_work_t *w = arg;

	w->status = exchange(w);
	srt_error_save(&w->why);
	return NULL;
}

void srt_long_work_begin(srt_long_work_t *w, srt_comm_t *comm, srt_doing_t doing)
{
	*w = (srt_long_work_t){ .comm = comm, .doing = doing };
	if (comm->size == 1)
		return;
	pthread_mutex_init(&w->mutex, NULL);
	srt_cond_init(&w->changed);
	w->has_thread = srt_thread_create(&w->thread, run_thread, w) == 0;
}

srt_status_t srt_long_work_end(srt_long_work_t *w, srt_status_t status)
{
	srt_error_text_t why;

	if (w->comm->size == 1)
		return status;
	srt_error_save(&why); /* of the work */
	pthread_mutex_lock(&w->mutex);
	w->is_done = true;
	pthread_cond_signal(&w->changed);
	pthread_mutex_unlock(&w->mutex);
	if (w->has_thread)
		pthread_join(w->thread, NULL);
	else /* the same exchanges, as far as the work was short enough */
		run_thread(w);
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->mutex);
	if (w->status != SRT_OK && status == SRT_OK) {
		srt_error_restore(&w->why);
		return w->status;
	}
	srt_error_restore(&why);
	return srt_comm_status_consensus(w->comm, w->doing.text, status);
}
