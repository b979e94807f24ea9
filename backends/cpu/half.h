/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Casts rows of 16-bit numbers to floats in scratch and back, by the portable cast kernels: the
 * tuned product and attention use it for f16 and bf16. Widening is exact; a result is rounded once.
 */
#ifndef SRT_BACKENDS_CPU_HALF_H
#define SRT_BACKENDS_CPU_HALF_H

#include <stdint.h>

#include "backends/cpu/pool.h"
#include "kernels/cpu.h"

/* The casts of one 16-bit type on one instruction set. */
typedef struct srt_cpu_half {
	srt_kernel_cpu_fn *widen, *round;
} srt_cpu_half_t;

/* dtype: SRT_F16 or SRT_BF16 */
srt_cpu_half_t srt_cpu_half(srt_dtype_t dtype, srt_cpu_isa_t isa);

/* y (rows,cols) = x (rows,cols), their rows ldy and ldx elements apart; elements between rows of y
 * do not change. The pool's threads share large casts; pool NULL: only the caller's thread. */
void srt_cpu_widen(const srt_cpu_half_t *half, srt_cpu_pool_t *pool, int64_t rows, int64_t cols,
		   float *y, int64_t ldy, const uint16_t *x, int64_t ldx);
void srt_cpu_round(const srt_cpu_half_t *half, srt_cpu_pool_t *pool, int64_t rows, int64_t cols,
		   uint16_t *y, int64_t ldy, const float *x, int64_t ldx);

#endif
