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
 * The sections of this header: declaring, the memory plan, initial values, a step, results, the
 * optimizer. It includes two others, to look things up: <shardrt/engine_options.h> has the structs
 * of options, <shardrt/engine_values.h> a rank's shards, full parameters on demand, buffers of
 * units and what was declared. Models as trees of modules are in <shardrt/module.h>, files in
 * <shardrt/checkpoint.h>.
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
 *     (3) srt_param_set() of values, and srt_engine_write_begin() with srt_engine_write_end().
 *         srt_engine_clip() is allowed in REDUCED only.
 *
 *     The last column is for a parameter of the root. A parameter of another unit may be set unless
 *     that unit is in use; the unit then needs a forward pass before its next backward pass.
 *
 * - While full parameters of a unit are summoned (srt_unit_full_params_begin()), the calls of the
 *   table are "-", except srt_engine_microbatch(), and so are clip, save and load.
 * - Before srt_engine_build() units and parameters are declared; no call of the table is allowed. A
 *   successful build leads to IDLE and ends declaring; after a failed one the engine can only be
 *   destroyed.
 * - srt_engine_reset() leads from every state to IDLE.
 * - The other units run inside their parent: forward inside the parent's forward, backward inside
 *   the parent's backward. A unit may run forward several times in a pass, and then runs backward
 *   as often. Inside BACKWARD a forward pass of a unit recomputes (activation checkpointing).
 * - srt_param_data() is allowed between begin and end of its unit, srt_param_grad() and
 *   srt_param_grad_ready() between srt_unit_backward_begin() and srt_unit_backward_end().
 * - srt_param_init(), srt_param_init_normal() and srt_param_init_constant() have the rules of
 *   srt_param_set() of values.
 * - An engine without trainable parameters steps without a backward pass.
 *
 * Streams. Calls with a stream queue their work on it and return. Before the host reads results it
 * calls srt_stream_sync(), unless a description says that the call blocks or waits. Calls may name
 * different streams: the engine orders its gathers, reductions, steps, sums and what it sets and
 * reads, and the micro-batches that add to one gradient. The program orders its own work on one
 * tensor within a micro-batch, and on views between steps with calls on other streams.
 *
 * Ranks. All ranks run the same units in the same order in every pass, and give other calls the
 * same arguments; a difference is SRT_ERR_MISMATCH, in the first step before the pass, later at the
 * next call or wait. Within a unit a rank may leave out gradients. A unit that no rank runs in a
 * step is allowed. "Collective": all ranks of the engine must make the call. "Local": the call does
 * not wait for other ranks.
 *
 * Errors. Besides those named below: a call that queues work may return what its device or its
 * collectives report (SRT_ERR_DEVICE, SRT_ERR_PEER_DEAD, SRT_ERR_TIMEOUT, SRT_ERR_ABORTED,
 * SRT_ERR_MISMATCH). Outputs are set on success only. srt_error_last() has the sentence.
 *
 * Ownership. Units, parameters, buffers and their names belong to their engine and live until
 * srt_engine_destroy(). A view is valid as long as its function's description says. Strings and
 * shapes that a call takes are copied.
 *
 * Thread safety. An engine, its units and its parameters belong to one thread at a time.
 */
#ifndef SHARDRT_ENGINE_H
#define SHARDRT_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/coll.h>
#include <shardrt/context.h>
#include <shardrt/device.h>
#include <shardrt/engine_options.h>
#include <shardrt/engine_values.h>
#include <shardrt/export.h>
#include <shardrt/optimizer.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- declaring ------------------------------------------------------------------------- */

/**
 * Creates an engine without units. Local.
 * @param context must outlive the engine.
 * @param options NULL for the defaults; copied.
 * @param[out] engine owned by the caller, freed by srt_engine_destroy().
 * @return SRT_ERR_INVALID_ARGUMENT for an option outside its range, by the rules of torch.optim
 *         where it has them (a negative lr, betas outside [0, 1), nesterov without momentum), or
 *         for one that the optimizer does not have (momentum of Adam, amsgrad of SGD).
 */
