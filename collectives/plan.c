/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory that collectives need besides their buffers, also those of a group of ranks that does
 * not exist yet: it is described here as its creation will describe it.
 */
#include "collectives/collective.h"
#include "collectives/transports/hierarchy/hierarchy.h"

/* Adds what the transports of a communicator need on comm->rank. */
static srt_status_t plan_transports(const srt_comm_t *comm, const srt_coll_uses_t *uses,
				    srt_coll_memory_t *memory)
{
	const srt_hierarchy_t *hierarchy = comm->hierarchy;
	srt_coll_uses_t flat = *uses; /* not of stages */

	flat.copies |= uses->messages;
	if (hierarchy != NULL) {
		flat.copies = uses->messages;
		flat.sums = uses->sums && !hierarchy->sums;
		flat.nsums = flat.sums ? uses->nsums : 0;
	}
	memory->scratch = flat.nsums * srt_step_reduce_scratch(comm->size);
	memory->maps_sources = comm->transport->maps_sources;
	memory->maps_messages = comm->transport->maps_sources;
	if (comm->size > 1 && comm->transport->plan != NULL)
		SRT_TRY(comm->transport->plan(comm, &flat, memory));
	return hierarchy != NULL ? hierarchy->transport->plan(comm, uses, memory) : SRT_OK;
}

srt_status_t srt_coll_plan(const srt_comm_t *parent, int *world_ranks, int nranks, int rank,
			   const srt_coll_uses_t *uses, srt_coll_memory_t *memory)
{
	char name[] = "a group";
	srt_comm_t comm = {
		.bootstrap = parent->bootstrap,
		.device = parent->device,
		.transport = &srt_transport_staged, /* of a single rank, and until one is chosen */
		.name = name,
		.rank = rank,
		.size = nranks,
		.world_rank = world_ranks,
	};
	srt_status_t status;

	*memory = (srt_coll_memory_t){ 0 };
	if (world_ranks != NULL && nranks < parent->size) {
		SRT_TRY(srt_comm_choose_transport(&comm));
		status = srt_hierarchy_describe(&comm);
		if (status == SRT_OK)
			status = plan_transports(&comm, uses, memory);
		if (comm.hierarchy != NULL)
			comm.hierarchy->destroy(comm.hierarchy);
		return status;
	}
	comm.transport = parent->transport;
	if (world_ranks != NULL)
		comm.hierarchy = parent->hierarchy;
	else if (uses->is_split && comm.transport->world_only)
		comm.transport = &srt_transport_staged;
	return plan_transports(&comm, uses, memory);
}
