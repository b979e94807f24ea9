/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The world, and communicators of some ranks of another one: one group (srt_comm_create_group), or
 * a group for each colour at once (srt_comm_split). Collective over the parent; all its ranks
 * compute the same result from the same table, so an error in it is the same error on all ranks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/collective.h"
#include "collectives/transports/hierarchy/hierarchy.h"

/* srt_comm_connect() of a communicator that a program uses. */
static srt_status_t connect(srt_bootstrap_t *bootstrap, srt_device_t *device, uint64_t id, int rank,
			    int size, const int *world_ranks, const char *name, srt_comm_t **out)
{
	srt_comm_t *comm;
	srt_status_t status;

	SRT_TRY(srt_comm_connect(bootstrap, device, NULL, id, rank, size, world_ranks, name,
				 &comm));
	status = srt_hierarchy_create(comm);
	if (status != SRT_OK) {
		srt_comm_destroy(comm);
		return status;
	}
	*out = comm;
	return SRT_OK;
}

srt_status_t srt_comm_create_world(srt_bootstrap_t *bootstrap, srt_device_t *device,
				   srt_comm_t **out)
{
	return connect(bootstrap, device, SRT_COMM_WORLD_ID, bootstrap->rank, bootstrap->world_size,
		       NULL, "world", out);
}

/* A rank's description of the group that it creates. */
typedef struct group_record {
	uint64_t ranks_hash;
	int32_t nranks;
	int32_t valid;
	char name[64];
} group_record_t;

static bool valid_ranks(const srt_comm_t *parent, const int *ranks, int nranks)
{
	if (ranks == NULL || nranks < 1 || nranks > parent->size)
		return false;
	for (int i = 0; i < nranks; i++) {
		if (ranks[i] < 0 || ranks[i] >= parent->size || (i > 0 && ranks[i] <= ranks[i - 1]))
			return false;
	}
	return true;
}

static srt_status_t verify_groups(srt_comm_t *parent, const int *ranks, int nranks,
				  const char *name)
{
	group_record_t mine = { .nranks = nranks, .valid = valid_ranks(parent, ranks, nranks) };
	group_record_t *all;
	char what[128];
	srt_status_t status;

	if (mine.valid)
		mine.ranks_hash = srt_hash64(0, ranks, (size_t)nranks * sizeof(*ranks));
	snprintf(mine.name, sizeof(mine.name), "%s", name);
	snprintf(what, sizeof(what), "creating group \"%s\"", name);
	all = srt_comm_calloc(parent, (size_t)parent->size, sizeof(*all), what);
	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_comm_oob_allgather_for(parent, what, &mine, sizeof(mine), all);
	for (int r = 0; r < parent->size && status == SRT_OK; r++) {
		all[r].name[sizeof(all[r].name) - 1] = '\0';
		if (!all[r].valid)
			status =
				srt_fail(SRT_ERR_INVALID_ARGUMENT,
					 "group \"%s\": the %d ranks that rank %d lists must be in "
					 "rising order and within 0..%d",
					 all[r].name, (int)all[r].nranks, parent->world_rank[r],
					 parent->size - 1);
		else if (memcmp(all[r].name, all[0].name, sizeof(all[r].name)) != 0)
			status = srt_fail(
				SRT_ERR_MISMATCH,
				"rank %d creates group \"%s\", rank %d creates group \"%s\"",
				parent->world_rank[0], all[0].name, parent->world_rank[r],
				all[r].name);
		else if (all[r].nranks != all[0].nranks || all[r].ranks_hash != all[0].ranks_hash)
			status = srt_fail(SRT_ERR_MISMATCH,
					  "group \"%s\": rank %d lists %d ranks (table %016llx), "
					  "rank %d lists %d (table %016llx)",
					  all[0].name, parent->world_rank[0], (int)all[0].nranks,
					  (unsigned long long)all[0].ranks_hash,
					  parent->world_rank[r], (int)all[r].nranks,
					  (unsigned long long)all[r].ranks_hash);
	}
	free(all);
	return status;
}

