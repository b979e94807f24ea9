/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory of an engine: which tensors there are (roles.c), and where they are (plan.c).
 *
 * Three kinds of memory hold tensors. An *arena* is flat and has the shards of one role, in one
 * *part* for each pair of dtypes, stored and compute: the trainable shards of all units that have
 * them (cut ones first, cell.c), then the frozen ones. A shard begins at the same element of its
 * part in every arena, and gradients and optimizer states have the trainable ones only, so the norm
 * and the optimizer are one launch a part. Most engines have one part. A *slot* holds unsharded
 * tensors of one role of one unit at a time. *Staging* holds tables and a few scalars.
 */
#ifndef SRT_RUNTIME_ENGINE_LAYOUT_MEMORY_H
#define SRT_RUNTIME_ENGINE_LAYOUT_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#include <shardrt/engine.h>

#include "runtime/optimizer/optimizer.h"

/* Alignment of every tensor in an arena or slot, in bytes. */
#define SRT_TENSOR_ALIGN ((size_t)64)
/* Floats from one gradient flag to the next: the size of srt_k_param_state_t, so that one strided
 * copy writes all flags into the table of those. */
#define SRT_FLAG_NELEM (sizeof(srt_k_param_state_t) / sizeof(float))

/* What a tensor of a parameter is for (roles.c). */
typedef enum srt_role_kind {
	SRT_ROLE_MASTER,         /* values, as they are stored, stepped and saved */
	SRT_ROLE_COMPUTE,        /* values, rounded to the compute dtype */
	SRT_ROLE_UPLOADED,       /* offload: shards of them on the device, to be gathered */
	SRT_ROLE_UNSHARDED,      /* values to compute with, gathered */
	SRT_ROLE_POST_FORWARD,   /* of those the part that a rank keeps for its group of ranks */
	SRT_ROLE_UNSHARDED_GRAD, /* gradients, as the program writes them */
	SRT_ROLE_SUM_GRAD,       /* the same in the reduce dtype */
	SRT_ROLE_PARTIAL,        /* their sum over the ranks of a replica */
	SRT_ROLE_REDUCED,        /* their sum over all ranks, in the reduce dtype */
	SRT_ROLE_GRAD,           /* reduced gradients */
	SRT_ROLE_DOWNLOADED,     /* offload: the same on the host */
	SRT_ROLE_STATE,          /* one optimizer state; the first of nstates */
} srt_role_kind_t;

/* Roles whose tensors have an arena, by role; those of PARTIAL and REDUCED that live for a use have
 * the largest unit only. */
#define SRT_NARENAS (SRT_ROLE_STATE + SRT_OPTIM_MAX_STATES)

typedef enum srt_spread {
	SRT_SPREAD_NONE, /* there is no such tensor */
	SRT_SPREAD_SHARD,
	SRT_SPREAD_ALL,
} srt_spread_t;

typedef enum srt_lifetime {
	SRT_LIFETIME_RUN,
	SRT_LIFETIME_STEP, /* from one micro-batch, or pass, to the next */
	SRT_LIFETIME_USE,  /* between begin and end of a unit, and its collective */
} srt_lifetime_t;

typedef struct srt_role {
	srt_dtype_t dtype;
	srt_spread_t spread;
	srt_lifetime_t lifetime;
} srt_role_t;

/* Parts of an arena, by stored and compute dtype: 3 float dtypes, and bytes, which are not cast. */
#define SRT_NPARTS 10
#define SRT_PART_BYTES 9

/* The stored and the compute dtype of a part; srt_shard_part() numbers the parts. */
static inline srt_dtype_t srt_part_stored(int part)
{
	return part == SRT_PART_BYTES ? SRT_U8 : (srt_dtype_t)(SRT_F32 + part / 3);
}

static inline srt_dtype_t srt_part_compute(int part)
{
	return part == SRT_PART_BYTES ? SRT_U8 : (srt_dtype_t)(SRT_F32 + part % 3);
}

