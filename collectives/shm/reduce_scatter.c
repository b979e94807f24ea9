/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduce-scatter: the sum of everybody's full -> the owner's shard.
 *
 * Steps: offer full; in each round: wait for all peers; sum the own segments from all ranks' memory
 * in the tree's order, with the epilogue, into the shard; release. Bytes read per rank: ranks x its
 * shard, in one pass. Scratch: none up to 8 ranks (shm/reduce.c). Staged, the other owners'
 * segments go to the staging memory and the peers' part of the round to scratch before the sum.
 */
#include "collectives/collective.h"

static srt_status_t begin(srt_coll_start_t *start, const srt_coll_epilogue_t *epilogue,
			  srt_stream_t *stream)
{
	srt_coll_t *coll = start->coll;

	SRT_TRY(srt_step_offer(start, 0, stream));
	for (uint32_t i = 0; i < coll->nrounds; i++) {
		SRT_TRY(srt_step_offer_next(start, i, stream));
		SRT_TRY(srt_step_await(start, i, stream));
		SRT_TRY(srt_step_reduce(start, i, &coll->shard, epilogue, stream));
		SRT_TRY(srt_step_release(start, i, stream));
	}
	return SRT_OK;
}

const srt_coll_algorithm_t srt_coll_reduce_scatter = {
	.name = "reduce-scatter",
	.reduces = true,
	.has_buffers = true,
	.source = SRT_SOURCE_FULL,
	.flows = { SRT_FLOW_SCATTER },
	.nflows = 1,
	.start = begin,
};
