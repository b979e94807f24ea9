/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Buffers of units: tensors of a model that are not trained, such as running statistics of
 * BatchNorm (torch.nn.Module.register_buffer). Each rank has all of them and changes its own; they
 * are in checkpoints, with the values of rank 0. Declared between srt_engine_create() and
 * srt_engine_build(), zero after it.
 */
#ifndef SHARDRT_UNIT_BUFFER_H
#define SHARDRT_UNIT_BUFFER_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/device.h>
#include <shardrt/engine.h>
#include <shardrt/export.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

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

/** Memory of a buffer on the device, in its dtype, row-major: the same in every step, read and
 * written by the program's work. The program orders all work on buffers between streams, also the
 * functions of this header and the broadcast, which is on the stream of the forward pass
 * (srt_engine_options_t.broadcast_buffers). Buffer NULL before srt_engine_build(). Local. */
SRT_API srt_view_t srt_unit_buffer_view(const srt_unit_buffer_t *buffer);

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

/** The i-th buffer in order of declaration; NULL past the end. Local. */
SRT_API srt_unit_buffer_t *srt_engine_buffer(srt_engine_t *engine, size_t i);
/** Name; owned by the buffer. Local. */
SRT_API const char *srt_unit_buffer_name(const srt_unit_buffer_t *buffer);
/** Number of elements. Local. */
SRT_API int64_t srt_unit_buffer_nelem(const srt_unit_buffer_t *buffer);

#ifdef __cplusplus
}
#endif
#endif
