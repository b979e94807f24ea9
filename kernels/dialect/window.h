/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * LOAD, STORE and the loops with windows for CPUs with F16C. No compiler makes vectors of
 * single conversions of f16 by the instructions for it, so within a loop that names its tensors
 * a pointer of that name leads into a buffer of floats, a window: filled by whole vectors
 * before a run of elements, written back after it. Long loops (FOR_EACH_LONG_IN) do the same for
 * bf16: a long body with conversions runs out of registers. Outside of such loops conversions are
 * those of dialect.h, to which the instructions are equal for all values (tests/kernels/test_half),
 * every NaN being made the canonical one first. Included by dialect.h.
 */
#ifndef SRT_KERNELS_DIALECT_WINDOW_H
#define SRT_KERNELS_DIALECT_WINDOW_H

#include <immintrin.h>

/* Elements: a multiple of LANES; where T is of 16 bits, all windows of a kernel fit into the L1
 * cache. */
#define K_WINDOW (T_IS_F32 ? SRT_K_ELEMENTS : 256)

/* n halves as floats. */
FN void k_widen_f16(float *v, const uint16_t *h, int64_t n)
{
	int64_t i = 0;

#ifdef __AVX512F__
	for (; i + 16 <= n; i += 16)
		_mm512_storeu_ps(v + i, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(h + i))));
#endif
	for (; i + 8 <= n; i += 8)
		_mm256_storeu_ps(v + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(h + i))));
	for (; i < n; i++)
		v[i] = k_from_f16(h[i]);
}

/* Floats to f16, rounded. */
FN void k_narrow_f16(uint16_t *h, const float *v, int64_t n)
{
	const __m256 nan = _mm256_set1_ps(FLOAT_OF(0x7fc00000));
	int64_t i = 0;

#ifdef __AVX512F__
	for (; i + 16 <= n; i += 16) {
		__m512 x = _mm512_loadu_ps(v + i);

		x = _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q),
				       _mm512_set1_ps(FLOAT_OF(0x7fc00000)));
		_mm256_storeu_si256((void *)(h + i), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
	}
#endif
	for (; i + 8 <= n; i += 8) {
		__m256 x = _mm256_loadu_ps(v + i);

		x = _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
		_mm_storeu_si128((void *)(h + i), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
	}
	for (; i < n; i++)
		h[i] = k_to_f16(v[i]);
}

FN void k_widen_bf16(float *v, const uint16_t *h, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		v[i] = k_from_bf16(h[i]);
}
FN void k_narrow_bf16(uint16_t *h, const float *v, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		h[i] = k_to_bf16(v[i]);
}

/* The next run from memory while this one is computed: n halves. */
FN void k_fetch_run(const uint16_t *h, int64_t n)
{
	for (int64_t i = 0; i < n; i += 32)
		__builtin_prefetch(h + i);
}

/* Not in line: there are many windows, and a call costs little compared with a run. */
#define K_APART static __attribute__((noinline, unused))
K_APART void k_open_f16(float *v, const uint16_t *h, int64_t n)
{
	k_fetch_run(h + n, n);
	k_widen_f16(v, h, n);
}
#if !T_IS_F32
K_APART void k_open(float *v, const uint16_t *h, int64_t n)
{
	k_fetch_run(h + n, n);
	K_PASTE(widen, _, K_DTYPE)(v, h, n);
}
K_APART void k_close(uint16_t *h, const float *v, int64_t n)
{
	K_PASTE(narrow, _, K_DTYPE)(h, v, n);
}
#endif

/* The pointer p with p + offset == window; by numbers, as p itself may be no address. */
FN float *k_window(float *window, int64_t offset)
{
	return (float *)((uintptr_t)window - sizeof(float) * (uintptr_t)offset);
}

/* Loops of one turn, that a name may mean another thing within; k_at and k_n are the run's. */
#define K_HALF(p, at, half)                                                                        \
	for (half *p##_h = (p) + (at) + k_at, *p##_go = p##_h; p##_go; p##_go = 0)
#define K_READS(p, at, open)                                                                       \
	K_HALF(p, at, const uint16_t)                                                              \
	for (float p##_w[K_WINDOW], *p = (open(p##_w, p##_h, k_n), k_window(p##_w, (at) + k_at));  \
	     p##_go; p##_go = 0)
#define READS_F16(p, at) K_READS(p, at, k_open_f16)
#if !T_IS_F32
#define READS(p, at) K_READS(p, at, k_open)
#define WRITES(p, at) UPDATES_IF(p, at, 0)
#define UPDATES(p, at) UPDATES_IF(p, at, 1)
#define UPDATES_IF(p, at, old)                                                                     \
	K_HALF(p, at, uint16_t)                                                                    \
	for (float p##_w[K_WINDOW],                                                                \
	     *p = ((old) ? k_open(p##_w, p##_h, k_n) : (void)0, k_window(p##_w, (at) + k_at));     \
	     p##_go; k_close(p##_h, p##_w, k_n), p##_go = 0)
#else
#define READS(p, at)
#define WRITES(p, at)
#define UPDATES(p, at)
#define UPDATES_IF(p, at, old)
#endif

/* By the pointer's type: a window's elements are floats already. */
#define K_BY_TYPE(p, window, otherwise)                                                            \
	_Generic((p), float * : window, const float * : window, default : otherwise)
#define LOAD(p, i) K_BY_TYPE(p, k_from_f32, K_PASTE(from, _, K_DTYPE))((p)[i])
#define STORE(p, i, v) ((p)[i] = K_BY_TYPE(p, k_to_f32, K_PASTE(to, _, K_DTYPE))(v))
#define LOAD_F16(p, i) K_BY_TYPE(p, k_from_f32, k_from_f16)((p)[i])

#define K_RUNS(first, end)                                                                         \
	for (int64_t k_at = (first), k_end = (end), k_n;                                           \
	     (k_n = MIN_OF(K_WINDOW, k_end - k_at)) > 0; k_at += K_WINDOW)
#define FOR_EACH_LONG_IN(i, first, end, windows)                                                   \
	K_RUNS(first, end)                                                                         \
	windows FOR_EACH(i, k_at, k_at + k_n)
#define FOR_RANGE_LONG_IN(l, i, first, end, windows)                                               \
	K_RUNS(first, end)                                                                         \
	windows FOR_RANGE(l, i, k_at, k_at + k_n)
/* In a short loop conversions of bf16 cost less than windows. */
#if T_IS_F16
#define STORE_RUN(p, first, end, v) k_close((p) + (first), v, (end) - (first))
#define FOR_EACH_IN(i, first, end, windows) FOR_EACH_LONG_IN(i, first, end, windows)
#define FOR_SPAN_IN(l, i, first, end, windows)                                                     \
	K_RUNS(first, MIN_OF((first) + LANES, end))                                                \
	windows FOR_SPAN(l, i, k_at, k_at + k_n)
#define FOR_RANGE_IN(l, i, first, end, windows) FOR_RANGE_LONG_IN(l, i, first, end, windows)
#else
#define FOR_EACH_IN(i, first, end, windows) FOR_EACH(i, first, end)
#define FOR_SPAN_IN(l, i, first, end, windows) FOR_SPAN(l, i, first, end)
#define FOR_RANGE_IN(l, i, first, end, windows) FOR_RANGE(l, i, first, end)
#endif

#endif
