/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Staging memory: where ranks whose devices have no memory that peers can map leave pieces for each
 * other. A communicator has at most two *lanes*, one for collectives that copy and one for those
 * that sum, made with the first collective that needs it and freed with the last. In a lane every
 * rank has a segment of SRT_STAGING_NSLOTS slots in shared memory, which its device copies to and
 * its peers' devices copy from; a summing lane has device scratch of one slot beside it.
 *
 * Rounds of all collectives of a lane take the slots in turn, in the order of starts, which is the
 * same on all ranks; so a lane's rounds have numbers ("lane ticks") that all ranks agree on.
 */
#ifndef SRT_COLLECTIVES_TRANSPORTS_STAGED_STAGING_H
#define SRT_COLLECTIVES_TRANSPORTS_STAGED_STAGING_H

#include "collectives/comm.h"
#include "collectives/shm/control.h"

#define SRT_STAGING_NSLOTS 2u

typedef enum srt_lane_kind {
	SRT_LANE_COPY,
	SRT_LANE_SUM,
	SRT_NLANES,
} srt_lane_kind_t;

struct srt_lane {
	srt_comm_t *comm;
	srt_lane_kind_t kind;
	uint32_t id; /* the same on all ranks, from 1 */
	int nusers;
	size_t slot_nbytes;
	srt_shm_memory_t **memory; /* [size] */
	srt_buffer_t **segment;    /* [size] the same as what devices copy to and from */
	srt_buffer_t *scratch;     /* the peers' parts of a round, for a sum; or NULL */
	srt_shm_memory_t *word_memory;
	/* [size][SRT_SHM_NWORDS] publish and release of lane ticks */
	srt_shm_word_t *words;
	uint32_t nticks; /* of all starts so far */
};

/* Collective: the communicator's lane of that kind, made if not all ranks have it (id[r] of
 * srt_lane_id() on rank r). Given back by srt_lane_release(). */
srt_status_t srt_lane_take(srt_comm_t *comm, srt_lane_kind_t kind, const char *what,
			   const uint64_t *id, srt_lane_t **lane);
/* Local. NULL is allowed. */
void srt_lane_release(srt_lane_t *lane);
/* Of the lane that this rank has, 0 = none. */
uint32_t srt_lane_id(const srt_comm_t *comm, srt_lane_kind_t kind);

/* Bytes of a slot with so many ranks: SHARDRT_STAGING_BYTES, or what the ranks' parts need. */
size_t srt_staging_slot_nbytes(int nranks);
/* Bytes that a rank allocates for a lane: its segment, and the scratch. */
size_t srt_staging_nbytes(int nranks, srt_lane_kind_t kind);
/* Bytes that it maps of other ranks. */
size_t srt_staging_mapped_nbytes(int nranks);

#endif
