/* SPDX-License-Identifier: BSD-3-Clause */
/* The communicators of a hierarchy and the memory of its sums. See hierarchy.h. */
#include <stdio.h>
#include <stdlib.h>

#include "collectives/transports/capabilities.h"
#include "collectives/transports/hierarchy/hierarchy.h"

/* Least bytes of a piece of a rank. */
#define MIN_PIECE ((size_t)64)

/* A node of the communicator. */
typedef struct node {
	int index;  /* nodes are in the order of their first ranks */
	int nranks; /* found so far */
} node_t;

/* Fills the table of members, which has room for nodes of as many ranks as the first one has. False
 * if nodes differ in their number of ranks, or have one rank each. nodes: [world_size] zeros. */
static bool fill_members(const srt_comm_t *comm, srt_hierarchy_t *h, int *member, node_t *nodes)
{
	int nfound = 0;

	for (int r = 0; r < comm->size; r++)
		h->nlocal += srt_comm_same_node(comm, 0, r);
	h->nnodes = comm->size / h->nlocal;
	h->sums = (h->nlocal & (h->nlocal - 1)) == 0;
	for (int r = 0; r < comm->size; r++) {
		node_t *node = &nodes[comm->bootstrap->node_of[comm->world_rank[r]]];
		int at;

		if (node->nranks == 0)
			node->index = nfound++;
		if (node->index == h->nnodes || node->nranks == h->nlocal)
			return false;
		at = node->index * h->nlocal + node->nranks++;
		member[at] = r;
		h->sums = h->sums && at == r;
	}
	return h->nlocal > 1;
}

static void destroy_hierarchy(srt_hierarchy_t *h)
{
	srt_comm_destroy(h->across);
	srt_comm_destroy(h->local);
	free(h->member);
	free(h);
}

static size_t partial_nbytes(const srt_hierarchy_t *h)
{
	const size_t least = (size_t)h->nnodes * MIN_PIECE;
	const size_t nbytes = srt_config_size("SHARDRT_STAGING_BYTES") / least * least;

	return nbytes > least ? nbytes : least;
}

srt_status_t srt_hierarchy_describe(srt_comm_t *comm)
{
	const size_t world_size = (size_t)comm->bootstrap->world_size;
	bool have_memory;
	srt_hierarchy_t *h;
	node_t *nodes;
	int *member;

	/* SHARDRT_COLLECTIVES=ucx: all messages by UCX. */
	if (comm->transport != &srt_transport_ucx ||
	    srt_preference_find(comm, 1u << SRT_PREFER_UCX) >= 0)
		return SRT_OK;
	h = srt_calloc(1, sizeof(*h), "a communicator");
	member = srt_calloc((size_t)comm->size, sizeof(*member), "a communicator");
	nodes = srt_calloc(world_size, sizeof(*nodes), "a communicator");
	have_memory = h != NULL && member != NULL && nodes != NULL;
	if (have_memory && fill_members(comm, h, member, nodes)) {
		h->member = member;
		h->transport = &srt_transport_hierarchical;
		h->destroy = destroy_hierarchy;
		h->partial_nbytes = partial_nbytes(h);
		comm->hierarchy = h;
	} else {
		free(member);
		free(h);
	}
	free(nodes);
	return have_memory ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
}

int srt_hierarchy_find(const srt_hierarchy_t *h, int rank)
{
	int at = 0;

	while (h->member[at] != rank)
		at++;
	return at;
}

/* The ranks of one of its two communicators, as of the world. */
typedef struct part {
	int *world;  /* [n] */
	int n, rank; /* rank: that of comm->rank */
	int first;   /* their first entry in the table of members, each one `step` further */
	int step;
} part_t;

