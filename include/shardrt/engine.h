/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sharding engine: units, parameters, and a training step over them.
 *
 * A unit is a set of parameters that are gathered and released together, e.g. a transformer block.
 * Units form a tree; the root has the parameters that are needed throughout a pass. A program
 * declares units and parameters and builds the engine, which plans all memory and all collectives
 * once. In a step the program brackets its own compute with calls:
 *
 *     for each micro-batch m:
 *         srt_engine_microbatch(engine, m, nmicro);
 *         srt_unit_forward_begin(unit, stream)      the parameters are unsharded from here ...
 *             srt_param_data(p, &view); y = f(view, x)       (queued on `stream`)
 *         srt_unit_forward_end(unit, stream)        ... to here; the next unit is being gathered
 *         ...
 *         srt_unit_backward_begin(unit, stream)     unsharded again; gradients have memory
 *             srt_param_grad(p, &view, &accumulate); store or add the gradient there
 *             srt_param_grad_ready(p);
 *         srt_unit_backward_end(unit, stream)       the reduction of the gradients is queued
 *     srt_engine_finish_backward(engine, stream);   optional: reduced gradients may be changed
 *     srt_engine_clip(engine, 2, 1.0f, stream);     optional, else by the options
 *     srt_engine_step(engine, stream);              norm, clipping, optimizer on the owned shards
 *
 * Order of calls. "begin" and "end" of the root move the engine from state to state; "-" is
 * SRT_ERR_STATE and changes nothing:
 *
 *              forward forward backward backward microbatch microbatch finish_
 *     state    begin   end     begin    end      (0, n)     (i > 0, n) backward step set (3)
 *     IDLE     FORWARD -       -        -        IDLE       -          -        -    IDLE
 *     FORWARD  -       READY   -        -        -          -          -        -    -
 *     READY    FORWARD -       BACKWARD -        READY (1)  -          -        -    IDLE (1)
 *     BACKWARD -       -       -        GRADS    -          -          -        -    -
 *     GRADS    EVAL    -       -        -        -          NEXT (2)   REDUCED  IDLE GRADS
 *     EVAL     -       GRADS   -        -        -          -          -        -    -
 *     NEXT     FORWARD -       -        -        -          -          -        -    NEXT
 *     REDUCED  -       -       -        -        -          -          -        IDLE REDUCED
 *
 *     (1) in the first micro-batch; later microbatch (0, n) is "-", srt_param_set() leads to NEXT.
 *     (2) while micro-batches of the step are left (then finish_backward, step are "-"); else "-".
 *     (3) srt_param_set(), and srt_engine_write_begin() with srt_engine_write_end().
 *         srt_engine_clip() is allowed in REDUCED only.
 *
 *     The last column is for a parameter of the root. A parameter of another unit may be set unless
 *     that unit is in use; the unit then needs a forward pass before its next backward pass.
 *
 * - While full parameters of a unit are summoned (<shardrt/full_params.h>), the calls of the table
 *   are "-", except srt_engine_microbatch(), and so are clip, save and load.
 * - Before srt_engine_build() units and parameters are declared; no call of the table is allowed. A
 *   successful build leads to IDLE and ends declaring; a failed one allows srt_engine_destroy().
 * - srt_engine_reset() leads from every state to IDLE.
 * - The other units run inside their parent: forward inside the parent's forward, backward inside
 *   the parent's backward. A unit may run forward several times in a pass, and then runs backward
 *   as often. Inside BACKWARD a forward pass of a unit recomputes (activation checkpointing).
 * - srt_param_data() is allowed between begin and end of its unit, srt_param_grad() and
 *   srt_param_grad_ready() between srt_unit_backward_begin() and srt_unit_backward_end().
 * - srt_param_init(), srt_param_init_normal() and srt_param_init_constant() have the rules of
 *   srt_param_set().
 * - An engine without trainable parameters steps without a backward pass.
 *
 * Streams. Calls with a stream queue their work on it and return. Before the host reads results it
 * calls srt_stream_sync(), unless a description says that the call blocks. Calls may name different
 * streams: the engine orders its gathers, reductions, steps, sums and what it sets and reads, and
 * the micro-batches that add to one gradient. The program orders its own work on one tensor within
 * a micro-batch, and on views between steps with calls on other streams.
 *
 * Ranks. All ranks run the same units in the same order in every pass, and give other calls the
 * same arguments; a difference is SRT_ERR_MISMATCH, in the first step before the pass, later at the
 * next call or wait. Within a unit a rank may leave out gradients. A unit that no rank runs in a
 * step is allowed. "Collective": all ranks of the engine must make the call. "Local": the call does
 * not wait for other ranks.
 *
 * Errors. Besides those named below: a call that queues work may return what its device or its
 * collectives report (SRT_ERR_DEVICE, SRT_ERR_PEER_DEAD, SRT_ERR_TIMEOUT, SRT_ERR_ABORTED,
 * SRT_ERR_MISMATCH). Outputs are set on success only. srt_last_error() has the sentence.
 *
 * Ownership. Units, parameters and what they return (names, views) belong to their engine and live
 * until srt_engine_destroy(). Strings and shapes that a call takes are copied.
 *
 * Thread safety. An engine, its units and its parameters belong to one thread at a time.
 */
