/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bounce buffers: shared host memory through which ranks exchange chunks if peers cannot map their
 * devices' memory. A communicator has at most two sets, one for collectives that copy and one for
 * collectives that sum. A set is created with the first collective that needs it and freed with the
 * last. In a set each rank has SRT_STAGING_NSLOTS slots. Its device copies to them, and the peers'
 * devices copy from them. A set for sums also has device scratch of one slot's size.
 *
 * The rounds of all collectives of a set use the slots alternately, in the order of starts, which
 * is the same on all ranks. So a round has the same sequence number on all ranks.
 */
#ifndef SRT_COLLECTIVES_TRANSPORTS_STAGED_BOUNCE_H
#define SRT_COLLECTIVES_TRANSPORTS_STAGED_BOUNCE_H

#include "collectives/comm_state.h"
#include "collectives/shm/control.h"

#define SRT_STAGING_NSLOTS 2u

typedef enum srt_bounce_kind {
	SRT_BOUNCE_COPY,
	SRT_BOUNCE_SUM,
	SRT_NBOUNCE,
} srt_bounce_kind_t;

/* One set. */
typedef struct srt_bounce {
	srt_comm_t *comm;
	srt_bounce_kind_t kind;
	uint32_t id; /* the same on all ranks, from 1 */
	int nusers;
	size_t slot_nbytes;
	srt_shm_memory_t **memory; /* [size] the slots of each rank */
	srt_buffer_t **segment;    /* [size] the same memory as the device's buffers */
	srt_buffer_t *scratch;     /* the peers' parts of a round, for a sum; or NULL */
	srt_shm_memory_t *flag_memory;
	srt_shm_flag_t *flags; /* [size][SRT_SHM_NFLAGS] publish and release of rounds */
	uint32_t nrounds;      /* of all starts so far */
} srt_bounce_t;

/* The transport_data of a communicator. */
typedef struct srt_staged_comm {
	srt_bounce_t *bounce[SRT_NBOUNCE]; /* NULL = not in use */
	uint32_t nbounce;                  /* created so far */
} srt_staged_comm_t;

/* Collective: the communicator's set of that kind. It is created unless all ranks have it (id[r]:
 * srt_bounce_id() of rank r). Undone by srt_bounce_release(). */
srt_status_t srt_bounce_acquire(srt_comm_t *comm, srt_bounce_kind_t kind, const char *what,
				const uint64_t *id, srt_bounce_t **bounce);
/* Local. NULL is allowed. */
void srt_bounce_release(srt_bounce_t *bounce);
/* The id of this rank's set, 0 = it has none. */
uint32_t srt_bounce_id(const srt_comm_t *comm, srt_bounce_kind_t kind);

/* Bytes of a slot with `nranks` ranks: SHARDRT_STAGING_BYTES, or the least that they need. */
size_t srt_staging_slot_nbytes(int nranks);
/* Bytes of each part, if `nbytes` have a part for each other rank. */
size_t srt_staging_part_nbytes(size_t nbytes, int nranks);
/* Index of the part of `other` among those of the ranks other than `rank`. */
static inline size_t srt_staging_part(int other, int rank)
{
	return (size_t)(other < rank ? other : other - 1);
}
/* Bytes that a rank allocates for a set: its slots, and the scratch. */
size_t srt_staging_nbytes(int nranks, srt_bounce_kind_t kind);
/* Bytes of other ranks' slots that it maps. */
size_t srt_staging_mapped_nbytes(int nranks);

#endif
