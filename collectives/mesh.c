/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Meshes: a communicator's ranks as a grid with named dimensions.
 *
 * The communicators along one dimension are the groups of one split. A dimension that has all ranks
 * uses the mesh's own communicator: it alone can have NCCL.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/comm.h"
#include "collectives/mesh.h"

int srt_mesh_find(const srt_mesh_t *mesh, const char *dim)
{
	for (int i = 0; i < mesh->ndim; i++) {
		if (strcmp(mesh->names[i], dim) == 0)
			return i;
	}
	return -1;
}

int srt_mesh_coordinate_of(const srt_mesh_t *mesh, int rank, int dim)
{
	return rank / mesh->stride[dim] % mesh->shape[dim];
}

/* The product of sizes that are at least 1; 0: more than an int. */
static int count_ranks(int ndim, const int *shape)
{
	int64_t n = 1;

	for (int i = 0; i < ndim; i++) {
		n *= shape[i];
		if (n > INT_MAX)
			return 0;
	}
	return (int)n;
}

static srt_status_t check_names(int ndim, const char *const *names)
{
	for (int i = 0; i < ndim; i++) {
		if (names[i] == NULL || names[i][0] == '\0' || strlen(names[i]) >= SRT_MESH_NAME)
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"srt_mesh_create: the name of dimension %d has %zu bytes, "
					"must have 1 to %d",
					i, names[i] != NULL ? strlen(names[i]) : 0,
					SRT_MESH_NAME - 1);
		for (int j = 0; j < i; j++) {
			if (strcmp(names[i], names[j]) == 0)
				return srt_fail(SRT_ERR_INVALID_ARGUMENT,
						"srt_mesh_create: dimensions %d and %d are both "
						"called '%s'",
						j, i, names[i]);
		}
	}
	return SRT_OK;
}

static srt_status_t check_shape(const srt_comm_t *comm, int ndim, const int *shape,
				const char *const *names)
{
	int size;

	if (ndim < 1 || ndim > SRT_MESH_MAX_DIMS)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_mesh_create: %d dimensions, must be 1 to %d", ndim,
				SRT_MESH_MAX_DIMS);
	SRT_TRY(check_names(ndim, names));
	for (int i = 0; i < ndim; i++) {
		if (shape[i] < 1)
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"srt_mesh_create: dimension '%s' has %d ranks, must have "
					"at least 1",
					names[i], shape[i]);
	}
	size = count_ranks(ndim, shape);
	if (size == 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_mesh_create: the product of the dimensions is more than %d",
				INT_MAX);
	if (comm != NULL && size != comm->size)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_mesh_create: the product of the dimensions is %d, but "
				"communicator \"%s\" has %d ranks",
				size, comm->name, comm->size);
	return SRT_OK;
}

/* The communicator of the ranks that differ from this one in these dimensions only. Collective. */
static srt_status_t split_dims(srt_mesh_t *mesh, int ndim, const int *dims, srt_comm_t **comm)
{
	char name[SRT_MESH_MAX_DIMS * SRT_MESH_NAME] = "";
	int others = mesh->rank, size = 1;
	size_t at = 0;

	for (int i = 0; i < ndim; i++) {
		const int d = dims[i];

		size *= mesh->shape[d];
		others -= srt_mesh_coordinate_of(mesh, mesh->rank, d) * mesh->stride[d];
		at += (size_t)snprintf(name + at, sizeof(name) - at, "%s%s", i > 0 ? "," : "",
				       mesh->names[d]);
	}
	if (size < mesh->size)
		return srt_comm_split(mesh->comm, others, name, comm);
	srt_comm_hold(mesh->comm);
	*comm = mesh->comm;
	return SRT_OK;
}

/* All ranks describe the same mesh, or all fail. Collective. */
static srt_status_t verify_mesh(const srt_mesh_t *mesh)
{
	char mine[SRT_MESH_MAX_DIMS * (SRT_MESH_NAME + 12)] = "", *all;
	const size_t n = sizeof(mine);
	srt_status_t status;
	size_t at = 0;

	for (int i = 0; i < mesh->ndim; i++)
		at += (size_t)snprintf(mine + at, n - at, "%s%s=%d", i > 0 ? "," : "",
				       mesh->names[i], mesh->shape[i]);
	all = srt_comm_calloc(mesh->comm, (size_t)mesh->size, n, "comparing the meshes");
	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_comm_oob_allgather_for(mesh->comm, "comparing the meshes", mine, n, all);
	for (int r = 1; status == SRT_OK && r < mesh->size; r++) {
		all[(size_t)r * n + n - 1] = '\0';
		if (strcmp(all, all + (size_t)r * n) != 0)
			status = srt_fail(SRT_ERR_MISMATCH,
					  "rank %d creates the mesh %s, rank %d the mesh %s",
					  srt_comm_world_rank(mesh->comm, 0), all,
					  srt_comm_world_rank(mesh->comm, r), all + (size_t)r * n);
	}
	free(all);
	return status;
}

static srt_status_t connect_dims(srt_mesh_t *mesh)
{
	SRT_TRY(verify_mesh(mesh));
	for (int i = 0; i < mesh->ndim; i++)
		SRT_TRY(split_dims(mesh, 1, &i, &mesh->comms[i]));
	return SRT_OK;
}

