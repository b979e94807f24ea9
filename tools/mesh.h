/* SPDX-License-Identifier: BSD-3-Clause */
/* The option --mesh of shardrt-train and shardrt-info: dimensions, e.g. replicate=2,shard=4. */
#ifndef SRT_TOOLS_MESH_H
#define SRT_TOOLS_MESH_H

#include <stddef.h>

#include <shardrt/engine_options.h>
#include <shardrt/mesh.h>

/** Dimensions in the order written; dp=1 is added to tp alone. */
typedef struct tool_mesh {
	int ndim; /* 0: no mesh */
	int nranks;
	int shape[SRT_MESH_MAX_DIMS];
	char names[SRT_MESH_MAX_DIMS][SRT_MESH_NAME];
} tool_mesh_t;

/**
 * Parses the option.
 * @param text NULL: no mesh.
 * @param[out] why the error message, nwhy bytes.
 * @return 0, or -1.
 */
int tool_mesh_parse(const char *text, tool_mesh_t *mesh, char *why, size_t nwhy);

/**
 * Checks that the strategy has a use for each dimension, and the dimensions that it needs.
 * @param[out] why the error message, nwhy bytes.
 * @return 0, or -1.
 */
int tool_mesh_check(const tool_mesh_t *mesh, srt_strategy_t strategy, char *why, size_t nwhy);

/** Ranks of the dimension for tensor parallelism, tp; 1 without it. */
int tool_mesh_tensor_ranks(const tool_mesh_t *mesh);

/** The number of a rank among those with different data, row-major over the other dimensions. */
int tool_mesh_data_rank(const tool_mesh_t *mesh, int rank);

/** Creates the mesh; srt_mesh_create(). Without dimensions: NULL. */
srt_status_t tool_mesh_create(const tool_mesh_t *mesh, srt_comm_t *comm, srt_mesh_t **out);

#endif
