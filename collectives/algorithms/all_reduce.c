/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-reduce, in place: the sum of everybody's full -> everybody's full.
 *
 * Steps: as reduce-scatter, but the own segments are summed into the own full; then as all-gather
 * of these segments. Bytes read per rank: ranks x its segments, then the others' segments. Scratch:
 * as reduce-scatter.
 *
 * Why in place is safe without a copy: my segments of my full are read by peers only after I have
 * published the second phase; peer p's segments of my full are read only by p before it publishes
 * the second phase, and overwritten by me only after it. Staged, nobody reads full but its own rank,
 * in the order of its stream.
 */
#include "collectives/collective.h"

const srt_coll_algorithm_t srt_coll_all_reduce = {
	.name = "all-reduce",
	.reduces = true,
	.has_buffers = true,
	.source = SRT_SOURCE_FULL,
	.phases = { SRT_PHASE_SCATTER, SRT_PHASE_GATHER },
	.consume = { srt_step_reduce_round, srt_step_copy_round },
	.nphases = 2,
};
