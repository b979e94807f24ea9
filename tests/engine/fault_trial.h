/* SPDX-License-Identifier: BSD-3-Clause */
/* One fault trial: fault_trials.c draws it, fault_trial.c runs and checks it. */
#ifndef SRT_TESTS_ENGINE_FAULT_TRIAL_H
#define SRT_TESTS_ENGINE_FAULT_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/engine/fault_record.h"

typedef struct trial {
	int size, victim;
	fault_t fault;
	long moment, delay_ns;
	/* results */
	bool passed, was_late; /* was_late: the fault came after the end */
	int nerrors, nunnamed; /* nunnamed: those that do not name the rank and the collective */
	double ms[FAULT_MAX_RANKS];
	bool is_far[FAULT_MAX_RANKS]; /* that rank is on another host than the one that failed */
} trial_t;

typedef struct worker {
	char dir[400];
	uint64_t seed;
	const char *launcher, *timeout_s;
	const char *heartbeat_s; /* NULL: all ranks are on one host */
	double patience;
	/* the present program */
	uint64_t program;
	int size;
	bool measured;
	fault_record_t trace[FAULT_MAX_RANKS];
	/* the present trial */
	int number;
	trial_t *trial;
	bool failed;
} worker_t;

/* Runs w->trial. Without a fault its records become w->trace. */
void trial_run(worker_t *w);
/* The text of w->trial, for messages; until the next call. */
const char *trial_describe(const worker_t *w);

/* fault_names.c: */
/* Whether rank r has waited for the victim, which failed before all had joined. */
bool fault_has_not_joined(const trial_t *trial, const fault_record_t *records, int r);
/* Whether the error of rank r names the victim, and the collective if it is of one. */
bool fault_is_named(const trial_t *trial, const fault_record_t *records, int r);
/* A fault after which the rank goes on by itself. */
bool fault_goes_on(fault_t fault);

#endif
