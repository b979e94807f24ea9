/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NCCL transport: NCCL moves bytes from device to device, without the host. Chosen by choose.c
 * if all ranks have the same version of NCCL and a device each. NCCL itself is called by the
 * backend (srt_backend_comm_ops_t).
 *
 * Only the world communicator uses it. NCCL documents a deadlock if the collectives of several
 * communicators of a device have no common order, so groups are staged.
 *
 * The communicator has a stream. Starts run on it in the order of starting, which is the same on
 * all ranks, and share one scratch buffer. A start does this on the caller's thread:
 *
 *     announce the start              order.c: in a log that all ranks see; compares it with the
 *                                     starts that other ranks have announced, waits for no rank
 *     wait for the caller's stream    by an event
 *     submit the work, in rounds      NCCL's sends and receives; our kernels that sum
 *     the caller's stream continues   by an event
 *
 * The host does not wait for the device. Of two ranks, the one that announces a start later sees
 * the other's entry, and submits nothing if they differ. So NCCL is only called with collectives
 * that match. A start then either completes, or it does not end: because a rank is missing or dead,
 * because a rank started something else, or because NCCL failed. In these cases the watchdog
 * (watchdog.c) first makes the device fail and then aborts NCCL's work.
 */
#ifndef SRT_COLLECTIVES_TRANSPORTS_NCCL_NCCL_H
#define SRT_COLLECTIVES_TRANSPORTS_NCCL_NCCL_H

#include "collectives/collective.h"

/* Starts in flight on a rank, at most. A further start waits for the oldest. */
#define SRT_NCCL_MAX_IN_FLIGHT 16u
/* Seconds that a failure of NCCL or the driver waits for the news that a rank has died. They may
 * notice the death before that rank's socket closes, and all ranks must report the death. */
#define SRT_NCCL_GRACE_S 1.0

/* A start in flight. */
typedef struct srt_nccl_in_flight {
	const srt_coll_t *coll;
	uint32_t flight;            /* index in the flight recorder */
	bool submitted;             /* all of its work is on the stream, and both events */
	srt_event_t *began, *ended; /* before and after its work on the stream */
} srt_nccl_in_flight_t;

/* The transport_data of a communicator. */
typedef struct srt_nccl {
	srt_comm_t *comm;
	const srt_backend_comm_ops_t *ops;
	void *impl; /* the backend's object */
	bool fast;  /* NCCL may sum, as all ranks' numerics mode is fast */
	srt_stream_t *stream;
	srt_event_t *ready;    /* the caller's stream has reached the start */
	srt_buffer_t *scratch; /* parts of sums; or NULL */
	int nsums;             /* collectives that use it */
	srt_shm_memory_t *announced_memory, *progress_memory;
	/* [size][SRT_SHM_NFLAGS]. publish: number of the last announced start. release: 1 = the
	 * rank cannot join, or all its starts have ended and it destroys the communicator. */
	srt_shm_flag_t *announced;
	/* [size][SRT_SHM_NFLAGS]. publish: number of the last start that began on the rank's
	 * device. release: of the last one that ended. */
	srt_shm_flag_t *progress;
	atomic_bool aborted; /* only destroy() may be called */

	pthread_mutex_t mutex; /* of all below; not held while the driver is called */
	pthread_cond_t changed;
	pthread_t watchdog, poller;
	int nthreads; /* of these two, that run */
	bool stopping;
	bool closed;              /* no more starts */
	uint32_t nstarts, nended; /* starts, modulo 2^32 */
	srt_nccl_in_flight_t in_flight[SRT_NCCL_MAX_IN_FLIGHT];
	double began_at;      /* when the oldest start was seen to have begun; 0: it has not */
	bool warned;          /* that the oldest start takes long */
	double closing_since; /* when its collective was seen to be closing; 0: it is not */
	double polled_at;     /* when the poller last polled, or the first start was added */
	/* The failure that the poller has found, and when; or SRT_OK. */
	srt_status_t failure;
	double failed_since;
	char failure_text[SRT_CONTROL_TEXT];
} srt_nccl_t;

/* The transport_data of a collective. */
typedef struct srt_nccl_coll {
	bool sums;      /* sums are NCCL's own */
	uint32_t seqno; /* number of the last start in flight */
	bool uniform
		[]; /* by index of extent: an all-gather by NCCL moves the extents of all ranks */
} srt_nccl_coll_t;

