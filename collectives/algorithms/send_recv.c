/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-to-all and send-recv: messages from the senders' full to the receivers' shard. They differ
 * only in how the messages are described (collectives/persistent/messages.c).
 *
 * Steps: offer full; in each round: wait for the ranks that send to this rank, copy their messages
 * to shard, release. Bytes moved per rank: what it receives, once, from the peers' memory; staged,
 * also what it sends, to the bounce buffers. Scratch: none.
 */
#include "collectives/collective.h"

const srt_coll_algorithm_t srt_coll_all_to_all = {
	.name = "all-to-all",
	.has_buffers = true,
	.has_pairs = true,
	.source = SRT_SOURCE_FULL,
	.phases = { SRT_PHASE_PAIRS },
	.consume = { srt_step_copy_round },
	.nphases = 1,
};

const srt_coll_algorithm_t srt_coll_send_recv = {
	.name = "send-recv",
	.has_buffers = true,
	.has_pairs = true,
	.source = SRT_SOURCE_FULL,
	.phases = { SRT_PHASE_PAIRS },
	.consume = { srt_step_copy_round },
	.nphases = 1,
};
