/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-reduce, in place: the sum of everybody's full -> everybody's full.
 *
 * Steps: as reduce-scatter, but the own segments are summed into the own full; then as all-gather
 * of these segments. Bytes read per rank: ranks x its segments, then the others' segments. Scratch:
 * as reduce-scatter.
 *
 * Why in place is safe without a copy: my segments of my full are read by peers only after I have
 * published the second flow; peer p's segments of my full are read only by p before it publishes
 * the second flow, and overwritten by me only after it. Staged, nobody reads full but its own rank,
 * in the order of its stream.
 */
#include "collectives/collective.h"

static srt_status_t begin(srt_coll_start_t *start, const srt_coll_epilogue_t *epilogue,
			  srt_stream_t *stream)
{
	srt_coll_t *coll = start->coll;
	uint32_t summed = coll->flow_begin[1];

	SRT_TRY(srt_step_offer(start, 0, stream));
	for (uint32_t i = 0; i < summed; i++) {
		SRT_TRY(srt_step_offer_next(start, i, stream));
		SRT_TRY(srt_step_await(start, i, stream));
		SRT_TRY(srt_step_reduce(start, i, &coll->full, epilogue, stream));
		SRT_TRY(srt_step_release(start, i, stream));
	}
	SRT_TRY(srt_step_offer(start, summed, stream));
	for (uint32_t i = summed; i < coll->nrounds; i++) {
		SRT_TRY(srt_step_offer_next(start, i, stream));
		SRT_TRY(srt_step_await(start, i, stream));
		SRT_TRY(srt_step_copy_peers(start, i, stream));
		SRT_TRY(srt_step_release(start, i, stream));
	}
	return SRT_OK;
}

const srt_coll_algorithm_t srt_coll_all_reduce = {
	.name = "all-reduce",
	.reduces = true,
	.has_buffers = true,
	.source = SRT_SOURCE_FULL,
	.flows = { SRT_FLOW_SCATTER, SRT_FLOW_GATHER },
	.nflows = 2,
	.start = begin,
};
