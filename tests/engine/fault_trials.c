/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fault trials: jobs of fault_job.c in which one rank fails at a random moment.
 *
 *     fault_trials FOLDER SEED NTRIALS NWORKERS
 *
 * A trial passes if each other rank ends by itself with an error that names the failed rank and,
 * from a collective, the collective and the unit; if nothing of the job is left; and if the latest
 * checkpoint is complete. Prints a line for each trial, and a table of the times from the fault to
 * the errors. These may be 1 s times SRT_PATIENCE (10), and after SIGSTOP or a cut longer by
 * SRT_FAULT_TIMEOUT.
 *
 * A program of calls is run without a fault first, which measures the moments of several trials.
 * NWORKERS trials run at a time. Variables:
 *
 *     SRT_FAULT_LAUNCHER   command that starts ranks which go on when one fails; "{n}" is how many
 *     SRT_FAULT_TIMEOUT    SHARDRT_TIMEOUT of trials with SIGSTOP or a cut cable, in seconds
 *     SRT_FAULT_HEARTBEAT  SHARDRT_HEARTBEAT of these, if the launcher uses two hosts; else unset
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/engine/fault_trial.h"
#include "tests/harness/check.h"
#include "tests/harness/job.h"

#define TRIALS_OF_PROGRAM 5

/* ---- drawing ------------------------------------------------------------------------------- */

static uint64_t draw(const worker_t *w, int i)
{
	return job_noise(w->seed * 1000003 + (uint64_t)w->number, (uint64_t)i);
}

static double draw_fraction(const worker_t *w, int i)
{
	return (double)(draw(w, i) >> 11) * 0x1p-53;
}

static void choose_program(worker_t *w, uint64_t program)
{
	trial_t measured = { .size = 2 + (int)(job_noise(program, 0) % 4) };

	w->program = program;
	w->size = measured.size;
	w->trial = &measured;
	trial_run(w);
	w->measured = measured.passed;
}

/* A call, or in a call, or within the first one, or by time, or while sockets are handed out. */
static void choose_moment(worker_t *w, trial_t *t)
{
	const fault_record_t *trace = &w->trace[t->victim];
	/* What is being destroyed cannot be aborted or destroyed. */
	const bool until_final = t->fault == FAULT_COMM_ABORT || t->fault == FAULT_LEAVE;
	const long ncalls = until_final ? trace->final : trace->ncalls;
	const long call = 1 + (long)(draw(w, 3) % (uint64_t)ncalls);
	const long long *at = trace->call_at;
	double within_ns = 0;

	t->moment = 1;
	switch (draw(w, 2) % 10) {
	case 0:
		within_ns = (double)(at[2] - at[1]);
		break;
	case 1:
		if (t->fault != FAULT_COMM_ABORT && t->fault != FAULT_LEAVE)
			t->moment = -1 - (long)(draw(w, 3) % (uint64_t)t->size);
		break;
	case 2:
		within_ns = (double)(trace->done_at - at[1]);
		break;
	case 3:
	case 4:
	case 5:
	case 6:
		within_ns =
			(double)((call < trace->ncalls ? at[call + 1] : trace->done_at) - at[call]);
		t->moment = call;
		break;
	default:
		t->moment = call;
		break;
	}
	t->delay_ns = t->fault == FAULT_LEAVE ? 0 : (long)(within_ns * draw_fraction(w, 4));
}

static void choose_trial(worker_t *w, trial_t *t)
{
	static const fault_t faults[] = { FAULT_KILL,   FAULT_EXIT,       FAULT_KILL, FAULT_EXIT_0,
					  FAULT_EXIT_3, FAULT_COMM_ABORT, FAULT_KILL, FAULT_ABORT,
					  FAULT_STOP,   FAULT_LEAVE,      FAULT_CUT };
	const int nfaults = (int)(sizeof(faults) / sizeof(faults[0])) - (w->heartbeat_s == NULL);

	t->size = w->size;
	t->victim = (int)(draw(w, 1) % (uint64_t)t->size);
	t->fault = faults[w->number % nfaults];
	choose_moment(w, t);
}

