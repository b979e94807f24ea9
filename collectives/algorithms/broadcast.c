/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Broadcast: the root's segments of its full -> the same segments of all ranks' full.
 *
 * Steps: the root offers; in each round the others wait for it, copy, release. Bytes moved per
 * rank: the root's segments, once. Scratch: none.
 */
#include "collectives/collective.h"

const srt_coll_algorithm_t srt_coll_broadcast = {
	.name = "broadcast",
	.has_buffers = true,
	.has_root = true,
	.source = SRT_SOURCE_FULL,
	.phases = { SRT_PHASE_GATHER },
	.consume = { srt_step_copy_round },
	.nphases = 1,
};