#ifndef SHARDRT_ENGINE_H
#define SHARDRT_ENGINE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <shardrt/coll.h>
#include <shardrt/context.h>
#include <shardrt/device.h>
#include <shardrt/engine_options.h>
#include <shardrt/engine_plan.h>
#include <shardrt/export.h>
#include <shardrt/optimizer.h>
#include <shardrt/precision.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The engine. Opaque. */
typedef struct srt_engine srt_engine_t;
/** A set of parameters that are gathered and released together. Opaque. */
typedef struct srt_unit srt_unit_t;
/** A parameter. Opaque. */
typedef struct srt_param srt_param_t;
/** A tensor of a unit that is not trained (<shardrt/unit_buffer.h>). Opaque. */
typedef struct srt_unit_buffer srt_unit_buffer_t;

/* ---- declaring ------------------------------------------------------------------------- */

/**
 * Creates an engine without units. Local.
 * @param context must outlive the engine.
 * @param options NULL for the defaults; copied.
 * @param[out] engine owned by the caller, freed by srt_engine_destroy().
 * @return SRT_ERR_INVALID_ARGUMENT for an option outside its range, by the rules of torch.optim
 *         where it has them (a negative lr, betas outside [0, 1), nesterov without momentum), one
 *         that the optimizer does not have (momentum of Adam, amsgrad of SGD).
 */
SRT_API srt_status_t srt_engine_create(srt_context_t *context, const srt_engine_options_t *options,
				       srt_engine_t **engine);

/**
 * Declares a unit. Local; in the same order on all ranks.
 * @param parent NULL for the first unit, which is the root; else a unit of the engine.
 * @param name unique in the engine, not empty.
 * @param options NULL for the defaults; copied.
 * @param[out] unit owned by the engine.
 * @return SRT_ERR_INVALID_ARGUMENT for a second root, a parent of another engine, a name that is
 *         not unique or an option outside its range; SRT_ERR_STATE after srt_engine_build().
 */
SRT_API srt_status_t srt_unit_create(srt_engine_t *engine, srt_unit_t *parent, const char *name,
				     const srt_unit_options_t *options, srt_unit_t **unit);

/**
 * The dtypes of a unit: its policy, resolved with the dtype of its parameters (SRT_F32 if it has
 * none). The inputs of a root are cast by both rules, those of other units by SRT_PRECISION_FSDP2
 * only. Local.
 * @param[out] types its size by SRT_UNIT_TYPES_INIT; set on success only.
 */
SRT_API srt_status_t srt_unit_types(const srt_unit_t *unit, srt_unit_types_t *types);

