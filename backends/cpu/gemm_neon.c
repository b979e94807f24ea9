/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tile kernel and packing for NEON (aarch64): 6 rows by 2 vectors of 8 columns, each a pair of
 * registers of 4 (24 sums, 4 of B, factors of A in 32 registers).
 */
#include <arm_neon.h>

#include "kernels/dialect/dialect.h"

#define HAS_F16_ROWS
FN void k_widen_f16(float *y, const uint16_t *x, int64_t n)
{
	int64_t j = 0;

	for (; j + 4 <= n; j += 4)
		vst1q_f32(y + j, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x + j))));
	for (; j < n; j++)
		y[j] = k_from_f16(x[j]);
}
FN void k_narrow_f16(uint16_t *y, const float *x, int64_t n)
{
	const float32x4_t nan = vreinterpretq_f32_u32(vdupq_n_u32(0x7fc00000));
	int64_t j = 0;

	for (; j + 4 <= n; j += 4) {
		float32x4_t v = vld1q_f32(x + j);

		v = vbslq_f32(vceqq_f32(v, v), v, nan);
		vst1_u16(y + j, vreinterpret_u16_f16(vcvt_f16_f32(v)));
	}
	for (; j < n; j++)
		y[j] = k_to_f16(x[j]);
}

#include "backends/cpu/gemm_half.h"
#include "backends/cpu/gemm_rows.h"
#include "backends/cpu/gemm_tile.h"

typedef struct vec {
	float32x4_t lo, hi;
} vec_t;
typedef int mask_t; /* lanes */
typedef float factor_t;
#define VL 8
#define MR 6
#define NV 2
#define NR (NV * VL)
#define IN_PLACE 0
#define ROWS_MAX MR

#define v_mask(n) (n)
#define v_set1(x) v_pair(vdupq_n_f32(x), vdupq_n_f32(x))
#define v_load(p) v_pair(vld1q_f32(p), vld1q_f32((p) + 4))
#define v_add(x, y) v_pair(vaddq_f32((x).lo, (y).lo), vaddq_f32((x).hi, (y).hi))
#define v_mul(x, y) v_pair(vmulq_f32((x).lo, (y).lo), vmulq_f32((x).hi, (y).hi))
#define v_fma_factor(x, y, z) v_pair(vfmaq_n_f32((z).lo, (y).lo, x), vfmaq_n_f32((z).hi, (y).hi, x))
#define v_low_bf16(x) v_pair(low_bf16((x).lo), low_bf16((x).hi))
#define v_high_bf16(x) v_pair(high_bf16((x).lo), high_bf16((x).hi))
#define v_low_f16(x) v_pair(low_f16((x).lo), low_f16((x).hi))
#define v_high_f16(x) v_pair(high_f16((x).lo), high_f16((x).hi))

static inline vec_t v_pair(float32x4_t lo, float32x4_t hi)
{
	return (vec_t){ lo, hi };
}

/* In a register: a load of all lanes would take a unit that multiplies. */
static inline factor_t v_factor(const float *p)
{
	float x = *p;

	__asm__("" : "+w"(x));
	return x;
}

static inline void v_store(float *p, vec_t x)
{
	vst1q_f32(p, x.lo);
	vst1q_f32(p + 4, x.hi);
}

/* The first n of 4 numbers; no loop, which compilers make a call. */
static inline float32x4_t load_first(const float *p, int n)
{
	float32x4_t x = vdupq_n_f32(0.0f);

	if (n >= 4)
		return vld1q_f32(p);
	if (n > 0)
		x = vld1q_lane_f32(p, x, 0);
	if (n > 1)
		x = vld1q_lane_f32(p + 1, x, 1);
	if (n > 2)
		x = vld1q_lane_f32(p + 2, x, 2);
	return x;
}

static inline void store_first(float *p, int n, float32x4_t x)
{
	if (n >= 4) {
		vst1q_f32(p, x);
		return;
	}
	if (n > 0)
		vst1q_lane_f32(p, x, 0);
	if (n > 1)
		vst1q_lane_f32(p + 1, x, 1);
	if (n > 2)
		vst1q_lane_f32(p + 2, x, 2);
}

#define v_load_mask(p, n) v_pair(load_first(p, n), load_first((p) + 4, (n)-4))

static inline void v_store_mask(float *p, mask_t n, vec_t x)
{
	store_first(p, n, x.lo);
	store_first(p + 4, n - 4, x.hi);
}

static inline float32x4_t low_bf16(float32x4_t x)
{
	return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(x), 16));
}

static inline float32x4_t high_bf16(float32x4_t x)
{
	return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(x), vdupq_n_u32(0xffff0000)));
}

static inline float32x4_t low_f16(float32x4_t x)
{
	return vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(vreinterpretq_u32_f32(x))));
}

static inline float32x4_t high_f16(float32x4_t x)
{
	return vcvt_f32_f16(vreinterpret_f16_u16(vshrn_n_u32(vreinterpretq_u32_f32(x), 16)));
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

/* Pairs of words, then pairs of pairs, of four rows. */
ALWAYS_INLINE void transpose_quarter(float32x4_t *x0, float32x4_t *x1, float32x4_t *x2,
				     float32x4_t *x3)
{
	const float64x2_t lo02 = vreinterpretq_f64_f32(vtrn1q_f32(*x0, *x1));
	const float64x2_t lo13 = vreinterpretq_f64_f32(vtrn2q_f32(*x0, *x1));
	const float64x2_t hi02 = vreinterpretq_f64_f32(vtrn1q_f32(*x2, *x3));
	const float64x2_t hi13 = vreinterpretq_f64_f32(vtrn2q_f32(*x2, *x3));

	*x0 = vreinterpretq_f32_f64(vtrn1q_f64(lo02, hi02));
	*x1 = vreinterpretq_f32_f64(vtrn1q_f64(lo13, hi13));
	*x2 = vreinterpretq_f32_f64(vtrn2q_f64(lo02, hi02));
	*x3 = vreinterpretq_f32_f64(vtrn2q_f64(lo13, hi13));
}

ALWAYS_INLINE void transpose(vec_t x[VL])
{
	transpose_quarter(&x[0].lo, &x[1].lo, &x[2].lo, &x[3].lo);
	transpose_quarter(&x[0].hi, &x[1].hi, &x[2].hi, &x[3].hi);
	transpose_quarter(&x[4].lo, &x[5].lo, &x[6].lo, &x[7].lo);
	transpose_quarter(&x[4].hi, &x[5].hi, &x[6].hi, &x[7].hi);
	UNROLL
	for (int t = 0; t < 4; t++) {
		const float32x4_t hi = x[t].hi;

		x[t].hi = x[t + 4].lo;
		x[t + 4].lo = hi;
	}
}

const srt_cpu_gemm_t srt_cpu_gemm_neon = {
	.isa = "neon",
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
