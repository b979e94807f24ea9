/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The functions of an instruction set for the matrix product and attention: a tile kernel, packing,
 * casts of 16-bit rows, and attention's row functions. The driver (matmul.c) and attention
 * (attention*.c) call them.
 *
 * A tile is at most mr rows by nr columns of C. The kernel runs one chain over k: A is read by
 * scalar (element (i,k) at a[i * rs + k * cs], so both layouts work in place or packed), B by
 * vectors (element (k,j) at b[k * ldb + j]; nr columns must be readable for any width of the tile:
 * edges are packed and padded). Vectors run over columns, so their width does not change the bits.
 */
#ifndef SRT_BACKENDS_CPU_GEMM_TILE_H
#define SRT_BACKENDS_CPU_GEMM_TILE_H

#include <stddef.h>
#include <stdint.h>

#include "backends/cpu/matmul.h"

/* Causal attention: the steps of k in which a row is active. */
typedef enum srt_cpu_ragged {
	SRT_CPU_FULL, /* all rows in all steps */
	SRT_CPU_HEAD, /* in the first rows - 1 steps: row i from step i on */
	SRT_CPU_TAIL, /* row i ends i of the last rows - 1 steps after row 0; kc counts all */
} srt_cpu_ragged_t;

/* How a tile's chains begin and how their sums are stored:
 * v = chain [prior + v] [* alpha] [+ bias] [old + v], stored. */
typedef struct srt_cpu_tile_io {
	float *c; /* the result */
	int64_t ldc;
	const float *start; /* initial values of the chains; NULL = +0; may be c */
	int64_t ldstart;
	const float *prior; /* earlier block sums or NULL; may be c */
	int64_t ldprior;
	const float *old; /* accumulate onto; NULL = no; may be c */
	int64_t ldold;
	const float *bias; /* of the tile's first column, or NULL */
	float alpha;       /* 1 does not change a bit */
	srt_cpu_ragged_t ragged;
	/* Prefetch: step k fetches the line at ahead + k * ahead_step. A hint; NULL = none. */
	const char *ahead;
	int64_t ahead_step; /* bytes */
	/* tile_pack only: arguments of pack() below with a width of nr. */
	const float *pack_src;
	int64_t pack_ld;
	float *pack_dst;
	int pack_cols;
} srt_cpu_tile_io_t;

#define SRT_CPU_ROWS 8 /* rows of a tile of tile_rows() at most */

struct srt_cpu_gemm {
	const char *isa;
	int mr, nr; /* largest tile */
	/* Whether tiles are as fast on operands in place, A stored (k,m) and B (k,n), as on packed
	 * ones. A tile with few rows and columns loads too much for that. */
	int in_place;
	/* 1 <= rows <= mr, 1 <= cols <= nr, kc >= 0; a ragged tile has kc >= rows - 1. */
	void (*tile)(int rows, int cols, int64_t kc, const float *a, int64_t rs, int64_t cs,
		     const float *b, int64_t ldb, const srt_cpu_tile_io_t *io);
	/* A tile of nr columns of a B of dtype that is stored (n,k), read in place: element (k,j)
	 * at b[j * ldb + k], A's (i,k) at a[i * rs + k]; rows <= mr, SRT_CPU_ROWS. NULL = none. */
	void (*tile_rows)(srt_dtype_t dtype, int rows, int64_t kc, const float *a, int64_t rs,
			  const void *b, int64_t ldb, const srt_cpu_tile_io_t *io);
	/* If not in_place, or NULL: a full tile (mr rows, nr columns, not ragged) that also packs a
	 * row of a panel of B for later tiles in each step of k. Most of the packing overlaps the
	 * multiply-adds. */
	void (*tile_pack)(int64_t kc, const float *a, int64_t rs, int64_t cs, const float *b,
			  int64_t ldb, const srt_cpu_tile_io_t *io);
	/* dst[k * width + j] = src[k * ld + j] for j < cols, +0 for cols <= j < width; k < kc.
	 * width is mr or nr. Writes whole vectors: up to 15 floats after the last one are
	 * overwritten. */
	void (*pack)(int cols, int width, int64_t kc, const float *src, int64_t ld, float *dst);
	/* dst[k * nr + j] = src[j * ld + k] for j < cols, +0 for cols <= j < nr; k < kc. src has
	 * the dtype. */
	void (*pack_transposed)(srt_dtype_t dtype, int cols, int64_t kc, const void *src,
				int64_t ld, float *dst);

	/* y (rows,cols) = x (rows,cols), rows ldy and ldx elements apart: from SRT_F16 or SRT_BF16
	 * to floats (exact), and from floats to them (to nearest even). */
	void (*widen)(srt_dtype_t dtype, int64_t rows, int64_t cols, float *y, int64_t ldy,
		      const uint16_t *x, int64_t ldx);
	void (*round)(srt_dtype_t dtype, int64_t rows, int64_t cols, uint16_t *y, int64_t ldy,
		      const float *x, int64_t ldx);

	/* The rows of attention; n > 0, and the rows have space for n rounded up to 64: values
	 * beyond n are undefined on return. Steps as in docs/numerics.md, "Attention". */
	/* Converts scores to weights; stats = {maximum, sum}. */
	void (*softmax)(float *s, int64_t n, float stats[2]);
	/* Converts scores p to weights with saved stats; ds[j] = (p[j] * (ds[j] - d)) * scale. */
	void (*softmax_backward)(float *p, float *ds, int64_t n, const float stats[2], float d,
				 float scale);
	/* softmax_backward for 16 bits: d = sum of p[j] * ds[j] in the row shape. A key with the
	 * score -infinity and ds -0 has no part in the sum. */
	void (*softmax_backward_half)(float *p, float *ds, int64_t n, const float stats[2],
				      float scale);
	/* Sum of a[j] * b[j] in the row shape. */
	float (*dot)(const float *a, const float *b, int64_t n);
};

extern const srt_cpu_gemm_t srt_cpu_gemm_baseline;
extern const srt_cpu_gemm_t srt_cpu_gemm_avx2;
extern const srt_cpu_gemm_t srt_cpu_gemm_avx512;
extern const srt_cpu_gemm_t srt_cpu_gemm_neon;

#endif
