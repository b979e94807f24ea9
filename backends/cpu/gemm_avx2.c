/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tile kernel and packing for AVX2 with FMA: 6 rows by 2 vectors of 8 columns (12 sums, 2 vectors
 * of B, one of A in 16 registers). Compiled with AVX2 and FMA; chosen at run time.
 */
#include <immintrin.h>

#include "backends/cpu/gemm_half.h"
#include "backends/cpu/gemm_rows.h"
#include "backends/cpu/gemm_tile.h"

typedef __m256 vec_t, factor_t;
typedef __m256i mask_t;
#define VL 8
#define MR 6
#define NV 2
#define NR (NV * VL)
#define IN_PLACE 0
#define ROWS_MAX MR

#define v_load _mm256_loadu_ps
#define v_store _mm256_storeu_ps
#define v_set1 _mm256_set1_ps
#define v_factor(p) _mm256_set1_ps(*(p))
#define v_fma_factor _mm256_fmadd_ps
#define v_add _mm256_add_ps
#define v_mul _mm256_mul_ps
#define v_mask(n)                                                                                  \
	_mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
#define v_words(x) _mm256_castps_si256(x)
#define v_low_bf16(x) _mm256_castsi256_ps(_mm256_slli_epi32(v_words(x), 16))
#define v_high_bf16(x) _mm256_and_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(-65536)))
#define v_low_f16(x) words_f16(_mm256_blend_epi16(v_words(x), _mm256_setzero_si256(), 0xaa))
#define v_high_f16(x) words_f16(_mm256_srli_epi32(v_words(x), 16))
#define v_load_mask(p, mask) _mm256_maskload_ps(p, mask)
#define v_store_mask(p, mask, v) _mm256_maskstore_ps(p, mask, v)

/* f16 in words. */
static inline __m256 words_f16(__m256i x)
{
	return _mm256_cvtph_ps(
		_mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)));
}

#include "backends/cpu/gemm_vector.h"

/* clang-format off */
TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6)

static tile_fn *const tiles[MR][NV] = {
	TILES(1), TILES(2), TILES(3), TILES(4), TILES(5), TILES(6),
};

ROWS(1) ROWS(2) ROWS(3) ROWS(4) ROWS(5) ROWS(6)

static rows_fn *const rows_fns[ROWS_MAX] = { rows_1, rows_2, rows_3, rows_4, rows_5, rows_6 };
/* clang-format on */

ALWAYS_INLINE void transpose(vec_t x[VL])
{
	vec_t y[VL];

	UNROLL
	for (int j = 0; j < VL; j += 2) { /* columns of pairs of rows */
		y[j] = _mm256_unpacklo_ps(x[j], x[j + 1]);
		y[j + 1] = _mm256_unpackhi_ps(x[j], x[j + 1]);
	}
	UNROLL
	for (int j = 0; j < VL; j++) { /* columns t and t + 4 of four rows */
		__m256d lo = _mm256_castps_pd(y[j / 4 * 4 + j % 4 / 2]);
		__m256d hi = _mm256_castps_pd(y[j / 4 * 4 + j % 4 / 2 + 2]);

		x[j] = _mm256_castpd_ps(j % 2 ? _mm256_unpackhi_pd(lo, hi) :
						_mm256_unpacklo_pd(lo, hi));
	}
	UNROLL
	for (int t = 0; t < 4; t++) {
		vec_t lo = x[t], hi = x[t + 4];

		x[t] = _mm256_permute2f128_ps(lo, hi, 0x20);
		x[t + 4] = _mm256_permute2f128_ps(lo, hi, 0x31);
	}
}

const srt_cpu_gemm_t srt_cpu_gemm_avx2 = {
	.isa = "avx2",
	.mr = MR,
	.nr = NR,
	.tile = compute_tile,
	.tile_rows = tile_rows,
	.tile_pack = tile_pack,
	.pack = pack_rows,
	.pack_transposed = pack_transposed,
	.widen = rows_widen,
	.round = rows_round,
	.softmax = rows_softmax,
	.softmax_backward = rows_softmax_backward,
	.softmax_backward_half = rows_softmax_backward_half,
	.dot = rows_dot,
};
