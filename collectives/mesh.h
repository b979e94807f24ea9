/* SPDX-License-Identifier: BSD-3-Clause */
/* Internals of a mesh, for the engine. Dimensions by index; pure functions of the shape. */
#ifndef SRT_COLLECTIVES_MESH_H
#define SRT_COLLECTIVES_MESH_H

#include <stdatomic.h>

#include <shardrt/mesh.h>

struct srt_mesh {
	atomic_int nholders;
	srt_comm_t *comm; /* of all ranks; NULL: a mesh to plan with */
	int rank, size;
	int ndim;
	int shape[SRT_MESH_MAX_DIMS];
	int stride[SRT_MESH_MAX_DIMS]; /* ranks from one coordinate to the next */
	char names[SRT_MESH_MAX_DIMS][SRT_MESH_NAME];
	srt_comm_t *comms[SRT_MESH_MAX_DIMS]; /* along a dimension; perhaps `comm` itself */
};

/* The index of a dimension; -1: there is none. */
int srt_mesh_find(const srt_mesh_t *mesh, const char *dim);
/* The coordinate of any rank of the mesh. */
int srt_mesh_coordinate_of(const srt_mesh_t *mesh, int rank, int dim);

/* Keeps the mesh until the matching srt_mesh_destroy(). */
void srt_mesh_hold(srt_mesh_t *mesh);

#endif
