/* SPDX-License-Identifier: BSD-3-Clause */
/* The communicators of a hierarchy and the memory of its sums. See hierarchy.h. */
#include <stdio.h>
#include <stdlib.h>

#include "collectives/collective.h"

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

/* Sets comm->hierarchy if the ranks are placed as it needs them. */
static srt_status_t alloc_hierarchy(srt_comm_t *comm, const char *what)
{
	const size_t world_size = (size_t)comm->bootstrap->world_size;
	srt_hierarchy_t *h = srt_comm_calloc(comm, 1, sizeof(*h), what);
	int *member = srt_comm_calloc(comm, (size_t)comm->size, sizeof(*member), what);
	node_t *nodes = srt_comm_calloc(comm, world_size, sizeof(*nodes), what);
	const bool have_memory = h != NULL && member != NULL && nodes != NULL;

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

/* Creates the communicator of n ranks: the first, and then each `step` entries further. */
static srt_status_t connect(srt_comm_t *comm, const char *what, int first, int step, int n,
			    srt_comm_t **out)
{
	const srt_hierarchy_t *h = comm->hierarchy;
	/* Groups have ids of 32-bit numbers (collectives/groups.c). */
	const uint64_t id = srt_mix64(comm->id, UINT64_C(1) << 32 | (uint64_t)step);
	int *world = srt_comm_calloc(comm, (size_t)n, sizeof(*world), "a group");
	int rank = 0;
	char name[96];
	srt_status_t status;

	if (world == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (int i = 0; i < n; i++) {
		const int r = h->member[first + i * step];

		world[i] = comm->world_rank[r];
		if (r == comm->rank)
			rank = i;
	}
	snprintf(name, sizeof(name), "%.64s %s", comm->name, what);
	status = srt_comm_connect(comm->bootstrap, comm->device, comm,
				  srt_mix64(id, (uint64_t)first) & ~SRT_CONTROL_TAG_RANK, rank, n,
				  world, name, out);
	free(world);
	return status;
}

int srt_hierarchy_find(const srt_hierarchy_t *h, int rank)
{
	int at = 0;

	while (h->member[at] != rank)
		at++;
	return at;
}

srt_status_t srt_hierarchy_create(srt_comm_t *comm)
{
	static const char what[] = "connecting the ranks of a node";
	srt_hierarchy_t *h;
	int at;

	if (!comm->may_stage_nodes)
		return SRT_OK;
	SRT_TRY(alloc_hierarchy(comm, what));
	h = comm->hierarchy;
	if (h == NULL)
		return SRT_OK;
	at = srt_hierarchy_find(h, comm->rank);
	SRT_TRY(srt_comm_status_consensus(comm, what,
					  connect(comm, "on a node", at / h->nlocal * h->nlocal, 1,
						  h->nlocal, &h->local)));
	SRT_TRY(srt_comm_status_consensus(comm, what,
					  connect(comm, "across nodes", at % h->nlocal, h->nlocal,
						  h->nnodes, &h->across)));
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

void srt_hierarchy_plan(const srt_comm_t *comm, int nranks, const srt_coll_uses_t *uses,
			srt_coll_memory_t *memory)
{
	const srt_hierarchy_t *h = comm->hierarchy;
	const srt_comm_t *const parts[] = { h->local, h->across };
	const srt_coll_uses_t of_stages = {
		.copies = uses->copies || (uses->all_reduces && h->sums),
		.sums = uses->sums && h->sums,
	};

	(void)nranks;
	for (size_t c = 0; c < SRT_ARRAY_LEN(parts); c++) {
		srt_coll_memory_t one;

		srt_coll_plan(parts[c], parts[c]->size, &of_stages, &one);
		memory->scratch += one.scratch;
		memory->mapped += one.mapped;
		memory->maps_sources |= one.maps_sources;
	}
	if (of_stages.sums)
		memory->scratch += h->partial_nbytes + scratch_nbytes(h);
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
}
