/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an instruction set provides for the matrix product: a tile kernel and the packing of a
 * transposed operand. The driver (matmul.c) and attention (attention*.c) are written over it.
 *
 * A tile is at most mr rows by nr columns of C. The kernel runs one block of the sum over k, kc <=
 * SRT_CPU_KB: A is read by scalar (element (i,k) at a[i * rs + k * cs], so both layouts work in place
 * or packed), B by vectors (element (k,j) at b[k * ldb + j]; nr columns must be readable whatever
 * the tile's width: edges are packed and padded). Vectors run over columns, so their width leaves no
 * trace in the bits.
 */
#ifndef SRT_BACKENDS_CPU_GEMM_TILE_H
#define SRT_BACKENDS_CPU_GEMM_TILE_H

#include <stddef.h>
#include <stdint.h>

#include "backends/cpu/matmul.h"

/* How the sums of a tile leave it: v = sum [prior + v] [* alpha] [+ bias] [old + v], stored. */
typedef struct srt_cpu_tile_out {
	float *c; /* where the result goes */
	int64_t ldc;
	const float *prior; /* earlier block sums or NULL; may be c */
	int64_t ldprior;
	const float *old; /* accumulate onto; NULL = no; may be c */
	int64_t ldold;
	const float *bias; /* of the tile's first column, or NULL */
	float alpha;
} srt_cpu_tile_out_t;

struct srt_cpu_gemm {
	const char *isa;
	int mr, nr; /* largest tile */
	/* 1 <= rows <= mr, 1 <= cols <= nr, 0 <= kc <= SRT_CPU_KB. */
	void (*tile)(int rows, int cols, int64_t kc, const float *a, int64_t rs, int64_t cs,
		     const float *b, int64_t ldb, const srt_cpu_tile_out_t *out);
	/* dst[k * nr + j] = src[j * ld + k] for j < cols, +0 for cols <= j < nr; k < kc. */
	void (*pack_transposed)(int cols, int64_t kc, const float *src, int64_t ld, float *dst);
};

extern const srt_cpu_gemm_t srt_cpu_gemm_baseline;
extern const srt_cpu_gemm_t srt_cpu_gemm_avx2;
extern const srt_cpu_gemm_t srt_cpu_gemm_avx512;

#endif
