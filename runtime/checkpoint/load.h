/* SPDX-License-Identifier: BSD-3-Clause */
/* Loading one safetensors file: what tests change. */
#ifndef SRT_RUNTIME_CHECKPOINT_LOAD_H
#define SRT_RUNTIME_CHECKPOINT_LOAD_H

#include <stdint.h>

/* Elements of a shard that are read at once: memory for a large shard is not needed twice. Tests
 * set it before a load. */
extern int64_t srt_load_piece_nelem;

#endif
