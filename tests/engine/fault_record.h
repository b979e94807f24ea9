/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The faults of trials, and the records that the ranks of a trial write (fault_point.c) and
 * fault_trials.c reads.
 *
 * A record is a file of lines, which fault_trials.c reads; times are nanoseconds of
 * CLOCK_MONOTONIC:
 *
 *     pid PID                        the process has started
 *     address TEXT                   SHARDRT_BOOTSTRAP
 *     host N                         of a job over two hosts
 *     point CALL TIME NAME           the call begins
 *     saved N                        the save to the folder save-N has succeeded
 *     final CALL                     later calls wait for no message that is not sent yet
 *     fault TIME CALL                this rank fails now, in or before the call
 *     error TIME STATUS NAME: TEXT   the first call that returned an error
 *     done TIME                      all calls have succeeded
 */
#ifndef SRT_TESTS_ENGINE_FAULT_RECORD_H
#define SRT_TESTS_ENGINE_FAULT_RECORD_H

#include <stdbool.h>

typedef enum fault {
	FAULT_NONE,
	FAULT_KILL,       /* SIGKILL */
	FAULT_STOP,       /* SIGSTOP */
	FAULT_EXIT,       /* exit(0) without srt_context_destroy() */
	FAULT_EXIT_0,     /* _exit(0) */
	FAULT_EXIT_3,     /* _exit(3) */
	FAULT_ABORT,      /* abort() */
	FAULT_COMM_ABORT, /* srt_comm_abort(), after which the rank goes on */
	FAULT_LEAVE,      /* the rank destroys what it has, and ends with status 0 */
	FAULT_CUT,        /* the network interface of its host goes down; the rank goes on */
	NFAULTS,
} fault_t;

extern const char *const fault_names[NFAULTS];

#define FAULT_MAX_RANKS 16
#define FAULT_MAX_CALLS 1000

typedef struct fault_record {
	int pid;  /* 0: the process has not started */
	int host; /* 0: all ranks are on one */
	char address[128];
	long ncalls;
	long long call_at[FAULT_MAX_CALLS + 1]; /* from 1 */
	char call[64];                          /* the last one */
	int nsaved;
	long final, fault_call;
	long long fault_at, error_at, done_at; /* 0: not yet */
	bool done;
	char error_call[64], error[900];
} fault_record_t;

/* Nanoseconds of CLOCK_MONOTONIC. */
long long fault_now_ns(void);

/* Reads FOLDER/rank-R; all zero if there is none. */
void fault_record_read(const char *folder, int rank, fault_record_t *record);

#endif
