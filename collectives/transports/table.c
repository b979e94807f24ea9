/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of transports, and which of them a communicator has. All its ranks make the same
 * choice, from the capabilities of all their devices (capabilities.h).
 */
#include <stdio.h>
#include <stdlib.h>

#include "collectives/collective.h"
#include "collectives/transports/capabilities.h"
#include "collectives/transports/hierarchy/hierarchy.h"

/* The first one that its ranks can use. */
static const srt_transport_t *const transports[] = {
	&srt_transport_ucx,
	&srt_transport_nccl,
	&srt_transport_staged,
	&srt_transport_zero_copy,
};

srt_status_t srt_comm_gather_capabilities(srt_comm_t *world)
{
	static const char what[] = "comparing devices";
	const srt_device_t *device = world->device;
	srt_capabilities_t mine = {
		.peer_memory = device->caps.peer_memory,
		.peer_begin = device->caps.peer_begin,
		.host_memory = device->caps.host_memory,
		.preference = srt_preference_get(),
		.wraps_host = device->backend->mem->wrap_host != NULL,
	};
	srt_capabilities_t *all;
	srt_status_t status;

	if (world->size == 1)
		return SRT_OK;
	snprintf(mine.device, sizeof(mine.device), "%.63s", device->caps.name);
	snprintf(mine.peer_kind, sizeof(mine.peer_kind), "%.15s", device->caps.peer_kind);
	for (size_t i = 0; i < SRT_ARRAY_LEN(transports); i++) {
		if (transports[i]->describe != NULL)
			transports[i]->describe(world, &mine);
	}
	all = srt_comm_calloc(world, (size_t)world->size, sizeof(*all), what);
	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_comm_oob_allgather_for(world, what, &mine, sizeof(mine), all);
	for (int r = 0; r < world->size; r++) {
		all[r].device[sizeof(all[r].device) - 1] = '\0';
		all[r].peer_kind[sizeof(all[r].peer_kind) - 1] = '\0';
		all[r].library_name[sizeof(all[r].library_name) - 1] = '\0';
		all[r].reason[sizeof(all[r].reason) - 1] = '\0';
		all[r].ucx_reason[sizeof(all[r].ucx_reason) - 1] = '\0';
		if (all[r].preference < 0 || all[r].preference >= SRT_NPREFERENCES)
			all[r].preference = SRT_PREFER_AUTO;
	}
	free(world->bootstrap->capabilities);
	world->bootstrap->capabilities = all;
	return status;
}

srt_status_t srt_comm_choose_transport(srt_comm_t *comm)
{
	bool is_chosen = comm->size == 1;

	for (size_t i = 0; i < SRT_ARRAY_LEN(transports) && !is_chosen; i++) {
		const srt_transport_t *transport = transports[i];

		is_chosen = transport->choose == NULL;
		if (!is_chosen)
			SRT_TRY(transport->choose(comm, &is_chosen));
		if (is_chosen)
			comm->transport = transport;
	}
	return SRT_OK;
}

const srt_transport_t *srt_coll_transport(const srt_comm_t *comm,
					  const srt_coll_algorithm_t *algorithm)
{
	/* A collective that moves no bytes between ranks needs only flags, if there are any. */
	if (comm->size == 1 || (!algorithm->has_buffers && !comm->transport->spans_nodes))
		return &srt_transport_zero_copy;
	if (comm->hierarchy != NULL && algorithm->has_buffers && !algorithm->has_pairs &&
	    (!algorithm->reduces || comm->hierarchy->sums))
		return comm->hierarchy->transport;
	return comm->transport;
}

bool srt_comm_zero_copy(const srt_comm_t *comm)
{
	return comm->size > 1 && comm->transport->maps_sources;
}

srt_mem_kind_t srt_comm_mem_kind(const srt_comm_t *comm)
{
	if (comm != NULL && comm->hierarchy != NULL)
		comm = comm->hierarchy->local;
	return comm != NULL && srt_comm_zero_copy(comm) ? SRT_MEM_PEER : SRT_MEM_DEVICE;
}

const char *srt_comm_transport(const srt_comm_t *comm)
{
	if (comm == NULL)
		return "";
	if (comm->size == 1)
		return "none";
	return comm->hierarchy != NULL ? comm->hierarchy->transport->name : comm->transport->name;
}

srt_mem_kind_t srt_comm_gathered_kind(const srt_comm_t *comm)
{
	return comm != NULL && comm->hierarchy != NULL ? srt_comm_mem_kind(comm) : SRT_MEM_DEVICE;
}