/* Creates the group of n ranks of the parent, ranks[rank] being this one. */
static srt_status_t join_group(srt_comm_t *parent, const int *ranks, int n, int rank,
			       const char *name, uint64_t id, srt_comm_t **out)
{
	srt_status_t status;
	/* The other members are about to wait for this rank. */
	int *world = srt_comm_calloc(parent, (size_t)n, sizeof(*world), "a group");

	if (world == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (int i = 0; i < n; i++)
		world[i] = parent->world_rank[ranks[i]];
	status = connect(parent->bootstrap, parent->device, id & ~SRT_CONTROL_TAG_RANK, rank, n,
			 world, name, out);
	free(world);
	return status;
}

srt_status_t srt_comm_create_group(srt_comm_t *parent, const int *ranks, int nranks,
				   const char *name, srt_comm_t **out)
{
	uint64_t id;

	SRT_NOT_NULL(parent);
	SRT_NOT_NULL(ranks);
	SRT_TRY(srt_check_not_null(out, __func__, "comm"));
	if (name == NULL)
		name = "unnamed";
	SRT_TRY(verify_groups(parent, ranks, nranks, name));
	id = srt_mix64(parent->id, ++parent->ngroups);
	for (int i = 0; i < nranks; i++) {
		if (ranks[i] == parent->rank)
			return join_group(parent, ranks, nranks, i, name, id, out);
	}
	*out = NULL;
	return SRT_OK;
}

/* A rank's part in a split. */
typedef struct split_record {
	int32_t colour;
	char name[60];
} split_record_t;

static srt_status_t verify_split(const srt_comm_t *parent, split_record_t *all)
{
	for (int r = 0; r < parent->size; r++) {
		all[r].name[sizeof(all[r].name) - 1] = '\0';
		if (all[r].colour < SRT_COLOUR_NONE)
			return srt_fail(
				SRT_ERR_INVALID_ARGUMENT,
				"splitting into groups \"%s\": the colour of rank %d is %d, "
				"must be at least 0, or SRT_COLOUR_NONE",
				all[r].name, parent->world_rank[r], (int)all[r].colour);
		if (memcmp(all[r].name, all[0].name, sizeof(all[r].name)) != 0)
			return srt_fail(SRT_ERR_MISMATCH,
					"rank %d splits into groups \"%s\", rank %d into \"%s\"",
					parent->world_rank[0], all[0].name, parent->world_rank[r],
					all[r].name);
	}
	return SRT_OK;
}

/* Creates this rank's group of a split; members: [parent->size]. */
static srt_status_t join_colour(srt_comm_t *parent, const split_record_t *all, const char *name,
				int *members, srt_comm_t **out)
{
	const int32_t colour = all[parent->rank].colour;
	const uint64_t id = srt_mix64(parent->id, ++parent->ngroups);
	int n = 0, rank = 0;

	if (colour == SRT_COLOUR_NONE)
		return SRT_OK;
	for (int r = 0; r < parent->size; r++) {
		if (r == parent->rank)
			rank = n;
		if (all[r].colour == colour)
			members[n++] = r;
	}
	return join_group(parent, members, n, rank, name, srt_mix64(id, (uint64_t)colour), out);
}

srt_status_t srt_comm_split(srt_comm_t *parent, int colour, const char *name, srt_comm_t **out)
{
	split_record_t mine = { .colour = colour }, *all;
	srt_comm_t *comm = NULL;
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;
	char what[128];
	int *members;

	SRT_NOT_NULL(parent);
	SRT_TRY(srt_check_not_null(out, __func__, "comm"));
	if (name == NULL)
		name = "unnamed";
	snprintf(mine.name, sizeof(mine.name), "%s", name);
	snprintf(what, sizeof(what), "splitting into groups \"%.64s\"", name);
	all = srt_comm_calloc(parent, (size_t)parent->size, sizeof(*all), what);
	members = srt_comm_calloc(parent, (size_t)parent->size, sizeof(*members), what);
	if (all != NULL && members != NULL)
		status = srt_comm_oob_allgather_for(parent, what, &mine, sizeof(mine), all);
	if (status == SRT_OK)
		status = verify_split(parent, all);
	if (status == SRT_OK) {
		status = join_colour(parent, all, name, members, &comm);
		status = srt_comm_status_consensus(parent, what, status);
	}
	free(members);
	free(all);
	if (status != SRT_OK) {
		srt_comm_destroy(comm);
		return status;
	}
	*out = comm;
	return SRT_OK;
}
