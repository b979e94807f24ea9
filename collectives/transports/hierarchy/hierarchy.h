/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hierarchical transport: for communicators whose ranks are on several nodes, with the same
 * number of ranks, more than one, on each. A collective runs in stages, which are collectives of
 * two smaller communicators:
 *
 *     local    the ranks of this rank's node, by the transport that they would choose alone
 *     across   the ranks of all nodes that have this rank's place on their node, by UCX
 *
 *     all-gather      across: the shards of the ranks with this place, to full. Local: all parts of
 *                     full, in place
 *     broadcast       across, of the ranks with the root's place; then local
 *     reduce-scatter  local: the sum of the node's ranks over what all ranks with this place own,
 *                     as floats, to `partial`. Across: the sum of these sums. In pieces that fit
 *                     `partial`
 *     all-reduce      as reduce-scatter, in place in full, and then as all-gather
 *
 * So each byte is sent once to each node, where the flat ucx transport sends it to each rank. The
 * bits are the same: a node's ranks are an aligned block of 2^k ranks, whose sum is a node of the
 * tree (docs/numerics.md). If they are not, sums are flat. The other kinds are always flat.
 *
 * Failures: both communicators have the poison of the one that they serve (poison.c).
 */
#ifndef SRT_COLLECTIVES_TRANSPORTS_HIERARCHY_HIERARCHY_H
#define SRT_COLLECTIVES_TRANSPORTS_HIERARCHY_HIERARCHY_H

#include "collectives/collective.h"

/* The hierarchy of a communicator. */
struct srt_hierarchy {
	srt_comm_t *local, *across;
	int *member; /* [nnodes][nlocal] ranks of the communicator, by node and place */
	int nnodes, nlocal;
	bool sums; /* the ranks of each node are an aligned block of 2^k */
	/* Set here, so that what it is built on need not refer to it: the transport of collectives
	 * that run in stages. */
	const srt_transport_t *transport;
	void (*destroy)(srt_hierarchy_t *hierarchy);
	/* Memory of the collectives that sum; NULL = there are none. */
	int nusers;
	size_t partial_nbytes; /* SHARDRT_STAGING_BYTES, or the least that the nodes need */
	srt_buffer_t *partial; /* sums of the node's ranks */
	srt_buffer_t
		*scratch;  /* sum_scratch of both communicators: of more than 8 ranks; or NULL */
	srt_event_t *done; /* the last start has used both */
};

/* The transport_data of a collective. */
typedef struct srt_stages {
	uint32_t npieces; /* of its sum; 0 = it does not sum */
	/* The last stage of a sum stores the result. Else it stores floats, which are then
	 * rounded. */
	bool sums_to_result;
	uint32_t nstages;
	srt_coll_t *stages[];
} srt_stages_t;

/* Sets comm->hierarchy, without its communicators, if its ranks are on several nodes as the
 * transport needs them and all of them allow it. Also after a failure it may be set. Local. */
srt_status_t srt_hierarchy_describe(srt_comm_t *comm);
/* Collective: the same, with its communicators. It is destroyed with the communicator. */
srt_status_t srt_hierarchy_create(srt_comm_t *comm);
/* Index of a rank of the communicator in `member`. */
int srt_hierarchy_find(const srt_hierarchy_t *hierarchy, int rank);
/* The memory of sums: for a collective that sums, until the matching release. */
srt_status_t srt_hierarchy_acquire_sums(srt_comm_t *comm);
void srt_hierarchy_release_sums(srt_hierarchy_t *hierarchy);
/* Slot of srt_transport_t. */
srt_status_t srt_hierarchy_plan(const srt_comm_t *comm, const srt_coll_uses_t *uses,
				srt_coll_memory_t *memory);

#endif
