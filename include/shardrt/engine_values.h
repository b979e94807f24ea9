/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Values of an engine apart from a training step: a rank's shards, full parameters on demand,
 * buffers of units, what was declared. To look things up; <shardrt/engine.h> includes this header,
 * and says for all of it in which order calls come, what "local" and "collective" mean, which
 * errors any call may have, who owns what, and which threads may call.
 */
#ifndef SHARDRT_ENGINE_VALUES_H
#define SHARDRT_ENGINE_VALUES_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <shardrt/coll.h>
#include <shardrt/device.h>
#include <shardrt/dtype.h>
#include <shardrt/engine_options.h>
#include <shardrt/export.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- a rank's shards ------------------------------------------------------------------- */

/**
 * The part of a parameter that a rank owns: elements that follow each other in what the rank
 * computes with (srt_param_partition()), and, where they are one, a box of the unsharded tensor.
 * Does not grow.
 */
typedef struct srt_part {
	int ndim; /* of the parameter */
	/* The box, of the unsharded tensor; zeros with is_flat. One without elements begins where
	 * it would if there were any. */
	int64_t offset[SRT_MAX_DIMS], size[SRT_MAX_DIMS];
	/* 0: a box. 1: a range of elements only, of a parameter in a flat unit or one that is cut
	 * in blocks (srt_placement_t.nblocks). */
	int is_flat;
	int64_t first, nelem; /* elements first .. first + nelem - 1 of the rank's, row-major */
	int64_t shard_offset; /* flat units: where they begin in the shard of srt_unit_local() */
} srt_part_t;

/**
 * Which part of a parameter a rank of the engine owns; with ddp all that the rank computes with.
 * Local; allowed before and after srt_engine_build().
 * @param rank 0 .. world_size - 1.
 * @param[out] part set on success only.
 * @return SRT_ERR_INVALID_ARGUMENT for a rank outside the range.
 */
SRT_API srt_status_t srt_param_part(const srt_param_t *param, int rank, srt_part_t *part);

/**
 * Sets this rank's shard of values or of an optimizer state from its elements in host memory, so
 * that no rank needs the unsharded tensor. Local; for values every rank must call it.
 * @param what SRT_PARAM_VALUE (as srt_param_set()), SRT_PARAM_STATE0 or a later one.
 * @param elements those of srt_param_part() of this rank, of the parameter's dtype, row-major; may
 *        be reused when the call returns. NULL only for a shard without elements.
 * @return as srt_param_set().
 */
SRT_API srt_status_t srt_param_set_local(srt_param_t *param, srt_param_what_t what,
					 const void *elements, srt_stream_t *stream);

/** The flat parameter of a unit, in elements, as a rank has it. */
typedef struct srt_flat_sizes {
	size_t size;         /* sizeof(srt_flat_sizes_t) */
	int64_t flat_nelem;  /* of the whole; SRT_FLAT_VIEWS: with padding */
	int64_t shard_nelem; /* of each rank's shard, with padding */
	int64_t padding;     /* of this rank's shard, what is past the end of the whole */
} srt_flat_sizes_t;

/** To be filled. */
#define SRT_FLAT_SIZES_INIT                                                                        \
	{                                                                                          \
		.size = sizeof(srt_flat_sizes_t)                                                   \
	}

/**
 * The sizes of a unit's flat parameter (srt_unit_options_t.flat). With ddp its shard is the whole.
 * Local; allowed before and after srt_engine_build().
 * @param rank 0 .. world_size - 1.
 * @param[out] sizes its size by SRT_FLAT_SIZES_INIT; set on success only.
 * @return SRT_ERR_INVALID_ARGUMENT for a unit that is not flat or a rank outside the range.
 */
SRT_API srt_status_t srt_unit_flat_sizes(const srt_unit_t *unit, int rank, srt_flat_sizes_t *sizes);

