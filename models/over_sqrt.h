/* SPDX-License-Identifier: BSD-3-Clause */
/* The scale of attention and of initial values. */
#ifndef SRT_MODELS_OVER_SQRT_H
#define SRT_MODELS_OVER_SQRT_H

#include <stdint.h>

/** a / sqrt(n), each operation rounded to nearest whatever the caller's rounding mode is: the same
 * on every machine. */
float srt_model_over_sqrt(float a, int64_t n);

#endif
