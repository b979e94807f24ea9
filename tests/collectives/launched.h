/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a rank checks that any launcher has started: its numbers, and an all-reduce that shows that
 * each rank and each local rank is there once. For tests on one node. Two contexts, one after the
 * other. Uses public functions only: test_launchers_mpi.c is compiled by mpicc.
 */
#ifndef SRT_TESTS_LAUNCHED_H
#define SRT_TESTS_LAUNCHED_H

#include <stdio.h>
#include <stdlib.h>

#include <shardrt/shardrt.h>

#define MUST(call)                                                                                 \
	do {                                                                                       \
		if ((call) != SRT_OK) {                                                            \
			fprintf(stderr, "FAIL: %s: %s\n", #call, srt_error_last());                \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)
#define MUST_BE(condition)                                                                         \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "FAIL: %s:%d: %s\n", __FILE__, __LINE__, #condition);      \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

/* Element r, and element size + l: the sum over ranks of what rank r with local rank l adds. */
static void sum_ranks(srt_context_t *context, int size)
{
	srt_comm_t *world = srt_context_world(context);
	const size_t nelem = 2 * (size_t)size, nbytes = nelem * sizeof(float);
	const int rank = srt_context_rank(context), local = srt_context_local_rank(context);
	float *values = calloc(nelem, sizeof(float));
	srt_stream_t *stream;
	srt_buffer_t *buffer;
	srt_coll_t *coll;

	MUST_BE(values != NULL);
	MUST(srt_stream_create(srt_context_device(context), 0, "test", &stream));
	MUST(srt_buffer_create(srt_context_device(context), srt_comm_mem_kind(world), nbytes,
			       "sums", &buffer));
	values[rank] = 1.0f + (float)rank;
	values[size + local] = 1.0f;
	MUST(srt_buffer_copy_from_host(buffer, 0, values, nbytes, stream));
	const srt_coll_desc_t desc = {
		.size = sizeof(srt_coll_desc_t),
		.kind = SRT_COLL_ALL_REDUCE,
		.name = "sums",
		.dtype = SRT_F32,
		.full = srt_view(buffer, 0, SRT_F32),
		.owners = (srt_coll_owner_t[64]){ { &(srt_coll_segment_t){ 0, 0, nelem }, 1 } },
	};
	MUST(srt_coll_create(world, &desc, &coll));
	MUST(srt_coll_start(coll, NULL, stream));
	MUST(srt_buffer_copy_to_host(values, buffer, 0, nbytes, stream));
	MUST(srt_stream_sync(stream));
	for (int r = 0; r < size; r++)
		MUST_BE(values[r] == 1.0f + (float)r && values[size + r] == 1.0f);
	srt_coll_destroy(coll);
	srt_buffer_destroy(buffer);
	srt_stream_destroy(stream);
	free(values);
}

/* Returns this process's rank. rank: expected, or -1. */
static inline int check_job(const srt_context_options_t *options, int rank, int size)
{
	for (int i = 0; i < 2; i++) {
		srt_context_t *context;

		MUST(srt_context_create(options, &context));
		if (rank < 0)
			rank = srt_context_rank(context);
		MUST_BE(srt_context_rank(context) == rank);
		MUST_BE(srt_context_world_size(context) == size && size <= 64);
		MUST_BE(srt_context_local_size(context) == size);
		sum_ranks(context, size);
		srt_context_destroy(context);
	}
	return rank;
}

#endif
