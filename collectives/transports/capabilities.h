/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the ranks know of each other to choose the transport of a communicator: each rank's device
 * and configuration. Gathered once, when the world is created. So the choice for a group of its
 * ranks is a function of these ranks, which is known before the group exists (plan.c). Ranks may
 * run on devices of different kinds.
 */
#ifndef SRT_COLLECTIVES_TRANSPORTS_CAPABILITIES_H
#define SRT_COLLECTIVES_TRANSPORTS_CAPABILITIES_H

#include "collectives/comm_state.h"

/* SHARDRT_COLLECTIVES */
typedef enum srt_preference {
	SRT_PREFER_AUTO,
	SRT_PREFER_SHM,
	SRT_PREFER_STAGED,
	SRT_PREFER_NCCL,
	SRT_PREFER_UCX,
	SRT_NPREFERENCES,
} srt_preference_t;

/* A rank's device and configuration, as all ranks see it. */
typedef struct srt_capabilities {
	int32_t peer_memory;
	int32_t peer_begin; /* peers' accesses to the device's memory are ordered by calls */
	int32_t wraps_host;
	int32_t host_memory;
	int32_t fast;        /* numerics */
	int32_t preference;  /* a srt_preference_t */
	int32_t has_table;   /* the backend has a table of collectives */
	int32_t has_library; /* its library is usable: the fields below are set */
	int32_t has_ucx;
	uint32_t library_version;
	unsigned char device_id[16];
	uint64_t driver_overhead;
	uint64_t slot_nbytes;
	char device[64];
	char peer_kind[16];
	char library_name[16];
	char reason[192]; /* why it is not usable */
	char ucx_reason[192];
} srt_capabilities_t;

static inline const srt_capabilities_t *srt_capabilities_of(const srt_comm_t *comm, int rank)
{
	return &comm->bootstrap->capabilities[comm->world_rank[rank]];
}

const char *srt_preference_name(int32_t preference);
/* This rank's. */
srt_preference_t srt_preference_get(void);
/* The lowest rank whose preference is in the set of bits, or -1. */
int srt_preference_find(const srt_comm_t *comm, unsigned set);
/* Fails if a rank prefers `preference` and another one something in the set of bits. */
srt_status_t srt_preference_check(const srt_comm_t *comm, srt_preference_t preference,
				  unsigned set);
/* Fails if the ranks' slots differ in size. */
srt_status_t srt_capabilities_check_slots(const srt_comm_t *comm);

#endif
