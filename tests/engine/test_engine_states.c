/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of states in <shardrt/engine.h>, walked: in each state each call is allowed or refused
 * as the table has it, and a refused call changes nothing. The walk is random with a fixed seed,
 * the same on all ranks, and must have tried every call in every state.
 * Run by test_engine_errors.sh.
 */
#include "runtime/engine/checks/checks.h"
#include "tests/engine/engine_case.h"

enum { NSTEPS = 40000, NMICRO = 2 };

typedef enum state {
	IDLE,
	FORWARD,
	READY,
	BACKWARD,
	GRADS,
	EVAL,
	NEXT,
	REDUCED,
	NSTATES,
	NONE,
} state_t;

typedef enum call {
	FORWARD_BEGIN,
	FORWARD_END,
	BACKWARD_BEGIN,
	BACKWARD_END,
	MICRO_FIRST, /* 0 of NMICRO */
	MICRO_NEXT,
	FINISH,
	STEP,
	SET,
	RESET,
	WRITE, /* as SET */
	CLIP,
	NCALLS,
} call_t;

/* The rows and columns of the header; NONE is "-". */
static const state_t table[NSTATES][NCALLS] = {
	[IDLE] = { FORWARD, NONE, NONE, NONE, IDLE, NONE, NONE, NONE, IDLE, IDLE, IDLE, NONE },
	[FORWARD] = { NONE, READY, NONE, NONE, NONE, NONE, NONE, NONE, NONE, IDLE, NONE, NONE },
	[READY] = { FORWARD, NONE, BACKWARD, NONE, READY, NONE, NONE, NONE, IDLE, IDLE, IDLE,
		    NONE },
	[BACKWARD] = { NONE, NONE, NONE, GRADS, NONE, NONE, NONE, NONE, NONE, IDLE, NONE, NONE },
	[GRADS] = { EVAL, NONE, NONE, NONE, NONE, NEXT, REDUCED, IDLE, GRADS, IDLE, GRADS, NONE },
	[EVAL] = { NONE, GRADS, NONE, NONE, NONE, NONE, NONE, NONE, NONE, IDLE, NONE, NONE },
	[NEXT] = { FORWARD, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NEXT, IDLE, NEXT, NONE },
	[REDUCED] = { NONE, NONE, NONE, NONE, NONE, NONE, NONE, IDLE, REDUCED, IDLE, REDUCED,
		      REDUCED },
};

static const char *const state_names[] = { "IDLE", "FORWARD", "READY",   "BACKWARD", "GRADS",
					   "EVAL", "NEXT",    "REDUCED", "NSTATES",  "NONE" };

typedef struct walk {
	engine_case_t c;
	state_t state;
	int micro, nmicro; /* of the step */
	long tried[NSTATES][NCALLS];
	float *value; /* of the root's parameter */
} walk_t;

/* The table with its footnotes. */
static state_t expected(const walk_t *w, call_t call)
{
	const bool later = w->micro > 0, left = w->micro < w->nmicro - 1;

	if (w->state == READY && later && call == MICRO_FIRST)
		return NONE;
	if (w->state == READY && later && (call == SET || call == WRITE))
		return NEXT;
	if (w->state == GRADS && left && (call == STEP || call == FINISH))
		return NONE;
	if (w->state == GRADS && !left && call == MICRO_NEXT)
		return NONE;
	return table[w->state][call];
}

static srt_status_t make_call(walk_t *w, call_t call)
{
	engine_case_t *c = &w->c;

	switch (call) {
	case FORWARD_BEGIN:
		return srt_unit_forward_begin(c->root, c->stream);
	case FORWARD_END:
		return srt_unit_forward_end(c->root, c->stream);
	case BACKWARD_BEGIN:
		return srt_unit_backward_begin(c->root, c->stream);
	case BACKWARD_END:
		return srt_unit_backward_end(c->root, c->stream);
	case MICRO_FIRST:
		return srt_engine_microbatch(c->engine, 0, NMICRO);
	case MICRO_NEXT:
		return srt_engine_microbatch(c->engine,
					     w->micro < NMICRO - 1 ? w->micro + 1 : w->micro,
					     NMICRO);
	case FINISH:
		return srt_engine_finish_backward(c->engine, c->stream);
	case STEP:
		return srt_engine_step(c->engine, c->stream);
	case WRITE: {
		const srt_status_t status = srt_engine_write_begin(c->engine, c->stream);

		if (status == SRT_OK)
			CHECK_OK(srt_engine_write_end(c->engine, c->stream));
		else
			CHECK_STATUS(srt_engine_write_end(c->engine, c->stream), SRT_ERR_STATE);
		return status;
	}
	case CLIP:
		return srt_engine_clip(c->engine, 2, 1.0f, c->stream);
	case SET:
		return srt_param_set(c->tied, SRT_PARAM_VALUE, w->value, c->stream);
	default:
		return srt_engine_reset(c->engine);
	}
}

