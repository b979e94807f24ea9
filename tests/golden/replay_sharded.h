/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts that replay_sharded.c and replay_sharded_add.c share. */
#ifndef SRT_TESTS_REPLAY_SHARDED_H
#define SRT_TESTS_REPLAY_SHARDED_H

#include "tests/golden/replay.h"

#define SHARDED_MAX_PARAMS 4

/* A parameter: sharded, or plain on each rank. */
typedef struct sharded_param {
	const char *name;
	int ndim;
	int64_t shape[2];
	size_t nelem;
	srt_sharded_tensor_t *value, *grad;
	srt_buffer_t *plain_value, *plain_grad;
} sharded_param_t;

typedef struct sharded_run {
	golden_t *golden;
	srt_context_t *context;
	verdict_t *verdict;
	srt_stream_t *stream;
	srt_safetensors_t *init;
	srt_shard_location_t *locations; /* ranks 0, 1 ... */
	sharded_param_t params[SHARDED_MAX_PARAMS];
	size_t nparams;
	srt_optim_t *optim;
} sharded_run_t;

/* The stream and the locations; sharded_close() also after a failure. */
srt_status_t sharded_open(sharded_run_t *r);
void sharded_close(sharded_run_t *r);
/* Device memory with these values. */
srt_status_t sharded_upload(sharded_run_t *r, const float *values, size_t n, srt_buffer_t **buffer);
/* Chunks of a dimension, one on each rank. */
srt_sharding_t sharded_chunks(const sharded_run_t *r, int dim);
/* The optimizer of the case over the parameters. */
srt_status_t sharded_create_optimizer(sharded_run_t *r);
/* Compares a plain tensor with a recorded one. */
srt_status_t sharded_compare_plain(sharded_run_t *r, const srt_safetensors_t *file, const char *key,
				   srt_buffer_t *buffer, size_t n);
/* param + shard + input, with this rank's shard: one step. */
srt_status_t sharded_run_add(sharded_run_t *r);
void sharded_free(sharded_run_t *r);

#endif
