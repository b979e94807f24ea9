/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an instruction set provides for the matrix product and attention: a tile kernel, the packing
 * of a transposed operand, and attention's work on rows. The driver (matmul.c) and attention
 * (attention*.c) are written over it.
 *
 * A tile is at most mr rows by nr columns of C. The kernel runs one chain over k: A is read by
 * scalar (element (i,k) at a[i * rs + k * cs], so both layouts work in place or packed), B by
 * vectors (element (k,j) at b[k * ldb + j]; nr columns must be readable whatever the tile's width:
 * edges are packed and padded). Vectors run over columns, so their width leaves no trace in the
 * bits.
 */
#ifndef SRT_BACKENDS_CPU_GEMM_TILE_H
#define SRT_BACKENDS_CPU_GEMM_TILE_H

#include <stddef.h>
#include <stdint.h>

#include "backends/cpu/matmul.h"

/* Causal attention: which rows take part in which steps of k. */
typedef enum srt_cpu_ragged {
	SRT_CPU_FULL, /* all in all */
	SRT_CPU_HEAD, /* in the first rows - 1 steps: row i from step i on */
	SRT_CPU_TAIL, /* row i ends i of the last rows - 1 steps after row 0; kc counts all */
} srt_cpu_ragged_t;

/* How a tile's chains begin and how their sums leave it:
 * v = chain [prior + v] [* alpha] [+ bias] [old + v], stored. */
typedef struct srt_cpu_tile_io {
	float *c; /* where the result goes */
	int64_t ldc;
	const float *start; /* the chains go on from here; NULL = from +0; may be c */
	int64_t ldstart;
	const float *prior; /* earlier block sums or NULL; may be c */
	int64_t ldprior;
	const float *old; /* accumulate onto; NULL = no; may be c */
	int64_t ldold;
	const float *bias; /* of the tile's first column, or NULL */
	float alpha;       /* 1 changes no bit */
	srt_cpu_ragged_t ragged;
	/* What will be read soon: the step k asks for the line at ahead + k * ahead_step. Advice;
	 * NULL = nothing. */
	const float *ahead;
	int64_t ahead_step;
	/* tile_pack only: what pack() below packs with a width of nr. */
	const float *pack_src;
	int64_t pack_ld;
	float *pack_dst;
	int pack_cols;
} srt_cpu_tile_io_t;

struct srt_cpu_gemm {
	const char *isa;
	int mr, nr; /* largest tile */
	/* Whether tiles are as fast on operands where they lie, A stored (k,m) and B (k,n), as on
	 * packed ones. With few rows and columns a tile loads too much for that. */
	int in_place;
	/* 1 <= rows <= mr, 1 <= cols <= nr, kc >= 0; a ragged tile has kc >= rows - 1. */
	void (*tile)(int rows, int cols, int64_t kc, const float *a, int64_t rs, int64_t cs,
		     const float *b, int64_t ldb, const srt_cpu_tile_io_t *io);
	/* Where not in_place, or NULL: a tile of mr rows and nr columns, not ragged, that packs in
	 * each step of k a row of a panel of B for later tiles: most of that fits beside the
	 * multiply-adds. */
	void (*tile_pack)(int64_t kc, const float *a, int64_t rs, int64_t cs, const float *b,
			  int64_t ldb, const srt_cpu_tile_io_t *io);
	/* dst[k * width + j] = src[k * ld + j] for j < cols, +0 for cols <= j < width; k < kc.
	 * width is mr or nr. Writes whole vectors: up to 15 floats behind the last are
	 * overwritten. */
	void (*pack)(int cols, int width, int64_t kc, const float *src, int64_t ld, float *dst);
	/* dst[k * nr + j] = src[j * ld + k] for j < cols, +0 for cols <= j < nr; k < kc. */
	void (*pack_transposed)(int cols, int64_t kc, const float *src, int64_t ld, float *dst);

	/* The rows of attention; n > 0, and the rows have room for n rounded up to 64: what lies
	 * beyond n is undefined on return. Steps as in docs/numerics.md, "Attention". */
	/* Scores to weights; stats = {maximum, sum}. */
	void (*softmax)(float *s, int64_t n, float stats[2]);
	/* Scores p to weights again from saved stats; ds[j] = (p[j] * (ds[j] - d)) * scale. */
	void (*softmax_backward)(float *p, float *ds, int64_t n, const float stats[2], float d,
				 float scale);
	/* Sum of a[j] * b[j] in the row shape. */
	float (*dot)(const float *a, const float *b, int64_t n);
};

extern const srt_cpu_gemm_t srt_cpu_gemm_baseline;
extern const srt_cpu_gemm_t srt_cpu_gemm_avx2;
extern const srt_cpu_gemm_t srt_cpu_gemm_avx512;

#endif
