/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives by NCCL: what it moves does not pass through
 * the host. Chosen by collectives/transport.c where all ranks have the same library and devices
 * of their own; the library itself is behind srt_backend_comm_ops_t of the backend.
 *
 * Of the world alone: NCCL calls it a deadlock if the collectives of several communicators of a
 * device have no common order. Groups are staged.
 *
 * The communicator has a stream for it, so its starts follow each other in the order of starting,
 * as they do on the other ranks, and share one scratch. On the caller's thread:
 *
 *     say what is started             order.c: a log that all ranks see, compared at once with what
 *                                     the others have said; nobody is waited for
 *     wait for the caller's stream    an event
 *     send and receive, sum, ...      NCCL, our kernels; in rounds
 *     the caller's stream goes on     an event
 *
 * Nothing of it waits on the host for the device. Of two ranks, the one that comes to a start later
 * sees what the other started there, and puts nothing on its stream if that differs: so the
 * vendor's library only ever sees what fits together. A start then either ends well or does not
 * end, because a rank is missing, dead, or has started something else, or the library has failed.
 * In these cases the watchdog (watchdog.c) fails the device before it aborts the library's work.
 */
#ifndef SRT_COLLECTIVES_TRANSPORTS_NCCL_NCCL_H
#define SRT_COLLECTIVES_TRANSPORTS_NCCL_NCCL_H

#include "collectives/comm.h"
#include "collectives/shm/control.h"

/* Starts in flight on this rank, at most; more wait for the oldest. */
#define SRT_NCCL_NTURNS 16u
/* NCCL or the driver may notice a rank's death before its socket ends: the death is
 * what all shall say, so their failure has to wait, also where the thread that reads the sockets is
 * late. */
#define SRT_NCCL_GRACE_S 1.0

/* One of them. */
typedef struct srt_nccl_turn {
	const struct srt_coll *coll;
	bool put;                   /* all of it is on the stream */
	srt_event_t *began, *ended; /* recorded by then */
} srt_nccl_turn_t;

struct srt_nccl {
	srt_comm_t *comm;
	const srt_backend_comm_ops_t *ops;
	void *impl; /* of the backend */
	srt_stream_t *stream;
	srt_event_t *ready;    /* of the caller's stream */
	srt_buffer_t *scratch; /* parts of a sum; or NULL */
	int nsums;             /* collectives that use it */
	srt_shm_memory_t *said_memory, *turn_memory;
	/* [size][SRT_SHM_NWORDS]: publish = starts that the rank has said; release = 1: it cannot
	 * join, or all its starts have ended and it destroys the communicator. */
	srt_shm_word_t *said;
	srt_shm_word_t *turns; /* the same: publish = turns begun there, release = ended */
	atomic_bool aborted;   /* nothing is called any more but destroy() */

	pthread_mutex_t mutex; /* of all below; the driver is not called with it */
	pthread_cond_t changed;
	pthread_t watchdog, observer;
	int nthreads; /* of these two, that run */
	bool stopping;
	bool over;                /* no turn is taken any more */
	uint32_t nstarts, nended; /* turns, modulo 2^32 */
	srt_nccl_turn_t turn[SRT_NCCL_NTURNS];
	double since;  /* the oldest one was seen to have begun; 0: not yet */
	double looked; /* the observer has looked at it, or it was put */
	/* What the observer has found: SRT_OK, or a failure since a time. */
	srt_status_t failure;
	double failed_since;
	char failure_text[SRT_CONTROL_TEXT];
};

struct srt_coll_start;

/* ---- create.c -------------------------------------------------------------------------- */

/* Collective: makes comm->nccl, and tries it. Where that fails on a rank, and comm->may_stage,
 * the communicator becomes a staged one. */
srt_status_t srt_nccl_create(srt_comm_t *comm);
/* Waits for the peers to come to it too, some seconds at most: else, or after a failure, the
 * library's work is aborted. NULL is allowed. */
void srt_nccl_destroy(srt_nccl_t *nccl);
/* Bytes of device memory that sums need, all collectives of a communicator together. */
size_t srt_nccl_scratch_nbytes(int nranks);

/* ---- transport.c: one collective --------------------------------------------------------- */

/* Whether the i-th runs of all owners are of one size, and lie one behind the other in the order of
 * ranks. */
bool srt_nccl_alike(const struct srt_coll *coll, size_t i);
/* Ends a group, and puts it on the communicator's stream unless `status`, of filling it, is a
 * failure. Returns the first failure. */
srt_status_t srt_nccl_end_group(const srt_nccl_t *nccl, srt_status_t status);

/* ---- sum.c: NCCL's own sums ------------------------------------------------------- */

/* Whether they may be taken for the collective: the same on all ranks. */
bool srt_nccl_may_sum(const struct srt_coll *coll);
/* In a group: the sums of all runs. */
srt_status_t srt_nccl_put_sums(const struct srt_coll *coll);
/* async. Puts what has been summed through the epilogue, to its place. */
srt_status_t srt_nccl_finish_sums(const struct srt_coll *coll, const srt_coll_epilogue_t *epilogue,
				  srt_stream_t *stream);

/* ---- order.c ---------------------------------------------------------------------------- */

/* Says what is started, of whatever transport, and compares it with what others have said. Waits
 * only for a rank that is very far behind. */
srt_status_t srt_nccl_say(const struct srt_coll_start *start);
/* A turn for a start; waits where all are taken. */
srt_status_t srt_nccl_take_turn(srt_nccl_t *nccl, const struct srt_coll *coll,
				srt_nccl_turn_t **turn, uint32_t *number);
/* All of it is on the stream. */
void srt_nccl_put_turn(srt_nccl_t *nccl, srt_nccl_turn_t *turn);
/* Looks which turns have ended, and whether the oldest has begun. Fails if the stream has. Asks the
 * driver, which may keep it waiting. */
srt_status_t srt_nccl_look(srt_nccl_t *nccl);

/* ---- watchdog.c ------------------------------------------------------------------------- */

srt_status_t srt_nccl_watch(srt_nccl_t *nccl);
void srt_nccl_unwatch(srt_nccl_t *nccl);
/* The collective is about to go. After a failure, what is left of it on the stream ends first. */
void srt_nccl_forget(srt_nccl_t *nccl, const struct srt_coll *coll);
/* The communicator is poisoned, or cannot be made: no more starts. Fails the device if some are in
 * flight. */
void srt_nccl_give_up(srt_nccl_t *nccl);
/* The same, then ends what NCCL does. */
void srt_nccl_abort(srt_nccl_t *nccl);

#endif
