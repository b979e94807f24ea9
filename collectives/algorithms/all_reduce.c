/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-reduce, in place: the sum of all ranks' full -> all ranks' full.
 *
 * Steps: as reduce-scatter, but a rank sums its segments into its full; then as all-gather of these
 * segments. Bytes read per rank: ranks x its segments, then the others' segments. Scratch: as
 * reduce-scatter. Zero copy, with coll->pushes_sums: a rank writes each tile of the sum to all
 * ranks' full, so it reads and writes ranks x its segments, and the second phase only waits.
 *
 * In place is safe without a copy. Peers read my segments of my full only after I have published
 * the second phase. Peer p's segments of my full are read only by p, before it publishes the second
 * phase, and I overwrite them only after that; or p writes them itself. Staged, only its own rank
 * reads full, in the order of its stream.
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
