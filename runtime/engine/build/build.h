/* SPDX-License-Identifier: BSD-3-Clause */
/* An engine is built from its declaration. */
#ifndef SRT_RUNTIME_ENGINE_BUILD_BUILD_H
#define SRT_RUNTIME_ENGINE_BUILD_BUILD_H

#include "runtime/engine/engine.h"

/* ---- engine.c */
void srt_engine_expect_declared(srt_engine_t *engine);

/* ---- memory_check.c */
/* At build, collective: the plans of all ranks fit the free memory of their devices. Plans of ranks
 * that share one are added. Else an error on all ranks. `plan` is this rank's. */
srt_status_t srt_memory_check(srt_engine_t *engine, const srt_plan_t *plan);
/* Fails with SRT_ERR_OUT_OF_MEMORY: `why`, then the rows of this rank's plan. */
srt_status_t srt_memory_check_fail(const srt_plan_t *plan, const char *why);

/* ---- allocate.c */
/* Local: buffers, slots, events and views, as engine->memory says. */
srt_status_t srt_engine_allocate(srt_engine_t *engine);

#endif
