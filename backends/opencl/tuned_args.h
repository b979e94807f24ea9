/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Argument structs of the tuned kernels (the .cl files of this folder), read by the host and by
 * the device's compiler: fixed-width types, widest first, a multiple of 8 bytes. Sizes and
 * distances are in elements.
 */
#ifndef SRT_BACKENDS_OPENCL_TUNED_ARGS_H
#define SRT_BACKENDS_OPENCL_TUNED_ARGS_H

#include "kernels/args.h"

/* The part that one work-item of matmul_pack packs. */
#define SRT_OCL_PACK_ROWS 64
#define SRT_OCL_PACK_COLUMNS 768 /* a multiple of every panel's width */

/* matmul_pack: panels (k,width) over n columns, one after another; +0 beyond n. Element (k,j) of
 * the matrix is src[k * ld + j], or src[j * ld + k] if `transposed`. */
typedef struct srt_ocl_pack {
	int64_t k, n, ld;
	int64_t stride_src, stride_dst; /* between batch items */
	int64_t groups[2];              /* work-items over n, over k; then come the batch items */
	int32_t width, transposed;
} srt_ocl_pack_t;

/* matmul_tiles: one span of k of a product whose B is packed. Element (i,k) of A lies at
 * i / MR * panel_a + i % MR * row_a + k * step_a. */
typedef struct srt_ocl_tiles {
	int64_t m, n, k;
	int64_t panel_a, row_a, step_a;
	int64_t ldc, ldprior;
	int64_t stride_c, stride_a, stride_b, stride_prior; /* between batch items */
	int64_t group;     /* columns of one work-item: a multiple of the tile's */
	int64_t groups[2]; /* work-items over m, over n; then come the batch items */
	float alpha;
	int32_t accumulate;
} srt_ocl_tiles_t;

/* attention_vector, attention_backward_vector: offsets in floats in the scratch of one work-item;
 * the work-items share the heads of all batch items. */
typedef struct srt_ocl_attention {
	srt_k_attention_t shape;
	int64_t total;         /* floats of one work-item's scratch */
	int64_t lds;           /* between rows of scores */
	int64_t kt, vt;        /* keys, values as columns: panels (head_dim,NR) over positions */
	int64_t k, v, q, dout; /* as rows: panels (positions,NR) over head_dim */
	int64_t p, ds;         /* rows of scores and of their gradient */
} srt_ocl_attention_t;

#endif
