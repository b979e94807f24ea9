/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * replay_golden [--one] CASE_DIR...: replays golden cases on the real library, under shardrun with
 * the case's world size (a table without one: one rank). One line a case: PASS or FAIL with the
 * worst deviation in units of its tolerance, or skip with what is not built yet. Training cases run
 * with several strategies; with --one, with one of them by turns. Exit status: 0, 1 if a case
 * failed, 77 if all were skipped, 2 for what is no case or another world size.
 */
#include "config.h"

#include <string.h>

#include "tests/golden/replay.h"

int main(int argc, char **argv)
{
	bool any[4] = { false }, one = argc > 1 && !strcmp(argv[1], "--one");
	srt_context_t *context;

	if (argc < 2 + one) {
		fprintf(stderr, "usage: shardrun -n WORLD replay_golden [--one] CASE_DIR...\n");
		return 2;
	}
	if (srt_context_create(NULL, &context) != SRT_OK) {
		fprintf(stderr, "replay_golden: %s\n", srt_error_last());
		return 1;
	}
	for (int i = 1 + one; i < argc; i++)
		any[replay_run_case(argv[i], one, context)] = true;
	/* the launcher ends all ranks when the first one fails: not before rank 0 has spoken */
	fflush(stdout);
	replay_join_status(context, SRT_OK);
	srt_context_destroy(context);
	return any[REPLAY_BAD] ? 2 : any[REPLAY_FAIL] ? 1 : any[REPLAY_PASS] ? 0 : 77;
}
