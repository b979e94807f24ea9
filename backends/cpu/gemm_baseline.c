/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tile kernel without assumptions on the processor. On x86-64 there is no fused multiply-add: the
 * kernel runs a fast form that is exact unless it meets a case that rounding twice could get wrong,
 * notices such a case, and then computes the tile again with kernels/softfma.h. Elsewhere it is plain
 * C over the processor's own fused multiply-add.
 */
#include <string.h>

#include "backends/cpu/gemm_tile.h"
#include "kernels/softfma.h"

#define MR 4
#define NR 4

/* v = [prior + v] [* alpha] [+ bias] [old + v]; sums (rows,NR). */
static void tile_finish(int rows, int cols, const float *sums, const srt_cpu_tile_out_t *out)
{
	for (int i = 0; i < rows; i++) {
		for (int j = 0; j < cols; j++) {
			float v = sums[i * NR + j];

			if (out->prior)
				v = out->prior[i * out->ldprior + j] + v;
			v = v * out->alpha;
			if (out->bias)
				v = v + out->bias[j];
			if (out->old)
				v = out->old[i * out->ldold + j] + v;
			out->c[i * out->ldc + j] = v;
		}
	}
}

#if defined(__SSE2__)

/* The certain form: every step is rounded to odd. */
static void sums_soft(int rows, int64_t kc, const float *a, int64_t rs, int64_t cs, const float *b,
		      int64_t ldb, float *sums)
{
	__m128 acc[MR];

	for (int i = 0; i < rows; i++)
		acc[i] = _mm_setzero_ps();
	for (int64_t k = 0; k < kc; k++) {
		__m128 bv = _mm_loadu_ps(b + k * ldb);

		for (int i = 0; i < rows; i++)
			acc[i] = srt_softfma4(_mm_set1_ps(a[i * rs + k * cs]), bv, acc[i]);
	}
	for (int i = 0; i < rows; i++)
		_mm_storeu_ps(sums + i * NR, acc[i]);
}

/*
 * The fast form: p = a * b is exact in double; p + acc is rounded to double, then to float. The two
 * roundings are one unless the double lies half-way between two floats (its low 29 bits are 100...0;
 * noted in `half`) or the float is subnormal and inexact (the processor's underflow flag). Returns
 * whether neither occurred.
 */
static inline __attribute__((always_inline)) int sums_fast(const int rows, int64_t kc, const float *a, int64_t rs, int64_t cs,
		     const float *b, int64_t ldb, float *sums)
{
	const __m128i low = _mm_set1_epi64x(0x1fffffff), tie = _mm_set1_epi64x(0x10000000);
	__m128d acc[MR][2];
	__m128i half = _mm_setzero_si128();
	unsigned csr = _mm_getcsr();

	_mm_setcsr(csr & ~_MM_EXCEPT_UNDERFLOW);
	for (int i = 0; i < rows; i++)
		acc[i][0] = acc[i][1] = _mm_setzero_pd();
	for (int64_t k = 0; k < kc; k++) {
		__m128 bv = _mm_loadu_ps(b + k * ldb);
		__m128d b0 = _mm_cvtps_pd(bv), b1 = _mm_cvtps_pd(_mm_movehl_ps(bv, bv));

		for (int i = 0; i < rows; i++) {
			__m128d x = _mm_set1_pd((double)a[i * rs + k * cs]);
			__m128d s0 = _mm_add_pd(_mm_mul_pd(x, b0), acc[i][0]);
			__m128d s1 = _mm_add_pd(_mm_mul_pd(x, b1), acc[i][1]);
			/* the low words of the four sums */
			__m128i w = _mm_castps_si128(_mm_shuffle_ps(
				_mm_castpd_ps(s0), _mm_castpd_ps(s1), _MM_SHUFFLE(2, 0, 2, 0)));

			w = _mm_and_si128(w, _mm_shuffle_epi32(low, 0));
			half = _mm_or_si128(half, _mm_cmpeq_epi32(w, _mm_shuffle_epi32(tie, 0)));
			acc[i][0] = _mm_cvtps_pd(_mm_cvtpd_ps(s0));
			acc[i][1] = _mm_cvtps_pd(_mm_cvtpd_ps(s1));
		}
	}
	for (int i = 0; i < rows; i++)
		_mm_storeu_ps(sums + i * NR, _mm_movelh_ps(_mm_cvtpd_ps(acc[i][0]),
							    _mm_cvtpd_ps(acc[i][1])));
	return !_mm_movemask_epi8(half) && !(_mm_getcsr() & _MM_EXCEPT_UNDERFLOW);
}

static void tile_sums(int rows, int64_t kc, const float *a, int64_t rs, int64_t cs, const float *b,
		      int64_t ldb, float *sums)
{
	int ok;

	switch (rows) {
	case 1:
		ok = sums_fast(1, kc, a, rs, cs, b, ldb, sums);
		break;
	case 2:
		ok = sums_fast(2, kc, a, rs, cs, b, ldb, sums);
		break;
	case 3:
		ok = sums_fast(3, kc, a, rs, cs, b, ldb, sums);
		break;
	default:
		ok = sums_fast(4, kc, a, rs, cs, b, ldb, sums);
		break;
	}
	if (!ok)
		sums_soft(rows, kc, a, rs, cs, b, ldb, sums);
}

#else

static void tile_sums(int rows, int64_t kc, const float *a, int64_t rs, int64_t cs, const float *b,
		      int64_t ldb, float *sums)
{
	float acc[MR * NR] = { 0 };

	for (int64_t k = 0; k < kc; k++)
		for (int i = 0; i < rows; i++)
			for (int j = 0; j < NR; j++)
				acc[i * NR + j] = __builtin_fmaf(a[i * rs + k * cs], b[k * ldb + j],
								 acc[i * NR + j]);
	memcpy(sums, acc, sizeof(acc));
}

#endif

static void tile(int rows, int cols, int64_t kc, const float *a, int64_t rs, int64_t cs,
		 const float *b, int64_t ldb, const srt_cpu_tile_out_t *out)
{
	float sums[MR * NR];

	tile_sums(rows, kc, a, rs, cs, b, ldb, sums);
	tile_finish(rows, cols, sums, out);
}

static void pack_transposed(int cols, int64_t kc, const float *src, int64_t ld, float *dst)
{
	for (int64_t k = 0; k < kc; k++)
		for (int j = 0; j < NR; j++)
			dst[k * NR + j] = j < cols ? src[j * ld + k] : 0.0f;
}

const srt_cpu_gemm_t srt_cpu_gemm_baseline = {
	.isa = "baseline",
	.mr = MR,
	.nr = NR,
	.tile = tile,
	.pack_transposed = pack_transposed,
};
