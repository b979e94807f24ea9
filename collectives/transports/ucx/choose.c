/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether the ranks of a communicator use UCX: see ucx.h. */
#include <stdio.h>

#include "collectives/collective.h"
#include "collectives/transports/capabilities.h"
#include "collectives/transports/ucx/ucx.h"

void srt_ucx_describe(const srt_comm_t *world, srt_capabilities_t *mine)
{
	if (mine->preference != SRT_PREFER_UCX && !srt_comm_spans_nodes(world))
		snprintf(mine->ucx_reason, sizeof(mine->ucx_reason),
			 "SHARDRT_COLLECTIVES is not ucx on this rank; set the same everywhere");
	else if (srt_ucx_probe() != SRT_OK)
		snprintf(mine->ucx_reason, sizeof(mine->ucx_reason), "%.191s", srt_error_last());
	else
		mine->has_ucx = 1;
}

/* The ranks are on several nodes, and something else than UCX was asked for. */
static srt_status_t fail_nodes(const srt_comm_t *comm, int refused_by)
{
	int other = 1;

	while (srt_comm_same_node(comm, 0, other))
		other++;
	return srt_fail(
		SRT_ERR_UNSUPPORTED,
		"communicator \"%s\": SHARDRT_COLLECTIVES=%s (rank %d) cannot be used: ranks "
		"%d and %d are on different nodes, or threads of one process, and only ucx "
		"connects those; set it to auto or ucx",
		comm->name, srt_preference_name(srt_capabilities_of(comm, refused_by)->preference),
		comm->world_rank[refused_by], comm->world_rank[0], comm->world_rank[other]);
}

/* Fails if a rank cannot use UCX. */
static srt_status_t check_ucx(const srt_comm_t *comm)
{
	for (int r = 0; r < comm->size; r++) {
		const srt_capabilities_t *a = srt_capabilities_of(comm, r);
		const int rank = comm->world_rank[r];

		if (!a->has_ucx)
			return srt_fail(
				SRT_ERR_UNSUPPORTED,
				"communicator \"%s\": its collectives need UCX (%s), which rank "
				"%d cannot use: %s",
				comm->name,
				srt_comm_spans_nodes(comm) ? "its ranks are on several nodes" :
							     "SHARDRT_COLLECTIVES=ucx",
				rank, a->ucx_reason);
		if (!a->host_memory && !a->wraps_host)
			return srt_fail(
				SRT_ERR_UNSUPPORTED,
				"communicator \"%s\": device %s of rank %d cannot copy to and "
				"from host memory, from which UCX sends",
				comm->name, a->device, rank);
	}
	return SRT_OK;
}

srt_status_t srt_ucx_choose(const srt_comm_t *comm, bool *is_chosen)
{
	const unsigned others =
		1u << SRT_PREFER_SHM | 1u << SRT_PREFER_STAGED | 1u << SRT_PREFER_NCCL;
	const int refused_by = srt_preference_find(comm, others);

	SRT_TRY(srt_preference_check(comm, SRT_PREFER_UCX, others));
	if (!srt_comm_spans_nodes(comm) && srt_preference_find(comm, 1u << SRT_PREFER_UCX) < 0)
		return SRT_OK;
	if (refused_by >= 0)
		return fail_nodes(comm, refused_by);
	SRT_TRY(check_ucx(comm));
	*is_chosen = true;
	return srt_capabilities_check_slots(comm);
}
