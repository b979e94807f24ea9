/* SPDX-License-Identifier: BSD-3-Clause */
/* The options of shardrt-train: one table for parsing, defaults, ranges and --help. */
#ifndef SRT_TOOLS_TRAIN_OPTIONS_H
#define SRT_TOOLS_TRAIN_OPTIONS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <shardrt/engine.h>

#include "tools/precision.h"

/** Values of the option scaler. */
typedef enum train_scaler {
	TRAIN_SCALER_NONE,
	TRAIN_SCALER_PLAIN,
	TRAIN_SCALER_SHARDED
} train_scaler_t;

/** Values of the option optimizer. */
typedef enum train_optimizer {
	TRAIN_SGD,
	TRAIN_ADAM,
	TRAIN_ADAMW,
	TRAIN_MUON,
	TRAIN_ADAMW8BIT
} train_optimizer_t;

/** Values of the option decay. */
typedef enum train_decay { TRAIN_DECAY_MATRICES, TRAIN_DECAY_ALL } train_decay_t;

/** Values of the options. Strings are borrowed from argv; 0 or NULL: the default of --help. */
typedef struct train_options {
	const char *text, *tokens, *sft, *template, *val, *preset, *mesh, *offload, *reshard;
	const char *save, *checkpoint, *init, *log, *prompt;
	const char *lora, *adapter;
	int64_t layers, heads, width, context, vocab; /* 0 = the preset's, or the file's */
	int64_t tensor_parts;
	int64_t sequence_parallel;
	int64_t batch, steps, accumulate, micro_batches, warmup, decay_steps, threads, seed;
	int64_t eval_every, eval_batches, sample, generate, save_every, keep, max_shard_size;
	double lr, min_lr, beta1, beta2, momentum, muon_lr, weight_decay, clip, temperature;
	double init_scale;
	int64_t strategy, flat, optimizer, accumulate_mode, clip_p, numerics; /* indices of words */
	int64_t dtype, reduce_dtype, scaler, schedule, decay, save_dtype;     /* of words too */
	int64_t base_dtype, muon_adjust;                                      /* of words too */
	int64_t sft_show, sft_skip_bad; /* the latter a flag, as those below */
	int64_t pure, recompute, eval, resume, init_random, hash, help, version; /* flags */
} train_options_t;

/**
 * Parses the command line and checks what can be checked without data.
 * @param[out] why the error message, nwhy bytes.
 * @return 0, or -1.
 */
int train_options_parse(int argc, char **argv, train_options_t *options, char *why, size_t nwhy);

/** Prints what --help prints. */
void train_options_help(FILE *out);

/** The dtypes that these options, which train_options_parse() has checked, determine. */
tool_precision_t train_options_precision(const train_options_t *options);

/**
 * The options of the engine and of its optimizer that these options determine.
 * @param precision borrowed by the engine options.
 * @param optim set, and borrowed by the engine options.
 */
void train_options_engine(const train_options_t *options, const srt_precision_t *precision,
			  srt_optim_options_t *optim, srt_engine_options_t *engine);

/** The second group of --optimizer muon: that of matrices. `optim` is the first one's. */
srt_optim_options_t train_options_muon(const train_options_t *options,
				       const srt_optim_options_t *optim);

#endif
