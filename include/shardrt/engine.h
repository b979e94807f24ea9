/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sharding engine: units, parameters, and a training step over them.
 *
 * A program declares a tree of units (a unit is what is gathered and released together, e.g. a
 * transformer block; the root holds what is needed throughout) and the parameters each owns, then
 * builds the engine: the plan of all memory and all collectives is made once. In a step the
 * program brackets its own compute with calls:
 *
 *     for each micro-batch m:
 *         srt_engine_microbatch(engine, m, nmicro);
 *         srt_unit_forward_begin(unit, stream)   the unit's parameters are whole from here ...
 *             y = f(srt_param_data(p), x)            (put on `stream`)
 *         srt_unit_forward_end(unit, stream)     ... to here; the next unit is already on its way
 *         ...
 *         srt_unit_backward_begin(unit, stream)  whole again, gradients have a place
 *             srt_param_grad(p, &view, &accumulate); write or add the gradient there
 *             srt_param_grad_ready(p);
 *         srt_unit_backward_end(unit, stream)    gradients go to their owners
 *     srt_engine_step(engine, stream);           norm, clip, optimizer, on the owned shards
 *
 * Everything is put on streams and runs when they get to it: before the host reads or writes what
 * a view shows, and before it uses results of a step, it calls srt_stream_sync(). Calls that say
 * that they block or wait (srt_param_get(), srt_engine_state(), ...) have done so.
 *
 * All ranks run the same units in the same order, in every pass; within a unit a rank may leave out
 * the gradients of some parameters. A unit that no rank runs in a step is fine.
 *
 * An engine and its units and parameters belong to one thread at a time. The calls of a step may
 * name different streams: the engine orders its gathers, reductions and the step with all of them.
 * The same holds for micro-batches that add to one gradient. Work on one tensor within a
 * micro-batch (several uses of a unit, a forward pass of unsharded parameters that nothing follows
 * but the step) the caller's streams order themselves.
 */
#ifndef SHARDRT_ENGINE_H
#define SHARDRT_ENGINE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <shardrt/coll.h>
#include <shardrt/context.h>
#include <shardrt/device.h>
#include <shardrt/export.h>
#include <shardrt/ops.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The engine. Opaque. */
typedef struct srt_engine srt_engine_t;
/** A unit of gathering and releasing; owned by its engine. Opaque. */
typedef struct srt_unit srt_unit_t;
/** A parameter; owned by its unit. Opaque. */
typedef struct srt_param srt_param_t;

/** Most dimensions of a parameter. */
#define SRT_MAX_DIMS 4

/** How state is spread over the ranks. */
typedef enum srt_strategy {
	SRT_STRATEGY_DDP,   /* everything on every rank, gradients all-reduced */
	SRT_STRATEGY_ZERO3, /* parameters, gradients, optimizer state sharded (FSDP full shard) */
} srt_strategy_t;

/** What the sum of the gradients over ranks is divided by. */
typedef enum srt_reduction {
	SRT_REDUCE_MEAN, /* tree sum, then one division by the number of ranks */
	SRT_REDUCE_SUM,  /* tree sum */
} srt_reduction_t;

/** When gradients of several micro-batches are reduced. */
typedef enum srt_accumulation {
	SRT_ACCUMULATE_EVERY, /* reduce each micro-batch, add the reduced shards */
	SRT_ACCUMULATE_LAST,  /* add unreduced gradients locally, reduce at the last micro-batch */
} srt_accumulation_t;

/** Which optimizer steps the shards. */
typedef enum srt_optimizer {
	SRT_OPTIMIZER_SGD,
	SRT_OPTIMIZER_ADAM,
	SRT_OPTIMIZER_ADAMW,
} srt_optimizer_t;

/** Largest p of the clipping norm that has a meaning of its own: the maximum norm. */
#define SRT_NORM_INF 0x7fffffff

