/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Internals of the engine, shared by its folders. Each folder calls those above it:
 *
 *   declare/  options.c, unit.c,     options; units; parameters with name, shape, group, ties
 *             param.c, buffers.c     buffers of units: declared, broadcast, read and written
 *             precision.c, lookup.c  the policy of dtypes of a unit; parameters by name
 *             cell.c                 tensor parallelism: which part each rank computes with
 *   layout/   roles.c                which tensors a parameter has: dtype, spread, lifetime
 *             shard.c, part.c        which elements each rank owns, where its arenas have them
 *             home.c                 the stream of the owned values
 *             plan.c, slots.c, staging.c  all memory, from the declaration alone
 *   checks/   verify_declaration.c   declarations compared across ranks
 *             verify_order.c         calls and their arguments compared across ranks
 *             check.c                the invariants of an engine
 *             check_step.c           mistakes of the program, found by SHARDRT_CHECK=1
 *             audit.c                wrong sums of gradients, found by SHARDRT_AUDIT=1
 *   step/     pass.c                 the calls around the program's compute
 *             unshard.c              parameters gathered, prefetched, released, kept in groups
 *             reduce.c, average.c    gradients zeroed where missing, summed over ranks, accumulated
 *             writes.c               changes of values by the program, seen by the next pass
 *             replicas.c             values that several ranks have, compared
 *             finish.c               reduced gradients unscaled, clipped, read
 *             offload.c              copies between the device and the host
 *             reproducible_sum.c, grad_norm.c  sums and the norm, independent of the sharding
 *             optim.c                the owned shards stepped (runtime/optimizer); groups
 *             step.c                 the order of a step, on one page
 *   values/   values.c               values set, initialised
 *             access.c, gather_full.c  views inside a pass; unsharded tensors read
 *             local.c                shards as views that the program reads and writes
 *             full_params.c          full tensors of a unit, for the program to read and write
 *             optim_state.c          what a step changes, read and set
 *             hash.c, print.c        the hash of all values; an engine printed
 *   build/    engine.c               engines created, reset, destroyed
 *             memory_check.c         the plan compared with free memory
 *             allocate.c, build.c    memory allocated, collectives created
 */
#ifndef SRT_RUNTIME_ENGINE_ENGINE_H
#define SRT_RUNTIME_ENGINE_ENGINE_H

#include <stdbool.h>

#include <shardrt/engine.h>
#include <shardrt/module.h>
#include <shardrt/unit_buffer.h>

#include "base/base.h"
#include "base/names.h"
#include "collectives/mesh.h"
#include "runtime/engine/layout/memory.h"
#include "runtime/engine/step/reproducible_sum.h"
#include "runtime/optimizer/optimizer.h"

struct srt_param {
	srt_unit_t *unit;
	char *name;
	char **aliases; /* other names (ties) */
	size_t naliases;
	srt_dtype_t dtype;
	int ndim;
	int64_t shape[SRT_MAX_DIMS];
	/* The whole tensor as (outer, extent, inner), and how extent is cut: cell.c. */
	bool is_cut;
	int cut_dim; /* the dimension that is cut ... */
	int nblocks; /* ... in so many blocks */
	int64_t outer, extent, inner;
	int64_t whole_nelem;
	size_t whole_nbytes;
	/* Of this rank's cell: of the whole tensor, unless it is cut. */
	int64_t nelem;
	size_t nbytes; /* in the stored dtype */
	bool frozen;
	int32_t group;
	float weight_decay, lr_scale;
	size_t index;            /* in order of declaration, over all units */
	int32_t trainable;       /* index in tables of the trainable ones, or -1 */
	size_t unsharded_offset; /* elements, in the unsharded layout of its unit */
	size_t flat_offset;      /* and in its flat parameter */

