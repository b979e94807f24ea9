/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Internals of the engine, shared by its folders. Each folder calls those above it:
 *
 *   declare/  options.c, unit.c,     options; units; parameters with name, shape, group, ties
 *             param.c, buffers.c     buffers of units: declared, broadcast, read and written
 *             precision.c, lookup.c  the policy of dtypes of a unit; parameters by name
 *   layout/   roles.c                which tensors a parameter has: dtype, spread, lifetime
 *             cell.c                 tensor parallelism: which part each rank computes with
 *             shard.c, part.c        which elements each rank owns, where its arenas have them
 *             plan.c, slots.c, staging.c  all memory, from the declaration alone
 *   checks/   verify_declaration.c   declarations compared across ranks
 *             verify_order.c         calls and their arguments compared across ranks
 *             check.c                the invariants of an engine
 *             check_step.c           mistakes of the program, found by SHARDRT_CHECK=1
 *             audit.c                wrong sums of gradients, found by SHARDRT_AUDIT=1
 *   step/     pass.c                 the calls around the program's compute
 *             unshard.c              parameters gathered, prefetched, released, kept in groups
 *             reduce.c, average.c    gradients zeroed where missing, summed over ranks, accumulated
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
 *             replicas.c             values that all ranks have, compared across ranks
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
#include "collectives/mesh.h"
#include "runtime/engine/layout/memory.h"
#include "base/names.h"
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

/* ---- options.c */
const char *srt_strategy_name(srt_strategy_t strategy);
srt_status_t srt_options_check(const srt_engine_options_t *options);
/* The dimensions of the options' mesh to shard over, to replicate over and for tensor parallelism;
 * -1: none. */
void srt_options_dims(const srt_engine_options_t *options, int *shard_dim, int *replicate_dim,
		      int *tensor_dim);
/* Replaces zeros that stand for a default. */
void srt_options_complete(srt_engine_options_t *options);
/* The group of parameters without one, completed. */
srt_group_options_t srt_options_group(const srt_engine_options_t *options);
/* Optimizer states of a parameter. */
int srt_engine_count_states(const srt_engine_t *engine);

/* ---- unit.c, param.c */
void srt_unit_free(srt_unit_t *unit);
void srt_param_free(srt_param_t *param);

/* ---- buffers.c */
void srt_unit_buffer_free(srt_unit_buffer_t *buffer);
srt_unit_buffer_t *srt_buffers_find(const srt_engine_t *engine, const char *name);
srt_status_t srt_buffers_create_broadcast(srt_engine_t *engine);
srt_status_t srt_buffers_broadcast(srt_engine_t *engine, srt_stream_t *stream);

/* ---- precision.c */
/* Resolves the unit's policy with the dtype of its parameters. */
srt_status_t srt_unit_resolve(srt_unit_t *unit, srt_dtype_t stored);

/* ---- values.c */
/* Rounds the shards of the unit's parameters to the compute dtype, where there is a copy in it. */
srt_status_t srt_values_round(srt_unit_t *unit, srt_stream_t *stream);
/* The parameter needs values before a forward pass; it has got them. */
void srt_param_expect_values(srt_param_t *param);
void srt_param_has_values(srt_param_t *param);
/* SRT_ERR_STATE, with the names, if parameters need values. */
srt_status_t srt_values_check(const srt_engine_t *engine);
/* Sets this rank's shard from its own elements in host memory. */
srt_status_t srt_param_set_shard(srt_param_t *param, const char *call, const void *elements,
				 srt_stream_t *stream);
/* The same from the unsharded tensor, on the device or on_host; of values or reduced gradients. */
srt_status_t srt_param_set_full(srt_param_t *param, srt_param_what_t what, srt_view_t full,
				bool on_host, srt_stream_t *stream);

/* ---- local.c: changes of values that the program makes itself */
/* Before a forward pass or a read: later gathers have what work on `stream` wrote until now. */
srt_status_t srt_local_take_changes(srt_engine_t *engine, srt_stream_t *stream);
/* At the end of a pass: later work on `stream` may write. */
srt_status_t srt_local_end_pass(srt_engine_t *engine, srt_stream_t *stream);

/* ---- full_params.c */
/* Frees the memory of all that are summoned. */
void srt_full_drop(srt_engine_t *engine);

/* ---- roles.c */
bool srt_roles_sharded(const srt_engine_t *engine, int world);
/* The sums over ranks are made within a replica first, then over the replicas. */
bool srt_roles_hybrid(const srt_engine_t *engine, int world);
bool srt_roles_defer(const srt_engine_t *engine);
/* So are the unit's, because one rank has nothing to reduce: in GRAD unless that is offloaded. */
bool srt_roles_add_unreduced(const srt_unit_t *unit, int world);
/* And they are added pairwise. */
bool srt_roles_tree(const srt_engine_t *engine);
bool srt_roles_sums_apart(const srt_unit_t *unit);
size_t srt_roles_count_sums(const srt_engine_t *engine);
/* Ranks of the groups that the unit is resharded to; 0: none. Of all units that are. */
int srt_roles_group(const srt_unit_t *unit, int world);
int srt_roles_groups(const srt_engine_t *engine, int world);
bool srt_roles_keep_grads(const srt_unit_t *unit);
bool srt_role_is_shared(srt_role_kind_t kind);
/* Some tensors are in host memory. */
bool srt_roles_offload(const srt_engine_t *engine);
/* With offload they are there. */
bool srt_role_is_home(srt_role_kind_t kind);
/* The gradients that are stepped. */
srt_role_kind_t srt_role_stepped(const srt_engine_t *engine);
srt_role_t srt_role(const srt_unit_t *unit, srt_role_kind_t kind, int world);
srt_role_kind_t srt_role_summed(const srt_unit_t *unit, int world);
srt_role_kind_t srt_role_gathered(const srt_unit_t *unit);