/**
 * Declares a parameter of a unit, sharded along dimension 0 in chunks of ceil(rows / ranks), as
 * PyTorch's fully_shard does, or with the unit (srt_unit_options_t.flat). Local; in the same order
 * on all ranks.
 * @param name unique in the engine, not empty, e.g. "blocks.0.attn.qkv.weight".
 * @param dtype SRT_F32, SRT_F16 or SRT_BF16; of values, reduced gradients and optimizer state. The
 *        parameters of a unit have one dtype.
 * @param ndim 1 .. SRT_MAX_DIMS.
 * @param shape ndim sizes in elements; 0 is allowed.
 * @param options NULL for the defaults; copied.
 * @param[out] param owned by the engine.
 * @return SRT_ERR_INVALID_ARGUMENT for a scalar (declare one dimension of one element), an integer
 *         dtype, a dtype that another parameter of the unit does not have, a negative size, sizes
 *         that do not fit the address space, a name that is not unique, an option outside its
 *         range, or one that is frozen where another one of an SRT_FLAT_PADDED unit is trainable;
 *         SRT_ERR_UNSUPPORTED for SRT_F64; SRT_ERR_STATE after srt_engine_build().
 */
SRT_API srt_status_t srt_param_create(srt_unit_t *unit, const char *name, srt_dtype_t dtype,
				      int ndim, const int64_t *shape,
				      const srt_param_options_t *options, srt_param_t **param);

/**
 * Declares another name of a parameter (tied weights): one tensor, one gradient, saved once. Local.
 * @param unit the unit that owns the parameter. Parameters that several units use belong to a
 *        common ancestor of them.
 * @param alias unique in the engine, not empty.
 * @return SRT_ERR_INVALID_ARGUMENT for another unit or a name that is not unique; SRT_ERR_STATE
 *         after srt_engine_build().
 */
SRT_API srt_status_t srt_param_tie(srt_unit_t *unit, srt_param_t *param, const char *alias);

/* ---- the memory plan ------------------------------------------------------------------- */

/**
 * The memory plan of one rank, from the declaration alone. Local; allowed before and after
 * srt_engine_build().
 * @param rank 0 .. world_size - 1.
 * @param world_size number of ranks to plan for; 0 = the engine's. On which nodes other numbers of
 *        ranks would run is unknown: the plan takes the engine's transport for all collectives.
 * @param[out] plan its size by SRT_PLAN_INIT; set on success only.
 * @return SRT_ERR_INVALID_ARGUMENT for a rank outside the range.
 */
SRT_API srt_status_t srt_engine_plan(const srt_engine_t *engine, int rank, int world_size,
				     srt_plan_t *plan);

/**
 * Adds device memory of the program to the plan. Without this call srt_engine_build() compares the
 * engine's own memory only with what is free. Local.
 * @param activations bytes of the program's buffers.
 * @param scratch bytes of srt_stream_reserve(), over all streams.
 * @return SRT_ERR_STATE after srt_engine_build().
 */
SRT_API srt_status_t srt_engine_plan_extra(srt_engine_t *engine, size_t activations,
					   size_t scratch);

/**
 * Compares the declaration on all ranks, plans the memory, checks that it is free, allocates it and
 * creates the collectives. Parameters are zero afterwards. Collective, blocking.
 *
 * The memory check compares the plan with srt_device_available() less SHARDRT_MEMORY_MARGIN, before
 * anything is allocated. Plans of ranks that share a device's memory are added.
 * @return SRT_ERR_MISMATCH on all ranks if they declared different engines: the sentence lists the
 *         differences; SRT_ERR_OUT_OF_MEMORY on all ranks if a plan does not fit a device: the
 *         sentence has the rows of this rank's plan; SRT_ERR_UNSUPPORTED on all ranks for
 *         SRT_ACCUMULATE_TREE with another number of ranks or reduce dtype; SRT_ERR_STATE for an
 *         engine without units, one that is built, or one whose build failed.
 */
SRT_API srt_status_t srt_engine_build(srt_engine_t *engine);

/* ---- initial values -------------------------------------------------------------------- */

