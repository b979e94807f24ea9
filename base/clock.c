/* SPDX-License-Identifier: BSD-3-Clause */
/* Clocks: see base/clock.h. Uses POSIX only; shardrun has a copy of it. */
#include "base/clock.h"

#include <time.h>

double srt_now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct {
	pthread_mutex_t mutex;
	double called_s, awake_s;
} awake_clock = { PTHREAD_MUTEX_INITIALIZER, 0, 1 }; /* 0 is free for the meaning "never" */

double srt_awake_s(void)
{
	double step_s, result;

	pthread_mutex_lock(&awake_clock.mutex);
	step_s = srt_now_s() - awake_clock.called_s;
	awake_clock.called_s += step_s;
	awake_clock.awake_s += step_s < SRT_AWAKE_STEP_S ? step_s : SRT_AWAKE_STEP_S;
	result = awake_clock.awake_s;
	pthread_mutex_unlock(&awake_clock.mutex);
	return result;
}

void srt_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

void srt_cond_wait_s(pthread_cond_t *cond, pthread_mutex_t *mutex, double seconds)
{
	const double until_s = srt_now_s() + seconds;
	struct timespec until = { .tv_sec = (time_t)until_s };

	until.tv_nsec = (long)((until_s - (double)until.tv_sec) * 1e9);
	pthread_cond_timedwait(cond, mutex, &until);
}
