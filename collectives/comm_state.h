/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state of a communicator: its ranks, its poison and its shared control memory. The functions
 * of this header call no other file, so files that comm.h's functions call may use them.
 *
 * A communicator is used by one thread at a time. Exceptions are srt_comm_abort(), the host
 * functions of its collectives, and the progress thread. The fields that these share are atomic, or
 * are written before a poison becomes visible and never after, or are protected by
 * bootstrap->mutex.
 */
#ifndef SRT_COLLECTIVES_COMM_STATE_H
#define SRT_COLLECTIVES_COMM_STATE_H

#include <stdatomic.h>

#include <shardrt/coll.h>

#include "device/device.h"
#include "base/base.h"
#include "collectives/bootstrap/internal.h"

/* Starts in the log. The order of older starts is not compared. */
#define SRT_START_LOG_LENGTH 256u

typedef struct srt_shm srt_shm_t;             /* collectives/shm/control.h */
typedef struct srt_flight srt_flight_t;       /* collectives/flight/flight.h */
typedef struct srt_transport srt_transport_t; /* collectives/collective.h */
typedef struct srt_hierarchy srt_hierarchy_t; /* collectives/transports/hierarchy/hierarchy.h */

struct srt_comm {
	srt_comm_t *next; /* in bootstrap->comms */
	/* The communicator's owner, each collective, engine and scaler. The last one frees it. */
	atomic_int nholders;
	srt_bootstrap_t *bootstrap;
	srt_device_t *device;
	int rank, size;
	int *world_rank; /* [size] rank in the world, which messages name */
	uint64_t id;     /* the same on all its ranks, different from other communicators' */
	char *name;

	atomic_int poison; /* srt_status_t; SRT_OK = none */
	char poison_text[SRT_CONTROL_TEXT];

	uint32_t oob_seqno;
	_Atomic uint32_t given_up; /* the first exchange that a rank takes no part in */
	bool has_told;             /* that this rank takes part in no more */
	uint32_t ngroups;          /* created from it so far */
	uint32_t ncolls;           /* created on it so far */
	uint32_t nstarts;          /* of collectives, modulo 2^32 */
	struct srt_coll *colls;    /* live collectives; protected by bootstrap->mutex */
	const srt_transport_t *transport;
	void *transport_data; /* made by transport->create, freed by transport->destroy; or NULL */
	srt_shm_t *shm;       /* NULL for a single rank, and with ucx */
	/* [size][SRT_START_LOG_LENGTH]: start number << 32 | collective. In shared memory, or with
	 * ucx what this rank knows. NULL for a single rank. */
	_Atomic uint64_t *start_log;
	srt_flight_t *flight; /* the last calls and the waits */
	bool is_world;
	size_t driver_overhead; /* bytes of device memory that its transport may allocate later */
	srt_hierarchy_t *hierarchy; /* its collectives may run in stages; or NULL */
	srt_comm_t *parent;         /* it is part of this one's hierarchy; or NULL */
	srt_buffer_t *sum_scratch;  /* of such a part: for all its collectives; or NULL */
	struct srt_plain *plain;    /* collectives in one call (plain.c); NULL: none so far */
	void (*destroy_plain)(srt_comm_t *comm);
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

#endif
