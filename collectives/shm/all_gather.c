/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-gather: each owner's shard -> everybody's full.
 *
 * Steps: offer the shard; in each round: wait for all owners, copy their parts to their places,
 * release. Bytes moved per rank: the full layout, once, straight from the peers' memory; staged,
 * also its shard, to the staging memory. Scratch: none. Nothing is copied where the shard lies in
 * the full buffer at its own place.
 */
#include "collectives/collective.h"

static srt_status_t begin(srt_coll_start_t *start, const srt_coll_epilogue_t *epilogue,
			  srt_stream_t *stream)
{
	(void)epilogue;
	SRT_TRY(srt_step_offer(start, 0, stream));
	for (uint32_t i = 0; i < start->coll->nrounds; i++) {
		SRT_TRY(srt_step_offer_next(start, i, stream));
		SRT_TRY(srt_step_await(start, i, stream));
		if (i == 0)
			SRT_TRY(srt_step_copy_own(start, stream));
		SRT_TRY(srt_step_copy_peers(start, i, stream));
		SRT_TRY(srt_step_release(start, i, stream));
	}
	return SRT_OK;
}

const srt_coll_algorithm_t srt_coll_all_gather = {
	.name = "all-gather",
	.has_buffers = true,
	.source = SRT_SOURCE_SHARD,
	.flows = { SRT_FLOW_GATHER },
	.nflows = 1,
	.start = begin,
};
