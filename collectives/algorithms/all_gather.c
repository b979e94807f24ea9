/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-gather: each owner's shard -> all ranks' full.
 *
 * Steps: offer the shard; in each round: wait for all owners, copy their parts to full, release.
 * Bytes moved per rank: the full layout, once, from the peers' memory; staged, also its shard, to
 * the bounce buffers. Scratch: none. A shard that is part of the full buffer is not copied.
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
