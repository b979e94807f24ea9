/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Errors that ranks agree on. One rank prints an error that all of them have, and no rank exits
 * before it is printed, so that the launcher does not end that rank before. All calls are
 * collective and blocking, but for tool_report_failure().
 */
#ifndef SRT_TOOLS_RANKS_H
#define SRT_TOOLS_RANKS_H

#include <shardrt/coll.h>
#include <shardrt/status.h>

#include "tools/why.h"

/** The ranks. */
typedef struct tool_ranks {
	srt_comm_t *comm; /* NULL: the job could not be joined */
	int rank, world;
	char failed[96]; /* the agreement that failed; "": none */
} tool_ranks_t;

/** The largest of the ranks' values, and the lowest rank that has it. @param when a part of the
 * error message: "after step 3". */
srt_status_t tool_find_largest(tool_ranks_t *ranks, const char *when, int mine, int *value,
			       int *rank);

/** Prints the error of this rank. Local. @return the exit status. */
int tool_report_failure(const tool_ranks_t *ranks, srt_status_t status);

/**
 * Whether any rank has found an error.
 * @param why that of this rank, if `mine`. @return 0, or the exit status after a rank has printed
 *         its error: the lowest rank of those with wrong options, or else of those with others.
 */
int tool_report_why(tool_ranks_t *ranks, const char *when, const tool_why_t *why, bool mine);

#endif
