/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The small models of the table of combinations (replay_errors.c): two or three linear layers, or
 * linear layers around a BatchNorm, on all ranks of the job. Each rank has the same data.
 */
#ifndef SRT_TESTS_REPLAY_NET_H
#define SRT_TESTS_REPLAY_NET_H

#include "tests/golden/replay.h"

/* The ranks: one dimension, (replicate, shard) or (dp, tp). */
typedef enum net_mesh { NET_FLAT, NET_HYBRID, NET_TENSOR } net_mesh_t;

/* Sizes of groups for option reshard that depend on the number of ranks: all of them, or 3, or 4 if
 * 3 divides the number. */
enum { NET_RESHARD_WORLD = -1, NET_RESHARD_NO_FACTOR = -2 };

/* The layers. With NET_TENSOR the pair is cut: columns, then rows. */
typedef enum net_layers {
	NET_PAIR,
	NET_PAIR_FIRST, /* the pair, then a layer that is not cut */
	NET_PAIR_LAST,
	NET_UNEVEN, /* a pair whose inner size is not a multiple of the ranks that it is cut over */
	NET_BATCHNORM,
} net_layers_t;

/* A combination of features. Zero: fp32, SGD, zero3 over all ranks. */
typedef struct net_recipe {
	net_mesh_t mesh;
	net_layers_t layers;
	srt_dtype_t stored;
	const srt_precision_t *precision;
	srt_accumulation_t accumulation;
	srt_optim_kind_t optimizer; /* SRT_OPTIM_SGD */
	int reshard;                /* ranks, or one of the sizes above */
	srt_flat_t flat;
	bool offload, ignoring, no_mesh, mixed, tied;
	const char *frozen; /* a parameter */
	int norm_p;
	/* A scaler of this rule; an infinity on one rank in the gradient of this parameter: the
	 * last rank of the first row of the mesh, or rank 0. */
	bool scaled;
	srt_scaler_rule_t rule;
	const char *spoiled;
	bool spoils_rank0;
	const char *words; /* of the error; or why the outcome is another one */
} net_recipe_t;

/* The dtype of a recipe's parameters. */
static inline srt_dtype_t net_stored(const net_recipe_t *recipe)
{
	return recipe->stored != SRT_DTYPE_NONE ? recipe->stored : SRT_F32;
}

/* What all rows share. */
typedef struct net_job {
	srt_context_t *context;
	int rank, world;
	int shape[2]; /* of the meshes of two dimensions */
	srt_stream_t *stream;
	srt_mesh_t *mesh[3]; /* by net_mesh_t; NULL: none */
	srt_comm_t *alone;   /* of this rank */
	double *all[2];      /* by rank, for net_gather() */
	verdict_t *verdict;
	const char *row; /* its name */
} net_job_t;

typedef struct net {
	const net_recipe_t *recipe;
	net_job_t *job;
	srt_engine_t *engine, *ignored; /* ignored: NULL, or of one parameter, on each rank alone */
	srt_unit_t *unit, *ignored_unit;
	srt_unit_buffer_t *mean, *var; /* of the BatchNorm */
	srt_scaler_t *scaler;
	srt_tape_t *tape;
	srt_buffer_t *arena;
	srt_tensor_t *x;
	srt_dtype_t output_dtype;
} net_t;

/* shape: of the meshes of two dimensions. */
srt_status_t net_job_open(net_job_t *job, srt_context_t *context, const int *shape, verdict_t *v);
void net_job_close(net_job_t *job);
/* One value of each rank; all: one of the job's arrays. */
srt_status_t net_gather(net_job_t *job, double mine, double *all);

/* Builds the net; to be destroyed after failures, too. */
srt_status_t net_create(net_t *net, net_job_t *job, const net_recipe_t *recipe);
void net_destroy(net_t *net);

/* Micro-batch i of n; completing the reductions, and the injected infinity; the step, by the scaler
 * if there is one, which the second engine has no part in. */
srt_status_t net_pass(net_t *net, int i, int n);
srt_status_t net_finish(net_t *net);
srt_status_t net_step(net_t *net);

/* The i-th parameter, those of the second engine last; NULL past the end. */
srt_param_t *net_param(const net_t *net, size_t i);
srt_param_t *net_find(const net_t *net, const char *name);
/* A tensor of a parameter, widened; the caller's to free. */
srt_status_t net_get(net_t *net, srt_param_t *p, srt_param_what_t what, float **x);
/* The norm of the gradients of an engine, each parameter once; their sum over both engines. */
srt_status_t net_norm(net_t *net, const srt_engine_t *engine, int p, double *norm);
srt_status_t net_sum(net_t *net, double *sum);

/* Whether the mesh of a recipe exists: not where its size is not the number of ranks. */
bool net_has_mesh(const net_job_t *job, const net_recipe_t *recipe);
/* Ranks that the parameters of the first engine are sharded over; option reshard of its unit. */
int net_count_shards(const net_job_t *job, const net_recipe_t *recipe);
int net_reshard(const net_job_t *job, const net_recipe_t *recipe);

/* What the library does: whether it works, and the fact in the words of the table. */
typedef struct net_fact {
	bool works;
	char *fact; /* nfact bytes: room for a number of each rank */
	size_t nfact;
} net_fact_t;

/* What a row does on all ranks (replay_combine.c). A failure is one of all ranks. */
typedef srt_status_t combine_fn(net_job_t *job, const net_recipe_t *recipe, net_fact_t *ours);
combine_fn combine_refuse, combine_step, combine_reshard, combine_normalise, combine_clip,
	combine_find, combine_find_ignored, combine_count, combine_drop;

/* The table errors_combined. */
srt_status_t replay_errors(golden_t *g, srt_context_t *context, verdict_t *v, char *note,
			   size_t nnote);

#endif
