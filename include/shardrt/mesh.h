/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Meshes: the ranks of a communicator as a grid with named dimensions, as PyTorch's DeviceMesh.
 *
 * Ranks are row-major: the last dimension varies fastest. A mesh of replicate = 2 and shard = 3:
 *
 *                 shard 0   shard 1   shard 2
 *     replicate 0  rank 0    rank 1    rank 2
 *     replicate 1  rank 3    rank 4    rank 5
 *
 * A mesh has a communicator for each dimension: of the ranks that differ in this coordinate only.
 * Rank i of it has coordinate i.
 *
 * Thread safety. Creating and destroying as a communicator; the other functions are thread-safe.
 */
#ifndef SHARDRT_MESH_H
#define SHARDRT_MESH_H

#include <shardrt/coll.h>
#include <shardrt/context.h>
#include <shardrt/export.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Most dimensions of a mesh. */
#define SRT_MESH_MAX_DIMS 4
/** Bytes of the name of a dimension, with the terminating zero. */
#define SRT_MESH_NAME 16

/** A mesh. Opaque. */
typedef struct srt_mesh srt_mesh_t;

/**
 * Creates a mesh of all ranks of a communicator. Collective over `comm`.
 * @param comm to be destroyed after the mesh and its engines. NULL: a mesh to plan with, as rank 0
 *        of it; it has no communicators. Local then.
 * @param ndim 1 .. SRT_MESH_MAX_DIMS.
 * @param shape ndim sizes, each at least 1; their product is the number of ranks.
 * @param names ndim names, unique, not empty, shorter than SRT_MESH_NAME, e.g. "replicate" and
 *        "shard"; copied.
 * @param[out] mesh owned by the caller.
 * @return on all ranks alike: SRT_ERR_INVALID_ARGUMENT for another number of ranks or a bad size or
 *         name on any of them, SRT_ERR_MISMATCH if they describe different meshes.
 */
SRT_API srt_status_t srt_mesh_create(srt_comm_t *comm, int ndim, const int *shape,
				     const char *const *names, srt_mesh_t **mesh);

/**
 * Creates the mesh of some dimensions: the ranks that have this rank's coordinates in all the
 * others. Collective over the mesh.
 * @param ndim 1 .. the number of dimensions.
 * @param names dimensions, in the order that they have in `mesh`.
 * @param[out] sub owned by the caller; independent of `mesh`.
 * @return on all ranks alike: SRT_ERR_INVALID_ARGUMENT for a name that the mesh does not have or
 *         another order on any of them, SRT_ERR_MISMATCH if they name different dimensions.
 */
SRT_API srt_status_t srt_mesh_slice(srt_mesh_t *mesh, int ndim, const char *const *names,
				    srt_mesh_t **sub);

/** Frees a mesh and its communicators when no engine uses them any more. Local. NULL is allowed. */
SRT_API void srt_mesh_destroy(srt_mesh_t *mesh);

/** Number of dimensions; 0 for NULL. */
SRT_API int srt_mesh_ndim(const srt_mesh_t *mesh);
/** Name of the i-th dimension, owned by the mesh; "" for NULL and outside the range. */
SRT_API const char *srt_mesh_name(const srt_mesh_t *mesh, int i);
/** Number of ranks along a dimension; dim NULL: of the mesh. 0 if there is no such dimension, and
 * for a mesh that is NULL. */
SRT_API int srt_mesh_size(const srt_mesh_t *mesh, const char *dim);
/** This rank's coordinate in a dimension; dim NULL: its rank in the mesh. -1 if there is no such
 * dimension, and for a mesh that is NULL. */
SRT_API int srt_mesh_coordinate(const srt_mesh_t *mesh, const char *dim);
/** The communicator along a dimension; dim NULL: of the mesh. Owned by the mesh. NULL if there is
 * no such dimension, for a mesh to plan with, and for a mesh that is NULL. */
SRT_API srt_comm_t *srt_mesh_comm(const srt_mesh_t *mesh, const char *dim);

#ifdef __cplusplus
}
#endif
#endif
