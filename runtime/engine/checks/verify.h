/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the engine compares across ranks: declarations and calls. Each difference is
 * SRT_ERR_MISMATCH, with the ranks and both values.
 */
#ifndef SRT_RUNTIME_ENGINE_CHECKS_VERIFY_H
#define SRT_RUNTIME_ENGINE_CHECKS_VERIFY_H

#include "runtime/engine/engine.h"

/* ---- verify_declaration.c */
/* At build, collective: the ranks declared the same; else the same error on all of them, which
 * lists the differences. */
srt_status_t srt_verify_declaration(srt_engine_t *engine);

/* ---- verify_order.c */
/* Calls that the ranks compare, with the index and the value of srt_verify_call(). */
typedef enum srt_action {
	SRT_ACTION_FORWARD, /* of a unit, in a micro-batch; by srt_verify_order(), as the next 3 */
	SRT_ACTION_BACKWARD,
	SRT_ACTION_FINISH, /* the backward passes of a step */
	SRT_ACTION_STEP,
	SRT_ACTION_RESET,
	SRT_ACTION_CLIP,          /* norm_p, max_norm */
	SRT_ACTION_UNSCALE,       /* 0, hash of the scaler's options */
	SRT_ACTION_SUM,           /* by srt_verify_sum() */
	SRT_ACTION_SET_LR,        /* group, -1 for all; learning rate */
	SRT_ACTION_INIT_CONSTANT, /* parameter, value */
	SRT_ACTION_INIT,          /* parameter, hash of the arguments */
	SRT_ACTION_SET,           /* parameter, 0 */
	SRT_ACTION_WRITE,         /* 0; 1: begin, 0: end */
	SRT_ACTION_FULL,          /* unit, options of a begin of full parameters; 0: its end */
	SRT_ACTION_REUSE,         /* 0; 1: uses gathered values again, 0: drops them (local.c) */
} srt_action_t;

/* Collective, at build. */
srt_status_t srt_verify_create(srt_engine_t *engine);
/* All ranks do the same next. In the first step collective, and the same error on all of them if
 * they do not; then as srt_verify_call(). */
srt_status_t srt_verify_order(srt_engine_t *engine, srt_action_t action, const srt_unit_t *unit);
/* All ranks make this call with these arguments as their next one. Does not wait: an error on the
 * rank that is the last to call, and the communicator is poisoned. */
srt_status_t srt_verify_call(srt_engine_t *engine, srt_action_t action, uint32_t index,
			     uint64_t value);
srt_status_t srt_verify_float(srt_engine_t *engine, srt_action_t action, uint32_t index,
			      float value);
/* Checks that the ranks have total_nelem values together. */
srt_status_t srt_verify_sum(srt_engine_t *engine, int64_t nelem, int64_t total_nelem);
/* At the end of a step: SRT_ACTION_STEP or, with calls before that may differ, SRT_ACTION_RESET. */
srt_status_t srt_verify_end(srt_engine_t *engine, srt_action_t action);

#endif
