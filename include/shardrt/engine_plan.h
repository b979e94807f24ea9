/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rows of an engine's memory plan: srt_engine_plan() (<shardrt/engine.h>).
 */
#ifndef SHARDRT_ENGINE_PLAN_H
#define SHARDRT_ENGINE_PLAN_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Bytes of memory of one rank. Exact: srt_engine_build() allocates `total` on the device and, with
 * offload, `host_total` on the host device.
 */
typedef struct srt_plan {
	size_t size;            /* sizeof(srt_plan_t) */
	size_t param_shards;    /* values that this rank owns, and their copies to compute with;
				 * offloaded: the shards that are copied to the device */
	size_t grad_shards;     /* reduced gradients */
	size_t optimizer_state; /* all moments */
	size_t buffers;         /* of units */
	size_t unsharded;       /* slots for unsharded parameters, and what a rank keeps of them for
				 * a group of ranks (srt_unit_options_t.reshard) */
	size_t unsharded_grads; /* slots for unsharded gradients, and for their sums */
	size_t staging;         /* tables; scratch of collectives and norms */
	size_t total;           /* sum of the rows above: the engine's memory */
	size_t activations;     /* the program's own, from srt_engine_plan_extra() */
	size_t scratch;         /* of the program's streams, from srt_engine_plan_extra() */
	size_t rank_total;      /* total + activations + scratch */
	size_t peer_mapped;     /* memory of other ranks that is mapped here; not in the sums */
	/* With offload, on the host device; not in the sums above: */
	size_t host_params;  /* values that this rank owns, and their copies to compute with */
	size_t host_grads;   /* gradients to be stepped, and the memory they arrive in */
	size_t host_state;   /* all moments */
	size_t host_staging; /* tables */
	size_t host_total;   /* sum of the four */
	int nslots;          /* number of slots for unsharded parameters */
} srt_plan_t;

/** To be filled. */
#define SRT_PLAN_INIT                                                                              \
	{                                                                                          \
		.size = sizeof(srt_plan_t)                                                         \
	}

#ifdef __cplusplus
}
#endif
#endif
