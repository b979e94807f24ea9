/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control memory that the ranks of a communicator share: for each collective and rank two words
 * (publish, release), each on a cache line of its own and written by that rank alone; for each rank
 * a log of the collectives that it started; and one sentence: what the first rank that finds the
 * orders of starts to differ says about it, so that all say the same.
 *
 * A word counts rounds, over all starts, modulo 2^32 (collectives/collective.h):
 *     publish   what this rank offers in the round is complete: peers may read it
 *     release   this rank has read all it wanted from its peers, in the round and all before
 */
#ifndef SRT_COLLECTIVES_SHM_CONTROL_H
#define SRT_COLLECTIVES_SHM_CONTROL_H

#include <stdatomic.h>

#include "base/base.h"
#include "collectives/comm.h"

typedef enum srt_shm_word_id {
	SRT_SHM_PUBLISH,
	SRT_SHM_RELEASE,
	SRT_SHM_NWORDS,
} srt_shm_word_id_t;

typedef struct srt_shm_word {
	_Alignas(64) _Atomic uint32_t value;
	_Atomic uint32_t nsleepers; /* who must be woken when value changes */
} srt_shm_word_t;

/* Starts that the log remembers; further back, order is not compared any more. */
#define SRT_SHM_LOG_LENGTH 256u

/* One mapping; made by rank 0, mapped by all, unmapped when nobody here uses it any more. */
typedef struct srt_shm_memory {
	unsigned char *base;
	size_t nbytes;
	int nusers;
} srt_shm_memory_t;

/* The sentence of the first to find that orders differ. */
typedef struct srt_shm_verdict {
	_Atomic uint32_t state; /* 0: none, 1: being written, 2: there */
	char text[SRT_CONTROL_TEXT];
} srt_shm_verdict_t;

struct srt_shm {
	srt_shm_verdict_t *verdict;
	_Atomic uint64_t *log; /* [size][SRT_SHM_LOG_LENGTH]: start number << 32 | collective */
	srt_shm_memory_t *log_memory;
	srt_shm_memory_t *slots; /* where the next collective's words come from, or NULL */
	size_t next_slot, nslots;
	bool spin; /* a core for each rank: spin a little before sleeping */
};

/* ---- memory.c: zeroed memory, collective ------------------------------------------------- */

/* One piece for all ranks; the caller is its first user here. */
srt_status_t srt_shm_share(srt_comm_t *comm, const char *what, size_t nbytes,
			   srt_shm_memory_t **memory);
/* A piece of every rank, memory[size]. */
srt_status_t srt_shm_share_each(srt_comm_t *comm, const char *what, size_t nbytes,
				srt_shm_memory_t **memory);
/* Local: a user less. NULL is allowed. */
void srt_shm_release(srt_shm_memory_t *memory);

/* ---- control.c --------------------------------------------------------------------------- */

/* Makes comm->shm. Collective. A single rank needs none and gets NULL. */
srt_status_t srt_shm_create(srt_comm_t *comm);
/* Local. NULL is allowed. Words in use stay. */
void srt_shm_destroy(srt_shm_t *shm);

/* Words of one collective or lane, [size][SRT_SHM_NWORDS], zero. Collective, all ranks in the
 * same order. Given back by srt_shm_release(). */
srt_status_t srt_shm_take_words(srt_comm_t *comm, const char *what, srt_shm_memory_t **memory,
				srt_shm_word_t **words);
/* Sets a word of this rank and wakes who sleeps on it. */
void srt_shm_set(srt_shm_word_t *word, uint32_t value);
/* Has the word reached the value? */
static inline bool srt_shm_reached(const srt_shm_word_t *word, uint32_t value)
{
	uint32_t have = atomic_load_explicit(&((srt_shm_word_t *)(uintptr_t)word)->value,
					     memory_order_acquire);

	return (int32_t)(have - value) >= 0;
}
/* Sleeps until the word is set, at most `seconds`; returns early at will. */
void srt_shm_sleep(srt_shm_word_t *word, uint32_t value, double seconds);

/* Notes that this rank starts collective `coll` as its start number `start`. */
void srt_shm_log_start(srt_comm_t *comm, uint32_t start, uint32_t coll);
/* The collective that a rank started as number `start`; false if it has not, or too long ago. */
bool srt_shm_logged(const srt_comm_t *comm, int rank, uint32_t start, uint32_t *coll);

/* Makes `text` the communicator's sentence, or replaces it by the one that another rank made it
 * before. False while that rank is still writing: ask again. */
bool srt_shm_settle(srt_comm_t *comm, char text[SRT_CONTROL_TEXT]);

#endif
