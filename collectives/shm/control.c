/* SPDX-License-Identifier: BSD-3-Clause */
/* Control memory of a communicator: see shm/control.h. */
#include "collectives/shm/control.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/comm.h"

#define SLOTS_NBYTES ((size_t)64 << 10)
#define MIN_SLOTS 16u

srt_status_t srt_shm_create(srt_comm_t *comm)
{
	size_t log_nbytes = (size_t)comm->size * SRT_START_LOG_LENGTH * sizeof(uint64_t);
	size_t waits_nbytes = comm->is_world ? (size_t)comm->size * sizeof(srt_wait_t) : 0;
	size_t posts_nbytes = 2 * (size_t)comm->size * sizeof(srt_shm_post_t);
	size_t nbytes = log_nbytes + posts_nbytes + sizeof(srt_shm_flag_t) + waits_nbytes +
			sizeof(srt_shm_mismatch_t);
	unsigned char *base;
	srt_shm_t *shm;
	srt_status_t status;

	if (comm->size == 1)
		return SRT_OK;
	shm = srt_comm_calloc(comm, 1, sizeof(*shm), "creating a communicator");
	if (shm == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_shm_share(comm, "creating a communicator", nbytes, &shm->log_memory);
	if (status != SRT_OK) {
		free(shm);
		return status;
	}
	base = shm->log_memory->base;
	comm->start_log = (_Atomic uint64_t *)(void *)base;
	shm->posts = (srt_shm_post_t *)(void *)(base + log_nbytes);
	shm->posted = (srt_shm_flag_t *)(void *)(base + log_nbytes + posts_nbytes);
	base = (unsigned char *)(shm->posted + 1);
	if (comm->is_world)
		comm->bootstrap->waits = (srt_wait_t *)(void *)base;
	shm->mismatch = (srt_shm_mismatch_t *)(void *)(base + waits_nbytes);
	comm->shm = shm;
	return SRT_OK;
}

void srt_shm_destroy(srt_shm_t *shm)
{
	if (shm == NULL)
		return;
	srt_shm_release(shm->slots);
	srt_shm_release(shm->log_memory);
	free(shm);
}

srt_status_t srt_shm_alloc_flags(srt_comm_t *comm, const char *what, srt_shm_memory_t **memory,
				 srt_shm_flag_t **flags)
{
	srt_shm_t *shm = comm->shm;
	size_t slot = (size_t)comm->size * SRT_SHM_NFLAGS * sizeof(srt_shm_flag_t);

	/* All ranks decide the same, as they allocate flags in the same order. */
	if (shm->next_slot == shm->nslots) {
		size_t nslots = SLOTS_NBYTES / slot;
		srt_shm_memory_t *fresh;

		if (nslots < MIN_SLOTS)
			nslots = MIN_SLOTS;
		SRT_TRY(srt_shm_share(comm, what, nslots * slot, &fresh));
		srt_shm_release(shm->slots);
		shm->slots = fresh;
		shm->nslots = nslots;
		shm->next_slot = 0;
	}
	*flags = (srt_shm_flag_t *)(void *)(shm->slots->base + shm->next_slot++ * slot);
	*memory = shm->slots;
	shm->slots->nusers++;
	return SRT_OK;
}

bool srt_shm_set_mismatch(srt_comm_t *comm, char text[SRT_CONTROL_TEXT])
{
	srt_shm_mismatch_t *mismatch = comm->shm->mismatch;
	uint32_t state = 0;

	if (atomic_compare_exchange_strong(&mismatch->state, &state, 1)) {
		memcpy(mismatch->text, text, SRT_CONTROL_TEXT);
		atomic_store_explicit(&mismatch->state, 2, memory_order_release);
		return true;
	}
	/* If that rank is killed while it writes, its death poisons. */
	if (state != 2)
		return false;
	memcpy(text, mismatch->text, SRT_CONTROL_TEXT);
	text[SRT_CONTROL_TEXT - 1] = '\0';
	return true;
}