/**
 * Fills a parameter with mean + std * N(0, 1). Philox keyed by (seed, name, element): the values do
 * not depend on the sharding. Every rank must call it. Local, asynchronous. <shardrt/init.h> has
 * other distributions.
 * @return SRT_ERR_INVALID_ARGUMENT for a negative std or numbers that are not finite; SRT_ERR_STATE
 *         before srt_engine_build() or while its unit is in use.
 */
SRT_API srt_status_t srt_param_init_normal(srt_param_t *param, uint64_t seed, float mean, float std,
					   srt_stream_t *stream);

/**
 * Fills a parameter with one value. Every rank must call it. Local, asynchronous.
 * @return SRT_ERR_STATE before srt_engine_build() or while its unit is in use.
 */
SRT_API srt_status_t srt_param_init_constant(srt_param_t *param, float value, srt_stream_t *stream);

/**
 * Sets this rank's shard from the unsharded tensor in host memory. Every rank must call it. Local.
 * @param unsharded srt_param_nelem() elements of the parameter's dtype, row-major; may be reused
 *        when the call returns. NULL only for a parameter without elements.
 * @return SRT_ERR_INVALID_ARGUMENT for NULL; SRT_ERR_STATE before srt_engine_build() or while its
 *         unit is in use.
 */
SRT_API srt_status_t srt_param_set(srt_param_t *param, const void *unsharded, srt_stream_t *stream);

/** One of the tensors of a parameter. */
typedef enum srt_param_what {
	SRT_PARAM_VALUE,
	SRT_PARAM_GRAD,   /* reduced; clipped by srt_engine_clip() only */
	SRT_PARAM_STATE0, /* momentum_buffer or exp_avg */
	SRT_PARAM_STATE1, /* exp_avg_sq */
	SRT_PARAM_STATE2, /* max_exp_avg_sq */
} srt_param_what_t;

/* ---- a step ---------------------------------------------------------------------------- */

/**
 * Announces micro-batch i of n of the step, before its forward pass. Without this call a step has
 * one micro-batch. Each micro-batch has one backward pass. Local.
 * @param i 0 .. n - 1, rising from call to call.
 * @param n the same in all calls of a step.
 * @return SRT_ERR_INVALID_ARGUMENT for i outside the range, n above
 *         srt_engine_options_t.microbatches, or with SRT_ACCUMULATE_TREE an n that is not a power
 *         of two; SRT_ERR_STATE by the table above, or if i is not the next micro-batch.
 */
SRT_API srt_status_t srt_engine_microbatch(srt_engine_t *engine, int i, int n);

/**
 * Makes the unit's parameters unsharded for later work on `stream`, and starts gathering the units
 * that are expected next. Asynchronous.
 * @return SRT_ERR_STATE by the table above, outside the forward pass of the parent, if another unit
 *         still uses the memory (then raise srt_engine_options_t.prefetch), or for parameters of a
 *         module tree without values (srt_engine_materialize()): the sentence has their names.
 */
SRT_API srt_status_t srt_unit_forward_begin(srt_unit_t *unit, srt_stream_t *stream);

/**
 * Ends the stream's forward use of a unit. Its memory may be reused; the root's not. Asynchronous.
 * @return SRT_ERR_STATE if no forward pass has begun, or if one of a child is open.
 */
SRT_API srt_status_t srt_unit_forward_end(srt_unit_t *unit, srt_stream_t *stream);

/**
 * The unsharded tensor, between begin and end of its unit: srt_param_address().
 * A view must not be used outside of begin and end: zero3 gives its memory to other units. Local.
 * @param[out] view srt_param_shape() elements, row-major; read only.
 * @return SRT_ERR_STATE outside of begin and end, and before srt_engine_build().
 */
SRT_API srt_status_t srt_param_data(srt_param_t *param, srt_view_t *view);

/**
 * Makes the unit's parameters unsharded for the backward pass and its gradients writable, and
 * starts gathering the units that are expected next. Asynchronous.
 * @return SRT_ERR_STATE by the table above, without a forward pass of the current values, outside
 *         the backward pass of the parent, or if another unit still uses the memory.
 */
