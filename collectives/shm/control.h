/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control memory that the ranks of a communicator share:
 *     flags     two for each collective and rank (publish, release), each on its own cache line and
 *               written by that rank only
 *     log       the collectives that each rank started
 *     mismatch  the message of the first rank that finds different orders of starts; all ranks
 *               report this one
 *
 * The value of a flag is a sequence number: it counts rounds over all starts, modulo 2^32.
 *     publish   this rank's part of the round is complete, and peers may read it
 *     release   this rank has read its peers' parts, of this round and all earlier ones
 */
#ifndef SRT_COLLECTIVES_SHM_CONTROL_H
#define SRT_COLLECTIVES_SHM_CONTROL_H

#include <stdatomic.h>

#include "base/base.h"
#include "collectives/comm_state.h"

typedef enum srt_shm_flag_id {
	SRT_SHM_PUBLISH,
	SRT_SHM_RELEASE,
	SRT_SHM_NFLAGS,
} srt_shm_flag_id_t;

typedef struct srt_shm_flag {
	_Alignas(64) _Atomic uint32_t value;
	_Atomic uint32_t nsleepers; /* threads to wake when the value changes */
} srt_shm_flag_t;

/* Shared memory: created by one rank, mapped by all, unmapped here with its last user. */
typedef struct srt_shm_memory {
	unsigned char *base;
	size_t nbytes;
	int nusers;
} srt_shm_memory_t;

typedef struct srt_shm_mismatch {
	_Atomic uint32_t state; /* 0: none, 1: being written, 2: complete */
	char text[SRT_CONTROL_TEXT];
} srt_shm_mismatch_t;

struct srt_shm {
	srt_shm_mismatch_t *mismatch;
	srt_shm_memory_t *log_memory; /* has comm->start_log */
	srt_shm_memory_t *slots;      /* flags of the next collectives, or NULL */
	size_t next_slot, nslots;
};

/* ---- memory.c: zeroed shared memory; collective ------------------------------------------- */

/* One block for all ranks. The caller is its first user here. */
srt_status_t srt_shm_share(srt_comm_t *comm, const char *what, size_t nbytes,
			   srt_shm_memory_t **memory);
/* One block of each rank: memory[size]. */
srt_status_t srt_shm_share_each(srt_comm_t *comm, const char *what, size_t nbytes,
				srt_shm_memory_t **memory);
/* Local: removes a user. NULL is allowed. */
void srt_shm_release(srt_shm_memory_t *memory);

/* ---- control.c --------------------------------------------------------------------------- */

/* Collective: creates comm->shm, which is NULL for a single rank. */
srt_status_t srt_shm_create(srt_comm_t *comm);
/* Local. NULL is allowed. Flags in use remain valid. */
void srt_shm_destroy(srt_shm_t *shm);

/* Collective, in the same order on all ranks: flags of one collective or of bounce buffers,
 * [size][SRT_SHM_NFLAGS], zero. Freed by srt_shm_release(). */
srt_status_t srt_shm_alloc_flags(srt_comm_t *comm, const char *what, srt_shm_memory_t **memory,
				 srt_shm_flag_t **flags);
/* The flag `id` of a rank. */
static inline srt_shm_flag_t *srt_shm_flag_of(srt_shm_flag_t *flags, int rank, srt_shm_flag_id_t id)
{
	return &flags[(size_t)rank * SRT_SHM_NFLAGS + id];
}
/* Sets a flag of this rank and wakes the threads that sleep on it. */
void srt_shm_set_flag(srt_shm_flag_t *flag, uint32_t value);
/* Whether the flag has reached the value. */
static inline bool srt_shm_flag_reached(const srt_shm_flag_t *flag, uint32_t value)
{
	uint32_t have = atomic_load_explicit(&((srt_shm_flag_t *)(uintptr_t)flag)->value,
					     memory_order_acquire);

	return (int32_t)(have - value) >= 0;
}
/* Sleeps until the flag has reached the value, at most `seconds`. May return earlier. */
void srt_shm_wait_flag(srt_shm_flag_t *flag, uint32_t value, double seconds);

/* Stores `text` as the communicator's mismatch message, or replaces `text` by the message that
 * another rank stored first. False while that rank still writes: call again. */
bool srt_shm_set_mismatch(srt_comm_t *comm, char text[SRT_CONTROL_TEXT]);

#endif
