/* SPDX-License-Identifier: BSD-3-Clause */
/* Bounce buffers: see bounce.h. */
#include <stdlib.h>

#include "collectives/comm.h"
#include "collectives/transports/staged/bounce.h"

/* Alignment of a rank's part of a slot, and the least that it needs. */
#define PART_ALIGN ((size_t)64)

size_t srt_staging_slot_nbytes(int nranks)
{
	size_t nbytes = srt_align_up(srt_config_size("SHARDRT_STAGING_BYTES"), PART_ALIGN);
	size_t least = (size_t)(nranks > 1 ? nranks - 1 : 1) * PART_ALIGN;

	return nbytes > least ? nbytes : least;
}

size_t srt_staging_part_nbytes(size_t nbytes, int nranks)
{
	return nbytes / (size_t)(nranks - 1) / PART_ALIGN * PART_ALIGN;
}

size_t srt_staging_nbytes(int nranks, srt_bounce_kind_t kind)
{
	return srt_staging_slot_nbytes(nranks) * (SRT_STAGING_NSLOTS + (kind == SRT_BOUNCE_SUM));
}

size_t srt_staging_mapped_nbytes(int nranks)
{
	return srt_staging_slot_nbytes(nranks) * SRT_STAGING_NSLOTS * (size_t)(nranks - 1);
}

uint32_t srt_bounce_id(const srt_comm_t *comm, srt_bounce_kind_t kind)
{
	const srt_staged_comm_t *staged = comm->transport_data;

	return staged->bounce[kind] != NULL ? staged->bounce[kind]->id : 0;
}

void srt_bounce_release(srt_bounce_t *bounce)
{
	srt_staged_comm_t *staged;
	srt_comm_t *comm;

	if (bounce == NULL || --bounce->nusers > 0)
		return;
	comm = bounce->comm;
	staged = comm->transport_data;
	if (staged->bounce[bounce->kind] == bounce)
		staged->bounce[bounce->kind] = NULL;
	srt_buffer_destroy(bounce->scratch);
	for (int r = 0; r < comm->size; r++) {
		if (bounce->segment != NULL)
			srt_buffer_destroy(bounce->segment[r]);
		if (bounce->memory != NULL)
			srt_shm_release(bounce->memory[r]);
	}
	srt_shm_release(bounce->flag_memory);
	free(bounce->segment);
	free(bounce->memory);
	free(bounce);
}

/* Creates the device's buffers of the shared memory, and the scratch. */
static srt_status_t wrap_memory(srt_bounce_t *bounce)
{
	srt_comm_t *comm = bounce->comm;

	for (int r = 0; r < comm->size; r++)
		SRT_TRY(srt_buffer_wrap_host(comm->device, bounce->memory[r]->base,
					     bounce->memory[r]->nbytes, r == comm->rank,
					     "staging of collectives", &bounce->segment[r]));
	if (bounce->kind != SRT_BOUNCE_SUM)
		return SRT_OK;
	return srt_buffer_create(comm->device, SRT_MEM_DEVICE, bounce->slot_nbytes,
				 "parts of a staged sum", &bounce->scratch);
}

static srt_status_t create_bounce(srt_comm_t *comm, srt_bounce_kind_t kind, const char *what,
				  srt_bounce_t **out)
{
	srt_staged_comm_t *staged = comm->transport_data;
	size_t n = (size_t)comm->size;
	srt_bounce_t *bounce = srt_comm_calloc(comm, 1, sizeof(*bounce), what);
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	if (bounce == NULL)
		return status;
	bounce->comm = comm;
	bounce->kind = kind;
	bounce->id = ++staged->nbounce;
	bounce->nusers = 1;
	bounce->slot_nbytes = srt_staging_slot_nbytes(comm->size);
	bounce->memory = srt_comm_calloc(comm, n, sizeof(*bounce->memory), what);
	bounce->segment = srt_comm_calloc(comm, n, sizeof(*bounce->segment), what);
	if (bounce->memory == NULL || bounce->segment == NULL)
		goto release_lane;
	status = srt_shm_alloc_flags(comm, what, &bounce->flag_memory, &bounce->flags);
	if (status == SRT_OK)
		status = srt_shm_share_each(comm, what, SRT_STAGING_NSLOTS * bounce->slot_nbytes,
					    bounce->memory);
	if (status == SRT_OK)
		status = srt_comm_status_consensus(comm, what, wrap_memory(bounce));
	if (status != SRT_OK)
		goto release_lane;
	*out = bounce;
	return SRT_OK;

release_lane:
	srt_bounce_release(bounce);
	return status;
}

srt_status_t srt_bounce_acquire(srt_comm_t *comm, srt_bounce_kind_t kind, const char *what,
				const uint64_t *id, srt_bounce_t **out)
{
	srt_staged_comm_t *staged = comm->transport_data;
	bool all_have = id[0] != 0;

	/* Destroying is local: a rank may have freed the set that another rank still has. */
	for (int r = 1; r < comm->size; r++)
		all_have = all_have && id[r] == id[0];
	if (all_have) {
		*out = staged->bounce[kind];
		(*out)->nusers++;
		return SRT_OK;
	}
	SRT_TRY(create_bounce(comm, kind, what, out));
	staged->bounce[kind] = *out;
	return SRT_OK;
}
