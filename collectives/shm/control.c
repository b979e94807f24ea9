/* SPDX-License-Identifier: BSD-3-Clause */
/* Control memory of a communicator: see shm/control.h. Sleeping is a futex on the word itself. */
#include "collectives/shm/control.h"

#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SLOTS_NBYTES ((size_t)64 << 10)
#define MIN_SLOTS 16u

srt_status_t srt_shm_create(srt_comm_t *comm)
{
	size_t log_nbytes = (size_t)comm->size * SRT_SHM_LOG_LENGTH * sizeof(uint64_t);
	size_t nbytes = log_nbytes + sizeof(srt_shm_verdict_t);
	srt_shm_t *shm;
	srt_status_t status;

	if (comm->size == 1)
		return SRT_OK;
	shm = srt_calloc(1, sizeof(*shm), "a communicator");
	if (shm == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_shm_share(comm, "making a communicator", nbytes, &shm->log_memory);
	if (status != SRT_OK) {
		free(shm);
		return status;
	}
	shm->log = (_Atomic uint64_t *)(void *)shm->log_memory->base;
	shm->verdict = (srt_shm_verdict_t *)(void *)(shm->log_memory->base + log_nbytes);
	/* Spinning takes the core that a peer on the same one needs. */
	shm->spin = comm->bootstrap->local_size <= sysconf(_SC_NPROCESSORS_ONLN);
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

srt_status_t srt_shm_take_words(srt_comm_t *comm, const char *what, srt_shm_memory_t **memory,
				srt_shm_word_t **words)
{
	srt_shm_t *shm = comm->shm;
	size_t slot = (size_t)comm->size * SRT_SHM_NWORDS * sizeof(srt_shm_word_t);

	/* The same decision on all ranks: they take words in the same order. */
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
	*words = (srt_shm_word_t *)(void *)(shm->slots->base + shm->next_slot++ * slot);
	*memory = shm->slots;
	shm->slots->nusers++;
	return SRT_OK;
}

static long futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
	return syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

void srt_shm_set(srt_shm_word_t *word, uint32_t value)
{
	/* Sequentially consistent, like the sleeper's two steps: either it sees the new value, or
	 * we see the sleeper. */
	atomic_store(&word->value, value);
	if (atomic_load(&word->nsleepers) != 0)
		futex(&word->value, FUTEX_WAKE, INT32_MAX, NULL);
}

void srt_shm_sleep(srt_shm_word_t *word, uint32_t value, double seconds)
{
	struct timespec timeout = {
		.tv_sec = (time_t)seconds,
		.tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9),
	};
	uint32_t seen;

	/* A rank killed here leaves the count too high: that costs a system call each time. */
	atomic_fetch_add(&word->nsleepers, 1);
	seen = atomic_load(&word->value);
	if ((int32_t)(seen - value) < 0)
		futex(&word->value, FUTEX_WAIT, seen, &timeout);
	atomic_fetch_sub(&word->nsleepers, 1);
}

void srt_shm_log_start(srt_comm_t *comm, uint32_t start, uint32_t coll)
{
	size_t i = (size_t)comm->rank * SRT_SHM_LOG_LENGTH + start % SRT_SHM_LOG_LENGTH;

	atomic_store_explicit(&comm->shm->log[i], (uint64_t)start << 32 | coll,
			      memory_order_release);
}

bool srt_shm_logged(const srt_comm_t *comm, int rank, uint32_t start, uint32_t *coll)
{
	size_t i = (size_t)rank * SRT_SHM_LOG_LENGTH + start % SRT_SHM_LOG_LENGTH;
	uint64_t entry = atomic_load_explicit(&comm->shm->log[i], memory_order_acquire);

	*coll = (uint32_t)entry;
	return entry >> 32 == start;
}

bool srt_shm_settle(srt_comm_t *comm, char text[SRT_CONTROL_TEXT])
{
	srt_shm_verdict_t *verdict = comm->shm->verdict;
	uint32_t state = 0;

	if (atomic_compare_exchange_strong(&verdict->state, &state, 1)) {
		memcpy(verdict->text, text, SRT_CONTROL_TEXT);
		atomic_store_explicit(&verdict->state, 2, memory_order_release);
		return true;
	}
	/* A rank that is killed while it writes poisons by its death. */
	if (state != 2)
		return false;
	memcpy(text, verdict->text, SRT_CONTROL_TEXT);
	text[SRT_CONTROL_TEXT - 1] = '\0';
	return true;
}