SRT_API srt_status_t srt_unit_backward_begin(srt_unit_t *unit, srt_stream_t *stream);

/**
 * Where the unsharded gradient is written, between srt_unit_backward_begin() and
 * srt_unit_backward_end() of its unit. Local.
 * @param[out] view srt_param_shape() elements, row-major.
 * @param[out] accumulate 0: store, 1: add to what the view has (a further use of a tied parameter,
 *             or a further micro-batch).
 * @return SRT_ERR_STATE for a frozen parameter or outside the backward pass of its unit.
 */
SRT_API srt_status_t srt_param_grad(srt_param_t *param, srt_view_t *view, int *accumulate);

/**
 * Marks the gradient as written: the work that stores or adds it is queued. Called after each use
 * that wrote or added. Without this call in a step, the rank has no gradient: its part of the sum
 * is +0, and a warning is logged once if srt_param_grad() was called. The optimizer skips a
 * parameter that has a gradient on no rank. Local.
 * @return SRT_ERR_STATE for a frozen parameter, outside the backward pass of its unit, or without
 *         srt_param_grad() in this backward pass.
 */
SRT_API srt_status_t srt_param_grad_ready(srt_param_t *param);

/**
 * Where srt_param_data() or srt_param_grad() will be in every pass, known from the build on: for a
 * graph that is made once. The memory may only be used as their views: values between begin and end
 * of the unit, gradients in its backward pass, after srt_param_grad(), which says whether to add.
 * The address holds for every strategy, with offload, flat units and micro-batches; units may have
 * the same one, as they use it in turn. Local.
 * @param what SRT_PARAM_VALUE, or SRT_PARAM_GRAD: the gradient as the program writes it.
 * @param[out] view srt_param_shape() elements, row-major.
 * @return SRT_ERR_INVALID_ARGUMENT for optimizer state; SRT_ERR_STATE for the gradient of a frozen
 *         parameter, and before srt_engine_build().
 */
SRT_API srt_status_t srt_param_address(srt_param_t *param, srt_param_what_t what, srt_view_t *view);

/**
 * Ends the stream's backward use of the unit and queues the reduction of its gradients.
 * Asynchronous.
 * @return SRT_ERR_STATE if no backward pass has begun, or if one of a child is open.
 */
SRT_API srt_status_t srt_unit_backward_end(srt_unit_t *unit, srt_stream_t *stream);

/**
 * Completes the reductions. From here to srt_engine_step() this rank's shards of the reduced
 * gradients, srt_param_local(param, SRT_PARAM_GRAD), may be read and written by work on `stream`.
 * srt_engine_step() calls it if the program did not. Collective, asynchronous.
 * @return SRT_ERR_STATE by the table above.
 */
SRT_API srt_status_t srt_engine_finish_backward(srt_engine_t *engine, srt_stream_t *stream);

/**
 * Computes the norm of the reduced gradients and multiplies them by min(1, max_norm / (norm +
 * 1e-6)), as torch.nn.utils.clip_grad_norm_ does. Then the step neither computes a norm nor clips
 * by srt_engine_options_t.norm_p. srt_engine_state() has the norm and the coefficient. Collective,
 * asynchronous.
 * @param norm_p 1, 2, 3 or SRT_NORM_INF.
 * @param max_norm <= 0: the norm is computed, nothing is clipped.
 * @param stream that of srt_engine_finish_backward().
 * @return SRT_ERR_INVALID_ARGUMENT for another norm, NaN or another stream; SRT_ERR_STATE by the
 *         table above.
 */
SRT_API srt_status_t srt_engine_clip(srt_engine_t *engine, int norm_p, float max_norm,
				     srt_stream_t *stream);

