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
} trial_t;

typedef struct worker {
	char dir[400];
	uint64_t seed;
	const char *launcher, *timeout_s;
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
/* Of w->trial, for messages; until the next call. */
const char *trial_describe(const worker_t *w);

#endif