/* Creates the mesh without its communicators. Local. */
static srt_status_t alloc_mesh(srt_comm_t *comm, int ndim, const int *shape,
			       const char *const *names, srt_mesh_t **out)
{
	srt_mesh_t *mesh;

	SRT_TRY(check_shape(comm, ndim, shape, names));
	mesh = srt_calloc(1, sizeof(*mesh), "a mesh");
	if (mesh == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	atomic_init(&mesh->nholders, 1);
	mesh->ndim = ndim;
	mesh->size = 1;
	for (int i = ndim - 1; i >= 0; i--) {
		mesh->shape[i] = shape[i];
		mesh->stride[i] = mesh->size;
		mesh->size *= shape[i];
		snprintf(mesh->names[i], sizeof(mesh->names[i]), "%s", names[i]);
	}
	if (comm != NULL) {
		srt_comm_hold(comm);
		mesh->comm = comm;
		mesh->rank = comm->rank;
	}
	*out = mesh;
	return SRT_OK;
}

srt_status_t srt_mesh_create(srt_comm_t *comm, int ndim, const int *shape, const char *const *names,
			     srt_mesh_t **out)
{
	srt_mesh_t *mesh = NULL;
	srt_status_t status;

	SRT_NOT_NULL(shape);
	SRT_NOT_NULL(names);
	SRT_TRY(srt_check_not_null(out, __func__, "mesh"));
	status = alloc_mesh(comm, ndim, shape, names, &mesh);
	if (comm != NULL)
		status = srt_comm_status_consensus(comm, "creating a mesh", status);
	if (status == SRT_OK && comm != NULL)
		status = connect_dims(mesh);
	if (status != SRT_OK) {
		srt_mesh_destroy(mesh);
		return status;
	}
	*out = mesh;
	return SRT_OK;
}

/* The dimensions by index; fails unless they are in rising order. */
static srt_status_t find_dims(const srt_mesh_t *mesh, int ndim, const char *const *names, int *dims)
{
	if (ndim < 1 || ndim > mesh->ndim)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_mesh_slice: %d dimensions, must be 1 to %d", ndim, mesh->ndim);
	for (int i = 0; i < ndim; i++) {
		dims[i] = names[i] != NULL ? srt_mesh_find(mesh, names[i]) : -1;
		if (dims[i] < 0 || (i > 0 && dims[i] <= dims[i - 1]))
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"srt_mesh_slice: '%s' is not a dimension of the mesh, or "
					"not in the order that the mesh has",
					names[i] != NULL ? names[i] : "NULL");
	}
	return SRT_OK;
}

srt_status_t srt_mesh_slice(srt_mesh_t *mesh, int ndim, const char *const *names, srt_mesh_t **sub)
{
	int dims[SRT_MESH_MAX_DIMS], shape[SRT_MESH_MAX_DIMS];
	srt_comm_t *comm = NULL;
	srt_status_t status;

	SRT_NOT_NULL(mesh);
	SRT_NOT_NULL(names);
	SRT_TRY(srt_check_not_null(sub, __func__, "sub"));
	status = find_dims(mesh, ndim, names, dims);
	if (mesh->comm != NULL)
		status = srt_comm_status_consensus(mesh->comm, "slicing a mesh", status);
	SRT_TRY(status);
	for (int i = 0; i < ndim; i++)
		shape[i] = mesh->shape[dims[i]];
	if (mesh->comm == NULL)
		return srt_mesh_create(NULL, ndim, shape, names, sub);
	SRT_TRY(split_dims(mesh, ndim, dims, &comm));
	status = srt_mesh_create(comm, ndim, shape, names, sub);
	srt_comm_release(comm); /* the mesh keeps it */
	return status;
}

void srt_mesh_hold(srt_mesh_t *mesh)
{
	atomic_fetch_add(&mesh->nholders, 1);
}

void srt_mesh_destroy(srt_mesh_t *mesh)
{
	if (mesh == NULL || (mesh->comm != NULL && srt_device_is_inherited(mesh->comm->device)) ||
	    atomic_fetch_sub(&mesh->nholders, 1) > 1)
		return;
	for (int i = 0; i < mesh->ndim; i++) {
		if (mesh->comms[i] != NULL)
			srt_comm_release(mesh->comms[i]);
	}
	if (mesh->comm != NULL)
		srt_comm_release(mesh->comm);
	free(mesh);
}

int srt_mesh_ndim(const srt_mesh_t *mesh)
{
	return mesh != NULL ? mesh->ndim : 0;
}

const char *srt_mesh_name(const srt_mesh_t *mesh, int i)
{
	return i >= 0 && i < srt_mesh_ndim(mesh) ? mesh->names[i] : "";
}

int srt_mesh_size(const srt_mesh_t *mesh, const char *dim)
{
	int i;

	if (mesh == NULL || dim == NULL)
		return mesh != NULL ? mesh->size : 0;
	i = srt_mesh_find(mesh, dim);
	return i >= 0 ? mesh->shape[i] : 0;
}

int srt_mesh_coordinate(const srt_mesh_t *mesh, const char *dim)
{
	int i;

	if (mesh == NULL || dim == NULL)
		return mesh != NULL ? mesh->rank : -1;
	i = srt_mesh_find(mesh, dim);
	return i >= 0 ? srt_mesh_coordinate_of(mesh, mesh->rank, i) : -1;
}

srt_comm_t *srt_mesh_comm(const srt_mesh_t *mesh, const char *dim)
{
	int i;

	if (mesh == NULL || dim == NULL)
		return mesh != NULL ? mesh->comm : NULL;
	i = srt_mesh_find(mesh, dim);
	return i >= 0 ? mesh->comms[i] : NULL;
}
