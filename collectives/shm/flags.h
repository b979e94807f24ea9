/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waiting for flags of other ranks (shm/control.h). Used by the actions of host
 * steps (shm/flag_actions.c) and by the NCCL transport, on threads that may block.
 */
#ifndef SRT_COLLECTIVES_SHM_FLAGS_H
#define SRT_COLLECTIVES_SHM_FLAGS_H

#include "collectives/collective.h"

/* A wait until the flag `id` of some ranks has reached `value`. */
typedef struct srt_flag_wait {
	const srt_coll_start_t *start;
	srt_shm_flag_t *flags; /* [size][SRT_SHM_NFLAGS] */
	srt_shm_flag_id_t id;
	uint32_t value;
	enum {
		SRT_WAIT_OFFERS,  /* the ranks that this rank reads in `phase` */
		SRT_WAIT_READERS, /* the ranks that read this rank's source in any phase */
		SRT_WAIT_ALL,     /* all other ranks */
		SRT_WAIT_OWN,     /* this rank */
	} who;
	srt_phase_t phase; /* of SRT_WAIT_OFFERS */
} srt_flag_wait_t;

/* Blocks until the wait is complete. Fails with the communicator's poison, which it sets if a rank
 * has left, if the ranks started different collectives, or at the deadline. */
srt_status_t srt_flag_wait(const srt_flag_wait_t *wait);
/* Whether all flags have reached the value. Does not block. */
bool srt_flag_wait_is_complete(const srt_flag_wait_t *wait);
/* Waits for the flag `id` of all other ranks. */
srt_status_t srt_flag_wait_all(const srt_coll_start_t *start, srt_shm_flag_t *flags,
			       srt_shm_flag_id_t id, uint32_t value);
/* Slots of srt_transport_t. */
srt_status_t srt_flag_run_action(srt_coll_start_t *start, srt_action_t action, uint32_t round);
bool srt_flag_action_is_idle(const srt_coll_start_t *start, srt_action_t action, uint32_t round);

#endif
