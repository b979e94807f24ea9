/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Elements in host memory, rounded from one float dtype to another by the device: the bits of
 * srt_op_cast(). Called by load.c, sharded_load.c and save.c.
 */
#ifndef SRT_RUNTIME_CHECKPOINT_CAST_H
#define SRT_RUNTIME_CHECKPOINT_CAST_H

#include "runtime/engine/engine.h"

/* Most elements of a block. */
#define SRT_CAST_NELEM ((size_t)1 << 19)

/* Memory of the device for a block, before and after. */
typedef struct srt_cast {
	srt_buffer_t *from, *to;
} srt_cast_t;

/* To be closed also after a failure. */
srt_status_t srt_cast_open(srt_cast_t *cast, srt_device_t *device);
void srt_cast_close(srt_cast_t *cast);
/* Rounds a block of at most SRT_CAST_NELEM elements of `in` to `out`, which may be the same memory.
 * `stream` is of the device; returns when `out` is there. */
srt_status_t srt_cast_block(const srt_cast_t *cast, srt_dtype_t from, const void *in,
			    srt_dtype_t to, void *out, size_t nelem, srt_stream_t *stream);
/* Rounds the elements of a shard in place, on the device that has the owned values. `shard` has
 * room for them in both dtypes. Opens a cast that is {0}; the caller closes it. */
srt_status_t srt_cast_shard(srt_cast_t *cast, srt_engine_t *engine, srt_dtype_t from,
			    srt_dtype_t to, size_t nelem, void *shard, srt_stream_t *stream);

#endif
