/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks know of each other to choose a transport: see capabilities.h. */
#include "collectives/transports/capabilities.h"

#include <string.h>

static const char *const preference_names[] = { "auto", "shm", "staged", "nccl", "ucx" };

const char *srt_preference_name(int32_t preference)
{
	return preference_names[preference];
}

int srt_preference_find(const srt_comm_t *comm, unsigned set)
{
	for (int r = 0; r < comm->size; r++) {
		if ((set >> srt_capabilities_of(comm, r)->preference & 1) != 0)
			return r;
	}
	return -1;
}

srt_status_t srt_preference_check(const srt_comm_t *comm, srt_preference_t preference, unsigned set)
{
	const int requested_by = srt_preference_find(comm, 1u << preference);
	const int refused_by = srt_preference_find(comm, set);

	if (requested_by < 0 || refused_by < 0)
		return SRT_OK;
	return srt_fail(SRT_ERR_MISMATCH,
			"communicator \"%s\": SHARDRT_COLLECTIVES is %s on rank %d and %s on rank "
			"%d; set the same everywhere",
			comm->name, preference_names[preference], comm->world_rank[requested_by],
			preference_names[srt_capabilities_of(comm, refused_by)->preference],
			comm->world_rank[refused_by]);
}

srt_status_t srt_capabilities_check_slots(const srt_comm_t *comm)
{
	for (int r = 1; r < comm->size; r++) {
		const srt_capabilities_t *a = srt_capabilities_of(comm, 0),
					 *b = srt_capabilities_of(comm, r);

		if (a->slot_nbytes != b->slot_nbytes)
			return srt_fail(
				SRT_ERR_MISMATCH,
				"communicator \"%s\": SHARDRT_STAGING_BYTES makes slots of %llu "
				"bytes on rank %d and of %llu on rank %d; set the same everywhere",
				comm->name, (unsigned long long)a->slot_nbytes, comm->world_rank[0],
				(unsigned long long)b->slot_nbytes, comm->world_rank[r]);
	}
	return SRT_OK;
}

srt_preference_t srt_preference_get(void)
{
	const char *text = srt_config_string("SHARDRT_COLLECTIVES");

	for (int w = 0; w < SRT_NPREFERENCES; w++) {
		if (strcmp(text, preference_names[w]) == 0)
			return (srt_preference_t)w;
	}
	return SRT_PREFER_AUTO;
}
