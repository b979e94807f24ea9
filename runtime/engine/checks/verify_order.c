/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Verification of the order of calls: all ranks make the same ones with the same arguments.
 *
 * In the first step the ranks exchange what they do next before each pass. A difference is the same
 * error on all ranks, and no rank waits for another one's collective. In all steps each call is
 * logged in memory that the ranks share, and compared there without waiting (call_log.h).
 */
#include <stdlib.h>
#include <string.h>

#include "collectives/comm.h"
#include "collectives/verify/call_log.h"
#include "runtime/engine/checks/verify.h"
#include "runtime/engine/declare/declare.h"

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
		 (int)next->microbatch + 1, (int)next->nmicrobatches);
}

/* In the first step. */
static srt_status_t exchange_action(srt_engine_t *engine, const next_action_t *mine)
{
	char text[256], what[192];
	next_action_t *all;
	srt_status_t status;

	all = srt_comm_calloc(engine->comm, (size_t)engine->world, sizeof(*all),
			      "comparing the first step");
	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	describe_action(engine, mine, what, sizeof(what));
	snprintf(text, sizeof(text), "comparing the first step, in which it %s", what);
	status = srt_comm_oob_allgather_for(engine->comm, text, mine, sizeof(*mine), all);
	for (int r = 1; status == SRT_OK && r < engine->world; r++) {
		char a[192], b[192];

		if (memcmp(&all[r], &all[0], sizeof(*mine)) == 0)
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

srt_status_t srt_verify_order(srt_engine_t *engine, srt_action_t action, const srt_unit_t *unit)
{
	const next_action_t mine = {
		.action = (int32_t)action,
		.unit = unit != NULL ? (int32_t)unit->index : -1,
		.microbatch = engine->step.microbatch + engine->step.microbatch_over,
		.nmicrobatches = engine->step.nmicrobatches,
	};

	if (!engine->checks.order_checked)
		SRT_TRY(exchange_action(engine, &mine));
	return srt_verify_call(engine, action, (uint32_t)mine.unit,
			       (uint64_t)mine.microbatch << 32 | (uint32_t)mine.nmicrobatches);
}

/* ---- the log of calls -------------------------------------------------------------------- */

static double value_of(const srt_call_t *call)
{
	const uint32_t bits = (uint32_t)call->value;
	float value;

	memcpy(&value, &bits, sizeof(value));
	return (double)value;
}

static void describe_call(const void *arg, const srt_call_t *call, char *text, size_t n)
{
	const srt_engine_t *engine = arg;
	const srt_action_t action = (srt_action_t)(call->kind - 1);
	const char *name = call->index < engine->nparams ? engine->params[call->index]->name : "";

	switch (action) {
	case SRT_ACTION_FORWARD:
	case SRT_ACTION_BACKWARD:
	case SRT_ACTION_FINISH: {
		const next_action_t next = { (int32_t)action, (int32_t)call->index,
					     (int32_t)(call->value >> 32), (int32_t)call->value };

		describe_action(engine, &next, text, n);
		break;
	}
	case SRT_ACTION_STEP:
		snprintf(text, n, "calls srt_engine_step()");
		break;
	case SRT_ACTION_RESET:
		snprintf(text, n, "calls srt_engine_reset()");
		break;
	case SRT_ACTION_CLIP:
		snprintf(text, n, "calls srt_engine_clip() with norm_p %d and max_norm %.9g",
			 (int)call->index, value_of(call));
		break;
	case SRT_ACTION_UNSCALE:
		snprintf(text, n,
			 "unscales the gradients with a scaler of rule, factors and interval %llx",
			 (unsigned long long)call->value);
		break;
	case SRT_ACTION_SUM:
		snprintf(text, n, "calls srt_engine_sum() with total_nelem %llu",
			 (unsigned long long)call->value);
		break;
	case SRT_ACTION_SET_LR:
		snprintf(text, n, "sets the learning rate of group %d to %.9g", (int)call->index,
			 value_of(call));
		break;
	case SRT_ACTION_INIT_CONSTANT:
		snprintf(text, n, "initialises '%.64s' with %.9g", name, value_of(call));
		break;
	case SRT_ACTION_INIT:
		snprintf(text, n, "initialises '%.64s' with seed and distribution %llx", name,
			 (unsigned long long)call->value);
		break;
	case SRT_ACTION_SET:
		snprintf(text, n, "calls srt_param_set() of '%.64s'", name);
		break;
	case SRT_ACTION_WRITE:
		snprintf(text, n, "calls srt_engine_write_%s()", call->value ? "begin" : "end");
		break;
	case SRT_ACTION_FULL:
		snprintf(text, n, "calls srt_unit_full_params_%s() of unit '%.64s' (options %llx)",
			 call->value ? "begin" : "end", engine->units[call->index]->name,
			 (unsigned long long)call->value);
		break;
	case SRT_ACTION_REUSE:
		snprintf(text, n,
			 call->value ? "uses gathered values again" :
				       "gathers values again, as it called srt_param_local() for "
				       "values (call it on all ranks, or after "
				       "srt_engine_write_begin())");
		break;
	}
}

srt_status_t srt_verify_create(srt_engine_t *engine)
{
	return srt_call_log_create(engine->comm, "creating the log of calls", describe_call, engine,
				   &engine->checks.calls);
}

srt_status_t srt_verify_call(srt_engine_t *engine, srt_action_t action, uint32_t index,
			     uint64_t value)
{
	const srt_call_t call = { .kind = (uint32_t)action + 1, .index = index, .value = value };

	return srt_call_log_add(engine->checks.calls, &call);
}

srt_status_t srt_verify_float(srt_engine_t *engine, srt_action_t action, uint32_t index,
			      float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return srt_verify_call(engine, action, index, bits);
}

srt_status_t srt_verify_sum(srt_engine_t *engine, int64_t nelem, int64_t total_nelem)
{
	const srt_call_t call = { .kind = (uint32_t)SRT_ACTION_SUM + 1,
				  .value = (uint64_t)total_nelem,
				  .is_sum = true,
				  /* the ranks of a tensor-parallel group have the same values */
				  .part = srt_cell_index(engine, engine->rank) == 0 ?
						  (uint64_t)nelem :
						  0 };

	return srt_call_log_add(engine->checks.calls, &call);
}

srt_status_t srt_verify_end(srt_engine_t *engine, srt_action_t action)
{
	const srt_call_t call = { .kind = (uint32_t)action + 1 };

	return srt_call_log_end(engine->checks.calls, &call, action == SRT_ACTION_RESET);
}
