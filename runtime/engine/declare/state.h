/* SPDX-License-Identifier: BSD-3-Clause */
/* What the declaration of an engine consists of, besides its units, parameters and options. */
#ifndef SRT_RUNTIME_ENGINE_DECLARE_STATE_H
#define SRT_RUNTIME_ENGINE_DECLARE_STATE_H

#include <stdbool.h>

#include <shardrt/engine.h>

#include "base/names.h"
#include "collectives/mesh.h"

/* The communicators of an engine, by what their ranks have in common. */
typedef struct srt_engine_comms {
	srt_mesh_t *mesh;                         /* NULL: none */
	int shard_dim, replicate_dim, tensor_dim; /* of the mesh; -1: none */
	srt_comm_t *shard;   /* over which parameters are sharded; NULL: one rank */
	srt_comm_t *replica; /* whose ranks have the same shard; NULL: one rank */
	srt_comm_t *tensor;  /* over which cells are cut; NULL: one rank */
	srt_comm_t *copy;    /* whose ranks have one copy of the model; NULL: one rank */
	srt_comm_t *data;    /* whose ranks have different data; NULL: one rank */
	srt_comm_t *group;   /* of `shard`, that units are resharded to; NULL: none */
	srt_comm_t *own[3];  /* those of the last three that were made for this engine */
} srt_engine_comms_t;

/* Sizes and names of what is declared. */
typedef struct srt_declared {
	size_t ntrainable;                       /* parameters */
	int64_t trainable_nelem;                 /* of the declared shapes, without padding */
	size_t unsharded_nelem;                  /* of all units, with padding */
	size_t nunset;                           /* parameters without values */
	size_t activations, scratch;             /* the program's: srt_engine_plan_extra() */
	srt_names_t units, params, unit_buffers; /* params: with aliases */
	bool warned_reshard;                     /* that a unit has reshard = 1 */
} srt_declared_t;

/* The buffers of all units. */
typedef struct srt_unit_buffers {
	srt_unit_buffer_t **all;
	size_t n, nbytes;
	srt_buffer_t *memory;  /* NULL: no buffers */
	srt_coll_t *broadcast; /* NULL: not needed */
} srt_unit_buffers_t;

/* The whole tensor of a parameter as (outer, extent, inner), and how extent is cut: cell.c. */
typedef struct srt_cut {
	int64_t outer, extent, inner;
	int dim;     /* the dimension that is cut */
	int nblocks; /* n: each of its n equal blocks is cut; 0 or 1: it is cut as a whole */
	int nparts;  /* that it is cut in, a rank has whole ones; 0 or 1: one for each rank */
} srt_cut_t;

#endif
