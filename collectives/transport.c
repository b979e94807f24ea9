/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which transport the collectives of a communicator use: a decision of all its ranks together, from
 * what all their devices can do. Ranks may run on devices of different kinds.
 */
#include <stdio.h>
#include <stdlib.h>

#include "collectives/comm.h"
#include "collectives/shm/staging.h"

/* What a rank says of its device. */
typedef struct ability {
	int32_t peer_memory;
	int32_t wraps_host;
	uint64_t slot_nbytes;
	char device[64];
} ability_t;

static srt_status_t choose(srt_comm_t *comm, const ability_t *all)
{
	int first = -1;

	for (int r = 0; r < comm->size && first < 0; r++) {
		if (!all[r].peer_memory)
			first = r;
	}
	comm->staged = first >= 0;
	if (!comm->staged)
		return SRT_OK;
	for (int r = 0; r < comm->size; r++) {
		if (!all[r].wraps_host)
			return srt_fail(
				SRT_ERR_UNSUPPORTED,
				"communicator \"%s\": the collectives must be staged, as "
				"device %s of rank %d has no memory that peers can map, and "
				"device %s of rank %d cannot copy to and from shared host "
				"memory",
				comm->name, all[first].device, comm->world_rank[first],
				all[r].device, comm->world_rank[r]);
		if (all[r].slot_nbytes != all[0].slot_nbytes)
			return srt_fail(
				SRT_ERR_MISMATCH,
				"communicator \"%s\": SHARDRT_STAGING_BYTES makes slots of %llu "
				"bytes on rank %d and of %llu on rank %d; set the same everywhere",
				comm->name, (unsigned long long)all[0].slot_nbytes,
				comm->world_rank[0], (unsigned long long)all[r].slot_nbytes,
				comm->world_rank[r]);
	}
	srt_log(SRT_LOG_INFO,
		"communicator \"%s\": collectives are staged: device %s of rank %d has no memory "
		"that peers can map",
		comm->name, all[first].device, comm->world_rank[first]);
	return SRT_OK;
}

srt_status_t srt_comm_choose_transport(srt_comm_t *comm)
{
	const srt_device_t *device = comm->device;
	ability_t mine = {
		.peer_memory = device->caps.peer_memory,
		.wraps_host = device->backend->mem->wrap_host != NULL,
		.slot_nbytes = srt_staging_slot_nbytes(comm->size),
	};
	ability_t *all;
	srt_status_t status;

	comm->staged = !device->caps.peer_memory;
	if (comm->size == 1)
		return SRT_OK;
	snprintf(mine.device, sizeof(mine.device), "%.63s", device->caps.name);
	all = srt_calloc((size_t)comm->size, sizeof(*all), "a communicator");
	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_comm_exchange_for(comm, "comparing devices", &mine, sizeof(mine), all);
	for (int r = 0; r < comm->size; r++)
		all[r].device[sizeof(all[r].device) - 1] = '\0';
	if (status == SRT_OK)
		status = choose(comm, all);
	free(all);
	return status;
}

srt_mem_kind_t srt_comm_mem_kind(const srt_comm_t *comm)
{
	return comm->size == 1 || comm->staged ? SRT_MEM_DEVICE : SRT_MEM_PEER;
}