/* Where the parts of a rank's arenas are. A pure function of the declaration. */
typedef struct srt_layout {
	/* Elements of a part: up to the last cut trainable shard, trainable one, shard. */
	size_t cut[SRT_NPARTS], trainable[SRT_NPARTS], all[SRT_NPARTS];
	size_t offset[SRT_NARENAS][SRT_NPARTS]; /* bytes, of a part in its arena */
	size_t nbytes[SRT_NARENAS];             /* of the arenas */
} srt_layout_t;

/* Memory that one unit uses at a time. */
typedef struct srt_slot {
	size_t offset, nbytes;
	srt_unit_t *holder;       /* parameters: gathered or uploaded here; gradients: being read */
	srt_unit_t *writer;       /* gradients: the unit whose backward pass writes here now */
	srt_event_t *released;    /* parameters: the end of the program's last use ... */
	const srt_stream_t *user; /* ... on this stream; compared only, may be destroyed */
} srt_slot_t;

/* Which slot each unit uses, the same in every step. A pure function of the declaration. */
typedef struct srt_slot_map {
	int *slot_of;   /* by unit; -1: the unit needs none */
	size_t *nbytes; /* by slot */
	size_t *offset; /* by slot */
	int nslots;
	size_t total;
} srt_slot_map_t;

/* Scalars of a reproducible sum: offsets in staging, in bytes. */
typedef struct srt_reproducible_sum_layout {
	size_t local_max, local_bins; /* of this rank */
	size_t all_max, all_bins;     /* of every rank, gathered */
	size_t max;                   /* over all ranks */
} srt_reproducible_sum_layout_t;

/* Tables and scalars of the engine in one buffer: offsets in bytes. */
typedef struct srt_staging {
	size_t optim;  /* srt_optim_layout_t, with the next two: */
	size_t state;  /* srt_k_step_state_t [ngroups] */
	size_t params; /* srt_k_param_state_t [ntrainable] */
	size_t flags;  /* float [ntrainable][SRT_FLAG_NELEM]: [0] is 1: this rank has a gradient */
	size_t used;   /* the same shape: the flags summed over ranks */
	size_t norm;   /* float */
	size_t found, all_found; /* float: an infinity or NaN here; on every rank */
	size_t scale;            /* offload: srt_k_step_state_t of the scaler */
	srt_reproducible_sum_layout_t norm_sum, user_sum;
	size_t total;
} srt_staging_t;

/* The kinds of slots. */
typedef enum srt_slot_kind {
	SRT_SLOT_PARAMS,  /* of SRT_ROLE_UNSHARDED */
	SRT_SLOT_GRADS,   /* of SRT_ROLE_UNSHARDED_GRAD */
	SRT_SLOT_SUMS,    /* of SRT_ROLE_SUM_GRAD */
	SRT_SLOT_UPLOADS, /* of SRT_ROLE_UPLOADED */
	SRT_SLOT_PARTS,   /* of SRT_ROLE_POST_FORWARD */
	SRT_NSLOT_KINDS,
} srt_slot_kind_t;

/* What Muon needs on a rank, in bytes: matrices.c. */
typedef struct srt_matrices_plan {
	size_t updates; /* of its shards */
	size_t owned;   /* of the whole matrices that it iterates; 0: they are in `updates` */
	size_t work;    /* of the largest of these */
	size_t scratch; /* of the stream that they are iterated on */
	size_t peers;   /* `updates` and `owned` of the other ranks that share memory */
} srt_matrices_plan_t;

/* All memory that a rank allocates. Set by srt_memory_plan(). */
typedef struct srt_memory {
	srt_layout_t layout; /* of the arenas */
	int nstates;
	srt_slot_map_t slots[SRT_NSLOT_KINDS];
	srt_staging_t staging;
	size_t landing;      /* offload: where reduced gradients of a unit arrive on the host */
	size_t coll_scratch; /* allocated by the collectives: scratch, bounce buffers */
	srt_matrices_plan_t matrices;
	size_t peer_mapped;
} srt_memory_t;

