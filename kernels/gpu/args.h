/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Argument structs and shapes of the tuned kernels for GPUs, read by the host (backends/gpu) and by
 * the device's compilers: fixed-width types, widest first, a multiple of 8 bytes. Sizes and
 * distances are in elements.
 */
#ifndef SRT_KERNELS_GPU_ARGS_H
#define SRT_KERNELS_GPU_ARGS_H

#include "kernels/args.h"

/*
 * The shapes of the tiled matrix product, X(rows, columns, rows of a work-item, columns of one,
 * warps upright, resident). A work-group computes rows * columns elements of C. One of its
 * work-items computes as many as its own rows and columns give. resident: the number of work-items
 * that a multiprocessor runs at a time in CUDA kernels of floats. Its 65536 registers limit it, of
 * which each element takes one. The last shape is for matrices of few rows.
 */
#define SRT_GPU_TILES(X)                                                                           \
	X(128, 128, 16, 8, 1, 256)                                                                 \
	X(128, 64, 8, 8, 1, 384)                                                                   \
	X(64, 64, 8, 8, 1, 384)                                                                    \
	X(16, 128, 4, 8, 0, 384)
#define SRT_GPU_SLICE 16      /* steps of k at a time: divides SRT_K_MATMUL_KB */
#define SRT_GPU_SUM_ITEMS 256 /* work-items and columns of a group of matmul_sums */

/* What a product is part of: which of its elements are hidden. */
#define SRT_GPU_PLAIN 0
#define SRT_GPU_SCORES                                                                             \
	1 /* rows are queries, columns keys: tiles that no query sees stay as they are */
#define SRT_GPU_BY_KEY 2    /* k are keys */
#define SRT_GPU_OF_KEY 3    /* rows are keys, k queries */
#define SRT_GPU_HIDDEN (-1) /* the bits of scores that take part in nothing */

/*
 * matmul_ROWSxCOLUMNS: C = op(A) op(B) * alpha + bias, + C if `accumulate`. Places: c, a, b, bias,
 * start, lengths. A group's number is the tile's, then the block's of k, then the item's.
 * Batch item z of the launch is number y = item + z; its matrices are at y / inner * stride +
 * y % inner * inner_ + z * each. start (m,n): what the chains go on from.
 *
 * Of attention (kind): A's elements that are NaN with all bits set are hidden and take part in
 * nothing; row i is query first + i, or k index t is, in SRT_GPU_OF_KEY. Such A are floats.
 */
typedef struct srt_gpu_matmul {
	int64_t m, n, k;
	int64_t batch, inner, item;
	int64_t lda, ldb, ldc;
	int64_t stride_a, stride_b, stride_c;
	int64_t inner_a, inner_b, inner_c;
	int64_t each_a, each_c, each_start;
	int64_t stride_block; /* of C: between the sums of the blocks of k; 0 = C has their sum */
	int64_t first;
	float alpha;
	int32_t chain; /* steps after which a chain restarts: a multiple of the slice; 0 = none */
	int32_t trans_a, trans_b;
	int32_t accumulate;
	int32_t a_is_f32, c_is_f32;           /* whatever T is; `start` is floats always */
	int32_t vector_a, vector_b, vector_c; /* four neighbours may be read or written at once */
	int32_t kind;
	int32_t causal;
	int32_t marked; /* any element may be hidden */
} srt_gpu_matmul_t;

/* matmul_sums: C = the planes' sum by rising plane, then as in the product. Places: c, planes,
 * bias. Element (item,i,j) of plane p is at ((p * batch + item) * m + i) * ld + j. */
typedef struct srt_gpu_sums {
	int64_t m, n, batch, nplanes, ld;
	int64_t ldc, stride_c;
	float alpha;
	int32_t accumulate;
	int32_t c_is_f32;
	int32_t reserved;
} srt_gpu_sums_t;

/* gpu_weights, gpu_gradients: rows of scores in scratch, `rows` queries of each of some heads. */
typedef struct srt_gpu_rows {
	srt_k_attention_t shape;
	int64_t unit;  /* the first head's number among the heads of all items */
	int64_t first; /* query */
	int64_t rows;
	int64_t ld; /* between rows */
} srt_gpu_rows_t;

/* gpu_heads: the gradients of some heads of keys, by the tree over the heads that share each. Row j
 * of head k of the keys is at j * ld + k * head_dim of y; places: y, chains (heads of keys, group,
 * keys, head_dim), floats. A group is a row. */
typedef struct srt_gpu_heads {
	int64_t keys, head_dim, group;
	int64_t ld;
} srt_gpu_heads_t;

/* Products of causal attention read no score of query i from key i + SRT_GPU_BEYOND on: tiles are
 * of 128 at most. */
#define SRT_GPU_BEYOND 384

#endif
