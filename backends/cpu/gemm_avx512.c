/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tile kernel and packing for AVX-512: 12 rows by 2 vectors of 16 columns (24 sums, 2 vectors of B,
 * one of A in 32 registers). Compiled with AVX-512F, BW, DQ, VL; chosen at run time.
 */
#include <immintrin.h>

#include "backends/cpu/gemm_half.h"
#include "backends/cpu/gemm_rows.h"
#include "backends/cpu/gemm_tile.h"

typedef __m512 vec_t;
typedef __mmask16 mask_t;
#define VL 16
#define MR 12
#define NV 2
#define NR (NV * VL)
#define IN_PLACE 1

#define v_load _mm512_loadu_ps
#define v_store _mm512_storeu_ps
#define v_set1 _mm512_set1_ps
#define v_fma _mm512_fmadd_ps
#define v_add _mm512_add_ps
#define v_mul _mm512_mul_ps
#define v_mask(n) ((mask_t)((1u << (n)) - 1u))
#define v_load_mask(p, mask) _mm512_maskz_loadu_ps(mask, p)
#define v_store_mask(p, mask, v) _mm512_mask_storeu_ps(p, mask, v)

#include "backends/cpu/gemm_x86.h"

/* clang-format off */
TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6)
TILE(7) TILE(8) TILE(9) TILE(10) TILE(11) TILE(12)

static tile_fn *const tiles[MR][NV] = {
	TILES(1), TILES(2), TILES(3), TILES(4), TILES(5), TILES(6),
	TILES(7), TILES(8), TILES(9), TILES(10), TILES(11), TILES(12),
};
/* clang-format on */

static void compute_tile(int rows, int cols, int64_t kc, const float *a, int64_t rs, int64_t cs,
			 const float *b, int64_t ldb, const srt_cpu_tile_io_t *io)
{
	tiles[rows - 1][(cols - 1) / VL](cols, kc, a, rs, cs, b, ldb, io);
}

/* Four rows' quarters, one in each 128-bit lane. */
ALWAYS_INLINE __m512 load_quarters(const float *p, int64_t ld)
{
	__m512 v = _mm512_castps128_ps512(_mm_loadu_ps(p));

	v = _mm512_insertf32x4(v, _mm_loadu_ps(p + 4 * ld), 1);
	v = _mm512_insertf32x4(v, _mm_loadu_ps(p + 8 * ld), 2);
	return _mm512_insertf32x4(v, _mm_loadu_ps(p + 12 * ld), 3);
}

/* VL columns of a panel: 4 x 4 transposes within the 128-bit lanes put the columns in order. */
static void pack_vector(int64_t kc, const float *src, int64_t ld, float *dst)
{
	int64_t k = 0;

	for (; k + 4 <= kc; k += 4) {
		/* in 16 steps of k a line of each of the next 16 rows */
		const float *next = src + (16 + k % 16) * ld + k / 16 * 16;

		for (int i = 0; i < 4; i++)
			__builtin_prefetch(next + i * ld);
		__m512 r0 = load_quarters(src + k, ld);
		__m512 r1 = load_quarters(src + k + ld, ld);
		__m512 r2 = load_quarters(src + k + 2 * ld, ld);
		__m512 r3 = load_quarters(src + k + 3 * ld, ld);
		__m512d t0 = _mm512_castps_pd(_mm512_unpacklo_ps(r0, r1));
		__m512d t1 = _mm512_castps_pd(_mm512_unpackhi_ps(r0, r1));
		__m512d t2 = _mm512_castps_pd(_mm512_unpacklo_ps(r2, r3));
		__m512d t3 = _mm512_castps_pd(_mm512_unpackhi_ps(r2, r3));

		v_store(dst + k * NR, _mm512_castpd_ps(_mm512_unpacklo_pd(t0, t2)));
		v_store(dst + (k + 1) * NR, _mm512_castpd_ps(_mm512_unpackhi_pd(t0, t2)));
		v_store(dst + (k + 2) * NR, _mm512_castpd_ps(_mm512_unpacklo_pd(t1, t3)));
		v_store(dst + (k + 3) * NR, _mm512_castpd_ps(_mm512_unpackhi_pd(t1, t3)));
	}
	for (; k < kc; k++)
		for (int j = 0; j < VL; j++)
			dst[k * NR + j] = src[j * ld + k];
}

const srt_cpu_gemm_t srt_cpu_gemm_avx512 = {
	.isa = "avx512",
	.mr = MR,
	.nr = NR,
	.in_place = IN_PLACE,
	.tile = compute_tile,
	.pack = pack_rows,
	.pack_transposed = pack_transposed,
	.widen = rows_widen,
	.round = rows_round,
	.softmax = rows_softmax,
	.softmax_backward = rows_softmax_backward,
	.softmax_backward_half = rows_softmax_backward_half,
	.dot = rows_dot,
};
