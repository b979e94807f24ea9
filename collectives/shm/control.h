/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control memory that the ranks of a communicator share:
 *     flags     two for each collective and rank (publish, release), each on its own cache line and
 *               written by that rank only
 *     log       the collectives that each rank started
 *     mismatch  the message of the first rank that finds different orders of starts; all ranks
 *               report this one
 *     posts     what each rank gives to the exchanges of small data (bootstrap/oob.c)
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

/* What a rank gives to an exchange of small data, or the part of it that fits. */
typedef struct srt_shm_post {
	/* The part's number over all exchanges, from 1, modulo 2^32. Written last. */
	_Alignas(64) _Atomic uint32_t number;
	char what[SRT_CONTROL_WHAT];
	uint64_t left; /* bytes of this part and of those that follow */
	unsigned char data[1968];
} srt_shm_post_t;

#define SRT_SHM_POST_NBYTES sizeof(((srt_shm_post_t *)NULL)->data)

_Static_assert(sizeof(srt_shm_post_t) == 2048, "no padding in shared memory");

struct srt_shm {
	/* [2][size]: even and odd parts in turn. A rank posts part n + 2 when all ranks have posted
	 * part n + 1: they have then read part n. */
	srt_shm_post_t *posts;
	srt_shm_flag_t *posted; /* counts the posts of all ranks, modulo 2^32 */
	uint32_t nposts;        /* of this rank: parts so far */
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
/* Whether the flag has reached the value. */
static inline bool srt_shm_flag_reached(const srt_shm_flag_t *flag, uint32_t value)
{
	uint32_t have = atomic_load_explicit(&((srt_shm_flag_t *)(uintptr_t)flag)->value,
					     memory_order_acquire);

	return (int32_t)(have - value) >= 0;
}
/* Stores `text` as the communicator's mismatch message, or replaces `text` by the message that
 * another rank stored first. False while that rank still writes: call again. */
bool srt_shm_set_mismatch(srt_comm_t *comm, char text[SRT_CONTROL_TEXT]);

/* ---- futex.c ----------------------------------------------------------------------------- */

/* Sets a flag of this rank and wakes the threads that sleep on it. */
void srt_shm_set_flag(srt_shm_flag_t *flag, uint32_t value);
/* Adds 1 to a flag that all ranks count with. Wakes the threads that sleep on it if it is then
 * `last`, which they all wait for. */
void srt_shm_count_flag(srt_shm_flag_t *flag, uint32_t last);
/* Sleeps until the flag has reached the value, at most `seconds`. May return earlier. */
void srt_shm_wait_flag(srt_shm_flag_t *flag, uint32_t value, double seconds);

/* ---- post.c: a part of an exchange. Collective, in the same order on all ranks ------------- */

/* Begins the next part: posts the first of this rank's `left` bytes, at most SRT_SHM_POST_NBYTES,
 * for the other ranks. what: as of srt_control_send(). Does not block. */
void srt_shm_post(srt_comm_t *comm, const char *what, const void *data, size_t left);
/* srt_control_recv() of what a rank posts for this part. `left` must be the rank's, too. */
srt_control_result_t srt_shm_read_post(srt_comm_t *comm, int rank, const char *what, void *data,
				       size_t left, const atomic_int *stop, double deadline,
				       char theirs[SRT_CONTROL_WHAT]);
/* Whether a rank has posted this part, or may still do so. */
bool srt_shm_may_post(const srt_comm_t *comm, int rank);

#endif
