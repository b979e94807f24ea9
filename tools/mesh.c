/* SPDX-License-Identifier: BSD-3-Clause */
/* See mesh.h. */
#include "tools/mesh.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/model.h"
#include "tools/precision.h"

#define DIMENSIONS "replicate|shard|dp|" SRT_MODEL_TENSOR_DIM
#define MAX_RANKS 65536

/* One NAME=N of nbytes bytes. */
static int parse_dim(const char *text, size_t nbytes, tool_mesh_t *mesh)
{
	const char *equals = memchr(text, '=', nbytes);
	size_t nname = equals != NULL ? (size_t)(equals - text) : nbytes;
	char *name = mesh->names[mesh->ndim];
	char *end;
	long n;

	if (equals == NULL || nname >= SRT_MESH_NAME)
		return -1;
	memcpy(name, text, nname);
	name[nname] = '\0';
	n = strtol(equals + 1, &end, 10);
	if (end != text + nbytes || end == equals + 1 || n < 1 || n > MAX_RANKS / mesh->nranks)
		return -1;
	for (int i = 0; i < mesh->ndim; i++)
		if (strcmp(mesh->names[i], name) == 0)
			return -1;
	mesh->shape[mesh->ndim++] = (int)n;
	mesh->nranks *= (int)n;
	return tool_find_word(DIMENSIONS, name) < 0 ? -1 : 0;
}

/* A mesh of tensor-parallel ranks alone has one data-parallel rank, which the strategies need. */
static void add_data_rank(tool_mesh_t *mesh)
{
	if (mesh->ndim != 1 || strcmp(mesh->names[0], SRT_MODEL_TENSOR_DIM) != 0)
		return;
	snprintf(mesh->names[1], SRT_MESH_NAME, "dp");
	mesh->shape[1] = 1;
	mesh->ndim = 2;
}

int tool_mesh_parse(const char *text, tool_mesh_t *mesh, char *why, size_t nwhy)
{
	const char *at = text;

	*mesh = (tool_mesh_t){ .nranks = 1 };
	while (at != NULL) {
		size_t nbytes = strcspn(at, ",");

		if (mesh->ndim == SRT_MESH_MAX_DIMS || parse_dim(at, nbytes, mesh) != 0) {
			snprintf(why, nwhy,
				 "--mesh needs NAME=N,NAME=N ..., each name once, of %s, not '%s'",
				 DIMENSIONS, text);
			return -1;
		}
		at = at[nbytes] ? at + nbytes + 1 : NULL;
	}
	add_data_rank(mesh);
	return 0;
}

/* The dimension called so; -1: there is none. */
static int find_dim(const tool_mesh_t *mesh, const char *name)
{
	for (int i = 0; i < mesh->ndim; i++)
		if (strcmp(mesh->names[i], name) == 0)
			return i;
	return -1;
}

int tool_mesh_check(const tool_mesh_t *mesh, srt_strategy_t strategy, char *why, size_t nwhy)
{
	const int replicate = find_dim(mesh, "replicate") >= 0;
	const int shard = find_dim(mesh, "shard") >= 0, dp = find_dim(mesh, "dp") >= 0;
	const char *needs = NULL;

	if (strategy == SRT_STRATEGY_DDP) {
		if (replicate + dp != 1 || shard)
			needs = "ddp needs --mesh with either replicate=N or dp=N, and no shard";
	} else if (strategy == SRT_STRATEGY_HYBRID) {
		if (!replicate || shard + dp != 1)
			needs = "hybrid needs --mesh with replicate=R, and either shard=S or dp=S";
	} else if (shard + dp != 1) {
		needs = "zero1 to zero3 need --mesh with either shard=N or dp=N";
	}
	if (needs == NULL || (mesh->ndim == 0 && strategy != SRT_STRATEGY_HYBRID))
		return 0;
	snprintf(why, nwhy, "--strategy %s", needs);
	return -1;
}

srt_status_t tool_mesh_create(const tool_mesh_t *mesh, srt_comm_t *comm, srt_mesh_t **out)
{
	const char *names[SRT_MESH_MAX_DIMS];

	*out = NULL;
	for (int i = 0; i < mesh->ndim; i++)
		names[i] = mesh->names[i];
	return mesh->ndim ? srt_mesh_create(comm, mesh->ndim, mesh->shape, names, out) : SRT_OK;
}

int tool_mesh_tensor_ranks(const tool_mesh_t *mesh)
{
	const int dim = find_dim(mesh, SRT_MODEL_TENSOR_DIM);

	return dim >= 0 ? mesh->shape[dim] : 1;
}

int tool_mesh_data_rank(const tool_mesh_t *mesh, int rank)
{
	int data_rank = 0, left = mesh->nranks;

	for (int i = 0; i < mesh->ndim; i++) {
		left /= mesh->shape[i];
		if (strcmp(mesh->names[i], SRT_MODEL_TENSOR_DIM) != 0)
			data_rank = data_rank * mesh->shape[i] + rank / left % mesh->shape[i];
	}
	return data_rank;
}
