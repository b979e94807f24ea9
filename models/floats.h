/* SPDX-License-Identifier: BSD-3-Clause */
/* Elements of files, in host memory: SRT_F32, SRT_F16 or SRT_BF16 in bytes without alignment. */
#ifndef SRT_MODELS_FLOATS_H
#define SRT_MODELS_FLOATS_H

#include <stddef.h>

#include <shardrt/dtype.h>

/** Element i, widened. */
float srt_floats_get(const char *data, srt_dtype_t dtype, size_t i);
/** Sets element i to the value, rounded to nearest even. */
void srt_floats_put(char *data, srt_dtype_t dtype, size_t i, float value);

#endif
