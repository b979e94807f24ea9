/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Barrier: the stream goes on when all ranks' streams have come to it.
 *
 * Steps: publish, wait for all peers. No bytes, no scratch, nothing to fence.
 */
#include "collectives/collective.h"

static srt_status_t begin(srt_coll_start_t *start, const srt_coll_epilogue_t *epilogue,
			  srt_stream_t *stream)
{
	(void)epilogue;
	SRT_TRY(srt_step_offer(start, 0, stream));
	return srt_step_await(start, 0, stream);
}

const srt_coll_algorithm_t srt_coll_barrier = {
	.name = "barrier",
	.source = SRT_SOURCE_NONE,
	.flows = { SRT_FLOW_SIGNAL },
	.nflows = 1,
	.start = begin,
};