/**
 * This rank's shard of a tensor, without a copy: the elements of srt_param_part(), contiguous, in
 * the parameter's dtype. Gradients may be written between srt_engine_finish_backward() and
 * srt_engine_step(). Values may be written until srt_engine_write_end() if the call is made after
 * srt_engine_write_begin(). After a call at another time, on all ranks, they may be written between
 * any two passes, by work that precedes the next forward pass on its stream; each forward pass then
 * gathers them again. Local; the first such call waits until no rank reads this rank's values.
 * @param[out] view set on success only.
 * @return SRT_ERR_NOT_FOUND if the parameter does not have the tensor; SRT_ERR_STATE for gradients
 *         from the first backward pass of a step to srt_engine_finish_backward(), and before
 *         srt_engine_build(); SRT_ERR_UNSUPPORTED for a state in 8 bits, which srt_param_get() and
 *         srt_param_set() convert.
 */
SRT_API srt_status_t srt_param_local(srt_param_t *param, srt_param_what_t what, srt_view_t *view);

/**
 * As srt_param_local(), this rank's shard of the unit's flat parameter: shard_nelem elements of
 * srt_flat_sizes_t, those of each parameter from srt_part_t.shard_offset on. What aligns and pads
 * them is zero, and must stay zero. For programs that step, average or exchange a unit as one
 * tensor.
 * @param[out] view set on success only.
 * @return as srt_param_local(); SRT_ERR_INVALID_ARGUMENT for a unit that is not flat, has no
 *         parameters, or whose parameters are apart in memory: frozen and trainable ones, or ones
 *         that are cut over a mesh (srt_placement_t) and others.
 */
SRT_API srt_status_t srt_unit_local(srt_unit_t *unit, srt_param_what_t what, srt_view_t *view);

/**
 * Begins changes of values by the program: until srt_engine_write_end(), work on `stream` may write
 * to srt_param_local(param, SRT_PARAM_VALUE). For optimizers of one's own, moving averages and
 * changes of weights. The stream waits until no gather reads the values. Every rank must call it.
 * Local, asynchronous.
 * @return SRT_ERR_STATE by the table in <shardrt/engine.h> (as srt_param_set() of all values), or
 *         inside another such pair.
 */
SRT_API srt_status_t srt_engine_write_begin(srt_engine_t *engine, srt_stream_t *stream);

/**
 * Ends the changes: later gathers have the new values. Every rank must call it. Local,
 * asynchronous.
 * @param stream that of srt_engine_write_begin().
 * @return SRT_ERR_STATE without a begin; SRT_ERR_INVALID_ARGUMENT for another stream.
 */
SRT_API srt_status_t srt_engine_write_end(srt_engine_t *engine, srt_stream_t *stream);

/* ---- full parameters on demand --------------------------------------------------------- */

/*
 * FullyShardedDataParallel.summon_full_params() of PyTorch: between srt_unit_full_params_begin()
 * and srt_unit_full_params_end() each rank has the unsharded stored values of a unit's parameters,
 * with any strategy, dtype, offload and mesh, and may read and write them.
 *
 *     srt_unit_full_params_begin(unit, NULL, stream);
 *         srt_param_full(param, SRT_PARAM_VALUE, &view);    (work on `stream`)
 *     srt_unit_full_params_end(unit, stream);
 *
 * Units that do not overlap may be summoned at the same time. While any unit is, the engine runs no
 * pass and no step, changes no value or gradient by other calls, and saves nothing; what
 * srt_param_get() and srt_engine_hash() read are the shards, which the program's changes reach at
 * the end. srt_engine_reset() ends all of it and drops the changes.
 *
 * Memory for the full tensors is allocated by the begin and freed by the end, outside of the
 * engine's plan: of the units' parameters in the stored dtype, twice with gradients, and while they
 * are gathered up to the largest parameter twice more. Later steps allocate nothing.
 */

/** Options of srt_unit_full_params_begin(); each is 0 or 1. */
typedef struct srt_full_params_options {
	size_t size;        /* sizeof(srt_full_params_options_t) */
	int recurse;        /* the units inside the unit, too */
	int writeback;      /* the end writes changes back; else it drops them */
	int rank0_only;     /* only rank 0 of the engine gets the tensors; not with writeback */
	int offload_to_cpu; /* in memory of srt_context_host(), with a host address */
	int with_grads;     /* the reduced gradients too */
} srt_full_params_options_t;

/** PyTorch's defaults: recurse and writeback. */
#define SRT_FULL_PARAMS_OPTIONS_INIT                                                               \
	{                                                                                          \
		.size = sizeof(srt_full_params_options_t), .recurse = 1, .writeback = 1            \
	}

