/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Broadcast: the root's segments of its full -> the same places in everybody's full.
 *
 * Steps: the root offers; in each round the others wait for it, copy, release. Bytes moved per
 * rank: the root's segments, once. Scratch: none.
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
		SRT_TRY(srt_step_copy_peers(start, i, stream));
		SRT_TRY(srt_step_release(start, i, stream));
	}
	return SRT_OK;
}

const srt_coll_algorithm_t srt_coll_broadcast = {
	.name = "broadcast",
	.has_buffers = true,
	.has_root = true,
	.source = SRT_SOURCE_FULL,
	.flows = { SRT_FLOW_GATHER },
	.nflows = 1,
	.start = begin,
};