	/* set by srt_engine_build() */
	int64_t shard_first, shard_nelem; /* this rank's shard: a range of the cell's elements */
	size_t shard_nbytes;              /* in the stored dtype */
	size_t shard_offset;              /* elements, of the shard in its part of an arena ... */
	size_t upload_offset;             /* ... and among those of its unit */
	size_t listed;                    /* index in the list of the optimizer */
	srt_view_t local;                 /* shard of the values */
	srt_view_t
		local_compute; /* the same in the compute dtype; absent if that is the stored one */
	srt_view_t unsharded;  /* unsharded values */
	/* of trainable parameters: */
	srt_view_t local_grad;     /* shard of the reduced gradient */
	srt_view_t device_grad;    /* the same on the device; perhaps local_grad */
	srt_view_t unsharded_grad; /* unsharded gradient, as the program writes it */
	srt_view_t summed_grad;    /* what is summed over ranks; perhaps unsharded_grad */
	srt_view_t reduced_grad;   /* shard of the sum over all ranks; perhaps device_grad */

	/* of the current step */
	bool written; /* unsharded_grad has a gradient that is in no sum yet */
	bool summed;  /* summed_grad, apart from unsharded_grad, has gradients */
	bool used;    /* ready in some micro-batch of the step */
	/* of the current backward pass of the unit */
	bool requested; /* srt_param_grad() was called */
	bool ready;     /* srt_param_grad_ready() was called */
	bool warned;    /* that a requested gradient was not ready; once for the run */

	bool is_unset; /* of a module tree, and nothing has given it values */
	/* checks: */
	uint64_t hash;           /* of `local` after the last change by a call for it */
	uint64_t unsharded_hash; /* of `unsharded` as it was gathered, if the unit is_hashed */
	srt_buffer_t *window[2]; /* what views of `unsharded` and of `unsharded_grad` may use */
};

struct srt_unit_buffer {
	srt_unit_t *unit;
	char *name;
	srt_dtype_t dtype; /* after the policy's cast */
	int ndim;
	int64_t shape[SRT_MAX_DIMS];
	int64_t nelem;
	size_t nbytes, offset; /* offset: bytes, in engine.buffers_memory */
	bool is_unset;         /* of a module tree, and nothing has given it values */
};

typedef struct srt_audit srt_audit_t; /* audit.c */

/* The full parameters of a unit, while they are summoned. */
typedef struct srt_full {
	const srt_unit_t *unit; /* of srt_full_params_begin() */
	const srt_stream_t *stream;
	bool writeback, with_grads, on_host;
	srt_buffer_t *values, *grads; /* NULL: this rank does not have them */
	bool *has_grad;               /* by parameter of the unit */
} srt_full_t;

struct srt_unit {
	srt_engine_t *engine;
	srt_unit_t *parent; /* NULL: the root */
	char *name;
	size_t index; /* in order of declaration */
	int depth;
	srt_param_t **params; /* in order of declaration */
	size_t nparams;
	srt_precision_t precision;
	int reshard;
	srt_flat_t flat;
	size_t flat_nelem;      /* up to the end of the last parameter */
	srt_unit_types_t types; /* of `precision`, resolved */
	size_t unsharded_nelem; /* unsharded layout: trainable parameters, then frozen ones */
	size_t trainable_nelem; /* its first part: the layout of the unsharded gradients */

	/* NULL: none. Gradients in an arena have a slot without memory, which orders their uses. */
	srt_slot_t *slot[SRT_NSLOT_KINDS];
	srt_coll_t *gather;      /* shards -> slot; NULL: not needed */
	srt_coll_t *regather;    /* parts of the group -> slot; NULL: no groups */
	srt_coll_t *reduce;      /* unsharded gradients -> shards, or in place; NULL: not needed */
	srt_coll_t *all_reduce;  /* shards of the replicas, in place; NULL: not needed */
	srt_view_t partial_sums; /* trainable shards of SRT_ROLE_PARTIAL ... */
	srt_view_t reduced_sums; /* ... and of SRT_ROLE_REDUCED; without buffer: none */
	size_t shard_nelem;      /* elements of both, with padding */
	srt_event_t *gathered;   /* the gather's end on the communication stream */
	srt_event_t *reduced;    /* the last reading of unsharded_grad, or addition, has ended */
	srt_event_t *uploaded;   /* offload: the last reading of values on the host has ended */

