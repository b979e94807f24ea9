/* SPDX-License-Identifier: BSD-3-Clause */
/* Control memory of a communicator: see shm/control.h. Threads sleep on a flag by a futex. */
#include "collectives/shm/control.h"

#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "collectives/comm.h"

#define SLOTS_NBYTES ((size_t)64 << 10)
#define MIN_SLOTS 16u

srt_status_t srt_shm_create(srt_comm_t *comm)
{
	size_t log_nbytes = (size_t)comm->size * SRT_START_LOG_LENGTH * sizeof(uint64_t);
	size_t waits_nbytes = comm->is_world ? (size_t)comm->size * sizeof(srt_wait_t) : 0;
	size_t nbytes = log_nbytes + waits_nbytes + sizeof(srt_shm_mismatch_t);
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
	comm->start_log = (_Atomic uint64_t *)(void *)shm->log_memory->base;
	if (comm->is_world)
		comm->bootstrap->waits = (srt_wait_t *)(void *)(shm->log_memory->base + log_nbytes);
	shm->mismatch =
		(srt_shm_mismatch_t *)(void *)(shm->log_memory->base + log_nbytes + waits_nbytes);
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

static long call_futex(_Atomic uint32_t *flag, int op, uint32_t value,
		       const struct timespec *timeout)
{
	return syscall(SYS_futex, flag, op, value, timeout, NULL, 0);
}

void srt_shm_set_flag(srt_shm_flag_t *flag, uint32_t value)
{
	/* Sequentially consistent, like the sleeper's two steps: either the sleeper sees the new
	 * value, or this thread sees the sleeper. */
	atomic_store(&flag->value, value);
	if (atomic_load(&flag->nsleepers) != 0)
		call_futex(&flag->value, FUTEX_WAKE, INT32_MAX, NULL);
}

void srt_shm_wait_flag(srt_shm_flag_t *flag, uint32_t value, double seconds)
{
	struct timespec timeout = {
		.tv_sec = (time_t)seconds,
		.tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9),
	};
	uint32_t seen;

	/* A rank that is killed here leaves the count too high, which costs a system call at each
	 * change. */
	atomic_fetch_add(&flag->nsleepers, 1);
	seen = atomic_load(&flag->value);
	if ((int32_t)(seen - value) < 0)
		call_futex(&flag->value, FUTEX_WAIT, seen, &timeout);
	atomic_fetch_sub(&flag->nsleepers, 1);
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