/**
 * Completes the reductions, then computes the norm, clips and steps the owned shards. Collective,
 * asynchronous.
 * @param stream after srt_engine_finish_backward(), that of this call.
 * @return SRT_ERR_INVALID_ARGUMENT for another stream; SRT_ERR_STATE by the table above, or for a
 *         group that has parameters and no learning rate (srt_optim_options_t.lr).
 */
SRT_API srt_status_t srt_engine_step(srt_engine_t *engine, srt_stream_t *stream);

/**
 * Sets the learning rate of the next steps, of all groups; their schedules end with it. The same on
 * all ranks. Local, asynchronous.
 * @param lr finite, at least 0.
 * @return SRT_ERR_INVALID_ARGUMENT for another value; SRT_ERR_STATE before srt_engine_build().
 */
SRT_API srt_status_t srt_engine_set_lr(srt_engine_t *engine, float lr, srt_stream_t *stream);

/**
 * Begins changes of values by the program: until srt_engine_write_end(), work on `stream` may write
 * to srt_param_local(param, SRT_PARAM_VALUE). For optimizers of one's own, moving averages and
 * changes of weights. The stream waits until no gather reads the values. Every rank must call it.
 * Local, asynchronous.
 * @return SRT_ERR_STATE by the table above (as srt_param_set() of every parameter), or inside
 *         another such pair.
 */
SRT_API srt_status_t srt_engine_write_begin(srt_engine_t *engine, srt_stream_t *stream);

/**
 * Ends the changes: later gathers have the new values. Every rank must call it. Local,
 * asynchronous.
 * @param stream that of srt_engine_write_begin().
 * @return SRT_ERR_STATE without a begin; SRT_ERR_INVALID_ARGUMENT for another stream.
 */
SRT_API srt_status_t srt_engine_write_end(srt_engine_t *engine, srt_stream_t *stream);

/**
 * Drops all gradients, those of earlier micro-batches too, and ends the step without an update.
 * Also drops full parameters that are summoned.
 * Also allowed after a failed call. Local; waits for the engine's queued gathers and reductions.
 * @return SRT_ERR_STATE before srt_engine_build().
 */
SRT_API srt_status_t srt_engine_reset(srt_engine_t *engine);

/* ---- results --------------------------------------------------------------------------- */

/**
 * Scalars of the last step: step count, learning rate, norm, clip coefficient. Local; waits for the
 * step. Logs the first norm that is not finite (srt_engine_options_t.norm_p).
 * @param[out] info its size is set by SRT_STEP_INFO_INIT; filled on success only.
 * @return SRT_ERR_STATE before srt_engine_build().
 */
SRT_API srt_status_t srt_engine_state(srt_engine_t *engine, srt_stream_t *stream,
				      srt_step_info_t *info);

/**
 * As srt_engine_state(), without waiting: copies SRT_STEP_STATE_NBYTES bytes to device memory, for
 * srt_step_info_decode(). Local, asynchronous.
 * @param to a buffer of the engine's device, e.g. of kind SRT_MEM_PINNED.
 * @param offset bytes from its start.
 * @return SRT_ERR_STATE before srt_engine_build().
 */
SRT_API srt_status_t srt_engine_copy_state(srt_engine_t *engine, srt_stream_t *stream,
					   srt_buffer_t *to, size_t offset);

/**
 * Sum over all ranks of fp32 values (e.g. losses by row). The bits do not depend on how the values
 * are spread over the ranks. Collective, asynchronous.
 * @param values (nelem), SRT_F32: this rank's; nelem may be 0.
 * @param total_nelem number of values over all ranks, at least 1.
 * @param total (1), SRT_F32, written on every rank.
 * @return SRT_ERR_INVALID_ARGUMENT, SRT_ERR_MISMATCH for bad sizes; SRT_ERR_STATE before build.
 */
SRT_API srt_status_t srt_engine_sum(srt_engine_t *engine, srt_view_t values, int64_t nelem,
				    int64_t total_nelem, srt_view_t total, srt_stream_t *stream);

