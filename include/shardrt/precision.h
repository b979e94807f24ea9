/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mixed precision: in which dtypes the values, gradients and sums of a unit exist.
 *
 * A policy is declared for an engine or a unit and resolved with the dtype in which parameters are
 * stored. The rules are those of torch.distributed.fsdp: MixedPrecisionPolicy of fully_shard, and
 * MixedPrecision of FullyShardedDataParallel (docs/parity.md). docs/numerics.md, "Cast points",
 * says where a value is rounded.
 */
#ifndef SHARDRT_PRECISION_H
#define SHARDRT_PRECISION_H

#include <stddef.h>

#include <shardrt/dtype.h>
#include <shardrt/export.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Whose rules complete a policy. */
typedef enum srt_precision_rule {
	SRT_PRECISION_FSDP2, /* fully_shard */
	SRT_PRECISION_FSDP1, /* FullyShardedDataParallel */
} srt_precision_rule_t;

/** A mixed-precision policy. SRT_DTYPE_NONE: no cast. */
typedef struct srt_precision {
	size_t size;        /* sizeof(srt_precision_t) */
	srt_dtype_t param;  /* unsharded parameters, their gradients, the unit's compute */
	srt_dtype_t reduce; /* the sum of gradients over ranks; NONE: the dtype of the gradients */
	srt_dtype_t buffer; /* float buffers; FSDP1 only, cast once */
	srt_dtype_t output; /* outputs of the unit */
	srt_precision_rule_t rule;
	int keep_inputs; /* 1: the unit's float inputs are not cast to `param` */
} srt_precision_t;

/** No casts, by the rules of fully_shard. */
#define SRT_PRECISION_INIT                                                                         \
	{                                                                                          \
		.size = sizeof(srt_precision_t)                                                    \
	}

/** The dtypes of a unit: a resolved policy. */
typedef struct srt_unit_types {
	size_t size;            /* sizeof(srt_unit_types_t) */
	srt_dtype_t stored;     /* shards: values, reduced gradients, optimizer state */
	srt_dtype_t compute;    /* unsharded values, and the gradients that a program writes */
	srt_dtype_t accumulate; /* unreduced gradients of several micro-batches are added in it */
	srt_dtype_t reduce;     /* gradients are summed over ranks in it */
	int casts_inputs;       /* 1: float inputs are cast to `compute` where the unit begins */
	srt_dtype_t output;     /* what its outputs are cast to; NONE: not cast */
	srt_dtype_t buffer;     /* what its float buffers are cast to; NONE: not cast */
} srt_unit_types_t;

/** To be filled. */
#define SRT_UNIT_TYPES_INIT                                                                        \
	{                                                                                          \
		.size = sizeof(srt_unit_types_t)                                                   \
	}

/**
 * Resolves a policy.
 *
 *     compute     param, else stored
 *     reduce      reduce, else compute
 *     accumulate  FSDP2: reduce; FSDP1 (no_sync): compute
 *
 * @param precision NULL: no casts.
 * @param stored SRT_F32, SRT_F16 or SRT_BF16.
 * @param[out] types its size by SRT_UNIT_TYPES_INIT; set on success only.
 * @return SRT_ERR_INVALID_ARGUMENT for another dtype of `stored` or of the policy, a rule outside
 *         its enum, or a buffer dtype with the rule FSDP2.
 * Thread-safe.
 */
SRT_API srt_status_t srt_precision_resolve(const srt_precision_t *precision, srt_dtype_t stored,
					   srt_unit_types_t *types);

#ifdef __cplusplus
}
#endif
#endif