/* How the gradients of a unit go to its shards: flow.c. */
typedef struct srt_unit_flow {
	bool is_sharded;      /* each rank owns a shard of the sum, not all of it */
	bool is_tree;         /* micro-batches are added pairwise, in summed_grad */
	bool sums_apart;      /* summed_grad is other memory than unsharded_grad */
	bool sums_in_shard;   /* summed_grad is device_grad */
	bool defers;          /* unreduced gradients are added up until the last micro-batch ... */
	bool keeps_grads;     /* ... in unsharded_grad */
	bool defers_replicas; /* sums within a replica are added up until the last micro-batch */
	bool accumulates;     /* the reduction adds to the shard if that has a gradient */
	bool stores;          /* the sum over ranks is copied or added to the shard */
	bool downloads;       /* offload: the sum goes to the host */
	srt_slot_kind_t summed_slot; /* of summed_grad */
	float predivisor, divisor;   /* of the sum: before and after it; 1: none */
} srt_unit_flow_t;

/* The allocated memory, as srt_memory_t says. */
typedef struct srt_storage {
	srt_buffer_t *arena[SRT_NARENAS]; /* by role; NULL: absent */
	srt_buffer_t *slot_buffer[SRT_NSLOT_KINDS];
	srt_slot_t *slots[SRT_NSLOT_KINDS];
	size_t nslots[SRT_NSLOT_KINDS];
	srt_buffer_t *staging;  /* tables, where the owned values are */
	srt_buffer_t *exchange; /* tables for collectives; perhaps `staging` */
	srt_buffer_t *landing;  /* offload: where gradients arrive; NULL: none */
	srt_buffer_t *updates, *matrices, *matrix_work; /* as srt_matrices_plan_t; NULL: none */
	srt_buffer_t *updates_home; /* offload: the updates on the host; NULL: none */
	/* Offload, else NULL: memory of the host for copies by the device. */
	srt_buffer_t *arena_alias[SRT_NARENAS], *staging_alias, *landing_alias, *updates_alias;
	void *of_program[SRT_NARENAS + SRT_NSLOT_KINDS]; /* allocated by options.allocate */
	size_t nof_program;
} srt_storage_t;

/* Where the owned values are, and the streams of work on them: home.c. */
typedef struct srt_home {
	srt_device_t *device;     /* the engine's device or, with offload, the host */
	srt_event_t *device_edge; /* recorded on one stream and at once waited for by another */
	/* Offload, else NULL: */
	srt_stream_t *stream;      /* all work on the owned values */
	srt_stream_t *copy_stream; /* of the device: copies from and to the host */
	srt_event_t *edge;         /* as device_edge, of `stream` */
	srt_event_t *downloaded;   /* the last reading of SRT_ROLE_REDUCED by a copy has ended */
	srt_event_t *landed;       /* the last reading of `landing` has ended */
} srt_home_t;

/* This rank's shard of a parameter: a range of the elements of its cell. */
typedef struct srt_param_shard {
	int64_t first, nelem;
	size_t nbytes;         /* in the stored dtype */
	size_t offset;         /* elements, of the shard in its part of an arena ... */
	size_t upload_offset;  /* ... and among those of its unit */
	size_t state8, absmax; /* srt_state8_place_t */
} srt_param_shard_t;

/* A matrix of Muon. Offsets in elements. */
typedef struct srt_param_matrix {
	int owner;     /* the rank that iterates it; -1: none, or no matrix */
	size_t update; /* of this rank's shard, in `updates` */
	size_t owned;  /* of the whole, in `matrices` of the owner */
} srt_param_matrix_t;

/* The tensors of a parameter. */
typedef struct srt_param_views {
	srt_view_t local;         /* shard of the values */
	srt_view_t local_compute; /* shard in the compute dtype; absent if that is the stored one */
	srt_view_t unsharded;     /* unsharded values */
	/* of trainable parameters: */
	srt_view_t local_grad;     /* shard of the reduced gradient */
	srt_view_t device_grad;    /* that shard on the device; perhaps local_grad */
	srt_view_t unsharded_grad; /* unsharded gradient, as the program writes it */
	srt_view_t summed_grad;    /* what is summed over ranks; perhaps unsharded_grad */
	srt_view_t reduced_grad;   /* shard of the sum over all ranks; perhaps device_grad */
} srt_param_views_t;

#endif