/* ---- slots.c */
/* ring: slots of a size class at one depth; 0: one slot a unit. To be freed. */
srt_status_t srt_slot_map_plan(const srt_engine_t *engine, srt_slot_kind_t kind, int rank,
			       int world, int ring, srt_slot_map_t *map);
void srt_slot_map_free(srt_slot_map_t *map);

/* ---- staging.c */
void srt_staging_plan(const srt_engine_t *engine, int world, srt_staging_t *staging);

/* ---- plan.c */
srt_status_t srt_memory_plan(const srt_engine_t *engine, int rank, int world, srt_memory_t *memory);
void srt_memory_free(srt_memory_t *memory);

/* ---- allocate.c */
/* Local: buffers, slots, events and views, as engine->memory says. */
srt_status_t srt_engine_allocate(srt_engine_t *engine);
/* This rank's shard of the parameter in the arena of a role (STATE + k: of a state). */
srt_view_t srt_param_shard_view(const srt_param_t *param, int arena);

/* The same for copies of the device. */
srt_view_t srt_param_device_view(const srt_param_t *param, int arena);

/* ---- offload.c. Without offload the home stream is the caller's, and nothing is copied. */
/* Edge: the work on `from` until now -> the work on `to` from now on. */
srt_status_t srt_order_streams(srt_engine_t *engine, srt_stream_t *from, srt_stream_t *to);
/* The stream for work on the owned values, which comes after the present work of `stream` ... */
srt_status_t srt_home_enter(srt_engine_t *engine, srt_stream_t *stream, srt_stream_t **home);
/* ... and before its later work. */
srt_status_t srt_home_leave(srt_engine_t *engine, srt_stream_t *stream);
/* The tables, for copies of the device. */
srt_buffer_t *srt_tables_device(const srt_engine_t *engine);
/* Bytes of a table. */
typedef struct srt_table_range {
	size_t offset, nbytes; /* in staging and in engine->exchange */
} srt_table_range_t;
/* Before `home` writes what peers read in a collective of engine->exchange. */
srt_status_t srt_exchange_wait_readers(srt_engine_t *engine, srt_coll_t *coll, srt_stream_t *home);
/* Starts it with the bytes that `home` wrote; what it writes is for later work on `home`. */
srt_status_t srt_exchange_start(srt_engine_t *engine, srt_coll_t *coll, srt_table_range_t mine,
				srt_table_range_t all, srt_stream_t *home);
/* The unit's values -> its slot of uploaded shards, for later gathers or, without shards, of
 * unsharded parameters. */
srt_status_t srt_upload(srt_unit_t *unit);
/* Before the communication stream writes SRT_ROLE_REDUCED; after it wrote the unit's. */
srt_status_t srt_download_prepare(const srt_unit_t *unit);
srt_status_t srt_download(srt_unit_t *unit);
/* All reduced gradients that are on the device, after the work on `stream`. */
srt_status_t srt_download_arena(srt_engine_t *engine, srt_stream_t *stream);

/* ---- unshard.c */
bool srt_unit_in_use(const srt_unit_t *unit);
srt_status_t srt_unshard_begin(srt_unit_t *unit, srt_stream_t *stream);
srt_status_t srt_unshard_end(srt_unit_t *unit, srt_stream_t *stream);
srt_status_t srt_unshard_prefetch(srt_unit_t *unit, bool backward);
/* Before the slot of the unit's values is overwritten on the communication stream. */
srt_status_t srt_unshard_keep_part(srt_unit_t *unit);
/* Before the shard changes: waits for all readers. */
srt_status_t srt_unshard_wait_shard_read(srt_unit_t *unit, srt_stream_t *stream);
/* And no slot counts as gathered afterwards. */
srt_status_t srt_unshard_wait_readers(srt_unit_t *unit, srt_stream_t *stream);
/* After the shards or tables changed on `stream`: later gathers and steps read the new ones. */
srt_status_t srt_unshard_changed(srt_engine_t *engine, srt_stream_t *stream);

/* ---- check_step.c: nothing unless engine->checks, except srt_check_begin_grads() */
/* At the beginning of a backward pass: fills gradients that are not added to, with NaN or, by the
 * option clear_grads, with 0. */
