/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tile kernel without assumptions on the processor. Baseline x86-64 does not have a fused
 * multiply-add. There the kernel runs a fast form that is exact unless double rounding occurs; it
 * detects such a case and computes the tile again with kernels/dialect/softfma.h. On other
 * processors it is plain C with the processor's fused multiply-add.
 */
#include <string.h>

#include "backends/cpu/gemm_half.h"
#include "backends/cpu/gemm_rows.h"
#include "backends/cpu/gemm_tile.h"
#include "kernels/dialect/softfma.h"

#define MR 4
#define NR 4

/* v = [prior + v] [* alpha] [+ bias] [old + v]; sums (rows,NR). */
static void tile_finish(int rows, int cols, const float *sums, const srt_cpu_tile_io_t *io)
{
	for (int i = 0; i < rows; i++) {
		for (int j = 0; j < cols; j++) {
			float v = sums[i * NR + j];

			if (io->prior != NULL)
				v = io->prior[i * io->ldprior + j] + v;
			v = v * io->alpha;
			if (io->bias != NULL)
				v = v + io->bias[j];
			if (io->old != NULL)
				v = io->old[i * io->ldold + j] + v;
			io->c[i * io->ldc + j] = v;
		}
	}
}

#if defined(__SSE2__)

/* The form that is always exact: every step is rounded to odd. */
static void sums_soft(int rows, int64_t kc, const float *a, int64_t rs, int64_t cs, const float *b,
		      int64_t ldb, float *sums)
{
	__m128 acc[MR];

	for (int i = 0; i < rows; i++)
		acc[i] = _mm_loadu_ps(sums + i * NR);
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
 * roundings are one unless the double lies half-way between two floats (its low 29 bits are
 * 100...0; noted in `half`) or the float is subnormal and inexact (the processor's underflow flag).
 * If either occurred, returns 0 and does not change sums.
 */
static inline __attribute__((always_inline)) int sums_fast(const int rows, int64_t kc,
							   const float *a, int64_t rs, int64_t cs,
							   const float *b, int64_t ldb, float *sums)
{
	const __m128i low = _mm_set1_epi64x(0x1fffffff), tie = _mm_set1_epi64x(0x10000000);
	__m128d acc[MR][2];
	__m128i half = _mm_setzero_si128();
	unsigned csr = _mm_getcsr();

	_mm_setcsr(csr & ~_MM_EXCEPT_UNDERFLOW);
	for (int i = 0; i < rows; i++) {
		__m128 start = _mm_loadu_ps(sums + i * NR);

		acc[i][0] = _mm_cvtps_pd(start);
		acc[i][1] = _mm_cvtps_pd(_mm_movehl_ps(start, start));
	}
	for (int64_t k = 0; k < kc; k++) {
		__m128 bv = _mm_loadu_ps(b + k * ldb);
		__m128d b0 = _mm_cvtps_pd(bv), b1 = _mm_cvtps_pd(_mm_movehl_ps(bv, bv));

		for (int i = 0; i < rows; i++) {
			__m128d x = _mm_set1_pd((double)a[i * rs + k * cs]);
			__m128d s0 = _mm_add_pd(_mm_mul_pd(x, b0), acc[i][0]);
			__m128d s1 = _mm_add_pd(_mm_mul_pd(x, b1), acc[i][1]);
			/* the low words of the four sums */
			__m128i w = _mm_castps_si128(_mm_shuffle_ps(_mm_castpd_ps(s0),
								    _mm_castpd_ps(s1),
								    _MM_SHUFFLE(2, 0, 2, 0)));

			w = _mm_and_si128(w, _mm_shuffle_epi32(low, 0));
			half = _mm_or_si128(half, _mm_cmpeq_epi32(w, _mm_shuffle_epi32(tie, 0)));
			acc[i][0] = _mm_cvtps_pd(_mm_cvtpd_ps(s0));
			acc[i][1] = _mm_cvtps_pd(_mm_cvtpd_ps(s1));
		}
	}
	/* Compilers do not know that arithmetic sets the flag: the sums are complete before it is
	 * read. */
	for (int i = 0; i < rows; i++)
		__asm__ volatile("" : "+x"(acc[i][0]), "+x"(acc[i][1]));
	if (_mm_movemask_epi8(half) || (_mm_getcsr() & _MM_EXCEPT_UNDERFLOW))
		return 0;
	for (int i = 0; i < rows; i++)
		_mm_storeu_ps(sums + i * NR,
			      _mm_movelh_ps(_mm_cvtpd_ps(acc[i][0]), _mm_cvtpd_ps(acc[i][1])));
	return 1;
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
	float acc[MR * NR];

	memcpy(acc, sums, sizeof(acc));
	for (int64_t k = 0; k < kc; k++)
		for (int i = 0; i < rows; i++)
			for (int j = 0; j < NR; j++)
				acc[i * NR + j] = __builtin_fmaf(a[i * rs + k * cs], b[k * ldb + j],
								 acc[i * NR + j]);
	memcpy(sums, acc, sizeof(acc));
}

#endif

/* Continues the sums of rows first <= i < end over kc steps from step k. */
typedef struct steps {
	int first, end;
	int64_t k, kc;
} steps_t;

static void compute_tile(int rows, int cols, int64_t kc, const float *a, int64_t rs, int64_t cs,
			 const float *b, int64_t ldb, const srt_cpu_tile_io_t *io)
{
	const int ragged = io->ragged == SRT_CPU_FULL ? 0 : rows - 1;
	float sums[MR * NR] = { 0 };
	steps_t steps[MR] = { { 0, rows, io->ragged == SRT_CPU_HEAD ? ragged : 0, kc - ragged } };

	for (int t = 1; t <= ragged; t++) { /* one step each, before or after the common ones */
		if (io->ragged == SRT_CPU_HEAD) {
			steps[t] = steps[t - 1];
			steps[t - 1] = (steps_t){ 0, t, t - 1, 1 };
		} else {
			steps[t] = (steps_t){ t, rows, kc - ragged + t - 1, 1 };
		}
	}
	if (io->start != NULL)
		for (int i = 0; i < rows; i++)
			memcpy(sums + i * NR, io->start + i * io->ldstart,
			       (size_t)cols * sizeof(float));
	for (int t = 0; t <= ragged; t++)
		tile_sums(steps[t].end - steps[t].first, steps[t].kc,
			  a + steps[t].first * rs + steps[t].k * cs, rs, cs, b + steps[t].k * ldb,
			  ldb, sums + steps[t].first * NR);
	tile_finish(rows, cols, sums, io);
}

static void pack_rows(int cols, int width, int64_t kc, const float *src, int64_t ld, float *dst)
{
	for (int64_t k = 0; k < kc; k++)
		for (int j = 0; j < width; j++)
			dst[k * width + j] = j < cols ? src[k * ld + j] : 0.0f;
}

static void pack_transposed(srt_dtype_t dtype, int cols, int64_t kc, const void *src, int64_t ld,
			    float *dst)
{
	const int64_t nbytes = dtype == SRT_F32 ? 4 : 2;
	const char *p = src;

	for (int64_t k = 0; k < kc; k++)
		for (int j = 0; j < NR; j++)
			dst[k * NR + j] =
				j < cols ? widen_element(dtype, p + (j * ld + k) * nbytes) : 0.0f;
}

const srt_cpu_gemm_t srt_cpu_gemm_baseline = {
	.isa = "baseline",
	.mr = MR,
	.nr = NR,
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