	bool in_forward, in_backward;
	int recompute;    /* forward calls inside the backward pass, by activation checkpointing */
	int uses;         /* forward uses of this pass whose backward has not ended */
	bool is_gathered; /* its slot has current values, or a gather that writes them is queued */
	bool is_prefetched;       /* gathered, and not used since */
	bool is_hashed;           /* checks: used since it was gathered */
	bool is_exposed;          /* peers may be reading this rank's shard */
	bool is_uploaded;         /* offload: its slot has the current shard, or a copy is queued */
	bool has_part;            /* the ranks of its group have parts of the current values */
	bool is_part_exposed;     /* peers may be reading this rank's part */
	bool backward_done;       /* gradients of this micro-batch are final on this rank */
	bool has_reduced;         /* the shard has a reduced gradient of this step */
	bool has_partial;         /* the sum over the replica has one that is not in it yet */
	bool keeps_grads;         /* unsharded gradients stay: the next micro-batch adds to them */
	srt_full_t *full;         /* NULL: its full parameters are not summoned */
	srt_audit_t *audit;       /* NULL: none */
	srt_unit_t *next_forward; /* the unit that followed in the last pass, for prefetching */
	srt_unit_t *next_backward;
};

/* Between begin and end of a pass: the program may be reading the unsharded values. */
static inline bool srt_unit_in_use(const srt_unit_t *unit)
{
	return unit->in_forward || unit->in_backward || unit->recompute > 0;
}

/* A save that was begun and not ended (runtime/checkpoint). */
typedef struct srt_open_save {
	struct srt_open_save *next;
	/* The engine is destroyed: waits for the save's thread, and removes it from the list. */
	void (*abandon)(struct srt_open_save *save);
} srt_open_save_t;

struct srt_engine {
	srt_open_save_t *saves;
	srt_comm_t *comm;                         /* of all ranks of the engine */
	srt_mesh_t *mesh;                         /* NULL: none */
	int shard_dim, replicate_dim, tensor_dim; /* of the mesh; -1: none */
	srt_comm_t *shard_comm;   /* over which parameters are sharded; NULL: one rank */
	srt_comm_t *replica_comm; /* whose ranks have the same shard; NULL: one rank */
	srt_comm_t *tensor_comm;  /* over which cells are cut; NULL: one rank */
	srt_comm_t *copy_comm;    /* whose ranks have one copy of the model; NULL: one rank */
	srt_comm_t *data_comm;    /* whose ranks have different data; NULL: one rank */
	srt_comm_t *group_comm;   /* of shard_comm, that units are resharded to; NULL: none */
	srt_comm_t *own_comm[3];  /* those of the last three that were made for this engine */
	srt_context_t *context;
	srt_device_t *device;
	srt_device_t *home; /* that has the owned values: the device or, with offload, the host */
	srt_engine_options_t options; /* completed by srt_options_complete() */
	srt_precision_t precision;    /* what options.precision points to, if anything */
	srt_group_options_t *groups;  /* completed; [0]: of the options */
	size_t ngroups;
	int rank, world;

	srt_unit_t **units; /* [0] is the root */
	size_t nunits;
	srt_param_t **params;
	size_t nparams, ntrainable;
	int64_t trainable_nelem; /* of the declared shapes, without padding */
	size_t unsharded_nelem;  /* of all units, with padding */
	srt_names_t unit_names, param_names, buffer_names; /* param_names: with aliases */
	srt_unit_buffer_t **buffers;
	size_t nbuffers, buffers_nbytes;
	srt_module_t *modules; /* the root of its tree; NULL: declared by the program */
	size_t nunset;         /* parameters without values */

