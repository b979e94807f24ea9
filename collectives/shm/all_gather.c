/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-gather: each owner's shard -> everybody's full.
 *
 * Steps: publish the shard; copy the own shard to its place; for each peer, rank + 1 first: wait
 * for its publication, copy its shard; release. Bytes moved per rank: the full layout, once,
 * straight from the peers' memory. Scratch: none. Nothing is copied where the shard lies in the
 * full buffer at its own place.
 */
#include "collectives/collective.h"

static bool reads(const srt_coll_t *coll, int reader, int owner)
{
	(void)reader;
	return srt_coll_owns(coll, owner);
}

static srt_status_t begin(srt_coll_start_t *start, const srt_coll_epilogue_t *epilogue,
			  srt_stream_t *stream)
{
	srt_coll_t *coll = start->coll;
	int rank = coll->comm->rank, size = coll->comm->size;

	(void)epilogue;
	SRT_TRY(srt_step_publish(start, stream));
	SRT_TRY(srt_step_copy(coll, rank, stream));
	for (int k = 1; k < size; k++) {
		int peer = (rank + k) % size;
		if (!srt_coll_owns(coll, peer))
			continue;
		SRT_TRY(srt_step_await(start, peer, stream));
		SRT_TRY(srt_step_copy(coll, peer, stream));
	}
	return srt_step_release(start, stream);
}

const srt_coll_algorithm_t srt_coll_all_gather = {
	.name = "all-gather",
	.has_buffers = true,
	.source = SRT_SOURCE_SHARD,
	.reads = reads,
	.start = begin,
};
