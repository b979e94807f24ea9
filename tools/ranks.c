/* SPDX-License-Identifier: BSD-3-Clause */
/* See ranks.h. */
#include "tools/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/try.h"
#include "tools/common.h"

srt_status_t tool_find_largest(tool_ranks_t *ranks, const char *when, int mine, int *value,
			       int *rank)
{
	int *all = calloc((size_t)ranks->world, sizeof(*all));
	srt_status_t status;

	if (all == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY,
				      "no host memory for numbers of %d ranks", ranks->world);
	status = srt_comm_oob_allgather(ranks->comm, &mine, sizeof(mine), all);
	if (status != SRT_OK)
		snprintf(ranks->failed, sizeof(ranks->failed), "agreement %s", when);
	*value = 0;
	*rank = 0;
	for (int r = 0; status == SRT_OK && r < ranks->world; r++) {
		if (all[r] > *value) {
			*value = all[r];
			*rank = r;
		}
	}
	free(all);
	return status;
}

int tool_report_failure(const tool_ranks_t *ranks, srt_status_t status)
{
	const char *sentence = srt_error_last();
	char prefix[32]; /* of the library's message */

	snprintf(prefix, sizeof(prefix), "rank %d: ", ranks->rank);
	if (ranks->failed[0]) {
		if (strncmp(sentence, prefix, strlen(prefix)) == 0)
			sentence += strlen(prefix);
		tool_error("%s%s: %s", prefix, ranks->failed, sentence);
	} else if (strncmp(sentence, "rank ", 5) == 0) { /* the message names the rank */
		tool_error("%s", sentence);
	} else {
		tool_error("%s%s", prefix, sentence[0] ? sentence : srt_status_string(status));
	}
	return EXIT_FAILURE;
}

int tool_report_why(tool_ranks_t *ranks, const char *when, const tool_why_t *why, bool mine)
{
	int code, any, who;
	srt_status_t status = tool_find_largest(ranks, when, mine ? why->status : 0, &code, &who);

	if (status != SRT_OK)
		return tool_report_failure(ranks, status);
	if (!code)
		return 0;
	if (ranks->rank == who)
		tool_error("%s", why->text);
	/* A barrier: no rank exits before it is printed. */
	status = tool_find_largest(ranks, when, 0, &any, &who);
	return code;
}
