/* SPDX-License-Identifier: BSD-3-Clause */
/* Multiply-adds in registers, compiled once for each instruction set (SRT_ISA), as the kernels. */
#include "tools/peak.h"

#include <stdint.h>
#include <string.h>

#ifdef __aarch64__
#include <arm_neon.h>
#else
#include <immintrin.h>
#endif

#define NAME_OF(isa) tool_peak_##isa
#define NAME(isa) NAME_OF(isa)
#define LANES_baseline 4
#define LANES_avx2 8
#define LANES_avx512 16
#define LANES_neon 4
#define LANES_OF(isa) LANES_##isa
#define LANES_IN(isa) LANES_OF(isa)
#define LANES LANES_IN(SRT_ISA)

#if LANES == 16
typedef __m512 vec_t;
#define v_set1 _mm512_set1_ps
#define v_madd _mm512_fmadd_ps
#elif LANES == 8
typedef __m256 vec_t;
#define v_set1 _mm256_set1_ps
#define v_madd _mm256_fmadd_ps
#elif defined(__aarch64__)
typedef float32x4_t vec_t;
#define v_set1 vdupq_n_f32
#define v_madd vfmaq_f32
#else
typedef __m128 vec_t;
#define v_set1 _mm_set1_ps
#define v_madd(a, b, c) _mm_add_ps(_mm_mul_ps(a, b), c)
#endif

/* Enough chains to hide the latency: 5 cycles with 2 units, in 16 registers; with neon 4 with 4
 * units, in 32. */
#define EACH_OF_12(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)
#ifdef __aarch64__
#define CHAINS 18
#define EACH(DO) EACH_OF_12(DO) DO(12) DO(13) DO(14) DO(15) DO(16) DO(17)
#else
#define CHAINS 12
#define EACH EACH_OF_12
#endif
#define START(i) vec_t sum##i = v_set1((float)(i));
#define STEP(i) sum##i = v_madd(sum##i, half, half);
#define ADD(i) total += sum##i;

double NAME(SRT_ISA)(int64_t n, float *result)
{
	const vec_t half = v_set1(0.5f);
	vec_t total = v_set1(0.0f);
	float lanes[LANES];

	EACH(START)
	for (int64_t k = 0; k < n; k++) {
		EACH(STEP)
	}
	EACH(ADD)
	memcpy(lanes, &total, sizeof(lanes));
	*result = lanes[0];
	return 2.0 * CHAINS * LANES;
}
