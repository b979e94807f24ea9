/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduce-scatter: the sum of all ranks' full -> the owner's shard.
 *
 * Steps: offer full; in each round: wait for all peers; sum this rank's segments of all ranks'
 * memory in the tree's order, with the epilogue, into the shard; release. Bytes read per rank:
 * ranks x its shard, in one pass. Scratch: none up to 8 ranks (tree_sum.c). Staged, the other
 * owners' segments are copied to the bounce buffers, and the peers' parts of the round to scratch
 * before the sum.
 */
#include "collectives/collective.h"

const srt_coll_algorithm_t srt_coll_reduce_scatter = {
	.name = "reduce-scatter",
	.reduces = true,
	.has_buffers = true,
	.source = SRT_SOURCE_FULL,
	.phases = { SRT_PHASE_SCATTER },
	.consume = { srt_step_reduce_round },
	.nphases = 1,
};
