/* SPDX-License-Identifier: BSD-3-Clause */
/* Starting a job again: see tools/shardrun/restart.h. */
#include "tools/shardrun/restart.h"

#include <stdio.h>

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
	restarts->count++;
	return nranks;
}
