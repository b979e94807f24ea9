/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The thread pool. A computation is published as a job with a ticket number; helpers and the
 * caller draw chunks of parts from one counter until it runs out.
 *
 *   publish: fill the job, open it, ticket += 1, wake sleepers
 *   helper:  sees a new ticket -> joins (running += 1, only while the job is open) -> draws
 *   chunks
 *            -> leaves (running -= 1)
 *   caller:  draws chunks too, closes the job, waits until running is 0
 *
 * A late helper finds the job closed and waits for the next ticket: the caller never waits
 * for threads that do not get a core.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fpenv.h"
#include "backends/cpu/pool.h"
#include "base/base.h"

/* Polls of the ticket before a helper sleeps; about 20 us. */
#define SPINS 4000

typedef struct helper {
	srt_cpu_pool_t *pool;
	pthread_t thread;
	int index; /* 1 .. threads-1 */
} helper_t;

struct srt_cpu_pool {
	int threads;
	int nhelpers; /* started ones */
	int spins;
	helper_t *helpers;

	atomic_flag in_use; /* one job at a time */

	/* The job; written by its caller while no helper is in it. */
	srt_cpu_part_fn *fn;
	void *arg;
	int64_t nparts, chunk;
	_Atomic int64_t next;

	_Atomic uint64_t ticket;
	pthread_mutex_t lock;
	pthread_cond_t work_cond; /* helpers wait for a ticket or `ending` */
	pthread_cond_t done_cond; /* the caller waits for running == 0 */
	bool open;                /* under lock: helpers may join */
	int running;              /* under lock: helpers in the job */
	bool ending;              /* under lock */
};

static inline void pause_core(void)
{
#if defined(__SSE2__)
	_mm_pause();
#endif
}

static void draw_chunks(srt_cpu_pool_t *pool, int thread)
{
	int64_t nparts = pool->nparts, chunk = pool->chunk;

	for (;;) {
		int64_t first = atomic_fetch_add_explicit(&pool->next, chunk, memory_order_relaxed);
		int64_t end = nparts - first < chunk ? nparts : first + chunk;

		if (first >= nparts)
			return;
		pool->fn(pool->arg, first, end, thread);
	}
}

static bool helper_wait(srt_cpu_pool_t *pool, uint64_t *seen)
{
	for (int i = 0; i < pool->spins; i++) {
		if (atomic_load_explicit(&pool->ticket, memory_order_relaxed) != *seen)
			break;
		pause_core();
	}
	pthread_mutex_lock(&pool->lock);
	for (;;) {
		uint64_t ticket = atomic_load_explicit(&pool->ticket, memory_order_relaxed);

		if (pool->ending) {
			pthread_mutex_unlock(&pool->lock);
			return false;
		}
		if (ticket != *seen) {
			*seen = ticket;
			if (pool->open)
				break;
		}
		pthread_cond_wait(&pool->work_cond, &pool->lock);
	}
	pool->running++;
	pthread_mutex_unlock(&pool->lock);
	return true;
}

static void *helper_main(void *arg)
{
	helper_t *self = arg;
	srt_cpu_pool_t *pool = self->pool;
	uint64_t seen = 0;

	srt_fpenv_set(SRT_FPENV_DEFAULT);
	while (helper_wait(pool, &seen)) {
		draw_chunks(pool, self->index);
		pthread_mutex_lock(&pool->lock);
		if (--pool->running == 0)
			pthread_cond_signal(&pool->done_cond);
		pthread_mutex_unlock(&pool->lock);
	}
	return NULL;
}

static srt_status_t start_helpers(srt_cpu_pool_t *pool)
{
	srt_status_t status = SRT_OK;

	for (int i = 0; i < pool->threads - 1; i++) {
		helper_t *h = &pool->helpers[i];
		char name[32]; /* the kernel keeps 15 characters */

		h->pool = pool;
		h->index = i + 1;
		if (srt_thread_create(&h->thread, helper_main, h)) {
			status = srt_fail(SRT_ERR_SYSTEM,
					  "cannot start compute thread %d of %d; set "
					  "SHARDRT_THREADS lower or raise the limit of processes",
					  i + 2, pool->threads);
			break;
		}
		snprintf(name, sizeof(name), "srt-pool-%d", (i + 1) % 100000);
		pthread_setname_np(h->thread, name);
		pool->nhelpers++;
	}
	return status;
}

srt_status_t srt_cpu_pool_create(int threads, bool may_spin, srt_cpu_pool_t **out)
{
	srt_cpu_pool_t *pool = srt_calloc(1, sizeof(*pool), "the thread pool");
	srt_status_t status;

	if (pool == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	pool->threads = threads;
	pool->spins = may_spin ? SPINS : 0;
	atomic_flag_clear(&pool->in_use);
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->work_cond, NULL);
	pthread_cond_init(&pool->done_cond, NULL);
	pool->helpers = srt_calloc((size_t)threads, sizeof(*pool->helpers), "the thread pool");
	if (pool->helpers == NULL) {
		srt_cpu_pool_destroy(pool);
		return SRT_ERR_OUT_OF_MEMORY;
	}
	status = start_helpers(pool);
	if (status != SRT_OK) {
		srt_cpu_pool_destroy(pool);
		return status;
	}
	*out = pool;
	return SRT_OK;
}

void srt_cpu_pool_destroy(srt_cpu_pool_t *pool)
{
	if (pool == NULL)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->ending = true;
	pthread_cond_broadcast(&pool->work_cond);
	pthread_mutex_unlock(&pool->lock);
	for (int i = 0; i < pool->nhelpers; i++)
		pthread_join(pool->helpers[i].thread, NULL);
	pthread_cond_destroy(&pool->done_cond);
	pthread_cond_destroy(&pool->work_cond);
	pthread_mutex_destroy(&pool->lock);
	free(pool->helpers);
	free(pool);
}

int srt_cpu_pool_threads(const srt_cpu_pool_t *pool)
{
	return pool->threads;
}

static void publish_job(srt_cpu_pool_t *pool, srt_cpu_part_fn *fn, void *arg, int64_t nparts,
			int64_t chunk)
{
	pthread_mutex_lock(&pool->lock);
	pool->fn = fn;
	pool->arg = arg;
	pool->nparts = nparts;
	pool->chunk = chunk;
	atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
	pool->open = true;
	atomic_fetch_add_explicit(&pool->ticket, 1, memory_order_relaxed);
	pthread_cond_broadcast(&pool->work_cond);
	pthread_mutex_unlock(&pool->lock);
}

static void wait_helpers(srt_cpu_pool_t *pool)
{
	pthread_mutex_lock(&pool->lock);
	pool->open = false;
	while (pool->running)
		pthread_cond_wait(&pool->done_cond, &pool->lock);
	pthread_mutex_unlock(&pool->lock);
}

void srt_cpu_pool_run(srt_cpu_pool_t *pool, srt_cpu_part_fn *fn, void *arg, int64_t nparts,
		      int64_t chunk)
{
	if (nparts <= 0)
		return;
	if (pool->threads == 1 || nparts <= chunk ||
	    atomic_flag_test_and_set_explicit(&pool->in_use, memory_order_acquire)) {
		fn(arg, 0, nparts, 0);
		return;
	}
	publish_job(pool, fn, arg, nparts, chunk);
	draw_chunks(pool, 0);
	wait_helpers(pool);
	atomic_flag_clear_explicit(&pool->in_use, memory_order_release);
}