/** Options of srt_engine_create(). Zero-initialise, set what differs. */
typedef struct srt_engine_options {
	srt_comm_t *comm; /* ranks that share the parameters; NULL = the context's world */
	srt_strategy_t strategy;
	srt_reduction_t reduction;
	srt_accumulation_t accumulation;
	int microbatches; /* most micro-batches of a step, for which memory is planned; 0 = 1 */
	int prefetch;     /* units gathered ahead of use; 0 = 1, negative = none */

	srt_optimizer_t optimizer;
	float momentum, dampening; /* SGD */
	int nesterov;              /* SGD */
	int amsgrad;               /* Adam, AdamW: one more state, max_exp_avg_sq */
	int maximize;              /* steps up the gradient */
	double beta1, beta2;       /* Adam, AdamW; beta1, beta2, eps all zero: .9, .999, 1e-8 */
	float eps;

	float lr;         /* peak of the schedule, or constant */
	float min_lr;     /* end of the cosine */
	int32_t warmup;   /* steps */
	int32_t lr_steps; /* steps of warm-up and cosine together; 0 = constant lr after warm-up */

	int norm_p;     /* 0: no norm is computed; 1, 2, 3 or SRT_NORM_INF */
	float max_norm; /* clip to it; <= 0: the norm is computed and not used */
} srt_engine_options_t;

/** Options of a parameter. Zero-initialise. */
typedef struct srt_param_options {
	int frozen;         /* 1: no gradient, no optimizer state */
	float weight_decay; /* of its optimizer group */
	float lr_scale;     /* 0 is taken as 1 */
} srt_param_options_t;

/* ---- declaring ------------------------------------------------------------------------ */

/**
 * Makes an engine without units. Local.
 * @return SRT_ERR_INVALID_ARGUMENT for an option that has no meaning, by torch.optim's rules where
 *         it has them (a negative lr, betas outside [0, 1), nesterov without momentum, amsgrad
 *         of SGD).
 * @param[out] engine owned by the caller.
 */
SRT_API srt_status_t srt_engine_create(srt_context_t *context, const srt_engine_options_t *options,
				       srt_engine_t **engine);

/** Frees the engine, its units and parameters. Never blocks on other ranks. NULL is allowed. */
SRT_API void srt_engine_destroy(srt_engine_t *engine);

/**
 * Declares a unit. The first one is the root (parent NULL); all others have a parent.
 * @param name unique in the engine; copied.
 * @param[out] unit owned by the engine.
 */
SRT_API srt_status_t srt_unit_create(srt_engine_t *engine, srt_unit_t *parent, const char *name,
				     srt_unit_t **unit);

/**
 * Declares a parameter of a unit: a float tensor of ndim >= 1 dimensions, sharded along the first.
 * @param name unique in the engine, e.g. "blocks.0.attn.qkv.weight"; copied.
 * @return SRT_ERR_INVALID_ARGUMENT for scalars ("make it 1-D with one element"), integer dtypes,
 *         negative sizes and duplicate names; SRT_ERR_STATE after srt_engine_build().
 * @param[out] param owned by the unit.
 */
SRT_API srt_status_t srt_param_create(srt_unit_t *unit, const char *name, srt_dtype_t dtype,
				      int ndim, const int64_t *shape,
				      const srt_param_options_t *options, srt_param_t **param);

/**
 * Declares that `alias` is another name of a parameter (tied weights): one tensor, one gradient,
 * saved once. Must be declared in the unit that owns it; else an error that names both.
 */
SRT_API srt_status_t srt_param_tie(srt_unit_t *unit, srt_param_t *param, const char *alias);

/**
 * Compares the declaration on all ranks, makes the memory plan, allocates it, creates the
 * collectives. Collective. Parameters are zero afterwards. Nothing can be declared any more.
 * @return SRT_ERR_OUT_OF_MEMORY where the plan is more than a rank's device has left; the sentence
 *         has the plan.
 */
SRT_API srt_status_t srt_engine_build(srt_engine_t *engine);

/* ---- values --------------------------------------------------------------------------- */

/** All parameters of the engine in order of declaration; NULL past the end. */
SRT_API srt_param_t *srt_engine_param(srt_engine_t *engine, size_t i);
/** Finds a parameter by name or alias; NULL if there is none. */
SRT_API srt_param_t *srt_engine_find(srt_engine_t *engine, const char *name);
/** Name, owned by the parameter. */
SRT_API const char *srt_param_name(const srt_param_t *param);
/** Shape. @param[out] shape room for SRT_MAX_DIMS. @return the number of dimensions. */
SRT_API int srt_param_shape(const srt_param_t *param, int64_t *shape);
/** Number of elements of the full tensor. */
SRT_API int64_t srt_param_nelem(const srt_param_t *param);

/**
 * Where a rank's shard lies in the full tensor: `size` rows from row `offset` of dimension 0.
 * size may be 0. With ddp it is all rows.
 */
SRT_API srt_status_t srt_param_shard(const srt_param_t *param, int rank, int64_t *offset,
				     int64_t *size);

