/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Broadcast: the root's segments of its full -> the same places in everybody's full.
 *
 * Steps at the root: publish. At the others: wait for the root, copy, release. Bytes moved per
 * rank: the root's segments, once. Scratch: none.
 */
#include "collectives/collective.h"

static bool reads(const srt_coll_t *coll, int reader, int owner)
{
	(void)reader;
	return owner == coll->root && srt_coll_owns(coll, owner);
}

static srt_status_t begin(srt_coll_start_t *start, const srt_coll_epilogue_t *epilogue,
			  srt_stream_t *stream)
{
	srt_coll_t *coll = start->coll;

	(void)epilogue;
	if (coll->comm->rank == coll->root)
		return srt_step_publish(start, stream);
	if (srt_coll_owns(coll, coll->root)) {
		SRT_TRY(srt_step_await(start, coll->root, stream));
		SRT_TRY(srt_step_copy(coll, coll->root, stream));
	}
	return srt_step_release(start, stream);
}

const srt_coll_algorithm_t srt_coll_broadcast = {
	.name = "broadcast",
	.has_buffers = true,
	.source = SRT_SOURCE_FULL,
	.reads = reads,
	.start = begin,
};