static inline srt_nccl_t *srt_nccl_of(const srt_coll_t *coll)
{
	return coll->comm->transport_data;
}

/* ---- choose.c -------------------------------------------------------------------------- */

/* Slots of srt_transport_t. */
void srt_nccl_describe(const srt_comm_t *world, struct srt_capabilities *mine);
srt_status_t srt_nccl_choose(const srt_comm_t *comm, bool *is_chosen);
/* Whether the numerics mode of all ranks is fast. */
bool srt_nccl_all_fast(const srt_comm_t *comm);
/* Whether the communicator becomes a staged one if NCCL does not work. */
bool srt_nccl_may_stage(const srt_comm_t *comm);

/* ---- create.c -------------------------------------------------------------------------- */

/* Collective: creates the transport_data and runs a first collective. If that fails on a rank and
 * srt_nccl_may_stage(), the communicator becomes a staged one. */
srt_status_t srt_nccl_create(srt_comm_t *comm);
/* Waits some seconds at most until all ranks destroy theirs. If they do not, or after a failure,
 * NCCL's work is aborted. NULL is allowed. */
void srt_nccl_destroy(srt_nccl_t *nccl);

/* ---- group.c: the NCCL calls of a round --------------------------------------------------- */

/* Submits the sends and receives of the round, in groups. */
srt_status_t srt_nccl_exchange_round(const srt_coll_start_t *start, uint32_t round);
/* Ends a group and submits it, unless `status`, the result of adding its calls, is a failure.
 * Returns the first failure. */
srt_status_t srt_nccl_end_group(const srt_nccl_t *nccl, srt_status_t status);

/* ---- sum.c: the scratch, and NCCL's own sums ----------------------------------------------- */

/* Bytes of device memory for the sums of all collectives of a communicator. */
size_t srt_nccl_scratch_nbytes(int nranks);
/* Bytes of each peer's part of a round in the scratch. */
size_t srt_nccl_part_nbytes(int nranks);
/* The part of a peer in the scratch. */
srt_view_t srt_nccl_part(const srt_coll_t *coll, int peer);
/* Whether NCCL's own sum may be used for the collective: the same on all ranks. */
bool srt_nccl_may_sum(const srt_coll_t *coll);
/* In a group: the sums of all extents. */
srt_status_t srt_nccl_append_sums(const srt_coll_t *coll);
/* async. Applies the epilogue to the sums and stores them. */
srt_status_t srt_nccl_finish_sums(const srt_coll_t *coll, const srt_coll_epilogue_t *epilogue,
				  srt_stream_t *stream);

/* ---- order.c: announcing starts, starts in flight ------------------------------------------- */

/* Announces a start of any transport and compares it with the starts that other ranks announced.
 * Waits only for a rank that is very many starts late. */
srt_status_t srt_nccl_announce(const srt_coll_start_t *start);
/* Adds a start in flight. Waits if there are SRT_NCCL_MAX_IN_FLIGHT. */
srt_status_t srt_nccl_in_flight_add(srt_nccl_t *nccl, const srt_coll_t *coll,
				    srt_nccl_in_flight_t **entry, uint32_t *number);
/* All of its work is on the stream. */
void srt_nccl_in_flight_submitted(srt_nccl_t *nccl, srt_nccl_in_flight_t *entry);
/* Polls which starts have ended and whether the oldest has begun. Fails if the stream has failed.
 * Calls the driver, which may block. */
srt_status_t srt_nccl_poll(srt_nccl_t *nccl);

/* ---- watchdog.c ------------------------------------------------------------------------- */

srt_status_t srt_nccl_watchdog_start(srt_nccl_t *nccl);
void srt_nccl_watchdog_stop(srt_nccl_t *nccl);
/* The collective is about to be destroyed. After a failure, waits until its work has ended. */
void srt_nccl_detach(srt_nccl_t *nccl, const srt_coll_t *coll);
/* The communicator is poisoned, or its creation failed: allows no more starts. Makes the device
 * fail if starts are in flight. */
void srt_nccl_fail_in_flight(srt_nccl_t *nccl);
/* srt_nccl_fail_in_flight(), then aborts NCCL's work. */
void srt_nccl_abort(srt_nccl_t *nccl);

#endif
