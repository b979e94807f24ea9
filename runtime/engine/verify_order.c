/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Verification of the first step: before each action all ranks exchange what they do next. A
 * difference is the same error on all ranks, and no rank waits for another one's collective.
 */
#include <stdlib.h>
#include <string.h>

#include "collectives/comm.h"
#include "runtime/engine/engine.h"

/* What a rank does next. Exchanged as plain bytes. */
typedef struct next_action {
	int32_t action, unit; /* unit: index, -1 for a step */
	int32_t microbatch, nmicrobatches;
} next_action_t;

static void describe_action(const srt_engine_t *engine, const next_action_t *next, char *text,
			    size_t nbytes)
{
	static const char *const verbs[] = {
		[SRT_ACTION_FORWARD] = "runs forward",
		[SRT_ACTION_BACKWARD] = "runs backward",
		[SRT_ACTION_FINISH] = "calls srt_engine_finish_backward()",
		[SRT_ACTION_STEP] = "calls srt_engine_step()",
	};

	snprintf(text, nbytes, "%s%s%s%s in micro-batch %d of %d", verbs[next->action],
		 next->unit >= 0 ? " unit '" : "",
		 next->unit >= 0 ? engine->units[next->unit]->name : "", next->unit >= 0 ? "'" : "",
		 (int)next->microbatch, (int)next->nmicrobatches);
}

srt_status_t srt_verify_order(srt_engine_t *engine, srt_action_t action, const srt_unit_t *unit)
{
	const next_action_t mine = {
		.action = (int32_t)action,
		.unit = unit != NULL ? (int32_t)unit->index : -1,
		.microbatch = engine->microbatch + engine->microbatch_over,
		.nmicrobatches = engine->nmicrobatches,
	};
	char what[192], text[256];
	next_action_t *all;
	srt_status_t status;

	if (engine->order_checked)
		return SRT_OK;
	all = srt_calloc((size_t)engine->world, sizeof(*all), "order of the ranks");
	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	describe_action(engine, &mine, what, sizeof(what));
	snprintf(text, sizeof(text), "comparing the first step, in which it %s", what);
	status = srt_comm_oob_allgather_for(engine->comm, text, &mine, sizeof(mine), all);
	for (int r = 1; status == SRT_OK && r < engine->world; r++) {
		char a[192], b[192];

		if (memcmp(&all[r], &all[0], sizeof(mine)) == 0)
			continue;
		describe_action(engine, &all[0], a, sizeof(a));
		describe_action(engine, &all[r], b, sizeof(b));
		status = srt_fail(SRT_ERR_MISMATCH,
				  "%s order differs: rank 0 %s, rank %d %s; all ranks must run the "
				  "same units in the same order",
				  all[0].action == SRT_ACTION_FORWARD ? "forward" : "backward", a,
				  r, b);
	}
	free(all);
	return status;
}