SRT_API srt_status_t srt_engine_create(srt_context_t *context, const srt_engine_options_t *options,
				       srt_engine_t **engine);

/** Frees the engine, its units and its parameters. Waits for the streams of its last calls. A
 * collective in flight that waits for another rank for half a second is aborted: all ranks fail
 * with SRT_ERR_ABORTED, "rank 0 destroyed the engine ...". NULL is allowed. */
SRT_API void srt_engine_destroy(srt_engine_t *engine);

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
 * @param dtype SRT_F32, SRT_F16 or SRT_BF16; of values, reduced gradients and optimizer state. Or
 *        SRT_U8 of a frozen parameter: bytes, which are sharded, gathered and saved as they are,
 *        and set by the program. The parameters of a unit have one dtype.
 * @param ndim 1 .. SRT_MAX_DIMS.
 * @param shape ndim sizes in elements; 0 is allowed.
 * @param options NULL for the defaults; copied.
 * @param[out] param owned by the engine.
 * @return SRT_ERR_INVALID_ARGUMENT for a scalar (declare one dimension of one element), another
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

/**
 * Declares a group of parameters with its own hyper-parameters and schedule, as torch.optim's
 * param_groups are; srt_param_options_t.group names it. A group costs a launch more in a step (for
 * each dtype), or, of Muon, for each matrix; weight decay and lr_scale of srt_param_options_t cost
 * none. Local; in the same order on all ranks.
 * @param options of the kind of the engine's optimizer, or one of Muon and the other of AdamW;
 *        copied. Parameters of Muon are matrices stored in SRT_F32.
 * @param[out] group its index: 1 for the first.
 * @return SRT_ERR_INVALID_ARGUMENT as srt_engine_create(), and for another kind or state_bits;
 *         SRT_ERR_UNSUPPORTED for state_bits 8 next to Muon; SRT_ERR_STATE after
 *         srt_engine_build().
 */
SRT_API srt_status_t srt_engine_group_create(srt_engine_t *engine,
					     const srt_optim_options_t *options, size_t *group);

/* ---- the memory plan ------------------------------------------------------------------- */

/**
 * The memory plan of one rank, from the declaration alone. Local; allowed before and after
 * srt_engine_build().
 * @param rank 0 .. world_size - 1.
 * @param world_size number of ranks to plan for; 0 = the engine's. On which nodes other numbers of
 *        ranks would run is unknown: the plan takes the engine's transport for all collectives.
 * @param[out] plan its size by SRT_PLAN_INIT; set on success only.
 * @return SRT_ERR_INVALID_ARGUMENT for a rank outside the range, or for an engine on a mesh a
 *         world_size other than the mesh's (srt_mesh_create() makes one to plan with).
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
 * Sets this rank's shard of values or of an optimizer state from the unsharded tensor in host
 * memory. Values: every rank must call it. Local.
 * @param what SRT_PARAM_VALUE, SRT_PARAM_STATE0 or a later one.
 * @param unsharded srt_param_nelem() elements of the parameter's dtype, row-major; may be reused
 *        when the call returns. NULL only for a parameter without elements.
 * @return SRT_ERR_INVALID_ARGUMENT for NULL; SRT_ERR_NOT_FOUND for a state that the parameter does
 *         not have, and for SRT_PARAM_GRAD, which work on a stream writes (srt_param_local());
 *         SRT_ERR_STATE before srt_engine_build(), or for values while its unit is in use.
 */
SRT_API srt_status_t srt_param_set(srt_param_t *param, srt_param_what_t what, const void *unsharded,
				   srt_stream_t *stream);

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
 * The unsharded tensor as a view, to be used between begin and end of its unit only: zero3 gives
 * its memory to other units afterwards. srt_param_address() tells where it is before the pass.
 * Local.
 * @param[out] view srt_param_partition() elements, row-major; read only.
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
 * @param[out] view srt_param_partition() elements, row-major.
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
 * Ends the stream's backward use of the unit and queues the reduction of its gradients.
 * Asynchronous.
 * @return SRT_ERR_STATE if no backward pass has begun, or if one of a child is open.
 */
