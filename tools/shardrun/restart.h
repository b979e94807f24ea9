/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether a job that failed is started again, and with how many ranks. Used by
 * tools/shardrun/shardrun.c.
 */
#ifndef SRT_TOOLS_SHARDRUN_RESTART_H
#define SRT_TOOLS_SHARDRUN_RESTART_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/shardrun/options.h"

typedef struct srt_launch_restarts {
	int count;           /* how often the job was started again */
	double started_at_s; /* when the present start began */
	double delay_s;      /* before the next start */
	bool failed_before;  /* with the present number of ranks */
	double failed_at_s;  /* then */
} srt_launch_restarts_t;

/*
 * The job has failed on nranks ranks with this exit status, at this time of the monotonic clock.
 * Returns the number of ranks of its next start, and sets delay_s. Returns 0 if there is none, and
 * the reason in why, a part of a sentence.
 */
int srt_launch_restart(srt_launch_restarts_t *restarts, const srt_launch_options_t *o, int nranks,
		       int code, double now_s, char *why, size_t size);

#endif
