/* SPDX-License-Identifier: BSD-3-Clause */
/* The options of the engine that shardrt-train and shardrt-info have in common. */
#ifndef SRT_TOOLS_PRECISION_H
#define SRT_TOOLS_PRECISION_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/engine_options.h>

/* Words of the options, separated by '|', in the order of their values. */
#define TOOL_STRATEGIES "ddp|zero1|zero2|zero3|hybrid" /* srt_strategy_t */
#define TOOL_DTYPES "fp32|bf16|fp16"                   /* tool_dtype_t */
#define TOOL_REDUCE_DTYPES "fp32|compute"              /* tool_reduce_t */
#define TOOL_FLATS "no|views|padded"                   /* srt_flat_t */

/** The dtype to compute in. */
typedef enum tool_dtype { TOOL_FP32, TOOL_BF16, TOOL_FP16 } tool_dtype_t;

/** The dtype in which gradients are summed over ranks. */
typedef enum tool_reduce {
	TOOL_REDUCE_DEFAULT = -1, /* fp32; the compute dtype if everything is in it */
	TOOL_REDUCE_FP32,
	TOOL_REDUCE_COMPUTE,
} tool_reduce_t;

/** What the options determine. */
typedef struct tool_precision {
	srt_precision_t policy;
	srt_dtype_t stored; /* of the parameters */
} tool_precision_t;

/** Index of the word among `words`, or -1. */
int64_t tool_find_word(const char *words, const char *value);

/** The i-th of the words. @param text 16 bytes. @return text. */
const char *tool_word(const char *words, int64_t i, char text[16]);

/**
 * Resolves the options.
 * @param pure 1: parameters are stored in the compute dtype.
 * @param[out] why the error message, nwhy bytes.
 * @return 0, or -1 for `pure` with fp32.
 */
int tool_precision(tool_dtype_t dtype, int pure, tool_reduce_t reduce, tool_precision_t *precision,
		   char *why, size_t nwhy);

/**
 * Parses a value of --offload.
 * @param text "none", "all", or some of params, grads, state with commas; NULL: none.
 * @param[out] why the error message, nwhy bytes.
 * @return 0, or -1.
 */
int tool_offload(const char *text, srt_offload_t *offload, char *why, size_t nwhy);

/**
 * Parses a value of --reshard.
 * @param text "auto", "always", "never" or a number of ranks.
 * @param[out] reshard of srt_unit_options_t.
 * @param[out] why the error message, nwhy bytes.
 * @return 0, or -1.
 */
int tool_reshard(const char *text, int *reshard, char *why, size_t nwhy);

#endif
