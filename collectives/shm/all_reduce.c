/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-reduce, in place: the sum of everybody's full -> everybody's full.
 *
 * Steps: publish full; wait for all peers; sum the own segments from all ranks' memory in the
 * tree's order into the own full; publish again; for each peer, rank + 1 first: wait for its
 * second publication, copy its segments; release. Bytes read per rank: ranks x its segments, then
 * the others' segments. Scratch: none up to 8 ranks (shm/reduce.c).
 *
 * Why in place is safe: my segments of my full are read by peers only after my second publication;
 * peer p's segments of my full are read only by p before its second publication, and overwritten by
 * me only after it.
 */
#include "collectives/collective.h"

static bool reads(const srt_coll_t *coll, int reader, int owner)
{
	return srt_coll_owns(coll, reader) || srt_coll_owns(coll, owner);
}

static srt_status_t begin(srt_coll_start_t *start, const srt_coll_epilogue_t *epilogue,
			  srt_stream_t *stream)
{
	srt_coll_t *coll = start->coll;
	int rank = coll->comm->rank, size = coll->comm->size;

	SRT_TRY(srt_step_publish(start, stream));
	if (srt_coll_owns(coll, rank)) {
		SRT_TRY(srt_step_await_all(start, stream));
		SRT_TRY(srt_step_reduce(coll, &coll->full, epilogue, stream));
		SRT_TRY(srt_step_publish2(start, stream));
	}
	for (int k = 1; k < size; k++) {
		int peer = (rank + k) % size;
		if (!srt_coll_owns(coll, peer))
			continue;
		SRT_TRY(srt_step_await2(start, peer, stream));
		SRT_TRY(srt_step_copy(coll, peer, stream));
	}
	return srt_step_release(start, stream);
}

const srt_coll_algorithm_t srt_coll_all_reduce = {
	.name = "all-reduce",
	.reduces = true,
	.has_buffers = true,
	.source = SRT_SOURCE_FULL,
	.reads = reads,
	.start = begin,
};
