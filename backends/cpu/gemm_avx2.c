/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tile kernel and packing for AVX2 with FMA: 6 rows by 2 vectors of 8 columns (12 sums, 2 vectors
 * of B, one of A in 16 registers). Compiled with AVX2 and FMA; chosen at run time.
 */
#include <immintrin.h>

#include "backends/cpu/gemm_half.h"
#include "backends/cpu/gemm_rows.h"
#include "backends/cpu/gemm_tile.h"

typedef __m256 vec_t;
typedef __m256i mask_t;
#define VL 8
#define MR 6
#define NV 2
#define NR (NV * VL)
#define IN_PLACE 0

#define v_load _mm256_loadu_ps
#define v_store _mm256_storeu_ps
#define v_set1 _mm256_set1_ps
#define v_fma _mm256_fmadd_ps
#define v_add _mm256_add_ps
#define v_mul _mm256_mul_ps
#define v_mask(n)                                                                                  \
	_mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
#define v_load_mask(p, mask) _mm256_maskload_ps(p, mask)
#define v_store_mask(p, mask, v) _mm256_maskstore_ps(p, mask, v)

#include "backends/cpu/gemm_x86.h"

/* clang-format off */
TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6)

static tile_fn *const tiles[MR][NV] = {
	TILES(1), TILES(2), TILES(3), TILES(4), TILES(5), TILES(6),
};
/* clang-format on */

static void compute_tile(int rows, int cols, int64_t kc, const float *a, int64_t rs, int64_t cs,
			 const float *b, int64_t ldb, const srt_cpu_tile_io_t *io)
{
	tiles[rows - 1][(cols - 1) / VL](cols, kc, a, rs, cs, b, ldb, io);
}

/* Rows j and j + 4, one quarter in each 128-bit lane. */
ALWAYS_INLINE __m256 load_quarters(const float *p, int64_t ld)
{
	return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)),
				    _mm_loadu_ps(p + 4 * ld), 1);
}

/* VL columns of a panel: 4 x 4 transposes within the 128-bit lanes put the columns in order. */
static void pack_vector(int64_t kc, const float *src, int64_t ld, float *dst)
{
	int64_t k = 0;

	for (; k + 4 <= kc; k += 4) {
		__m256 r0 = load_quarters(src + k, ld);
		__m256 r1 = load_quarters(src + k + ld, ld);
		__m256 r2 = load_quarters(src + k + 2 * ld, ld);
		__m256 r3 = load_quarters(src + k + 3 * ld, ld);
		__m256d t0 = _mm256_castps_pd(_mm256_unpacklo_ps(r0, r1));
		__m256d t1 = _mm256_castps_pd(_mm256_unpackhi_ps(r0, r1));
		__m256d t2 = _mm256_castps_pd(_mm256_unpacklo_ps(r2, r3));
		__m256d t3 = _mm256_castps_pd(_mm256_unpackhi_ps(r2, r3));

		v_store(dst + k * NR, _mm256_castpd_ps(_mm256_unpacklo_pd(t0, t2)));
		v_store(dst + (k + 1) * NR, _mm256_castpd_ps(_mm256_unpackhi_pd(t0, t2)));
		v_store(dst + (k + 2) * NR, _mm256_castpd_ps(_mm256_unpacklo_pd(t1, t3)));
		v_store(dst + (k + 3) * NR, _mm256_castpd_ps(_mm256_unpackhi_pd(t1, t3)));
	}
	for (; k < kc; k++)
		for (int j = 0; j < VL; j++)
			dst[k * NR + j] = src[j * ld + k];
}

const srt_cpu_gemm_t srt_cpu_gemm_avx2 = {
	.isa = "avx2",
	.mr = MR,
	.nr = NR,
	.tile = compute_tile,
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