/** This rank's shard of the values, contiguous (rows of srt_param_shard). Borrowed. */
SRT_API srt_view_t srt_param_local(srt_param_t *param);
/** This rank's shard of the reduced gradient, before clipping; buffer NULL if it has none. */
SRT_API srt_view_t srt_param_local_grad(srt_param_t *param);
/** Optimizer state k of the shard, or absent; 0: momentum_buffer or exp_avg, 1: exp_avg_sq,
 * 2: max_exp_avg_sq. */
SRT_API srt_view_t srt_param_local_state(srt_param_t *param, int k);

/*
 * Values are set by every rank, also one whose shard is empty, between steps. "Local": the call
 * does not wait for other ranks.
 */
/** Fills the parameter with mean + std*N(0,1) from Philox keyed by (seed, name, element). Local. */
SRT_API srt_status_t srt_param_init_normal(srt_param_t *param, uint64_t seed, float mean, float std,
					   srt_stream_t *stream);
/** Fills the parameter with one value. Local. */
SRT_API srt_status_t srt_param_init_constant(srt_param_t *param, float value, srt_stream_t *stream);
/** Sets this rank's shard from the full tensor in host memory. Local. */
SRT_API srt_status_t srt_param_set(srt_param_t *param, const void *full, srt_stream_t *stream);

/** What srt_param_get() reads. */
typedef enum srt_param_what {
	SRT_PARAM_VALUE,
	SRT_PARAM_GRAD,
	SRT_PARAM_STATE0,
	SRT_PARAM_STATE1,
	SRT_PARAM_STATE2,
} srt_param_what_t;

/**
 * Collects a full tensor from all ranks into host memory. Collective and blocking; for tests,
 * saving and hashing.
 * @param full room for the full tensor in the parameter's dtype; NULL on ranks that do not want it.
 * @return SRT_ERR_NOT_FOUND on all ranks for a gradient that no rank marked ready in the last step,
 *         or for optimizer state that the parameter does not have.
 */
SRT_API srt_status_t srt_param_get(srt_param_t *param, srt_param_what_t what, void *full,
				   srt_stream_t *stream);

/* ---- a step --------------------------------------------------------------------------- */

/**
 * Announces micro-batch i of n of the step; to be called before its first forward. Without it a
 * step has one micro-batch. A micro-batch has one backward pass (SRT_ERR_STATE otherwise).
 * @return SRT_ERR_INVALID_ARGUMENT for n above srt_engine_options_t.microbatches; SRT_ERR_STATE if
 *         micro-batches are not announced in rising order.
 */
SRT_API srt_status_t srt_engine_microbatch(srt_engine_t *engine, int i, int n);

/** Makes the unit's parameters whole for `stream` and starts gathering the next unit. */
SRT_API srt_status_t srt_unit_forward_begin(srt_unit_t *unit, srt_stream_t *stream);
/** The stream's forward use of the unit ends here; its memory may be reused (not the root's). */
SRT_API srt_status_t srt_unit_forward_end(srt_unit_t *unit, srt_stream_t *stream);
/** Whole again for the backward pass; prefetches the unit that comes next in it. */
SRT_API srt_status_t srt_unit_backward_begin(srt_unit_t *unit, srt_stream_t *stream);
/** The unit's gradients of this micro-batch are written; starts their reduction. */
SRT_API srt_status_t srt_unit_backward_end(srt_unit_t *unit, srt_stream_t *stream);

/**
 * The full tensor between begin and end of its unit; the same address in every step.
 * @return SRT_ERR_STATE outside of them, and before srt_engine_build(); *view is left alone. A view
 *         from before must not be used there: zero3 gives its memory to other units.
 */
SRT_API srt_status_t srt_param_data(srt_param_t *param, srt_view_t *view);

/**
 * Where the full gradient goes, between srt_unit_backward_begin() and _end().
 * @param[out] view where.
 * @param[out] accumulate 0: store, 1: add to what is there (a further use of a tied parameter,
 *             or a further micro-batch).
 * @return SRT_ERR_STATE for a frozen parameter or outside the backward pass of its unit.
 */
SRT_API srt_status_t srt_param_grad(srt_param_t *param, srt_view_t *view, int *accumulate);

/**
 * The gradient is (or is queued to be) in its place; to be called after each use that wrote or
 * added to it. Never called = no gradient in this step: on this rank it counts as +0, and a
 * parameter that no rank has a gradient for is left alone by the optimizer.
 */
