/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tile kernel and packing for AVX-512: 12 rows by 2 vectors of 16 columns (24 sums, 2 vectors of B,
 * one of A in 32 registers). Compiled with AVX-512F, BW, DQ, VL; chosen at run time.
 */
#include <immintrin.h>

#include "backends/cpu/gemm_half.h"
#include "backends/cpu/gemm_rows.h"
#include "backends/cpu/gemm_tile.h"

typedef __m512 vec_t, factor_t;
typedef __mmask16 mask_t;
#define VL 16
#define MR 12
#define NV 2
#define NR (NV * VL)
#define IN_PLACE 1
#define ROWS_MAX SRT_CPU_ROWS

#define v_load _mm512_loadu_ps
#define v_store _mm512_storeu_ps
#define v_set1 _mm512_set1_ps
#define v_factor(p) _mm512_set1_ps(*(p))
#define v_fma_factor _mm512_fmadd_ps
#define v_add _mm512_add_ps
#define v_mul _mm512_mul_ps
#define v_mask(n) ((mask_t)((1u << (n)) - 1u))
#define v_words(x) _mm512_castps_si512(x)
#define v_low_bf16(x) _mm512_castsi512_ps(_mm512_slli_epi32(v_words(x), 16))
#define v_high_bf16(x) _mm512_castsi512_ps(_mm512_and_epi32(v_words(x), _mm512_set1_epi32(-65536)))
#define v_low_f16(x) _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v_words(x)))
#define v_high_f16(x) _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(v_words(x), 16)))
#define v_load_mask(p, mask) _mm512_maskz_loadu_ps(mask, p)
#define v_store_mask(p, mask, v) _mm512_mask_storeu_ps(p, mask, v)

#include "backends/cpu/gemm_vector.h"

/* clang-format off */
TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6)
TILE(7) TILE(8) TILE(9) TILE(10) TILE(11) TILE(12)

static tile_fn *const tiles[MR][NV] = {
	TILES(1), TILES(2), TILES(3), TILES(4), TILES(5), TILES(6),
	TILES(7), TILES(8), TILES(9), TILES(10), TILES(11), TILES(12),
};

ROWS(1) ROWS(2) ROWS(3) ROWS(4) ROWS(5) ROWS(6) ROWS(7) ROWS(8)

static rows_fn *const rows_fns[ROWS_MAX] = {
	rows_1, rows_2, rows_3, rows_4, rows_5, rows_6, rows_7, rows_8,
};
/* clang-format on */

ALWAYS_INLINE void transpose(vec_t x[VL])
{
	vec_t y[VL];

	UNROLL
	for (int j = 0; j < VL; j += 2) { /* columns of pairs of rows */
		y[j] = _mm512_unpacklo_ps(x[j], x[j + 1]);
		y[j + 1] = _mm512_unpackhi_ps(x[j], x[j + 1]);
	}
	UNROLL
	for (int j = 0; j < VL; j++) { /* columns t, t + 4, t + 8, t + 12 of four rows */
		__m512d lo = _mm512_castps_pd(y[j / 4 * 4 + j % 4 / 2]);
		__m512d hi = _mm512_castps_pd(y[j / 4 * 4 + j % 4 / 2 + 2]);

		x[j] = _mm512_castpd_ps(j % 2 ? _mm512_unpackhi_pd(lo, hi) :
						_mm512_unpacklo_pd(lo, hi));
	}
	UNROLL
	for (int t = 0; t < 4; t++) { /* t, t + 8 and t + 4, t + 12 of eight rows */
		y[t] = _mm512_shuffle_f32x4(x[t], x[t + 4], 0x88);
		y[t + 4] = _mm512_shuffle_f32x4(x[t], x[t + 4], 0xdd);
		y[t + 8] = _mm512_shuffle_f32x4(x[t + 8], x[t + 12], 0x88);
		y[t + 12] = _mm512_shuffle_f32x4(x[t + 8], x[t + 12], 0xdd);
	}
	UNROLL
	for (int t = 0; t < 8; t++) {
		x[t] = _mm512_shuffle_f32x4(y[t], y[t + 8], 0x88);
		x[t + 8] = _mm512_shuffle_f32x4(y[t], y[t + 8], 0xdd);
	}
}

const srt_cpu_gemm_t srt_cpu_gemm_avx512 = {
	.isa = "avx512",
	.mr = MR,
	.nr = NR,
	.in_place = IN_PLACE,
	.tile = compute_tile,
	.tile_rows = tile_rows,
	.pack = pack_rows,
	.pack_transposed = pack_transposed,
	.widen = rows_widen,
	.round = rows_round,
	.softmax = rows_softmax,
	.softmax_backward = rows_softmax_backward,
	.softmax_backward_half = rows_softmax_backward_half,
	.dot = rows_dot,
};
