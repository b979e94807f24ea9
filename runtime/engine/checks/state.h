/* SPDX-License-Identifier: BSD-3-Clause */
/* What an engine remembers to check its program, the other ranks and sums. */
#ifndef SRT_RUNTIME_ENGINE_CHECKS_STATE_H
#define SRT_RUNTIME_ENGINE_CHECKS_STATE_H

#include <stdbool.h>

#include <shardrt/engine.h>

typedef struct srt_audit srt_audit_t; /* audit.c */

/* What is remembered of an engine. */
typedef struct srt_engine_checks {
	bool on, audits;              /* SHARDRT_CHECK, SHARDRT_AUDIT */
	const srt_param_t *nonfinite; /* the first bad gradient of this step; NULL: none */
	bool order_checked;           /* the first step is over: ranks no longer wait to compare */
	struct srt_call_log *calls;   /* what the ranks compare; NULL: one rank */
} srt_engine_checks_t;

/* What is remembered of a parameter. */
typedef struct srt_param_checks {
	uint64_t hash;           /* of the shard after the last change by a call for it */
	uint64_t unsharded_hash; /* of the values as they were gathered, if the unit is_hashed */
	srt_buffer_t *window[2]; /* what views of the unsharded values and gradient may use */
} srt_param_checks_t;

#endif
