/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by bootstrap.c and the communicators: the control channel, and the list of the
 * communicators that are poisoned when a rank dies.
 */
#ifndef SRT_COLLECTIVES_BOOTSTRAP_INTERNAL_H
#define SRT_COLLECTIVES_BOOTSTRAP_INTERNAL_H

#include <pthread.h>

#include "base/base.h"
#include "collectives/bootstrap/bootstrap.h"
#include "collectives/bootstrap/control_channel.h"

/* What a rank waits for, for the warnings of other ranks (shm/waits.c). Text in words: it is read
 * while it is written, and may then be a mixture. Empty: it does not wait. */
#define SRT_WAIT_NWORDS 12
typedef struct srt_wait {
	_Atomic uint64_t words[SRT_WAIT_NWORDS];
} srt_wait_t;
/* Longest text of a wait, with its 0. */
#define SRT_WAIT_TEXT (SRT_WAIT_NWORDS * sizeof(uint64_t) + 1)

typedef struct srt_flight_file srt_flight_file_t; /* collectives/flight/flight_file.c */

struct srt_bootstrap {
	srt_bootstrap_t *next; /* in the process's list of those with sockets */
	atomic_int nholders;   /* the context and each communicator; the last one frees it */
	int rank, world_size;
	int local_rank, local_size;
	uint16_t *node_of; /* [world_size] the node of each rank; NULL = all share one */
	struct srt_capabilities *capabilities; /* [world_size], set with the world */
	int32_t *pid_of; /* [world_size] the processes of the ranks of this node; else 0; or NULL */
	int ncores;    /* shared by the ranks of this node; a device may bind this one to a part */
	bool is_child; /* this process is a child by fork() of the one that joined */
	double timeout_s;
	double close_s; /* longest wait for other ranks of a collective that is being destroyed */
	int launcher;   /* connection that shows shardrun that this rank is in the job; -1 = none */
	struct srt_ucx_worker *ucx;     /* of this process, or NULL; transports/ucx/ */
	srt_control_channel_t *control; /* NULL for a single rank */
	srt_wait_t *waits; /* [world_size], shared with the world communicator's memory; or NULL */
	srt_flight_file_t *flight; /* the file of the flight recorder, or NULL */

	pthread_mutex_t mutex; /* protects all below */
	srt_comm_t *comms;     /* linked list of the live communicators */
	/* The first death or failure of a rank. Sent to the other ranks when this rank leaves, so
	 * that they report it and not this rank. */
	srt_status_t failure;
	char failure_text[SRT_CONTROL_TEXT];
	/* The first failure of any communicator or rank of the job, as far as this rank knows: a
	 * rank that dies later may have ended because of it. "": none. */
	char cause_text[SRT_CONTROL_TEXT];
};

/* Whether a wait may keep its core while it spins. Without a core for each rank of the node, a peer
 * may need it. */
static inline bool srt_bootstrap_spins(const srt_bootstrap_t *bootstrap)
{
	return bootstrap->local_size <= bootstrap->ncores;
}

/* Keeps the object until the matching srt_bootstrap_release(). Thread-safe. */
void srt_bootstrap_hold(srt_bootstrap_t *bootstrap);
void srt_bootstrap_release(srt_bootstrap_t *bootstrap);

/* Closes the communicators that exist when this rank leaves the job. Implemented in comm.c. */
void srt_bootstrap_close_comms(srt_bootstrap_t *bootstrap);

/* In a child by fork(): fails its communicators; those of the rank go on. In poison.c. */
void srt_bootstrap_poison_child(srt_bootstrap_t *bootstrap);

/* The listener of the control channel; arg is the srt_bootstrap_t. Implemented in poison.c. */
void srt_bootstrap_handle_notice(void *arg, const srt_control_notice_t *notice);

#endif
