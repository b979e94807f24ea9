/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Full parameters on demand, as FullyShardedDataParallel.summon_full_params() of PyTorch: between
 * srt_full_params_begin() and srt_full_params_end() each rank has the unsharded stored values of a
 * unit's parameters, with any strategy, dtype, offload and mesh, and may read and write them.
 *
 *     srt_full_params_begin(unit, NULL, stream);
 *         srt_param_full(param, SRT_PARAM_VALUE, &view);    (work on `stream`)
 *     srt_full_params_end(unit, stream);
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
#ifndef SHARDRT_FULL_PARAMS_H
#define SHARDRT_FULL_PARAMS_H

#include <stddef.h>

#include <shardrt/device.h>
#include <shardrt/engine.h>
#include <shardrt/export.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Options of srt_full_params_begin(); each is 0 or 1. */
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
SRT_API srt_status_t srt_full_params_begin(srt_unit_t *unit,
					   const srt_full_params_options_t *options,
					   srt_stream_t *stream);

/**
 * A full tensor of a summoned unit. Local.
 * @param what SRT_PARAM_VALUE or SRT_PARAM_GRAD.
 * @param[out] view srt_param_shape() elements, row-major, in the parameter's dtype; valid until
 *        srt_full_params_end(). With offload_to_cpu of a buffer of srt_context_host(), whose
 *        address is srt_view_host().
 * @return SRT_ERR_STATE if the unit, or its gradients, are not summoned; SRT_ERR_NOT_FOUND for the
 *         gradient of a parameter that is frozen or that has none, and on ranks other than 0 with
 *         rank0_only; SRT_ERR_INVALID_ARGUMENT for another tensor.
 */
SRT_API srt_status_t srt_param_full(srt_param_t *param, srt_param_what_t what, srt_view_t *view);

/**
 * Ends what srt_full_params_begin() of this unit began. With writeback each rank stores its own
 * shard of the tensors that it has, as PyTorch does; so all ranks must write the same values to
 * them. SHARDRT_CHECK=1 compares the ranks' tensors. Collective, blocking.
 * @param stream that of srt_full_params_begin(). Its work on the tensors comes before the end, and
 *        work on other streams must be over.
 * @return SRT_ERR_STATE if the unit was not summoned, or by the call for another unit;
 *         SRT_ERR_INVALID_ARGUMENT for another stream: nothing has changed. SRT_ERR_MISMATCH on all
 *         ranks, with SHARDRT_CHECK=1, if they wrote different values: nothing is written back, and
 *         the memory is freed.
 */
SRT_API srt_status_t srt_full_params_end(srt_unit_t *unit, srt_stream_t *stream);

#ifdef __cplusplus
}
#endif
#endif
