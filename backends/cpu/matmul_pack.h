/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packing for the matrix product's driver (matmul.c): the operands of a span of k become panels as
 * the tile kernels of gemm_tile.h read them. Inline functions over pack.h.
 */
#ifndef SRT_BACKENDS_CPU_MATMUL_PACK_H
#define SRT_BACKENDS_CPU_MATMUL_PACK_H

#include "backends/cpu/pack.h"

#define A_SLACK 16 /* floats between packed panels of A: the packing writes whole vectors */

/* A panel of B for one span of k; src = NULL: none. */
typedef struct srt_cpu_panel {
	int transposed, cols; /* the stored form; columns that are there, the others become +0 */
	srt_dtype_t dtype;
	const void *src;
	int64_t ld, kc;
	float *dst;
} srt_cpu_panel_t;

/* B's rows [k0,k0+kc), columns [n0,n0+nc) or the first nr of them. */
static inline srt_cpu_panel_t srt_cpu_panel_b(const srt_cpu_gemm_t *gemm,
					      const srt_cpu_matmul_t *mm, const void *b, int64_t k0,
					      int64_t kc, int64_t n0, int64_t nc, float *dst)
{
	return (srt_cpu_panel_t){
		.transposed = mm->shape.trans_b,
		.cols = (int)srt_min64(nc, gemm->nr),
		.dtype = mm->dtype,
		.src = srt_cpu_element(b, mm->dtype,
				       mm->shape.trans_b ? n0 * mm->shape.ldb + k0 :
							   k0 * mm->shape.ldb + n0),
		.ld = mm->shape.ldb,
		.kc = kc,
		.dst = dst,
	};
}

static inline void srt_cpu_pack_panel_b(const srt_cpu_gemm_t *gemm, srt_cpu_panel_t p)
{
	if (p.transposed)
		gemm->pack_transposed(p.dtype, p.cols, p.kc, p.src, p.ld, p.dst);
	else if (p.dtype == SRT_F32)
		gemm->pack(p.cols, gemm->nr, p.kc, p.src, p.ld, p.dst);
	else
		srt_cpu_pack_panels(gemm, p.dtype, p.cols, gemm->nr, p.kc, p.src, p.ld, p.dst, 0);
}

/* The distance between rows of a transposed A that is widened, but not cut into panels. */
static inline int64_t srt_cpu_pitch_a(int64_t mc)
{
	return (int64_t)srt_align_up((size_t)mc, A_SLACK) + A_SLACK;
}

/* Floats of mc packed rows of A. */
static inline size_t srt_cpu_packed_a(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm,
				      int64_t mc, int64_t kc)
{
	return (size_t)(mm->shape.trans_a && gemm->in_place ? srt_cpu_pitch_a(mc) * kc :
							      mc * (kc + A_SLACK));
}

/* A's rows as panels of mr: (k,mr) from a transposed A, (mr,kc+A_SLACK) from a plain one. If tiles
 * read a transposed A in place, its rows are only widened. */
static inline void srt_cpu_pack_a(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm,
				  const void *a, int64_t m0, int64_t mc, int64_t k0, int64_t kc,
				  float *dst)
{
	const int64_t first = mm->shape.trans_a ? k0 * mm->shape.lda + m0 : m0 * mm->shape.lda + k0;
	const void *src = srt_cpu_element(a, mm->dtype, first);

	if (mm->shape.trans_a && gemm->in_place)
		srt_cpu_copy_rows(gemm, mm->dtype, kc, mc, dst, srt_cpu_pitch_a(mc), src,
				  mm->shape.lda);
	else if (mm->shape.trans_a)
		srt_cpu_pack_panels(gemm, mm->dtype, mc, gemm->mr, kc, src, mm->shape.lda, dst,
				    gemm->mr * (kc + A_SLACK));
	else
		srt_cpu_copy_rows(gemm, mm->dtype, mc, kc, dst, kc + A_SLACK, src, mm->shape.lda);
}

#endif
