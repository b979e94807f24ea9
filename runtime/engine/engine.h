/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The inside of the engine, shared by the files of this folder:
 *
 *     param.c      declared: name, shape, group, ties; values set, initialised, collected
 *     shard.c      sharded: which rows each rank owns and where they lie in its arena
 *     plan.c       all memory laid out: arenas, slots, staging
 *     engine.c     built: compared across ranks, allocated, collectives made
 *     unshard.c    gathered before use, prefetched, released
 *     reduce.c     gradients zeroed where missing, summed over ranks, accumulated
 *     grad_norm.c  the norm, independent of the sharding
 *     optim.c      the owned shards stepped
 *     step.c       the order of a step, on one page
 *
 * Three kinds of memory hold tensors. An *arena* is flat: the trainable shards of all units, then
 * the frozen ones; gradients and optimizer states share its layout (the trainable part of it), so
 * that norm and optimizer are one launch each. A *slot* holds one unit's whole parameters, or its
 * whole gradients, at a time. *Staging* holds tables and a few scalars.
 */
#ifndef SRT_RUNTIME_ENGINE_ENGINE_H
#define SRT_RUNTIME_ENGINE_ENGINE_H

#include <stdbool.h>

#include <shardrt/engine.h>

#include "base/base.h"

/* Optimizer states: at most those of Adam with amsgrad. */
#define SRT_MAX_STATES 3
/* Every tensor in an arena or slot starts at a multiple of this. */
#define SRT_TENSOR_ALIGN ((size_t)64)
/* Floats from one flag to the next: as srt_param_state_t lie in their table, so that one copy of
 * rows moves flags there within a buffer. */
#define SRT_FLAG_NELEM (sizeof(srt_param_state_t) / sizeof(float))

struct srt_param {
	srt_unit_t *unit;
	char *name;
	char **aliases; /* other names (ties) */
	size_t naliases;
	srt_dtype_t dtype;
	int ndim;
	int64_t shape[SRT_MAX_DIMS];
	int64_t row_nelem; /* product of shape[1..] */
	int64_t nelem;
	size_t row_nbytes, nbytes;
	bool frozen;
	float weight_decay, lr_scale;
	size_t index;       /* in order of declaration, over all units */
	int32_t trainable;  /* index among the trainable ones, or -1 */
	size_t full_offset; /* bytes, in the unsharded layout of its unit */

	/* from srt_engine_build() on */
	int64_t row0, nrows;   /* this rank's shard */
	size_t arena_offset;   /* bytes, of the shard */
	srt_view_t local;      /* shard of the values */
	srt_view_t full;       /* whole values */
	srt_view_t local_grad; /* shard of the gradient; absent if frozen */
	srt_view_t full_grad;  /* whole gradient; absent if frozen */

	/* of the step under way */
	bool written; /* full_grad holds a gradient not reduced yet */
	bool used;    /* ready in some micro-batch of the step */
};

/* A place for one unit at a time. */
typedef struct srt_slot {
	size_t offset, nbytes;
	srt_unit_t *holder;    /* whose data is there: parameters gathered; gradients being sent */
	srt_unit_t *writer;    /* gradients: who is writing its own, not sent yet */
	srt_event_t *released; /* parameters: the end of the last use by the caller ... */
	const srt_stream_t *user; /* ... on this stream, which may be gone; only compared */
} srt_slot_t;

/* Which slot each unit uses, always the same one. A pure function of the declaration. */
typedef struct srt_slot_map {
	int *slot_of;   /* by unit; -1 = the unit needs none */
	size_t *nbytes; /* by slot */
	size_t *offset; /* by slot */
	int nslots;
	size_t total;
} srt_slot_map_t;

/* Scalars and scratch of an order-independent sum, offsets in staging. */
typedef struct srt_sum_places {
	size_t local_max, local_bins; /* of this rank */
	size_t all_max, all_bins;     /* of every rank, gathered */
	size_t max;                   /* over all ranks */
} srt_sum_places_t;

/* Tables and scalars of the engine in one buffer; offsets in bytes. */
typedef struct srt_staging {
	size_t state;    /* srt_step_state_t */
	size_t params;   /* srt_param_state_t [ntrainable] */
	size_t segments; /* srt_optim_segment_t [ntrainable] */
	size_t groups;   /* srt_optim_group_t [ngroups <= ntrainable] */
	size_t flags; /* float [ntrainable][SRT_FLAG_NELEM]: [0] is 1 = this rank has a gradient */
	size_t used;  /* likewise: the sum over ranks */
	size_t norm;  /* float */
	srt_sum_places_t norm_sum, user_sum;
	size_t total;
} srt_staging_t;

