/* SPDX-License-Identifier: BSD-3-Clause */
/* Starting a job again: see tools/shardrun/restart.h. */
#include "tools/shardrun/restart.h"

#include <stdio.h>

#define MOST_DELAY_S 30
/* A start that has run for so long had not the cause of the failures before it. */
#define LASTING_S 60

/* What another start cannot change, or NULL. */
static const char *get_lasting_cause(int code)
{
	switch (code) {
	case SRT_LAUNCH_USAGE:
		return "wrong options";
	case SRT_LAUNCH_CANNOT_RUN:
		return "the program cannot be run";
	case SRT_LAUNCH_NOT_FOUND:
		return "the program was not found";
	default:
		return NULL;
	}
}

/* The largest number of ranks below nranks that is allowed, or 0. */
static int find_fewer_ranks(const srt_launch_options_t *o, int nranks)
{
	for (int n = nranks - 1; n >= o->min_ranks; n--) {
		if (o->batch % n == 0)
			return n;
	}
	return 0;
}

/* The time before the next start: a cause that passes, such as a file server that does not answer
 * or a port that is in use, must not use up all restarts. */
static double choose_delay(const srt_launch_restarts_t *restarts, const srt_launch_options_t *o,
			   double now_s)
{
	const double twice = 2 * restarts->delay_s;

	if (restarts->count == 0 || now_s - restarts->started_at_s >= LASTING_S)
		return o->restart_delay_s;
	if (twice <= MOST_DELAY_S)
		return twice;
	return restarts->delay_s > MOST_DELAY_S ? restarts->delay_s : MOST_DELAY_S;
}

int srt_launch_restart(srt_launch_restarts_t *restarts, const srt_launch_options_t *o, int nranks,
		       int code, double now_s, char *why, size_t size)
{
	const char *cause = get_lasting_cause(code);
	bool twice = restarts->failed_before && now_s - restarts->failed_at_s <= o->window_s;

	if (cause != NULL) {
		snprintf(why, size, "exit status %d means %s", code, cause);
		return 0;
	}
	if (restarts->count == o->restarts) {
		snprintf(why, size, "no restart of --restarts %d is left", o->restarts);
		return 0;
	}
	restarts->failed_before = true;
	restarts->failed_at_s = now_s;
	if (o->min_ranks > 0 && twice) {
		int fewer = find_fewer_ranks(o, nranks);

		if (fewer == 0) {
			snprintf(why, size,
				 "it failed twice within %g s with %d rank%s, and no smaller "
				 "number from --min-ranks %d on divides the batch of %d",
				 o->window_s, nranks, nranks == 1 ? "" : "s", o->min_ranks,
				 o->batch);
			return 0;
		}
		nranks = fewer;
		restarts->failed_before = false;
	}
	restarts->delay_s = choose_delay(restarts, o, now_s);
	restarts->count++;
	return nranks;
}