/* The trials of every nworkers-th program. Delays that were longer than the job are made shorter.
 */
static void run_worker(worker_t *w, trial_t *trials, int ntrials, int first, int nworkers)
{
	CHECK_OR_DIE(prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0);
	CHECK_OR_DIE(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
	snprintf(w->dir + strlen(w->dir), sizeof(w->dir) - strlen(w->dir), "/%d", first);
	for (int i = 0; i < ntrials; i++) {
		const int program = i / TRIALS_OF_PROGRAM;

		if (program % nworkers != first)
			continue;
		w->number = i;
		if (i % TRIALS_OF_PROGRAM == 0)
			choose_program(w, w->seed + (uint64_t)program);
		if (!w->measured)
			continue;
		w->trial = &trials[i];
		choose_trial(w, w->trial);
		trial_run(w);
		for (int late = 0; w->trial->was_late && w->trial->passed && late < 4; late++) {
			w->trial->delay_ns = late < 3 ? w->trial->delay_ns / 2 : 0;
			trial_run(w);
		}
		printf("%s %s\n", trial_describe(w), w->trial->passed ? "passed" : "FAILED");
		fflush(stdout);
	}
}

/* ---- the table ----------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The errors of ranks on the host of the one that failed, or on the other host. */
static void print_row(const trial_t *trials, int ntrials, fault_t fault, bool is_far)
{
	double *ms = calloc((size_t)ntrials * FAULT_MAX_RANKS + 1, sizeof(*ms));
	int nms = 0, n = 0, nunnamed = 0;

	CHECK_OR_DIE(ms != NULL);
	for (int i = 0; i < ntrials; i++) {
		if (trials[i].fault != fault || trials[i].was_late)
			continue;
		n++;
		nunnamed += trials[i].nunnamed;
		for (int k = 0; k < trials[i].nerrors; k++) {
			if (trials[i].is_far[k] == is_far)
				ms[nms++] = trials[i].ms[k];
		}
	}
	qsort(ms, (size_t)nms, sizeof(*ms), compare);
	if (nms > 0)
		printf("| %s%s | %d | %d | %.1f ms | %.1f ms | %d |\n", fault_names[fault],
		       is_far ? ", other host" : "", n, nms, ms[nms / 2], ms[nms - 1], nunnamed);
	free(ms);
}

int main(int argc, char **argv)
{
	const char *timeout = getenv("SRT_FAULT_TIMEOUT"), *launcher = getenv("SRT_FAULT_LAUNCHER");
	const char *patience = getenv("SRT_PATIENCE");
	int ntrials, nworkers;
	trial_t *trials;

	CHECK_OR_DIE(argc == 5 && launcher != NULL && timeout != NULL);
	ntrials = atoi(argv[3]);
	nworkers = atoi(argv[4]);
	trials = mmap(NULL, (size_t)ntrials * sizeof(*trials), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK_OR_DIE(ntrials > 0 && nworkers > 0 && trials != MAP_FAILED);
	for (int i = 0; i < nworkers; i++) {
		if (fork() == 0) {
			static worker_t w;

			w.seed = strtoull(argv[2], NULL, 10);
			w.launcher = launcher;
			w.timeout_s = timeout;
			w.heartbeat_s = getenv("SRT_FAULT_HEARTBEAT");
			w.patience = patience != NULL ? atof(patience) : 10;
			snprintf(w.dir, sizeof(w.dir), "%s", argv[1]);
			run_worker(&w, trials, ntrials, i, nworkers);
			return check_failed > 0;
		}
	}
	for (int i = 0; i < nworkers; i++) {
		int status = 0;

		wait(&status);
		CHECK_INT(status, 0);
	}
	for (int i = 0; i < ntrials; i++)
		CHECK_MSG(trials[i].passed, "trial %d", i);
	printf("| fault | trials | errors | median | worst | not named |\n");
	for (int f = FAULT_KILL; f < NFAULTS; f++) {
		print_row(trials, ntrials, (fault_t)f, false);
		print_row(trials, ntrials, (fault_t)f, true);
	}
	return check_done();
}
