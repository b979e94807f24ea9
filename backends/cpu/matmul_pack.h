/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packing for the matrix product's driver (matmul.c): the operands of a span of k become panels as
 * the tile kernels of gemm_tile.h read them. Inline functions over the kernels' own packing.
 */
#ifndef SRT_BACKENDS_CPU_MATMUL_PACK_H
#define SRT_BACKENDS_CPU_MATMUL_PACK_H

#include <string.h>

#include "backends/cpu/gemm_tile.h"
#include "base/base.h"

#define PACK_ROWS 16 /* rows that go through all panels at a time */
#define A_SLACK 16   /* floats between packed panels of A: the packing writes whole vectors */

/* A panel of B for one span of k; src = NULL: none. */
typedef struct srt_cpu_panel {
	int transposed, cols; /* the stored form; columns that are there, the others become +0 */
	const float *src;
	int64_t ld, kc;
	float *dst;
} srt_cpu_panel_t;

/* B's rows [k0,k0+kc), columns [n0,n0+nc) or the first nr of them. */
static inline srt_cpu_panel_t srt_cpu_panel_b(const srt_cpu_gemm_t *gemm,
					      const srt_cpu_matmul_t *mm, const float *b,
					      int64_t k0, int64_t kc, int64_t n0, int64_t nc,
					      float *dst)
{
	return (srt_cpu_panel_t){
		.transposed = mm->trans_b,
		.cols = (int)srt_min64(nc, gemm->nr),
		.src = b + (mm->trans_b ? n0 * mm->ldb + k0 : k0 * mm->ldb + n0),
		.ld = mm->ldb,
		.kc = kc,
		.dst = dst,
	};
}

static inline void srt_cpu_pack_panel_b(const srt_cpu_gemm_t *gemm, srt_cpu_panel_t p)
{
	if (p.transposed)
		gemm->pack_transposed(p.cols, p.kc, p.src, p.ld, p.dst);
	else
		gemm->pack(p.cols, gemm->nr, p.kc, p.src, p.ld, p.dst);
}

/*
 * Packs `cols` columns of the rows [0,kc) of src into panels of `width`, `panel` floats apart. Rows
 * go a few at a time through all panels, so that each is read from memory in one sweep.
 */
static inline void srt_cpu_pack_panels(const srt_cpu_gemm_t *gemm, int64_t cols, int width,
				       int64_t kc, const float *src, int64_t ld, float *dst,
				       int64_t panel)
{
	for (int64_t k = 0; k < kc; k += PACK_ROWS) {
		int64_t rows = srt_min64(PACK_ROWS, kc - k);

		for (int64_t j = 0; j < cols; j += width)
			gemm->pack((int)srt_min64(width, cols - j), width, rows, src + k * ld + j,
				   ld, dst + j / width * panel + k * width);
	}
}

/* A's rows as panels of mr: (k,mr) from a transposed A, (mr,kc+A_SLACK) from a plain one. */
static inline void srt_cpu_pack_a(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm,
				  const float *a, int64_t m0, int64_t mc, int64_t k0, int64_t kc,
				  float *dst)
{
	if (mm->trans_a) {
		srt_cpu_pack_panels(gemm, mc, gemm->mr, kc, a + k0 * mm->lda + m0, mm->lda, dst,
				    gemm->mr * (kc + A_SLACK));
		return;
	}
	for (int64_t r = 0; r < mc; r++)
		memcpy(dst + r * (kc + A_SLACK), a + (m0 + r) * mm->lda + k0,
		       (size_t)kc * sizeof(float));
}

#endif