/* All memory that a rank allocates. Filled by srt_memory_plan(). */
typedef struct srt_memory {
	size_t arena;     /* all shards */
	size_t trainable; /* the trainable part of it = gradients = one optimizer state */
	int nstates;
	srt_slot_map_t slots;      /* whole parameters; none when nothing is sharded */
	srt_slot_map_t grad_slots; /* whole gradients; none when they live in the arena */
	srt_staging_t staging;
	size_t coll_scratch; /* that the collectives will allocate: scratch, staging */
	size_t peer_mapped;
} srt_memory_t;

struct srt_unit {
	srt_engine_t *engine;
	srt_unit_t *parent; /* NULL: the root */
	char *name;
	size_t index; /* in order of declaration */
	int depth;
	srt_param_t **params; /* in order of declaration */
	size_t nparams;
	size_t full_nbytes;      /* unsharded layout: trainable parameters, then frozen ones */
	size_t trainable_nbytes; /* its first part: the layout of the whole gradients */

	srt_slot_t *slot;      /* NULL: parameters are always whole */
	srt_slot_t *grad_slot; /* NULL: no trainable parameter */
	srt_coll_t *gather;    /* shards -> slot; NULL: never needed */
	srt_coll_t *reduce;    /* whole gradients -> shards, or summed in place; NULL: not needed */
	srt_event_t *gathered; /* the gather's end on the communication stream */
	srt_event_t *reduced;  /* the reduction's end on the communication stream; while gradients
				* are kept, the end of what the caller added to them */

	bool in_forward, in_backward;
	int recompute;    /* forward calls inside the backward pass, by activation checkpointing */
	int uses;         /* forward uses of this pass whose backward has not ended */
	bool is_gathered; /* its slot holds present values (or they are on their way) */
	bool is_prefetched;       /* ... and were not used since */
	bool is_exposed;          /* peers may be reading this rank's shard */
	bool backward_done;       /* gradients of this micro-batch are final here */
	bool has_reduced;         /* the shard holds a reduced gradient of this step */
	bool keeps_grads;         /* whole gradients wait for the next micro-batch to add to them */
	srt_unit_t *next_forward; /* who came next in the last pass: prefetch hints */
	srt_unit_t *next_backward;
};

/* Where whole gradients live. */
typedef enum srt_grad_place {
	SRT_GRAD_IN_ARENA, /* the gradient arena holds whole gradients */
	SRT_GRAD_IN_RING,  /* few slots that units share */
	SRT_GRAD_IN_OWN,   /* a slot per unit, kept over the micro-batches of a step */
} srt_grad_place_t;

/* The buffers and collectives of an order-independent sum over ranks. */
typedef struct srt_sum {
	srt_view_t local_max, local_bins, all_max, all_bins, max;
	srt_coll_t *gather_max, *gather_bins; /* NULL: this rank has all the values */
} srt_sum_t;

/* What a rank does next, for comparing the order of the first step. */
typedef enum srt_phase {
	SRT_PHASE_FORWARD,
	SRT_PHASE_BACKWARD,
	SRT_PHASE_STEP,
} srt_phase_t;

struct srt_engine {
	srt_context_t *context;
	srt_comm_t *comm;
	srt_device_t *device;
	srt_engine_options_t options; /* defaults filled in */
	int rank, world;

	srt_unit_t **units; /* [0] is the root */
	size_t nunits;
	srt_param_t **params;
	size_t nparams, ntrainable;
	int64_t trainable_nelem; /* logical elements */

	bool build_begun, built;
	srt_memory_t memory;
	size_t activations, scratch; /* the program's: srt_engine_beside() */
	srt_buffer_t *values;        /* arena; of srt_comm_mem_kind() */
	srt_buffer_t *grads;         /* arena of the trainable part; likewise */
	srt_buffer_t *states[SRT_MAX_STATES];
	srt_buffer_t *slots_buffer, *grad_slots_buffer;
	srt_buffer_t *staging;
	srt_slot_t *slots, *grad_slots;
	size_t ngrad_slots;
	srt_stream_t *comm_stream;
	srt_event_t *edge;    /* for edges whose two ends are put down at once */
	srt_event_t *stepped; /* the end of the last step, or of a change of values */
	srt_optim_args_t optim;
	srt_coll_t *reduce_flags;
	float *flags;         /* host side of staging.flags */
	bool flags_are_there; /* the device has them */
	srt_sum_t norm_sum, user_sum;

	/* of the step under way */
	int microbatch, nmicrobatches;
	bool microbatch_over; /* the next one is announced: finish this one first */
	bool backward_begun;  /* in this micro-batch */
	bool any_backward;    /* in this step */
	bool order_checked;   /* the first step is over: orders agreed */
	srt_unit_t *last_forward, *last_backward;
};

