/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fixture of the tests of sharded tensors: a rank's context and stream, random shardings that
 * are the same on all ranks, and comparison of a rank's shards with a whole tensor.
 */
#ifndef SRT_TESTS_TENSOR_CASE_H
#define SRT_TESTS_TENSOR_CASE_H

#include <shardrt/shardrt.h>

#include "tests/harness/check.h"

#define TENSOR_MAX_SHARDS 24

typedef struct tensor_case {
	srt_context_t *context;
	srt_stream_t *stream;
	int rank, world;
} tensor_case_t;

/* The call fails with this status and a sentence that has these words. */
#define REFUSED(call, code, words)                                                                 \
	do {                                                                                       \
		CHECK_STATUS(call, code);                                                          \
		CHECK_ERROR_HAS(words);                                                            \
	} while (0)

void tensor_case_open(tensor_case_t *c);
void tensor_case_close(tensor_case_t *c);

/* A sharding with memory for its tables. */
typedef struct tensor_sharding {
	srt_sharding_t sharding;
	srt_shard_location_t locations[TENSOR_MAX_SHARDS];
	srt_shard_t shards[TENSOR_MAX_SHARDS];
} tensor_sharding_t;

/* A tensor of the world; to be destroyed. */
srt_sharded_tensor_t *tensor_create(tensor_case_t *c, const char *name, srt_dtype_t dtype, int ndim,
				    const int64_t *shape, const srt_sharding_t *sharding);

/* Chunks of one dimension on ranks 0, 1 ... nranks - 1. */
void tensor_chunks(tensor_sharding_t *s, int dim, int nranks);
/* Chunks or boxes on random locations of the world, by tests/harness/random.h: some ranks have
 * several shards, some none, some shards are empty or on the host. */
void tensor_random_sharding(tensor_sharding_t *s, const tensor_case_t *c, int ndim,
			    const int64_t *shape);

/* Memory of the context's device with these bytes; nbytes may be 0. */
srt_buffer_t *tensor_upload(tensor_case_t *c, const void *bytes, size_t nbytes);

/* Random bytes, the same on all ranks, to be freed. */
unsigned char *tensor_random_bytes(size_t nbytes);

/* The elements of a shard, out of the whole tensor on the host. */
void tensor_cut(const srt_shard_t *shard, int ndim, const int64_t *shape, size_t size,
		const unsigned char *whole, unsigned char *part);
/* This rank's shards have the elements of the whole tensor. */
void tensor_check(tensor_case_t *c, const srt_sharded_tensor_t *tensor, const void *whole,
		  const char *what);
/* Sets this rank's shards from the whole tensor. */
void tensor_set(tensor_case_t *c, srt_sharded_tensor_t *tensor, const void *whole);

#endif