/* part->world: freed by the caller. */
static srt_status_t list_part(const srt_comm_t *comm, bool is_local, part_t *part)
{
	const srt_hierarchy_t *h = comm->hierarchy;
	const int at = srt_hierarchy_find(h, comm->rank);
	const int node = at / h->nlocal, place = at % h->nlocal;

	if (is_local)
		*part = (part_t){ .n = h->nlocal, .rank = place, .first = at - place, .step = 1 };
	else
		*part = (part_t){ .n = h->nnodes, .rank = node, .first = place, .step = h->nlocal };
	part->world = srt_calloc((size_t)part->n, sizeof(*part->world), "a group");
	if (part->world == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (int i = 0; i < part->n; i++)
		part->world[i] = comm->world_rank[h->member[part->first + i * part->step]];
	return SRT_OK;
}

static srt_status_t connect(srt_comm_t *comm, const char *what, bool is_local, srt_comm_t **out)
{
	char name[96];
	srt_status_t status;
	uint64_t id;
	part_t part;

	status = list_part(comm, is_local, &part);
	if (status != SRT_OK)
		return srt_comm_fail_alone(comm, what, status, srt_error_last());
	/* Groups have ids of 32-bit numbers (collectives/groups.c). */
	id = srt_mix64(comm->id, UINT64_C(1) << 32 | (uint64_t)part.step);
	snprintf(name, sizeof(name), "%.64s %s", comm->name,
		 is_local ? "on a node" : "across nodes");
	status = srt_comm_connect(comm->bootstrap, comm->device, comm,
				  srt_mix64(id, (uint64_t)part.first) & ~SRT_CONTROL_TAG_RANK,
				  part.rank, part.n, part.world, name, out);
	free(part.world);
	return status;
}

srt_status_t srt_hierarchy_create(srt_comm_t *comm)
{
	static const char what[] = "connecting the ranks of a node";
	srt_status_t status = srt_hierarchy_describe(comm);
	srt_hierarchy_t *h = comm->hierarchy;

	if (status != SRT_OK)
		return srt_comm_fail_alone(comm, what, status, srt_error_last());
	if (h == NULL)
		return SRT_OK;
	SRT_TRY(srt_comm_status_consensus(comm, what, connect(comm, what, true, &h->local)));
	SRT_TRY(srt_comm_status_consensus(comm, what, connect(comm, what, false, &h->across)));
	srt_log(SRT_LOG_DEBUG,
		"communicator \"%s\": hierarchical collectives on %d nodes of %d ranks, %s on a node",
		comm->name, h->nnodes, h->nlocal, h->local->transport->name);
	return SRT_OK;
}

/* ---- memory of sums ------------------------------------------------------------------------- */

static size_t scratch_nbytes(const srt_hierarchy_t *h)
{
	const size_t local = srt_step_reduce_scratch(h->nlocal);
	const size_t across = srt_step_reduce_scratch(h->nnodes);

	return local > across ? local : across;
}

srt_status_t srt_hierarchy_plan(const srt_comm_t *comm, const srt_coll_uses_t *uses,
				srt_coll_memory_t *memory)
{
	const srt_hierarchy_t *h = comm->hierarchy;
	const srt_coll_uses_t of_stages = {
		.copies = uses->copies || (uses->all_reduces && h->sums),
		.sums = uses->sums && h->sums,
	};

	for (int is_local = 0; is_local < 2; is_local++) {
		srt_coll_memory_t one;
		srt_status_t status;
		part_t part;

		SRT_TRY(list_part(comm, is_local, &part));
		status = srt_coll_plan(comm, part.world, part.n, part.rank, &of_stages, &one);
		free(part.world);
		SRT_TRY(status);
		memory->scratch += one.scratch;
		memory->mapped += one.mapped;
		memory->maps_sources |= one.maps_sources;
		memory->maps_full |= is_local && one.maps_sources;
	}
	if (of_stages.sums)
		memory->scratch += h->partial_nbytes + scratch_nbytes(h);
	return SRT_OK;
}

srt_status_t srt_hierarchy_acquire_sums(srt_comm_t *comm)
{
	srt_hierarchy_t *h = comm->hierarchy;

	if (h->nusers++ > 0)
		return SRT_OK;
	SRT_TRY(srt_buffer_create(comm->device, srt_comm_mem_kind(h->across), h->partial_nbytes,
				  "sums of a node's ranks", &h->partial));
	if (scratch_nbytes(h) > 0)
		SRT_TRY(srt_buffer_create(comm->device, SRT_MEM_DEVICE, scratch_nbytes(h),
					  "partial sums over ranks", &h->scratch));
	h->local->sum_scratch = h->across->sum_scratch = h->scratch;
	return srt_event_create(comm->device, &h->done);
}

void srt_hierarchy_release_sums(srt_hierarchy_t *h)
{
	if (--h->nusers > 0)
		return;
	srt_event_destroy(h->done);
	srt_buffer_destroy(h->scratch);
	srt_buffer_destroy(h->partial);
	h->done = NULL;
	h->scratch = h->partial = NULL;
	h->local->sum_scratch = h->across->sum_scratch = NULL;
}