	bool build_begun, built;
	bool checks, audits;          /* SHARDRT_CHECK, SHARDRT_AUDIT */
	bool warned_reshard;          /* that a unit has reshard = 1 */
	uint64_t nsteps;              /* since the build */
	const srt_param_t *nonfinite; /* checks: the first bad gradient of this step; NULL: none */
	srt_memory_t memory;
	size_t activations, scratch;      /* the program's: srt_engine_plan_extra() */
	srt_buffer_t *arena[SRT_NARENAS]; /* by role; NULL: absent */
	srt_buffer_t *slot_buffer[SRT_NSLOT_KINDS];
	srt_slot_t *slots[SRT_NSLOT_KINDS];
	size_t nslots[SRT_NSLOT_KINDS];
	srt_buffer_t *staging;  /* where the owned values are */
	srt_buffer_t *exchange; /* the same tables for collectives; perhaps `staging` */
	srt_stream_t *comm_stream;
	srt_event_t *edge;            /* recorded on one stream and at once waited for by another */
	srt_event_t *stepped;         /* the end of the last step, or of a change between steps */
	srt_event_t *summed;          /* the end of the last srt_engine_sum() */
	srt_event_t *used;            /* the end of the last use of a unit without a slot ... */
	const srt_stream_t *user;     /* ... on this stream; NULL: none since the last change */
	bool has_several_users;       /* since the last change other streams used such units too */
	srt_optim_t *optim;           /* over the shards of all trainable parameters */
	srt_buffer_t *buffers_memory; /* NULL: no buffers */
	srt_coll_t *broadcast;        /* of buffers; NULL: not needed */
	srt_coll_t *reduce_flags;
	/* Offload, else NULL: */
	srt_stream_t *home_stream; /* all work on the owned values */
	srt_stream_t *copy_stream; /* of the device: copies from and to the host */
	srt_event_t *home_edge;    /* as `edge`, of the home stream */
	srt_event_t *downloaded;   /* the last reading of SRT_ROLE_REDUCED by a copy has ended */
	srt_event_t *landed;       /* the last reading of `landing` has ended */
	srt_buffer_t *landing;
	/* memory of the host, for copies of the device */
	srt_buffer_t *arena_alias[SRT_NARENAS], *staging_alias, *landing_alias;

	float *flags;        /* host copy of staging.flags */
	bool flags_uploaded; /* staging.flags equals it */
	srt_reproducible_sum_t norm_sum, user_sum;
	srt_coll_t *gather_found; /* of staging.found; NULL: one rank */
	srt_unit_t *partial_user; /* whose sums over a replica peers may be reading; NULL: none */

	/* of the current step */
	int microbatch, nmicrobatches;
	bool microbatch_over;  /* the next one is announced: the next pass ends this one first */
	bool backward_begun;   /* in this micro-batch */
	bool any_backward;     /* in this step */
	bool finished;         /* srt_engine_finish_backward() was called in this step */
	bool clipped;          /* and srt_engine_clip() */
	bool warned_nonfinite; /* a step with gradients that are not finite was reported */
	bool norm_is_set;      /* that of the step state is not of a step of this engine */
	bool found_inf;        /* the step state's found_inf was written in this step */
	const srt_stream_t *finish_stream; /* of srt_engine_finish_backward(); compared only */
	bool writing; /* between srt_engine_write_begin() and srt_engine_write_end() ... */
	const srt_stream_t *write_stream; /* ... on this stream; compared only */
	bool program_writes; /* between passes values may change without these calls (local.c) */
	bool order_checked;  /* the first step is over: ranks no longer wait to compare */
	struct srt_call_log *calls; /* what the ranks compare; NULL: one rank */
	srt_unit_t *last_forward, *last_backward;
};

#endif
