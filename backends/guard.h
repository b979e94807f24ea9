/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Guards: work that a device has done, and that is worth nothing all the same. A collective by a
 * vendor's library that had to be ended from outside leaves wrong bytes, and its stream goes on;
 * no device can be told to fail what stands behind. So whoever started it gives the stream a guard,
 * which goes with the stream's events to other streams, and if it fails before the device is let
 * go on, nobody who waits for any of these gets SRT_OK.
 *
 * Made and failed by collectives/vendor/; carried and asked by backends/stream.c, launch.c and
 * collectives/shm/words.c. Thread-safe.
 */
#ifndef SRT_BACKENDS_GUARD_H
#define SRT_BACKENDS_GUARD_H

#include <pthread.h>
#include <stdbool.h>

#include "base/base.h"

/* Of one communicator, whose starts it numbers from 1, modulo 2^32. */
typedef struct srt_guard srt_guard_t;

srt_status_t srt_guard_create(srt_guard_t **guard);
/* Lists that have it keep it. NULL is allowed. */
void srt_guard_drop(srt_guard_t *guard);
/* All up to that number is good, whatever comes. */
void srt_guard_pass(srt_guard_t *guard, uint32_t number);
/* All from that number on is worth nothing, with this sentence. The first call counts. */
void srt_guard_fail(srt_guard_t *guard, uint32_t first, srt_status_t status, const char *text);

/* Communicators with starts under way that one stream can stand behind. */
#define SRT_NGUARDS 16

/* What a stream stands behind, or did when an event was recorded. */
typedef struct srt_guards {
	pthread_mutex_t lock;
	int n;
	struct {
		srt_guard_t *guard;
		uint32_t number;
	} at[SRT_NGUARDS];
} srt_guards_t;

void srt_guards_init(srt_guards_t *guards);
void srt_guards_free(srt_guards_t *guards);
/* Forgets all: the device has done what was before, and it is good. */
void srt_guards_clear(srt_guards_t *guards);
srt_status_t srt_guards_add(srt_guards_t *guards, srt_guard_t *guard, uint32_t number);
/* Adds what `from` has. */
srt_status_t srt_guards_join(srt_guards_t *guards, srt_guards_t *from);
/* Whether it has that guard with that number or a later one. */
bool srt_guards_have(srt_guards_t *guards, const srt_guard_t *guard, uint32_t number);
/* The failure of one of them, with its sentence as the last error. */
srt_status_t srt_guards_check(srt_guards_t *guards);

#endif