/**
 * Gathers an unsharded tensor into host memory. Collective, blocking; for saving and debugging, not
 * inside a pass.
 * @param unsharded srt_param_nelem() elements of the parameter's dtype, row-major; NULL on ranks
 *        that do not need the result.
 * @return SRT_ERR_NOT_FOUND on all ranks for a gradient that no rank marked ready in the last step,
 *         or for optimizer state that the parameter does not have; SRT_ERR_STATE for a gradient
 *         from the first backward pass of a step to srt_engine_finish_backward(), and before
 *         srt_engine_build().
 */
SRT_API srt_status_t srt_param_get(srt_param_t *param, srt_param_what_t what, void *unsharded,
				   srt_stream_t *stream);

/**
 * This rank's shard of a tensor, without a copy: the elements of srt_param_part(), contiguous, in
 * the parameter's dtype. Gradients may be written between srt_engine_finish_backward() and
 * srt_engine_step(). Values may be written until srt_engine_write_end() if the call is made after
 * srt_engine_write_begin(). After a call at another time, on all ranks, they may be written between
 * any two passes, by work that precedes the next forward pass on its stream; each forward pass then
 * gathers them again. Local; the first such call waits until no rank reads this rank's values.
 * @return the view; buffer NULL, with srt_last_error(), if the parameter does not have the tensor,
 *         for gradients from the first backward pass of a step to srt_engine_finish_backward(), and
 *         before srt_engine_build().
 */
SRT_API srt_view_t srt_param_local(srt_param_t *param, srt_param_what_t what);

/**
 * Hash of all parameters: XXH3-128 over the values in the order of their names, independent of the
 * sharding; NaN counts as 7fc00000. Collective, blocking.
 * @param[out] hash 16 bytes, canonical (big-endian) form.
 * @return SRT_ERR_MISMATCH on all ranks if their values differ; SRT_ERR_UNSUPPORTED if the library
 *         was built without libxxhash; SRT_ERR_STATE before srt_engine_build().
 */
SRT_API srt_status_t srt_engine_hash(srt_engine_t *engine, srt_stream_t *stream,
				     unsigned char hash[16]);

/* ---- what was declared ----------------------------------------------------------------- */

/** The i-th parameter in order of declaration; NULL past the end. Local. */
SRT_API srt_param_t *srt_engine_param(srt_engine_t *engine, size_t i);
/** Finds a parameter by name or alias; NULL if there is none. Local. */
SRT_API srt_param_t *srt_engine_find(srt_engine_t *engine, const char *name);
/** Name; owned by the parameter. Local. */
SRT_API const char *srt_param_name(const srt_param_t *param);
/** Shape of the unsharded tensor. Local. @param[out] shape SRT_MAX_DIMS elements, of which the
 * first ones are set. @return the number of dimensions. */
SRT_API int srt_param_shape(const srt_param_t *param, int64_t *shape);
/** Shape of what this rank computes with, srt_param_data() and srt_param_grad(): the unsharded
 * tensor or, with an srt_placement_t, this rank's partition of it. Local. @param[out] shape as for
 * srt_param_shape(). @return the number of dimensions. */
SRT_API int srt_param_partition(const srt_param_t *param, int64_t *shape);
/** Number of elements of the unsharded tensor. Local. */
SRT_API int64_t srt_param_nelem(const srt_param_t *param);
/** 1 unless the parameter is frozen. Local. */
SRT_API int srt_param_requires_grad(const srt_param_t *param);

/** Prints the engine for people: units, parameters, shards, plan. Local. @param out owned by the
 * caller. @return SRT_ERR_INVALID_ARGUMENT for NULL. */
SRT_API srt_status_t srt_engine_print(const srt_engine_t *engine, FILE *out);

/** Frees the engine, its units and its parameters. Waits for the streams of its last calls. A
 * collective in flight that waits for another rank for half a second is aborted: all ranks fail
 * with SRT_ERR_ABORTED, "rank 0 destroyed the engine ...". NULL is allowed. */
SRT_API void srt_engine_destroy(srt_engine_t *engine);

#ifdef __cplusplus
}
#endif
#endif
