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

const srt_coll_algorithm_t srt_coll_all_gather = {
	.name = "all-gather",
	.has_buffers = true,
	.source = SRT_SOURCE_SHARD,
	.phases = { SRT_PHASE_GATHER },
	.consume = { srt_step_copy_round },
	.nphases = 1,
};
