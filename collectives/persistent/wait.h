/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The checks of a wait for other ranks: the reasons to give up. They are the communicator's poison
 * (a death, an abort, a failure of another rank), a peer that started another collective under this
 * number, and the deadline, which is soon if this rank destroys the collective. A rank that finds
 * one poisons the communicator, so that all later waits fail at once. Used by shm/flags.c and
 * transports/ucx/.
 */
#ifndef SRT_COLLECTIVES_PERSISTENT_WAIT_H
#define SRT_COLLECTIVES_PERSISTENT_WAIT_H

#include "collectives/collective.h"

/* The ranks that are late, for a message. */
typedef struct srt_late_ranks {
	int n;
	char list[128]; /* "1, 3"; the first ones if there is no room for all */
} srt_late_ranks_t;

void srt_late_ranks_add(srt_late_ranks_t *late, int world_rank);

/* Adds the ranks that a wait is for. */
typedef void srt_wait_late_fn(const void *arg, srt_late_ranks_t *late);

/* A wait that lasts. */
typedef struct srt_wait_checks {
	const srt_coll_start_t *start;
	srt_wait_late_fn *late;
	const void *arg;  /* of late */
	const char *verb; /* what late ranks did not do: "reach", "finish" */
	double since;
	double closing_since; /* when its collective was seen to be closing; 0: it is not */
	double tell_at_s;     /* with ucx: when it tells other ranks next, after `since` */
	bool warned;
	char what[160];
} srt_wait_checks_t;

/* Begins the checks of a wait in a start. */
void srt_wait_begin(srt_wait_checks_t *checks, const srt_coll_start_t *start,
		    srt_wait_late_fn *late, const void *arg, const char *verb);
/* Before each sleep: fails if the wait must end. Else shares what this rank waits for, and sets
 * *slice_s to the longest time to sleep until the next call. */
srt_status_t srt_wait_check(srt_wait_checks_t *checks, double *slice_s);
/* The communicator's poison as an error that names the collective; `since`: when the wait began, 0
 * if it did not. */
srt_status_t srt_wait_fail(const srt_coll_start_t *start, double since);

/* In a loop that spins. */
static inline void srt_wait_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