/**
 * Gathers the parameters of a unit. Collective; may block.
 *
 * Gradients are there from srt_engine_finish_backward() to the next backward pass, as for
 * srt_param_get(). Changes of them are written back only before srt_engine_step().
 * @param options NULL for PyTorch's defaults: recurse and writeback.
 * @param stream on which the program reads and writes the tensors.
 * @return SRT_ERR_INVALID_ARGUMENT for writeback with rank0_only; SRT_ERR_STATE before
 *         srt_engine_build(), inside a pass, between srt_engine_write_begin() and
 *         srt_engine_write_end(), for a unit that is summoned already, or with_grads while there
 *         are no reduced gradients; SRT_ERR_OUT_OF_MEMORY on all ranks if one has no memory;
 *         SRT_ERR_MISMATCH if the ranks' options differ. Nothing is summoned then.
 */
SRT_API srt_status_t srt_unit_full_params_begin(srt_unit_t *unit,
						const srt_full_params_options_t *options,
						srt_stream_t *stream);

/**
 * A full tensor of a summoned unit. Local.
 * @param what SRT_PARAM_VALUE or SRT_PARAM_GRAD.
 * @param[out] view srt_param_shape() elements, row-major, in the parameter's dtype; valid until
 *        srt_unit_full_params_end(). With offload_to_cpu of a buffer of srt_context_host(), whose
 *        address is srt_view_host().
 * @return SRT_ERR_STATE if the unit, or its gradients, are not summoned; SRT_ERR_NOT_FOUND for the
 *         gradient of a parameter that is frozen or that has none, and on ranks other than 0 with
 *         rank0_only; SRT_ERR_INVALID_ARGUMENT for another tensor.
 */
SRT_API srt_status_t srt_param_full(srt_param_t *param, srt_param_what_t what, srt_view_t *view);

/**
 * Ends what srt_unit_full_params_begin() of this unit began. With writeback each rank stores its
 * own shard of the tensors that it has, as PyTorch does; so all ranks must write the same values to
 * them. SHARDRT_CHECK=1 compares the ranks' tensors. Collective, blocking.
 * @param stream that of srt_unit_full_params_begin(). Its work on the tensors comes before the end,
 *        and work on other streams must be over.
 * @return SRT_ERR_STATE if the unit was not summoned, or by the call for another unit;
 *         SRT_ERR_INVALID_ARGUMENT for another stream: nothing has changed. SRT_ERR_MISMATCH on all
 *         ranks, with SHARDRT_CHECK=1, if they wrote different values: nothing is written back, and
 *         the memory is freed.
 */
SRT_API srt_status_t srt_unit_full_params_end(srt_unit_t *unit, srt_stream_t *stream);

/* ---- buffers of units ------------------------------------------------------------------ */

/*
 * Tensors of a model that are not trained, such as running statistics of BatchNorm
 * (torch.nn.Module.register_buffer). Each rank has all of them and changes its own; they are in
 * checkpoints, with the values of rank 0. Declared before srt_engine_build(), zero after it.
 */

/**
 * Declares a buffer of a unit. Local; in the same order on all ranks.
 * @param name unique in the engine, among parameters too, not empty.
 * @param dtype any. A buffer of float dtype has the policy's buffer dtype instead
 *        (srt_precision_t.buffer), if there is one.
 * @param ndim 0 .. SRT_MAX_DIMS.
 * @param shape ndim sizes in elements; 0 is allowed.
 * @param[out] buffer owned by the engine.
 * @return SRT_ERR_INVALID_ARGUMENT for a name that is not unique, a negative size or sizes that do
 *         not fit the address space; SRT_ERR_STATE after srt_engine_build().
 */
SRT_API srt_status_t srt_unit_buffer_create(srt_unit_t *unit, const char *name, srt_dtype_t dtype,
					    int ndim, const int64_t *shape,
					    srt_unit_buffer_t **buffer);

/**
 * The memory of a buffer on the device, in its dtype, row-major: the same in every step, read and
 * written by the program's work. The program orders all work on buffers between streams, also
 * srt_unit_buffer_set(), srt_unit_buffer_get() and the broadcast, which is on the stream of the
 * forward pass (srt_engine_options_t.broadcast_buffers). Local.
 * @param[out] view set on success only.
 * @return SRT_ERR_STATE before srt_engine_build().
 */
