/* SPDX-License-Identifier: BSD-3-Clause */
/* The invariants of an engine, and the mistakes of programs that SHARDRT_CHECK=1 finds. */
#ifndef SRT_RUNTIME_ENGINE_CHECKS_CHECKS_H
#define SRT_RUNTIME_ENGINE_CHECKS_CHECKS_H

#include "runtime/engine/engine.h"

/* ---- check.c */
/* The invariants of a built engine, for tests; SRT_ERR_STATE with the first violated one. */
srt_status_t srt_engine_check(const srt_engine_t *engine);

/* ---- check_step.c: nothing unless engine->checks.on, except srt_check_begin_grads() */
/* At the beginning of a backward pass: fills gradients that are not added to, with NaN or, by the
 * option clear_grads, with 0. */
srt_status_t srt_check_begin_grads(const srt_unit_t *unit, srt_stream_t *stream);
/* At its end: remembers the first gradient that is not finite. */
srt_status_t srt_check_end_grads(srt_unit_t *unit, srt_stream_t *stream);
/* The unit's use has begun or ended: operations on views that the program has kept are allowed or
 * refused. */
void srt_check_set_views(const srt_unit_t *unit);
/* At begin and end of a use: the gathered values are those that were gathered. */
srt_status_t srt_check_unsharded(srt_unit_t *unit, srt_stream_t *stream);
/* Limits a view that the program gets to the parameter, and to the use of its unit. */
srt_status_t srt_check_view(srt_param_t *param, bool is_grad, srt_view_t *view);
/* After the values of a parameter, or of all, changed on `stream`: remembers their hash. */
srt_status_t srt_check_record(srt_param_t *param, srt_stream_t *stream);
srt_status_t srt_check_record_all(srt_engine_t *engine, srt_stream_t *stream);
/* Before the unit's values are read: SRT_ERR_STATE if they are not those that were remembered. */
srt_status_t srt_check_unchanged(const srt_unit_t *unit, srt_stream_t *stream);
/* Collective, blocking: before and after the optimizer. The same error on all ranks. */
srt_status_t srt_check_before_step(srt_engine_t *engine, srt_stream_t *stream);
srt_status_t srt_check_after_step(srt_engine_t *engine, srt_stream_t *stream);

#endif
