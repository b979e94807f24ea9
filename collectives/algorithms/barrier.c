/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Barrier: the stream continues when all ranks' streams have reached it.
 *
 * Steps: publish, wait for all peers. No bytes, no scratch, no readers.
 */
#include "collectives/collective.h"

const srt_coll_algorithm_t srt_coll_barrier = {
	.name = "barrier",
	.source = SRT_SOURCE_NONE,
	.phases = { SRT_PHASE_SIGNAL },
	.nphases = 1,
};