SRT_API srt_status_t srt_param_grad_ready(srt_param_t *param);
/** 1 unless the parameter is frozen. */
SRT_API int srt_param_requires_grad(const srt_param_t *param);

/** Finishes the reductions, then norm, clipping and optimizer on the owned shards. Asynchronous. */
SRT_API srt_status_t srt_engine_step(srt_engine_t *engine, srt_stream_t *stream);

/** Drops all gradients, accumulated ones too, and ends the step under way without an update. */
SRT_API srt_status_t srt_engine_reset(srt_engine_t *engine);

/** Results of the last step. Waits for it. @param[out] state copied from the device. */
SRT_API srt_status_t srt_engine_state(srt_engine_t *engine, srt_stream_t *stream,
				      srt_step_state_t *state);

/** The same without waiting: the srt_step_state_t goes to byte `offset` of a buffer of the device,
 * e.g. of kind SRT_MEM_PINNED. Asynchronous. */
SRT_API srt_status_t srt_engine_copy_state(srt_engine_t *engine, srt_stream_t *stream,
					   srt_buffer_t *to, size_t offset);

/**
 * Sum over all ranks of nelem fp32 values each (losses by row), independent of how they are
 * spread. Collective, asynchronous. @param[out] total (1, SRT_F32) device memory.
 * @param total_nelem number of values over all ranks.
 */
SRT_API srt_status_t srt_engine_sum(srt_engine_t *engine, srt_view_t values, int64_t nelem,
				    int64_t total_nelem, srt_view_t total, srt_stream_t *stream);

/**
 * Hash of all parameters: XXH3-128 over the values in the order of their names, whatever the
 * sharding; NaN counts as 7fc00000. Collective, blocking.
 * @param[out] hash 16 bytes, canonical (big-endian) form.
 * @return SRT_ERR_UNSUPPORTED if libxxhash was not there when the library was built.
 */
SRT_API srt_status_t srt_engine_hash(srt_engine_t *engine, srt_stream_t *stream,
				     unsigned char hash[16]);

/* ---- the plan ------------------------------------------------------------------------- */

/** Bytes of device memory per role on a rank. Exact: equal to what is allocated. */
typedef struct srt_plan {
	size_t param_shards;    /* values this rank owns */
	size_t grad_shards;     /* reduced gradients */
	size_t optimizer_state; /* all moments */
	size_t unsharded;       /* slots for whole parameters */
	size_t unsharded_grads; /* slots for whole gradients */
	size_t staging;         /* scratch of collectives, norms, tables */
	size_t total;           /* sum of the above: the engine's */
	size_t activations;     /* the program's own, as srt_engine_beside() was told */
	size_t scratch;         /* what its stream keeps for products and attention, likewise */
	size_t rank_total;      /* of all these, the rank's */
	size_t peer_mapped;     /* of other ranks' memory, mapped here, not counted above */
	int nslots;             /* unsharded slots */
} srt_plan_t;

/**
 * The memory plan, from the declaration alone: works before srt_engine_build() and without other
 * ranks.
 * @param rank, world_size for which rank of how many; world_size 0 = the engine's own.
 */
SRT_API srt_status_t srt_engine_plan(const srt_engine_t *engine, int rank, int world_size,
				     srt_plan_t *plan);

/**
 * Says how much device memory the program takes beside the engine, for the plan. If all of it, with
 * the engine's own, is more than the device says that can still be had (srt_device_available()),
 * less what its driver may take later (SHARDRT_MEMORY_MARGIN), or if ranks that share a device's
 * memory want more of it together, srt_engine_build() fails on all ranks before it allocates
 * anything. To be called before it;
 * without it the engine's own is compared.
 * @param activations bytes of the program's buffers.
 * @param scratch bytes of srt_stream_reserve(), over all streams.
 * @return SRT_ERR_STATE after srt_engine_build().
 */
SRT_API srt_status_t srt_engine_beside(srt_engine_t *engine, size_t activations, size_t scratch);

/** Prints the engine for people: units, parameters, shards, plan. */
SRT_API srt_status_t srt_engine_print(const srt_engine_t *engine, FILE *out);

/** Checks the engine's invariants; SRT_ERR_STATE with the first violated one. For tests. */
SRT_API srt_status_t srt_engine_check(const srt_engine_t *engine);

#ifdef __cplusplus
}
#endif
#endif
