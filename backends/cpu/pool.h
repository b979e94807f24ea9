/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads that share the parts of one computation. The assignment of parts to threads is not
 * deterministic, so results must not depend on it: parts write disjoint outputs.
 */
#ifndef SRT_BACKENDS_CPU_POOL_H
#define SRT_BACKENDS_CPU_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include <shardrt/status.h>

typedef struct srt_cpu_pool srt_cpu_pool_t;

/* Runs parts [first, end) of a computation on thread `thread` (0 = the caller) of the pool. */
typedef void srt_cpu_part_fn(void *arg, int64_t first, int64_t end, int thread);

/* Creates a pool of `threads` threads, including the caller. may_spin: helpers poll for work for a
 * short while before they sleep. The error is set on failure. */
srt_status_t srt_cpu_pool_create(int threads, bool may_spin, srt_cpu_pool_t **pool);

/* Ends the threads. NULL is allowed. */
void srt_cpu_pool_destroy(srt_cpu_pool_t *pool);

/* Number of threads that srt_cpu_pool_run() may use. */
int srt_cpu_pool_threads(const srt_cpu_pool_t *pool);

/* Runs fn over nparts parts, in chunks of `chunk`, and returns when all are done. Runs all of
 * them on the caller when there is one chunk, one thread, or another stream is using the pool. */
void srt_cpu_pool_run(srt_cpu_pool_t *pool, srt_cpu_part_fn *fn, void *arg, int64_t nparts,
		      int64_t chunk);

#endif
