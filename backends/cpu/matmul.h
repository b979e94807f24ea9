/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tuned matrix product of the CPU backend, equal bit for bit to docs/numerics.md, "Matrix
 * product": every output is a sum over k in blocks of SRT_CPU_KB, each block one chain of fused multiply-adds
 * from +0 in rising k, block sums added in rising order; then alpha, bias and the add onto C as
 * separate operations. All of it is in fp32: operands of 16 bits are widened as they are packed
 * or read, and their result is rounded once, unless C is of floats.
 *
 * Pure functions on host memory: no allocation, no threads, no state. A product is cut into
 * `nparts` parts that may run at the same time on any threads; the bits do not depend on nparts,
 * nor on the instruction set. Called by the backend's matmul slot and by attention.
 */
#ifndef SRT_BACKENDS_CPU_MATMUL_H
#define SRT_BACKENDS_CPU_MATMUL_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/dtype.h>

#include "kernels/args.h"

/* The fixed length of a chain. */
#define SRT_CPU_KB 512

/* A product on host memory. */
typedef struct srt_cpu_matmul {
	srt_k_matmul_t shape; /* batch 0: one product */
	srt_dtype_t dtype;    /* SRT_F32, SRT_F16, SRT_BF16; of C too, unless shape.c_is_f32 */
	const void *a, *b;
	void *c;
	const void *bias; /* (n) or NULL */
} srt_cpu_matmul_t;

/* Micro-kernels of one instruction set; backends/cpu/gemm_tile.h. */
typedef struct srt_cpu_gemm srt_cpu_gemm_t;

/*
 * The micro-kernels for an instruction set: "baseline", "avx2" (with FMA), "avx512" (AVX-512F, BW,
 * DQ, VL) or "neon" (aarch64); NULL if this build has none for it. The caller has checked that the
 * processor can run it.
 */
const srt_cpu_gemm_t *srt_cpu_gemm_find(const char *isa);

/* Bytes of scratch, aligned to 64, that each part that runs at a time needs; may be 0. */
size_t srt_cpu_matmul_scratch(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm, int nparts);

/* Computes part `part` of `nparts` (0 <= part < nparts). C must not overlap A, B or bias. */
void srt_cpu_matmul(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm, int part, int nparts,
		    void *scratch);

#endif
