/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether the ranks of a communicator use NCCL: see nccl.h. */
#include <stdio.h>
#include <string.h>

#include "collectives/transports/capabilities.h"
#include "collectives/transports/nccl/nccl.h"

void srt_nccl_describe(const srt_comm_t *world, srt_capabilities_t *mine)
{
	const srt_device_t *device = world->device;
	const srt_backend_comm_ops_t *ops = device->backend->comm;
	srt_comm_description_t description = { 0 };

	mine->fast = device->numerics == SRT_NUMERICS_FAST;
	if (ops == NULL) {
		snprintf(mine->reason, sizeof(mine->reason),
			 "backend %s has no library for collectives", device->backend->name);
		return;
	}
	snprintf(mine->library_name, sizeof(mine->library_name), "%s", ops->name);
	mine->has_table = 1;
	if (mine->preference != SRT_PREFER_AUTO && mine->preference != SRT_PREFER_NCCL)
		return;
	mine->has_library = ops->probe(device->impl, &description) == SRT_OK;
	if (!mine->has_library)
		snprintf(mine->reason, sizeof(mine->reason), "%.191s", srt_error_last());
	mine->library_version = description.version;
	memcpy(mine->device_id, description.device_id, sizeof(mine->device_id));
	mine->driver_overhead = description.driver_overhead;
}

/* Why the ranks cannot use NCCL together; "": they can. */
static void explain_not_nccl(const srt_comm_t *comm, char *why, size_t n)
{
	why[0] = '\0';
	for (int r = 0; r < comm->size; r++) {
		const srt_capabilities_t *a = srt_capabilities_of(comm, 0),
					 *b = srt_capabilities_of(comm, r);
		int rank = comm->world_rank[r];

		if (!b->has_library)
			snprintf(why, n, "device %s of rank %d: %s", b->device, rank, b->reason);
		else if (strcmp(a->library_name, b->library_name) != 0 ||
			 a->library_version != b->library_version)
			snprintf(why, n, "rank %d has %s %u, rank %d has %s %u",
				 comm->world_rank[0], a->library_name, (unsigned)a->library_version,
				 rank, b->library_name, (unsigned)b->library_version);
		for (int q = 0; q < r && why[0] == '\0'; q++) {
			/* With SHARDRT_COLLECTIVES=nccl, NCCL decides whether this works. */
			if (b->preference != SRT_PREFER_NCCL &&
			    memcmp(srt_capabilities_of(comm, q)->device_id, b->device_id,
				   sizeof(b->device_id)) == 0)
				snprintf(why, n, "ranks %d and %d share device %s",
					 comm->world_rank[q], rank, b->device);
		}
		if (why[0] != '\0')
			return;
	}
}

srt_status_t srt_nccl_choose(const srt_comm_t *comm, bool *is_chosen)
{
	char why[320];
	const unsigned others = 1u << SRT_PREFER_SHM | 1u << SRT_PREFER_STAGED;
	const int requested_by = srt_preference_find(comm, 1u << SRT_PREFER_NCCL);

	SRT_TRY(srt_preference_check(comm, SRT_PREFER_NCCL, others));
	if (srt_preference_find(comm, others) >= 0 || !comm->is_world)
		return SRT_OK;
	explain_not_nccl(comm, why, sizeof(why));
	if (why[0] != '\0' && requested_by >= 0)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"communicator \"%s\": SHARDRT_COLLECTIVES=nccl cannot be used: %s",
				comm->name, why);
	if (why[0] != '\0') {
		srt_log(SRT_LOG_DEBUG, "communicator \"%s\": NCCL is not used: %s", comm->name,
			why);
		return SRT_OK;
	}
	*is_chosen = true;
	return srt_capabilities_check_slots(comm);
}

bool srt_nccl_all_fast(const srt_comm_t *comm)
{
	for (int r = 0; r < comm->size; r++) {
		if (!srt_capabilities_of(comm, r)->fast)
			return false;
	}
	return true;
}

bool srt_nccl_may_stage(const srt_comm_t *comm)
{
	for (int r = 0; r < comm->size; r++) {
		if (!srt_capabilities_of(comm, r)->wraps_host)
			return false;
	}
	return srt_preference_find(comm, 1u << SRT_PREFER_NCCL) < 0;
}