SRT_API srt_status_t srt_unit_backward_end(srt_unit_t *unit, srt_stream_t *stream);

/**
 * Where srt_param_data() or srt_param_grad() will be in every pass, known from the build on: for a
 * graph that is made once. The memory may only be used as their views: values between begin and end
 * of the unit, gradients in its backward pass, after srt_param_grad(), which says whether to add.
 * The address holds for every strategy, with offload, flat units and micro-batches; units may have
 * the same one, as they use it in turn. Local.
 * @param what SRT_PARAM_VALUE, or SRT_PARAM_GRAD: the gradient as the program writes it.
 * @param[out] view srt_param_partition() elements, row-major.
 * @return SRT_ERR_INVALID_ARGUMENT for optimizer state; SRT_ERR_STATE for the gradient of a frozen
 *         parameter, and before srt_engine_build().
 */
SRT_API srt_status_t srt_param_address(srt_param_t *param, srt_param_what_t what, srt_view_t *view);

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
 * by srt_engine_options_t.norm_p. srt_engine_get_step_info() has the norm and the coefficient.
 * Collective, asynchronous.
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
 * Drops all gradients, those of earlier micro-batches too, and full parameters that are summoned,
 * and ends the step without an update. Allowed after a failed call. Local; waits for the engine's
 * queued gathers and reductions.
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
SRT_API srt_status_t srt_engine_get_step_info(srt_engine_t *engine, srt_step_info_t *info,
					      srt_stream_t *stream);

/**
 * As srt_engine_get_step_info(), without waiting: copies SRT_STEP_INFO_NBYTES bytes to device
 * memory, for srt_step_info_decode(). Local, asynchronous.
 * @param to a buffer of the engine's device, e.g. of kind SRT_MEM_PINNED.
 * @param offset bytes from its start.
 * @return SRT_ERR_STATE before srt_engine_build().
 */
SRT_API srt_status_t srt_engine_copy_step_info(srt_engine_t *engine, srt_buffer_t *to,
					       size_t offset, srt_stream_t *stream);

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
 * Hash of all parameters: XXH3-128 over the values in the order of their names, independent of the
 * sharding; NaN counts as 7fc00000. Collective, blocking.
 * @param[out] hash 16 bytes, canonical (big-endian) form.
 * @return SRT_ERR_MISMATCH on all ranks if their values differ; SRT_ERR_UNSUPPORTED if the library
 *         was built without libxxhash; SRT_ERR_STATE before srt_engine_build().
 */
SRT_API srt_status_t srt_engine_hash(srt_engine_t *engine, unsigned char hash[16],
				     srt_stream_t *stream);

/* ---- the optimizer --------------------------------------------------------------------- */

/*
 * To resume a run, a program sets the values and optimizer states (srt_param_set()) and the step
 * counts (srt_optim_set_steps()) of all trainable parameters, and the step info of each group
 * (srt_optim_set_step_info()), which it read in the earlier run by srt_param_get(),
 * srt_optim_get_steps() and srt_optim_get_step_info(). The next step then has the bits that it
 * would have had there, with any strategy. These calls are made between steps, on all ranks, with
 * the same values.
 */

/**
 * The engine's optimizer, on which the functions of <shardrt/optimizer.h> work: groups, learning
 * rates, step infos, step counts and states. Its parameters are those that are trainable, by name.
 * Learning rates are the same on all ranks. srt_engine_step() steps it. Local.
 * @return owned by the engine, the same from srt_engine_create() on; NULL for NULL.
 */
SRT_API srt_optim_t *srt_engine_optim(const srt_engine_t *engine);

#ifdef __cplusplus
}
#endif
#endif
