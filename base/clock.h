/* SPDX-License-Identifier: BSD-3-Clause */
/* Clocks and timed waits. Used by all layers, and by shardrun, which uses nothing else of base. */
#ifndef SRT_BASE_CLOCK_H
#define SRT_BASE_CLOCK_H

#include <pthread.h>

/* Monotonic clock. */
double srt_now_s(void);

/*
 * The clock of waits for other ranks. It does not count time in which this process did not run: it
 * was stopped (Ctrl-Z), or the machine was suspended or overloaded. Between two calls, by any
 * thread of the process, it advances by SRT_AWAKE_STEP_S at most, so a waiting thread must call it
 * more often.
 */
#define SRT_AWAKE_STEP_S 0.1
#define SRT_AWAKE_SLICE_MS 50 /* longest sleep between two calls */
double srt_awake_s(void);
/* A condition on the monotonic clock; and pthread_cond_wait() on it with a time limit. */
void srt_cond_init(pthread_cond_t *cond);
void srt_cond_wait_s(pthread_cond_t *cond, pthread_mutex_t *mutex, double seconds);

#endif