SRT_API srt_status_t srt_unit_buffer_view(const srt_unit_buffer_t *buffer, srt_view_t *view);

/**
 * Sets this rank's values from host memory. Local.
 * @param values srt_unit_buffer_nelem() elements of the view's dtype; may be reused when the call
 *        returns. NULL only for a buffer without elements.
 * @return SRT_ERR_INVALID_ARGUMENT for NULL; SRT_ERR_STATE before srt_engine_build().
 */
SRT_API srt_status_t srt_unit_buffer_set(srt_unit_buffer_t *buffer, const void *values,
					 srt_stream_t *stream);

/** Reads this rank's values into host memory, as srt_unit_buffer_set(). Local; waits for the
 * stream. */
SRT_API srt_status_t srt_unit_buffer_get(srt_unit_buffer_t *buffer, void *values,
					 srt_stream_t *stream);

/* ---- what was declared ----------------------------------------------------------------- */

/** The ranks that share the parameters: srt_engine_options_t.comm, or those of the mesh; owned by
 * the caller of srt_engine_create(). NULL for NULL. Local. */
SRT_API srt_comm_t *srt_engine_comm(const srt_engine_t *engine);
/** Number of units; 0 for NULL. Local. */
SRT_API size_t srt_engine_unit_count(const srt_engine_t *engine);
/** The i-th unit in order of declaration, the root first; NULL past the end. Local. */
SRT_API srt_unit_t *srt_engine_unit_at(srt_engine_t *engine, size_t i);
/** Finds a unit by name; NULL if there is none. Local. */
SRT_API srt_unit_t *srt_engine_unit_find(srt_engine_t *engine, const char *name);
/** Name; owned by the unit. Local. */
SRT_API const char *srt_unit_name(const srt_unit_t *unit);
/** Number of parameters; 0 for NULL. Local. */
SRT_API size_t srt_engine_param_count(const srt_engine_t *engine);
/** The i-th parameter in order of declaration; NULL past the end. Local. */
SRT_API srt_param_t *srt_engine_param_at(srt_engine_t *engine, size_t i);
/** Finds a parameter by name or alias; NULL if there is none. Local. */
SRT_API srt_param_t *srt_engine_param_find(srt_engine_t *engine, const char *name);
/** Number of buffers; 0 for NULL. Local. */
SRT_API size_t srt_engine_buffer_count(const srt_engine_t *engine);
/** The i-th buffer in order of declaration; NULL past the end. Local. */
SRT_API srt_unit_buffer_t *srt_engine_buffer_at(srt_engine_t *engine, size_t i);
/** Finds a buffer by name; NULL if there is none. Local. */
SRT_API srt_unit_buffer_t *srt_engine_buffer_find(srt_engine_t *engine, const char *name);
/** Name; owned by the parameter. Local. */
SRT_API const char *srt_param_name(const srt_param_t *param);
/** The unit that it was declared in. Local. */
SRT_API srt_unit_t *srt_param_unit(const srt_param_t *param);
/** Shape of the unsharded tensor. Local. @param[out] shape SRT_MAX_DIMS elements, of which the
 * first ones are set. @return the number of dimensions. */
SRT_API int srt_param_shape(const srt_param_t *param, int64_t *shape);
/** Shape of what this rank computes with, srt_param_data() and srt_param_grad(): the unsharded
 * tensor or, with an srt_placement_t, this rank's partition of it. As srt_param_shape(). */
SRT_API int srt_param_partition(const srt_param_t *param, int64_t *shape);
/** Number of elements of the unsharded tensor. Local. */
SRT_API int64_t srt_param_nelem(const srt_param_t *param);
/** 1 unless the parameter is frozen. Local. */
SRT_API int srt_param_requires_grad(const srt_param_t *param);
/** Name; owned by the buffer. Local. */
SRT_API const char *srt_unit_buffer_name(const srt_unit_buffer_t *buffer);
/** Number of elements. Local. */
SRT_API int64_t srt_unit_buffer_nelem(const srt_unit_buffer_t *buffer);

/** Prints the engine for people: units, parameters, shards, plan. Local. @param out owned by the
 * caller. @return SRT_ERR_INVALID_ARGUMENT for NULL. */
SRT_API srt_status_t srt_engine_print(const srt_engine_t *engine, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
