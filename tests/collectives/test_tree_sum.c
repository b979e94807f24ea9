/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sums over many ranks, one rank's part without the others: a reduce-scatter whose transport finds
 * the parts of all ranks in one buffer. The bits are those of the tree's recursive definition, and
 * the scratch has as many bytes as srt_step_reduce_scratch() says.
 */
#include <stdlib.h>

#include "collectives/collective.h"
#include "tests/harness/device.h"
#include "tests/harness/half.h"
#include "tests/harness/random.h"

#define TILE_NELEM 32768 /* of tree_sum.c */

typedef struct sum_case {
	srt_coll_t coll;
	srt_coll_start_t start;
	srt_comm_t comm;
	srt_stream_t *stream;
	size_t nelem;
	srt_buffer_t *parts, *result;
	void *values; /* host, [size][nelem] of the dtype */
} sum_case_t;

static size_t one_round(const srt_coll_t *coll, srt_phase_t phase)
{
	(void)coll;
	(void)phase;
	return SIZE_MAX;
}

static srt_status_t acquire(srt_coll_start_t *start, uint32_t round, int peer, srt_stream_t *stream)
{
	(void)start;
	(void)round;
	(void)peer;
	(void)stream;
	return SRT_OK;
}

static srt_view_t locate(const srt_coll_start_t *start, uint32_t round, int peer,
			 const srt_chunk_t *chunk)
{
	const srt_coll_t *coll = start->coll;
	const size_t at = (size_t)peer * coll->owner[0].nbytes;

	(void)round;
	return srt_view(coll->full.buffer, at + chunk->full_offset, coll->dtype);
}

static const srt_transport_t transport = {
	.round_nbytes = one_round,
	.acquire = acquire,
	.locate = locate,
};

/* By the recursive definition over ranks [lo, hi): cut at the largest power of two below n. */
static float tree(const sum_case_t *c, int lo, int hi, size_t i, float predivisor)
{
	volatile float sum = half_get(c->coll.dtype, c->values, (size_t)lo * c->nelem + i);
	int half = 1;

	if (hi - lo == 1)
		return sum / predivisor;
	while (half * 2 < hi - lo)
		half *= 2;
	sum = tree(c, lo, lo + half, i, predivisor) + tree(c, lo + half, hi, i, predivisor);
	return sum;
}

static void check_sum(srt_device_t *device, srt_dtype_t dtype, int size, size_t nelem)
{
	const size_t elem = srt_dtype_size(dtype), nbytes = nelem * elem;
	const srt_coll_epilogue_t epilogue = {
		.size = sizeof(srt_coll_epilogue_t),
		.divisor = 3.0f,
		.predivisor = dtype == SRT_F32 ? 2.0f : 1.0f,
	};
	const srt_extent_t extent = { .nbytes = nbytes };
	srt_extents_t owner = { .extents = &extent, .nextents = 1, .nbytes = nbytes };
	sum_case_t c = { .nelem = nelem, .stream = test_stream(device, "sums") };
	void *got = calloc(nelem, elem);
	size_t wrong = 0;

	c.values = calloc((size_t)size * nelem, elem);
	CHECK_OR_DIE(got != NULL && c.values != NULL);
	for (size_t i = 0; i < (size_t)size * nelem; i++)
		half_put(dtype, c.values, i, random_float());
	c.parts = test_buffer(device, (size_t)size * nbytes, "parts");
	c.result = test_buffer(device, nbytes, "result");
	test_put(c.stream, c.parts, 0, c.values, (size_t)size * nbytes);
	c.comm = (srt_comm_t){ .size = size, .device = device };
	c.coll = (srt_coll_t){
		.comm = &c.comm,
		.algorithm = &srt_coll_reduce_scatter,
		.kind = SRT_COLL_REDUCE_SCATTER,
		.transport = &transport,
		.dtype = dtype,
		.elem_nbytes = elem,
		.owner = &owner,
		.full = srt_view(c.parts, 0, dtype),
		.shard = srt_view(c.result, 0, dtype),
		.scratch = test_buffer(device, srt_step_reduce_scratch(size), "scratch"),
		.nrounds = 1,
	};
	c.start.coll = &c.coll;
	CHECK_OK(srt_step_reduce_round(&c.start, 0, &epilogue, c.stream));
	test_get(c.stream, got, c.result, 0, nbytes);
	for (size_t i = 0; i < nelem; i++) {
		/* In 16 bits the sum is rounded, then divided. */
		volatile float sum = half_round(dtype, tree(&c, 0, size, i, epilogue.predivisor));

		sum = half_round(dtype, sum / epilogue.divisor);
		wrong += half_get(dtype, got, i) != sum;
	}
	CHECK_INT(wrong, 0);
	srt_buffer_destroy(c.coll.scratch);
	srt_buffer_destroy(c.result);
	srt_buffer_destroy(c.parts);
	srt_stream_destroy(c.stream);
	free(c.values);
	free(got);
}

int main(void)
{
	static const int sizes[] = { 9, 16, 63, 64, 65, 72, 73, 511, 512, 513, 520, 585, 4096 };
	srt_device_t *device = test_device(2, "threads");

	for (size_t i = 0; i < SRT_ARRAY_LEN(sizes); i++) {
		check_sum(device, SRT_F32, sizes[i], 3);
		check_sum(device, SRT_BF16, sizes[i], 3);
	}
	check_sum(device, SRT_F32, 65, TILE_NELEM + 5);
	/* 8 sums of each level, and one more. */
	CHECK_INT(srt_step_reduce_scratch(4096), (8 + 8 + 8 + 1) * TILE_NELEM * sizeof(float));
	CHECK_INT(srt_step_reduce_scratch(9), (2 + 1) * TILE_NELEM * sizeof(float));
	CHECK_INT(srt_step_reduce_scratch(8), 0);
	srt_device_close(device);
	return check_done();
}
