/* SPDX-License-Identifier: BSD-3-Clause */
/* Lanes of staging memory: see staging.h. */
#include <stdlib.h>

#include "collectives/transports/staged/staging.h"

/* What a rank's part of a slot needs at least, see transport.c. */
#define MIN_PART ((size_t)64)

size_t srt_staging_slot_nbytes(int nranks)
{
	size_t nbytes = srt_align_up(srt_config_size("SHARDRT_STAGING_BYTES"), MIN_PART);
	size_t least = (size_t)(nranks > 1 ? nranks - 1 : 1) * MIN_PART;

	return nbytes > least ? nbytes : least;
}

size_t srt_staging_nbytes(int nranks, srt_lane_kind_t kind)
{
	return srt_staging_slot_nbytes(nranks) * (SRT_STAGING_NSLOTS + (kind == SRT_LANE_SUM));
}

size_t srt_staging_mapped_nbytes(int nranks)
{
	return srt_staging_slot_nbytes(nranks) * SRT_STAGING_NSLOTS * (size_t)(nranks - 1);
}

uint32_t srt_lane_id(const srt_comm_t *comm, srt_lane_kind_t kind)
{
	return comm->lanes[kind] != NULL ? comm->lanes[kind]->id : 0;
}

void srt_lane_release(srt_lane_t *lane)
{
	srt_comm_t *comm;

	if (lane == NULL || --lane->nusers > 0)
		return;
	comm = lane->comm;
	if (comm->lanes[lane->kind] == lane)
		comm->lanes[lane->kind] = NULL;
	srt_buffer_destroy(lane->scratch);
	for (int r = 0; r < comm->size; r++) {
		if (lane->segment != NULL)
			srt_buffer_destroy(lane->segment[r]);
		if (lane->memory != NULL)
			srt_shm_release(lane->memory[r]);
	}
	srt_shm_release(lane->word_memory);
	free(lane->segment);
	free(lane->memory);
	free(lane);
}

/* The device's side of the shared memory, and the scratch. */
static srt_status_t wrap(srt_lane_t *lane)
{
	srt_comm_t *comm = lane->comm;

	for (int r = 0; r < comm->size; r++)
		SRT_TRY(srt_buffer_wrap_host(comm->device, lane->memory[r]->base,
					     lane->memory[r]->nbytes, r == comm->rank,
					     "staging of collectives", &lane->segment[r]));
	if (lane->kind != SRT_LANE_SUM)
		return SRT_OK;
	return srt_buffer_create(comm->device, SRT_MEM_DEVICE, lane->slot_nbytes,
				 "parts of a staged sum", &lane->scratch);
}

static srt_status_t make(srt_comm_t *comm, srt_lane_kind_t kind, const char *what, srt_lane_t **out)
{
	size_t n = (size_t)comm->size;
	srt_lane_t *lane = srt_calloc(1, sizeof(*lane), what);
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	if (lane == NULL)
		return status;
	lane->comm = comm;
	lane->kind = kind;
	lane->id = ++comm->nlanes;
	lane->nusers = 1;
	lane->slot_nbytes = srt_staging_slot_nbytes(comm->size);
	lane->memory = srt_calloc(n, sizeof(*lane->memory), what);
	lane->segment = srt_calloc(n, sizeof(*lane->segment), what);
	if (lane->memory == NULL || lane->segment == NULL)
		goto release_lane;
	status = srt_shm_take_words(comm, what, &lane->word_memory, &lane->words);
	if (status == SRT_OK)
		status = srt_shm_share_each(comm, what, SRT_STAGING_NSLOTS * lane->slot_nbytes,
					    lane->memory);
	if (status == SRT_OK)
		status = srt_comm_status_consensus(comm, what, wrap(lane));
	if (status != SRT_OK)
		goto release_lane;
	*out = lane;
	return SRT_OK;

release_lane:
	srt_lane_release(lane);
	return status;
}

srt_status_t srt_lane_take(srt_comm_t *comm, srt_lane_kind_t kind, const char *what,
			   const uint64_t *id, srt_lane_t **out)
{
	bool all_have = id[0] != 0;

	/* Destroying is local: a rank may have no lane any more while another's lives on. */
	for (int r = 1; r < comm->size; r++)
		all_have = all_have && id[r] == id[0];
	if (all_have) {
		*out = comm->lanes[kind];
		(*out)->nusers++;
		return SRT_OK;
	}
	SRT_TRY(make(comm, kind, what, out));
	comm->lanes[kind] = *out;
	return SRT_OK;
}
