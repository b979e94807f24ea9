/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside of a communicator: who is in it, its poison, its registered buffers and its shared control
 * memory. Shared by the files of collectives/; everybody else uses <shardrt/coll.h>.
 *
 * A communicator is used by one thread at a time, save srt_comm_abort(), the functions that its
 * collectives run on streams, and the progress thread. What those share is atomic, or written
 * before a poison becomes visible and never after, or under bootstrap->mutex.
 */
#ifndef SRT_COLLECTIVES_COMM_H
#define SRT_COLLECTIVES_COMM_H

#include <stdatomic.h>

#include <shardrt/coll.h>

#include "device/device.h"
#include "base/base.h"
#include "collectives/bootstrap/internal.h"

/* A buffer of this rank that peers have mapped. Lives as long as a collective uses it. */
typedef struct srt_export {
	struct srt_export *next;
	srt_buffer_t *buffer;
	uint64_t id; /* never used twice */
	int nusers;
} srt_export_t;

/* A peer's buffer mapped here, likewise. */
typedef struct srt_import {
	struct srt_import *next;
	int rank;
	uint64_t id; /* of the owner's srt_export_t */
	srt_buffer_t *buffer;
	int nusers;
} srt_import_t;

typedef struct srt_shm srt_shm_t;   /* collectives/shm/control.h */
typedef struct srt_lane srt_lane_t; /* collectives/transports/staged/staging.h */

typedef struct srt_nccl srt_nccl_t;           /* collectives/transports/nccl/nccl.h */
typedef struct srt_transport srt_transport_t; /* collectives/collective.h */

struct srt_comm {
	srt_comm_t *next; /* in bootstrap->comms */
	srt_bootstrap_t *bootstrap;
	srt_device_t *device;
	int rank, size;
	int *world_rank; /* [size] rank in the world, which messages name */
	uint64_t id;     /* the same on all its ranks, different from other communicators' */
	char *name;

	atomic_int poison; /* srt_status_t; SRT_OK = none */
	char poison_text[SRT_CONTROL_TEXT];

	uint32_t oob_seqno;
	uint32_t ngroups;       /* made from it so far */
	uint32_t ncolls;        /* ever made on it */
	uint32_t nstarts;       /* of collectives, modulo 2^32 */
	struct srt_coll *colls; /* live ones; under bootstrap->mutex */
	uint64_t nexports;
	srt_export_t *exports;
	srt_import_t *imports;
	const srt_transport_t *transport;
	srt_shm_t *shm;       /* NULL for a single rank */
	srt_lane_t *lanes[2]; /* staged: by srt_lane_kind_t, those in use */
	uint32_t nlanes;      /* ever made */
	bool is_world;
	bool may_stage;      /* nccl: staged if that cannot be made */
	bool fast;           /* likewise, and it may sum: all ranks' numerics mode is fast */
	size_t later_nbytes; /* likewise: of device memory, that it may take for itself later */
	srt_nccl_t *nccl;    /* nccl: once it is made */
};

static inline bool srt_comm_poisoned(const srt_comm_t *comm)
{
	return atomic_load_explicit(&((srt_comm_t *)(uintptr_t)comm)->poison,
				    memory_order_acquire) != SRT_OK;
}

/* The rank's number in the world. */
static inline int srt_comm_world_rank(const srt_comm_t *comm, int rank)
{
	return comm->world_rank[rank];
}

/* ---- poison.c ------------------------------------------------------------------------- */

/* Poisons; the first one stays. tell: the other ranks are poisoned with the same sentence. */
void srt_comm_poison(srt_comm_t *comm, srt_status_t status, bool tell, const char *format, ...)
	SRT_PRINTF(4, 5);
/* When something failed as it does if a rank has died: waits for the progress thread to hear of it,
 * and to poison, for some seconds at most. Whether the communicator is poisoned. */
bool srt_comm_await_poison(const srt_comm_t *comm, double seconds);
/* A wait for `rank` found it has left in order: it will never come. Poisons. */
void srt_comm_poison_left(srt_comm_t *comm, int rank);
/* Fails with the poison's sentence, what this rank was doing and, if > 0, how long it waited. */
srt_status_t srt_comm_fail(const srt_comm_t *comm, double waited_s, const char *format, ...)
	SRT_PRINTF(3, 4);
/* Enters and leaves the list of those that hear of deaths. */
void srt_comm_enlist(srt_comm_t *comm);
void srt_comm_delist(srt_comm_t *comm);

/* ---- bootstrap/oob.c: blocking, collective, `what` is for messages ------------------ */

/* Like srt_comm_oob_allgather(). */
srt_status_t srt_comm_oob_allgather_for(srt_comm_t *comm, const char *what, const void *send,
					size_t nbytes, void *recv);
/*
 * Sends nbytes (at most SRT_CONTROL_MAX_PAYLOAD) and perhaps a descriptor to each rank with to[r],
 * and receives the same from each with from[r] into recv + r * nbytes and fds[r] (-1 = none
 * came). All ranks must call it with tables that fit together. The received descriptors are the
 * caller's.
 */
srt_status_t srt_comm_exchange_fds(srt_comm_t *comm, const char *what, const bool *to,
				   const void *send, size_t nbytes, int fd, const bool *from,
				   void *recv, int *fds);
/*
 * Did it work everywhere? `status` is this rank's (its sentence the last error). If any is not
 * SRT_OK, all ranks return the lowest failing rank's status and sentence.
 */
srt_status_t srt_comm_status_consensus(srt_comm_t *comm, const char *what, srt_status_t status);

/* ---- comm.c --------------------------------------------------------------------------- */

/* 64 well mixed bits of a and b (splitmix64's finaliser). */
uint64_t srt_mix64(uint64_t a, uint64_t b);
uint64_t srt_hash64(uint64_t h, const void *data, size_t nbytes);

/* ---- transport.c ---------------------------------------------------------------------- */

/* Collective: sets comm->transport, may_stage, fast and later_nbytes by what the devices of all its
 * ranks can do. */
srt_status_t srt_comm_choose_transport(srt_comm_t *comm);
/* Whether collectives read the peers' memory where it lies. */
bool srt_comm_zero_copy(const srt_comm_t *comm);

/* Bytes that collectives need in addition to the buffers that they are given. */
typedef struct srt_coll_memory {
	size_t scratch;    /* that a rank allocates */
	size_t mapped;     /* that it maps of the other ranks' staging memory */
	bool maps_sources; /* it also maps the other ranks' sources, where they lie */
} srt_coll_memory_t;

/* The memory of a communicator's collectives on a rank, were it one of `nranks`. There is one at
 * least that copies, and `nsums` that sum something which the rank owns. */
void srt_coll_plan(const srt_comm_t *comm, int nranks, size_t nsums, srt_coll_memory_t *memory);

/* ---- import_cache.c ------------------------------------------------------------------- */

/*
 * Collective: makes `buffer` (NULL = this rank offers none) visible to the peers. On success
 * imports[r] is rank r's buffer, mapped here, or NULL; *own is this rank's entry or NULL. Given
 * back by srt_import_cache_release().
 */
srt_status_t srt_import_cache_share(srt_comm_t *comm, const char *what, srt_buffer_t *buffer,
				    const bool *reads_me, const bool *i_read, srt_export_t **own,
				    srt_import_t **imports);
void srt_import_cache_release(srt_comm_t *comm, srt_export_t *own, srt_import_t **imports);

#endif
