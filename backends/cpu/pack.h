/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packing of operands of floats or of 16 bits into panels of floats, for the matrix product and
 * attention. Numbers of 16 bits are widened a few rows at a time into a buffer that stays in the
 * first-level cache, from where the kernels' own packing (gemm_tile.h) reads them.
 */
#ifndef SRT_BACKENDS_CPU_PACK_H
#define SRT_BACKENDS_CPU_PACK_H

#include <string.h>

#include "backends/cpu/gemm_tile.h"
#include "base/base.h"

#define PACK_ROWS 16 /* rows that go through all panels at a time */
#define PACK_COLS 80 /* columns of them that are widened at a time, on the stack */

static inline int64_t srt_cpu_element_nbytes(srt_dtype_t dtype)
{
	return dtype == SRT_F32 ? 4 : 2;
}

/* Element i of a tensor; NULL for NULL. */
static inline void *srt_cpu_element(const void *p, srt_dtype_t dtype, int64_t i)
{
	return p != NULL ? (unsigned char *)(uintptr_t)p + i * srt_cpu_element_nbytes(dtype) : NULL;
}

/* y (rows,cols) = x (rows,cols), of dtype, as floats. */
static inline void srt_cpu_copy_rows(const srt_cpu_gemm_t *gemm, srt_dtype_t dtype, int64_t rows,
				     int64_t cols, float *y, int64_t ldy, const void *x,
				     int64_t ldx)
{
	if (dtype != SRT_F32) {
		gemm->widen(dtype, rows, cols, y, ldy, x, ldx);
		return;
	}
	for (int64_t r = 0; r < rows; r++)
		memcpy(y + r * ldy, (const float *)x + r * ldx, (size_t)cols * sizeof(float));
}

/*
 * Packs `cols` columns of the rows [0,kc) of src into panels of `width`, `panel` floats apart. Rows
 * go a few at a time through all panels, so that each is read from memory in one sweep.
 */
static inline void srt_cpu_pack_panels(const srt_cpu_gemm_t *gemm, srt_dtype_t dtype, int64_t cols,
				       int width, int64_t kc, const void *src, int64_t ld,
				       float *dst, int64_t panel)
{
	const int64_t strip = dtype == SRT_F32 ? cols : PACK_COLS / width * width;
	float wide[PACK_ROWS * PACK_COLS] __attribute__((aligned(64)));

	for (int64_t k = 0; k < kc; k += PACK_ROWS) {
		const int64_t rows = srt_min64(PACK_ROWS, kc - k);

		for (int64_t j = 0; j < cols; j += strip) {
			const int64_t end = srt_min64(j + strip, cols);
			const float *x = srt_cpu_element(src, dtype, k * ld + j);
			int64_t ldx = ld;

			if (dtype != SRT_F32) {
				gemm->widen(dtype, rows, end - j, wide, PACK_COLS, (const void *)x,
					    ld);
				x = wide;
				ldx = PACK_COLS;
			}
			for (int64_t i = j; i < end; i += width)
				gemm->pack((int)srt_min64(width, end - i), width, rows, x + i - j,
					   ldx, dst + i / width * panel + k * width);
		}
	}
}

#endif