/* ---- param.c */
void srt_param_free(srt_param_t *param);
/* Sets this rank's shard from its own rows in host memory. */
srt_status_t srt_param_set_local(srt_param_t *param, const void *rows, srt_stream_t *stream);

/* ---- shard.c: the one place that divides by the number of ranks */
void srt_shard_rows(int64_t nrows, int nranks, int rank, int64_t *offset, int64_t *size);
int srt_shard_count(const srt_engine_t *engine, int world);
int64_t srt_shard_local_rows(const srt_engine_t *engine, const srt_param_t *param, int rank,
			     int world, int64_t *row0);
void srt_shard_layout(const srt_engine_t *engine, int rank, int world, size_t *offsets,
		      size_t *trainable, size_t *total);

/* Which elements each rank owns of a unit, for its collectives. */
typedef struct srt_owners {
	srt_coll_owner_t *owner; /* by rank */
	srt_coll_segment_t *segments;
} srt_owners_t;
srt_status_t srt_shard_owners(const srt_unit_t *unit, bool trainable_only, srt_owners_t *owners);
srt_status_t srt_shard_owners_in_place(const srt_unit_t *unit, srt_owners_t *owners);
void srt_owners_free(srt_owners_t *owners);

/* ---- plan.c */
srt_grad_place_t srt_plan_grad_place(const srt_engine_t *engine, int world);
srt_status_t srt_memory_plan(const srt_engine_t *engine, int rank, int world, srt_memory_t *memory);
void srt_memory_free(srt_memory_t *memory);

/* ---- verify.c */
/* At build: the ranks declared the same, else an error on all of them that lists what differs. */
srt_status_t srt_engine_compare(srt_engine_t *engine);
/* In the first step: all ranks do the same thing next, else an error on all of them. */
srt_status_t srt_engine_agree(srt_engine_t *engine, srt_phase_t phase, const srt_unit_t *unit);

/* ---- memory_check.c */
/* At build, collective: the plans of all ranks fit what their devices have left, those of ranks
 * that share one together; else an error on all ranks. `plan` is this rank's. */
srt_status_t srt_room_compare(srt_engine_t *engine, const srt_plan_t *plan);
/* Fails with "<why>; the plan of this rank is ...": whoever has to make room wants to see all. */
srt_status_t srt_room_fail(const srt_plan_t *plan, const char *why);

/* ---- unshard.c */
bool srt_unit_in_use(const srt_unit_t *unit);
srt_status_t srt_unshard_begin(srt_unit_t *unit, srt_stream_t *stream);
srt_status_t srt_unshard_end(srt_unit_t *unit, srt_stream_t *stream);
srt_status_t srt_unshard_prefetch(srt_unit_t *unit, bool backward);
/* Before the shards change: nobody reads them any more, and no slot counts as gathered. */
srt_status_t srt_unshard_fence(srt_unit_t *unit, srt_stream_t *stream);
/* After the shards changed on `stream`: later gathers see it. */
srt_status_t srt_unshard_changed(srt_engine_t *engine, srt_stream_t *stream);

/* ---- reduce.c */
srt_status_t srt_reduce_prepare(srt_unit_t *unit, srt_stream_t *stream);
srt_status_t srt_reduce_begin(srt_unit_t *unit, srt_stream_t *stream);
srt_status_t srt_reduce_missing(srt_engine_t *engine, srt_stream_t *stream);
srt_status_t srt_reduce_join(srt_engine_t *engine, srt_stream_t *stream);
srt_status_t srt_reduce_flags(srt_engine_t *engine, srt_stream_t *stream);
void srt_reduce_forget(srt_engine_t *engine);

/* ---- grad_norm.c */
srt_status_t srt_sum_create(srt_engine_t *engine, const srt_sum_places_t *places, bool over_ranks,
			    const char *name, srt_sum_t *sum);
void srt_sum_destroy(srt_sum_t *sum);
srt_status_t srt_clip_norm(srt_engine_t *engine, srt_stream_t *stream);

/* ---- optim.c */
srt_status_t srt_optim_create(srt_engine_t *engine, srt_stream_t *stream);
srt_status_t srt_optim_advance(srt_engine_t *engine, srt_stream_t *stream);
srt_status_t srt_optim_step(srt_engine_t *engine, srt_stream_t *stream);

/* ---- engine.c */
/* What `from` has now comes before what `to` gets from now on. */
srt_status_t srt_engine_edge(srt_engine_t *engine, srt_stream_t *from, srt_stream_t *to);
void srt_engine_expect_declared(srt_engine_t *engine);
srt_status_t srt_engine_require_built(const srt_engine_t *engine, const char *call);

#endif
