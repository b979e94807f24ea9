/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside of sharded checkpoints:
 *
 *     sharded.c        which boxes of which tensors each rank has: a manifest without hashes
 *     sharded_save.c   engine -> folder; the files of a rank: sharded_files.h
 *     sharded_load.c   folder -> engine
 *     entries.h        entries of the program, of one rank and of each rank
 *     box_reader.h     parts of tensors, read from the files of a folder
 *
 * The calls of a program are collective. What can fail on one rank only is followed by a consensus.
 */
#ifndef SRT_RUNTIME_CHECKPOINT_SHARDED_H
#define SRT_RUNTIME_CHECKPOINT_SHARDED_H

#include <shardrt/checkpoint.h>

#include "runtime/checkpoint/formats/manifest.h"
#include "runtime/engine/engine.h"

/* The boxes of a rank's shard of values, of a state, or of absmax; to be freed. */
srt_status_t srt_shard_boxes(const srt_param_t *param, srt_manifest_kind_t kind, int rank,
			     srt_shard_boxes_t *shard);

/* Tensors of the engine in the order of a manifest that it writes: of each parameter the values and
 * the states, then the buffers. A parameter whose states are in 8 bits has codes of two states
 * (SRT_U8), and as state 2 the absmax of their blocks, (blocks, 2). */
typedef struct srt_saved_tensor {
	srt_param_t *param; /* NULL: of the buffer */
	srt_unit_buffer_t *buffer;
	srt_manifest_kind_t kind;
} srt_saved_tensor_t;

/* What a tensor is in a checkpoint. */
typedef struct srt_saved_form {
	srt_dtype_t dtype;
	int ndim;
	int64_t shape[SRT_MAX_DIMS];
} srt_saved_form_t;
srt_saved_form_t srt_saved_form(const srt_saved_tensor_t *saved);
/* A state of codes, or absmax. */
bool srt_saved_is_coded(const srt_saved_tensor_t *saved);

/* To be freed; NULL without memory. */
srt_saved_tensor_t *srt_saved_tensors(srt_engine_t *engine, size_t *n);

/* By file of a manifest that the engine writes: its rank, and its number among the rank's. */
typedef struct srt_saved_file {
	int rank;
	size_t part;
} srt_saved_file_t;

/* Files, tensors and boxes of all ranks, with zeros for hashes. The caller clears the manifest and
 * frees *files in any case. */
srt_status_t srt_saved_manifest(srt_engine_t *engine, const srt_saved_tensor_t *tensors, size_t n,
				srt_manifest_t *manifest, srt_saved_file_t **files);

const char *srt_group_optimizer_name(const srt_optim_options_t *group);
/* The name of all groups together: "muon" if one has it. */
const char *srt_optimizer_name(const srt_optim_t *optim);
/* Arguments and state of a public call. *options: a copy of `given`, or the defaults for NULL.
 * Local. */
srt_status_t srt_checkpoint_check(const srt_engine_t *engine, const char *call,
				  const srt_checkpoint_options_t *given,
				  srt_checkpoint_options_t *options);

#endif
