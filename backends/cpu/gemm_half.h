/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Casts of rows of 16-bit numbers for one instruction set (gemm_tile.h), by the conversions of
 * kernels/dialect: loops that the compiler vectorises, and instructions for f16 where there are
 * any. Included by gemm_<isa>.c.
 */
#ifndef SRT_BACKENDS_CPU_GEMM_HALF_H
#define SRT_BACKENDS_CPU_GEMM_HALF_H

#include <shardrt/dtype.h>

#include "kernels/dialect/dialect.h"

#if !defined(__F16C__) && !defined(HAS_F16_ROWS)
FN void k_widen_f16(float *y, const uint16_t *x, int64_t n)
{
	for (int64_t j = 0; j < n; j++)
		y[j] = k_from_f16(x[j]);
}
FN void k_narrow_f16(uint16_t *y, const float *x, int64_t n)
{
	for (int64_t j = 0; j < n; j++)
		y[j] = k_to_f16(x[j]);
}
#endif

/* The number at p as a float. */
FN float widen_element(srt_dtype_t dtype, const void *p)
{
	return dtype == SRT_F32 ? *(const float *)p :
	       dtype == SRT_F16 ? k_from_f16(*(const uint16_t *)p) :
				  k_from_bf16(*(const uint16_t *)p);
}

static void rows_widen(srt_dtype_t dtype, int64_t rows, int64_t cols, float *y, int64_t ldy,
		       const uint16_t *x, int64_t ldx)
{
	for (; rows > 0; rows--, y += ldy, x += ldx) {
		if (dtype == SRT_F16)
			k_widen_f16(y, x, cols);
		else
			for (int64_t j = 0; j < cols; j++)
				y[j] = k_from_bf16(x[j]);
	}
}

static void rows_round(srt_dtype_t dtype, int64_t rows, int64_t cols, uint16_t *y, int64_t ldy,
		       const float *x, int64_t ldx)
{
	for (; rows > 0; rows--, y += ldy, x += ldx) {
		if (dtype == SRT_F16)
			k_narrow_f16(y, x, cols);
		else
			for (int64_t j = 0; j < cols; j++)
				y[j] = k_to_bf16(x[j]);
	}
}

#endif
