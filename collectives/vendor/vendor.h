/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives by the library of the devices' vendor (NCCL): what it moves does not pass through
 * the host. Chosen by collectives/transport.c where all ranks have the same library and devices
 * of their own; the library itself is behind srt_backend_comm_ops_t of the backend.
 *
 * A communicator has one stream of its own for it, so its starts follow each other in the order
 * of starting, as they do on the other ranks, and share one scratch. A start there:
 *
 *     wait for the caller's stream         an event
 *     all ranks are here with the same     a host function: publish, wait for all, compare orders
 *     send and receive, sum, ...           the vendor's library, our kernels; in rounds
 *     has it gone well?                    a host function: fails the stream if poisoned
 *     the caller's stream goes on          an event
 *
 * So the vendor's library only ever sees starts that all ranks agree on. What can go wrong after
 * that (a rank dies, the library fails or hangs) is a watcher's affair: see watch.c.
 */
#ifndef SRT_COLLECTIVES_VENDOR_H
#define SRT_COLLECTIVES_VENDOR_H

#include "collectives/comm.h"
#include "collectives/shm/control.h"

struct srt_vendor {
	srt_comm_t *comm;
	const srt_backend_comm_ops_t *ops;
	void *impl; /* of the backend */
	srt_stream_t *stream;
	srt_event_t *ready;    /* of the caller's stream */
	srt_buffer_t *scratch; /* parts of a sum; or NULL */
	int nsums;             /* collectives that use it */
	uint32_t nstarts;      /* modulo 2^32; the caller's */
	srt_shm_memory_t *word_memory;
	srt_shm_word_t *words; /* [size][SRT_SHM_NWORDS]: release = starts that have ended */

	/* Held for every call of ops on impl. Taken before `mutex`. */
	pthread_mutex_t calls;
	bool aborted; /* nothing is called any more but destroy() */

	pthread_mutex_t mutex; /* of all below */
	pthread_cond_t changed;
	pthread_t watcher;
	bool watched; /* the thread runs */
	bool stopping;
	uint32_t npending;              /* starts that have not ended */
	const struct srt_coll *running; /* between the two host functions, or NULL */
	double running_since;
};

struct srt_coll_start;

/* ---- create.c -------------------------------------------------------------------------- */

/* Collective: makes comm->vendor. */
srt_status_t srt_vendor_create(srt_comm_t *comm);
/* Local. Peers that are about to finish their part of the last start are waited for, a second at
 * most. NULL is allowed. */
void srt_vendor_destroy(srt_vendor_t *vendor);
/* Waits until the vendor's library has done what it has begun. */
srt_status_t srt_vendor_settle(srt_vendor_t *vendor, const char *what);
/* Bytes of device memory that sums need, all collectives of a communicator together. */
size_t srt_vendor_scratch_nbytes(int nranks);

/* ---- exchange.c: one collective --------------------------------------------------------- */

/* Local: what the collective needs. */
srt_status_t srt_vendor_connect(struct srt_coll *coll);
/* Whether the i-th runs of all owners are of one size, and lie one behind the other in the order of
 * ranks. */
bool srt_vendor_alike(const struct srt_coll *coll, size_t i);
/* Local. Also of a collective that is not by the vendor's library. */
void srt_vendor_disconnect(struct srt_coll *coll);
/* async. Puts a start on the vendor's stream, and the caller's stream behind it. */
srt_status_t srt_vendor_start(struct srt_coll_start *start, const srt_coll_epilogue_t *epilogue,
			      srt_stream_t *stream);

/* ---- sum.c: the vendor's own sums ------------------------------------------------------- */

/* Whether they may be taken for the collective: the same on all ranks. */
bool srt_vendor_may_sum(const struct srt_coll *coll);
/* In a group: the sums of all runs. */
srt_status_t srt_vendor_put_sums(const struct srt_coll *coll);
/* async. The whole of a start by them. */
srt_status_t srt_vendor_sum(struct srt_coll_start *start, const srt_coll_epilogue_t *epilogue,
			    srt_stream_t *stream);

/* ---- watch.c ---------------------------------------------------------------------------- */

srt_status_t srt_vendor_watch(srt_vendor_t *vendor);
void srt_vendor_unwatch(srt_vendor_t *vendor);
/* The caller is about to put a start on the stream. */
void srt_vendor_starts(srt_vendor_t *vendor);
/* In the stream's order: all ranks have come; nothing of the start is on the stream any more.
 * False: the vendor's library says that it has failed, and the communicator is poisoned. */
void srt_vendor_began(srt_vendor_t *vendor, const struct srt_coll *coll);
bool srt_vendor_ended(srt_vendor_t *vendor);
/* The collective is about to go. After a failure, what is left of it on the stream ends first. */
void srt_vendor_forget(srt_vendor_t *vendor, const struct srt_coll *coll);
/* Ends what the vendor's library does; once. */
void srt_vendor_abort(srt_vendor_t *vendor);

#endif
