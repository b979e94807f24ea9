/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a rank of a fault trial (fault_job.c) does apart from its calls of the library: it records
 * what happens to it, and one rank fails at a given moment.
 *
 * Calls are numbered from 1, the same in every run of a job. A moment is a call and a delay: 0
 * fails just before the call, on its thread; else another thread fails that long after the call has
 * begun. The moment -k is after the k-th message that the process has received: the first ones are
 * the sockets of the other ranks.
 */
#ifndef SRT_TESTS_ENGINE_FAULT_POINT_H
#define SRT_TESTS_ENGINE_FAULT_POINT_H

#include <shardrt/coll.h>
#include <shardrt/status.h>

#include "tests/engine/fault_record.h"

/* The rank by the variables of launchers: a rank may fail before it has joined. -1: unknown. */
int fault_rank(void);

/* Opens FOLDER/rank-R, the record. */
void fault_open(const char *folder, int rank);
/* This rank fails. `leave`: destroys all that it has, for FAULT_LEAVE. */
void fault_plan(fault_t fault, long moment, long delay_ns, void (*leave)(void *arg), void *arg);

/* The communicator that FAULT_COMM_ABORT aborts; NULL before it is destroyed. */
void fault_set_world(srt_comm_t *world);

/* A call begins. */
void fault_point(const char *call);
/* A call has failed: records the first one. Returns the status. */
srt_status_t fault_note(const char *call, srt_status_t status);
void fault_record(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Calls so far. */
long fault_ncalls(void);

/* A call that is a moment of a fault, in a function that returns srt_status_t. */
#define DO(call) DO_AS(#call, call)
#define DO_AS(name, call)                                                                          \
	do {                                                                                       \
		srt_status_t do_status;                                                            \
                                                                                                   \
		fault_point(name);                                                                 \
		do_status = (call);                                                                \
		if (do_status != SRT_OK)                                                           \
			return fault_note(name, do_status);                                        \
	} while (0)

#endif