/* The rules below the table: nothing can be declared; views exist between begin and end. */
static void check_state(walk_t *w)
{
	const bool forward = w->state == FORWARD || w->state == EVAL;
	const bool backward = w->state == BACKWARD;
	srt_unit_t *unit;
	srt_param_t *param;
	const int64_t one = 1;
	srt_view_t view;
	int accumulate;

	CHECK_OK(srt_engine_check(w->c.engine));
	CHECK((srt_param_data(w->c.tied, &view) == SRT_OK) == (forward || backward));
	CHECK((srt_param_grad(w->c.tied, &view, &accumulate) == SRT_OK) == backward);
	CHECK((srt_param_grad_ready(w->c.tied) == SRT_OK) == backward);
	if (w->state == IDLE || w->state == REDUCED || w->state == BACKWARD || w->state == NEXT)
		CHECK((test_local(w->c.tied, SRT_PARAM_GRAD).buffer != NULL) ==
		      (w->state == IDLE || w->state == REDUCED));
	CHECK_STATUS(srt_unit_create(w->c.engine, w->c.root, "late", NULL, &unit), SRT_ERR_STATE);
	CHECK_STATUS(srt_param_create(w->c.root, "late", SRT_F32, 1, &one, NULL, &param),
		     SRT_ERR_STATE);
	CHECK_STATUS(srt_engine_plan_extra(w->c.engine, 1, 1), SRT_ERR_STATE);
	CHECK_STATUS(srt_engine_build(w->c.engine), SRT_ERR_STATE);
}

static void try_call(walk_t *w, call_t call)
{
	const state_t to = expected(w, call), from = w->state;
	const srt_status_t status = make_call(w, call);

	w->tried[from][call]++;
	CHECK_MSG(status == (to == NONE ? SRT_ERR_STATE : SRT_OK), "call %d in %s gives %s: %s",
		  (int)call, state_names[from], srt_status_string(status),
		  status == SRT_OK ? "" : srt_error_last());
	if (to == NONE)
		return;
	if (call == MICRO_FIRST)
		w->nmicro = NMICRO;
	if (call == MICRO_NEXT)
		w->micro++;
	if (call == RESET || call == STEP) {
		w->micro = 0;
		w->nmicro = 1;
	}
	w->state = to;
}

static void walk_table(srt_context_t *context, srt_strategy_t strategy)
{
	srt_engine_options_t options = { .size = sizeof(options),
					 .prefetch = 1,
					 .strategy = strategy,
					 .microbatches = NMICRO,
					 .optim = OPTIM_SGD(0.1f) };
	walk_t w = { .nmicro = 1 };

	case_declare(&w.c, context, &options, 5);
	CHECK_STATUS(srt_unit_forward_begin(w.c.root, w.c.stream), SRT_ERR_STATE);
	CHECK_STATUS(srt_engine_reset(w.c.engine), SRT_ERR_STATE);
	case_build(&w.c);
	w.value = calloc((size_t)srt_param_nelem(w.c.tied), sizeof(*w.value));
	CHECK_OR_DIE(w.value != NULL);
	for (int i = 0; i < NSTEPS && check_failed == 0; i++) {
		const uint64_t random = srt_mix64(1, (uint64_t)i);

		/* Fewer resets, so that the walk reaches the later states often. */
		if (random % NCALLS == RESET && (random >> 32) % 8 != 0)
			continue;
		try_call(&w, (call_t)(random % NCALLS));
		check_state(&w);
	}
	for (int s = 0; s < NSTATES; s++) {
		for (int k = 0; k < NCALLS; k++)
			CHECK_MSG(w.tried[s][k] > 0, "call %d was never tried in %s", k,
				  state_names[s]);
	}
	CHECK_OK(srt_engine_reset(w.c.engine));
	case_destroy(&w.c);
	free(w.value);
}

int main(void)
{
	srt_context_t *context;

	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	walk_table(context, SRT_STRATEGY_DDP);
	walk_table(context, SRT_STRATEGY_ZERO3);
	srt_context_destroy(context);
	return check_done();
}
