/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SHARDRT_AUDIT=1: each reduction of gradients is checked (audit.c). reduce.c calls these functions
 * around a reduction; they do nothing unless unit->audit is set. All but srt_audit_create() wait
 * for the streams that they read from.
 */
#ifndef SRT_RUNTIME_ENGINE_CHECKS_AUDIT_H
#define SRT_RUNTIME_ENGINE_CHECKS_AUDIT_H

#include "runtime/engine/engine.h"

/* A sum over ranks that is checked. */
typedef enum srt_audit_sum {
	SRT_AUDIT_PARTIAL, /* within a replica: partial_sums of the unit */
	SRT_AUDIT_REDUCED, /* over all ranks: the gradient shards, as they are stepped */
} srt_audit_sum_t;

/* Local, at build: the memory of all units' projections, in host memory. */
srt_status_t srt_audit_create(srt_engine_t *engine);
void srt_audit_free(srt_audit_t *audit);

/* The gradients of a micro-batch, written by work on `stream`, become part of the next sum. */
srt_status_t srt_audit_record(srt_unit_t *unit, srt_stream_t *stream);
/* Before a sum is written: remembers what is there if it is added to that. */
srt_status_t srt_audit_begin(srt_unit_t *unit, srt_audit_sum_t sum);
/* After it was written on the communication stream: compares it with its parts. Collective,
 * blocking. SRT_ERR_DEVICE on all ranks of the engine if it is wrong on any. */
srt_status_t srt_audit_end(srt_unit_t *unit, srt_audit_sum_t sum);
/* No gradient of the step is left. */
void srt_audit_drop(srt_unit_t *unit);

#endif
