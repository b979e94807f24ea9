/* SPDX-License-Identifier: BSD-3-Clause */
/* The algorithm of each kind of collective. */
#include "collectives/collective.h"

const srt_coll_algorithm_t *srt_coll_algorithm(srt_coll_kind_t kind)
{
	static const srt_coll_algorithm_t *const table[] = {
		[SRT_COLL_ALL_GATHER] = &srt_coll_all_gather,
		[SRT_COLL_REDUCE_SCATTER] = &srt_coll_reduce_scatter,
		[SRT_COLL_ALL_REDUCE] = &srt_coll_all_reduce,
		[SRT_COLL_BROADCAST] = &srt_coll_broadcast,
		[SRT_COLL_BARRIER] = &srt_coll_barrier,
		[SRT_COLL_ALL_TO_ALL] = &srt_coll_all_to_all,
		[SRT_COLL_SEND_RECV] = &srt_coll_send_recv,
	};

	return (size_t)kind < SRT_ARRAY_LEN(table) ? table[kind] : NULL;
}
