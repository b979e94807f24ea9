/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Barrier: the stream goes on when all ranks' streams have come to it.
 *
 * Steps: publish, wait for all peers. No bytes, no scratch, nothing to fence.
 */
#include "collectives/collective.h"

const srt_coll_algorithm_t srt_coll_barrier = {
	.name = "barrier",
	.source = SRT_SOURCE_NONE,
	.phases = { SRT_PHASE_SIGNAL },
	.nphases = 1,
};
