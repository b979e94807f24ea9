/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank's shard of a matrix that a file has transposed: from (columns, rows) in the file to the
 * rank's elements of (rows, columns). Called by runtime/checkpoint/load.c.
 */
#ifndef SRT_RUNTIME_CHECKPOINT_TRANSPOSED_H
#define SRT_RUNTIME_CHECKPOINT_TRANSPOSED_H

#include "runtime/checkpoint/formats/safetensors.h"
#include "runtime/engine/engine.h"

/* Bytes of the block that it reads into. */
#define SRT_TRANSPOSED_NBYTES ((size_t)4 << 20)

/*
 * @param block host memory of SRT_TRANSPOSED_NBYTES.
 * @param[out] elements of the shard, in the dtype of the file.
 */
srt_status_t srt_transposed_read(const srt_param_t *param, const srt_safetensors_t *file,
				 const srt_safetensors_tensor_t *tensor, void *block,
				 void *elements);

#endif
