/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Barrier: the stream goes on when all ranks' streams have come to it.
 *
 * Steps: publish, wait for all peers. No bytes, no scratch, nothing to fence.
 */
#include "collectives/collective.h"

static bool reads(const srt_coll_t *coll, int reader, int owner)
{
	(void)coll;
	(void)reader;
	(void)owner;
	return false;
}

static srt_status_t begin(srt_coll_start_t *start, const srt_coll_epilogue_t *epilogue,
			  srt_stream_t *stream)
{
	(void)epilogue;
	SRT_TRY(srt_step_publish(start, stream));
	return srt_step_await_all(start, stream);
}

const srt_coll_algorithm_t srt_coll_barrier = {
	.name = "barrier",
	.source = SRT_SOURCE_NONE,
	.reads = reads,
	.start = begin,
};
