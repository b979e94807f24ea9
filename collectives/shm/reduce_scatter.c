/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduce-scatter: the sum of everybody's full -> the owner's shard.
 *
 * Steps: publish full; wait for all peers; sum the own segments from all ranks' memory in the
 * tree's order, with the epilogue, into the shard; release. Bytes read per rank: ranks x its
 * shard, in one pass. Scratch: none up to 8 ranks (shm/reduce.c).
 */
#include "collectives/collective.h"

static bool reads(const srt_coll_t *coll, int reader, int owner)
{
	(void)owner;
	return srt_coll_owns(coll, reader);
}

static srt_status_t begin(srt_coll_start_t *start, const srt_coll_epilogue_t *epilogue,
			  srt_stream_t *stream)
{
	srt_coll_t *coll = start->coll;

	SRT_TRY(srt_step_publish(start, stream));
	if (srt_coll_owns(coll, coll->comm->rank)) {
		SRT_TRY(srt_step_await_all(start, stream));
		SRT_TRY(srt_step_reduce(coll, &coll->shard, epilogue, stream));
	}
	return srt_step_release(start, stream);
}

const srt_coll_algorithm_t srt_coll_reduce_scatter = {
	.name = "reduce-scatter",
	.reduces = true,
	.has_buffers = true,
	.source = SRT_SOURCE_FULL,
	.reads = reads,
	.start = begin,
};
