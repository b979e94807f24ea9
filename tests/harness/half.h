/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The 16-bit types written plainly, in double and by their definition: what the kernels' bit
 * manipulation is compared with. A NaN is 7e00 or 7fc0.
 */
#ifndef SRT_TESTS_HALF_H
#define SRT_TESTS_HALF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <shardrt/dtype.h>

/* The value of 16 bits. */
float half_value(srt_dtype_t dtype, uint16_t bits);

/* The nearest 16-bit number, ties to even. */
uint16_t half_bits(srt_dtype_t dtype, float v);

/* Rounds as a store and a load do; SRT_F32 as it is. */
float half_round(srt_dtype_t dtype, float v);

/* Element i of an array of any of the three types. */
void half_put(srt_dtype_t dtype, void *array, size_t i, float v);
float half_get(srt_dtype_t dtype, const void *array, size_t i);

#endif