srt_status_t srt_check_begin_grads(const srt_unit_t *unit, srt_stream_t *stream);
/* At its end: remembers the first gradient that is not finite. */
srt_status_t srt_check_end_grads(srt_unit_t *unit, srt_stream_t *stream);
/* After a unit's use: no view of its parameters has values any more. */
srt_status_t srt_check_release(srt_unit_t *unit, srt_stream_t *stream);
/* At begin and end of a use: the gathered values are those that were gathered. */
srt_status_t srt_check_unsharded(srt_unit_t *unit, srt_stream_t *stream);
/* Limits a view that the program gets to the parameter, and to the use of its unit. */
srt_status_t srt_check_view(srt_param_t *param, bool is_grad, srt_view_t *view);
/* After the values of a parameter, or of all, changed on `stream`: remembers their hash. */
srt_status_t srt_check_record(srt_param_t *param, srt_stream_t *stream);
srt_status_t srt_check_record_all(srt_engine_t *engine, srt_stream_t *stream);
/* Before the unit's values are read: SRT_ERR_STATE if they are not those that were remembered. */
srt_status_t srt_check_unchanged(const srt_unit_t *unit, srt_stream_t *stream);
/* Collective, blocking: before and after the optimizer. The same error on all ranks. */
srt_status_t srt_check_before_step(srt_engine_t *engine, srt_stream_t *stream);
srt_status_t srt_check_after_step(srt_engine_t *engine, srt_stream_t *stream);

/* ---- reduce.c */
srt_status_t srt_reduce_prepare(srt_unit_t *unit, srt_stream_t *stream);
srt_status_t srt_reduce_begin(srt_unit_t *unit, srt_stream_t *stream);
srt_status_t srt_reduce_end_microbatch(srt_engine_t *engine, srt_stream_t *stream);
srt_status_t srt_reduce_join(srt_engine_t *engine, srt_stream_t *stream);
/* y = x, or y += x, in y's dtype. */
srt_status_t srt_reduce_store(srt_view_t y, srt_view_t x, int64_t nelem, bool add,
			      srt_stream_t *stream);
srt_status_t srt_reduce_flags(srt_engine_t *engine, srt_stream_t *stream);
void srt_reduce_clear(srt_engine_t *engine);

/* ---- grad_norm.c */
/* The norm -> staging.norm; norm_sum.max is the maximum. */
srt_status_t srt_grad_norm_compute(srt_engine_t *engine, int p, srt_stream_t *stream);
/* found_inf of the step state becomes 1 if a gradient is not finite. */
srt_status_t srt_grad_norm_check_finite(srt_engine_t *engine, srt_stream_t *stream);
/* The elements between this rank's gradient shards become 0 again. Called after
 * whole parts are multiplied in place: 0 times infinity or NaN would stay there for ever, and in
 * the norm. */
srt_status_t srt_grads_clear_padding(const srt_engine_t *engine, srt_stream_t *stream);
/* This rank's gradient shards of a part. */
srt_view_t srt_part_grads(const srt_engine_t *engine, int part);

/* ---- optim.c */
srt_status_t srt_engine_optim_create(srt_engine_t *engine, srt_stream_t *stream);
srt_status_t srt_engine_optim_advance(srt_engine_t *engine, srt_stream_t *stream);
srt_status_t srt_engine_optim_step(srt_engine_t *engine, srt_stream_t *stream);

/* ---- finish.c */
/* SRT_ERR_STATE with the name of the public call unless the backward passes of a step are done. */
srt_status_t srt_finish_check(const srt_engine_t *engine, const char *call);
/* An error unless the parameter has a reduced gradient, or none yet, that can be read. */
srt_status_t srt_finish_check_grad(const srt_param_t *param);
/* An error unless srt_engine_finish_backward() was called, with this stream. */
srt_status_t srt_finish_check_stream(const srt_engine_t *engine, const char *call,
				     const srt_stream_t *stream);
/* found_inf (1) of the step state, and where the device reads it. */
srt_view_t srt_found_inf(const srt_engine_t *engine);
srt_view_t srt_found_inf_device(const srt_engine_t *engine);
/* Unscales and checks all gradient shards by the scale of a step state (scaler.h). found_inf of the
 * engine's own step state becomes 1 if any rank found an infinity or NaN, else 0. */
srt_status_t srt_engine_unscale(srt_engine_t *engine, srt_view_t scale_state, srt_stream_t *stream);
/* The gradients of the step are reduced, and work on `stream` comes after. */
srt_status_t srt_finish_reductions(srt_engine_t *engine, srt_stream_t *stream);

/* ---- engine.c, lookup.c */
void srt_engine_expect_declared(srt_engine_t *engine);
/* SRT_ERR_STATE with the name of the public call unless the engine is built. */
srt_status_t srt_engine_require_built(const srt_engine_t *engine, const char *call);
/* SRT_ERR_STATE with the name of the public call if full parameters of a unit are summoned. */
srt_status_t srt_full_check(const srt_engine_t *engine, const char *call);

/* ---- check.c */
/* The invariants of a built engine, for tests; SRT_ERR_STATE with the first violated one. */
srt_status_t srt_engine_check(const srt_engine_t *engine);

#endif
