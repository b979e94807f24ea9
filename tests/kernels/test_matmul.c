/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CPU backend's matrix product against the definition (docs/numerics.md, "Matrix product")
 * written with fmaf, bit for bit: every instruction set present, all three types, transpositions,
 * edge sizes, odd leading dimensions, batches, all epilogues, hard values, several numbers of
 * parts, C of floats with operands of 16 bits. Guard bytes around C, in the gaps of its rows, and
 * around scratch must survive.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/matmul.h"
#include "kernels/cpu.h"
#include "tests/harness/bits.h"
#include "tests/harness/check.h"
#include "tests/harness/half.h"
#include "tests/harness/random.h"

#define GUARD 0xa5
#define NGUARD 64

typedef enum values { PLAIN, HARD, TIES } values_t;

static const char *isa;
static const srt_cpu_gemm_t *gemm;
static srt_dtype_t type;

/* HARD: subnormals, zeros of both signs, huge, infinities and NaN; TIES: few bits, far apart. */
static float value(values_t kind)
{
	static const uint32_t hard[] = { 0x00000000, 0x80000000, 0x00000001, 0x80000003, 0x007fffff,
					 0x00800000, 0x80800001, 0x20000000, 0x1f800001, 0x3f800000,
					 0xbf800000, 0x3f800001, 0x5f000000, 0xdf000001 };
	uint32_t r = random32();

	if (kind == HARD && r % 5 < 3)
		return float_of(hard[(r >> 8) % (sizeof(hard) / sizeof(hard[0]))]);
	if (kind == HARD && r % 701 == 4)
		return float_of(0x7f800000u | (r & 0x80400000u));
	if (kind == TIES)
		return ldexpf((float)((int)(r % 4097) - 2048), (int)((r >> 16) % 3) * 12 - 12);
	return (float)((int)(r >> 8) - (1 << 23)) * 0x1p-23f;
}

/* n random floats that the dtype can hold. */
static float *fill(srt_dtype_t dtype, size_t n, values_t kind)
{
	float *p = malloc((n + 1) * sizeof(*p));

	CHECK_OR_DIE(p != NULL);
	for (size_t i = 0; i < n; i++)
		p[i] = half_round(dtype, value(kind));
	return p;
}

/* Numbers in the dtype. */
static void *convert(srt_dtype_t dtype, const float *x, size_t n)
{
	void *p = malloc((n + 1) * sizeof(*x));

	CHECK_OR_DIE(p != NULL);
	for (size_t i = 0; i < n; i++)
		half_put(dtype, p, i, x[i]);
	return p;
}

/* An element of mm with operands in floats, before the old C is added. */
static float reference(const srt_cpu_matmul_t *mm, int64_t item, int64_t i, int64_t j)
{
	const float *a = (const float *)mm->a + item * mm->shape.stride_a;
	const float *b = (const float *)mm->b + item * mm->shape.stride_b;
	float sum = 0.0f;

	for (int64_t k0 = 0; k0 < mm->shape.k; k0 += 512) {
		float x = 0.0f;

		for (int64_t k = k0; k < mm->shape.k && k < k0 + 512; k++)
			x = fmaf(mm->shape.trans_a ? a[k * mm->shape.lda + i] :
						     a[i * mm->shape.lda + k],
				 mm->shape.trans_b ? b[j * mm->shape.ldb + k] :
						     b[k * mm->shape.ldb + j],
				 x);
		sum = k0 ? sum + x : x;
	}
	sum = sum * mm->shape.alpha;
	return mm->bias != NULL ? sum + ((const float *)mm->bias)[j] : sum;
}

/* Runs all parts, last first, each with scratch between guards. */
static void run_parts(const srt_cpu_matmul_t *mm, int nparts)
{
	size_t nbytes = srt_cpu_matmul_scratch(gemm, mm, nparts);
	unsigned char *scratch = aligned_alloc(64, (nbytes + 191) / 64 * 64);

	CHECK_OR_DIE(scratch != NULL);
	memset(scratch, 0xa5, nbytes + 128);
	for (int part = nparts - 1; part >= 0; part--)
		srt_cpu_matmul(gemm, mm, part, nparts, scratch + 64);
	for (int i = 0; i < 64; i++)
		CHECK(scratch[i] == 0xa5 && scratch[64 + nbytes + (size_t)i] == 0xa5);
	free(scratch);
}

/* Elements of two arrays that differ; NaNs of floats are alike. */
static size_t count_different(srt_dtype_t dtype, const void *x, const void *y, size_t n)
{
	const size_t size = srt_dtype_bits(dtype) / 8;
	size_t count = 0;

	for (size_t i = 0; i < n; i++) {
		float a = half_get(dtype, x, i), b = half_get(dtype, y, i);

		if (memcmp((const char *)x + i * size, (const char *)y + i * size, size) != 0)
			count += dtype != SRT_F32 || a == a || b == b;
	}
	return count;
}

/* mm: with its operands; sums (batch,m,n): what it makes of them before the old C is added. */
static void check_c(srt_cpu_matmul_t mm, const float *sums, values_t kind, int64_t lead, int nparts)
{
	const srt_dtype_t dtype = mm.shape.c_is_f32 ? SRT_F32 : mm.dtype;
	const int64_t batch = mm.shape.batch > 1 ? mm.shape.batch : 1, n = mm.shape.n;
	const size_t size = srt_dtype_bits(dtype) / 8;
	const size_t nelem = (size_t)(batch * mm.shape.stride_c) + 2 * NGUARD;
	void *c = malloc(nelem * size), *want = malloc(nelem * size);
	size_t nwrong;

	CHECK_OR_DIE(c != NULL && want != NULL);
	memset(c, GUARD, nelem * size);
	memset(want, GUARD, nelem * size);
	for (int64_t r = 0; r < batch * mm.shape.m; r++)
		for (int64_t j = 0; j < n; j++) {
			size_t at = (size_t)(NGUARD + r / mm.shape.m * mm.shape.stride_c +
					     r % mm.shape.m * mm.shape.ldc + j);
			float sum = sums[r * n + j];

			half_put(dtype, c, at, value(kind));
			if (mm.shape.accumulate)
				sum = half_get(dtype, c, at) + sum;
			half_put(dtype, want, at, sum);
		}
	mm.c = (char *)c + NGUARD * size;
	run_parts(&mm, nparts);
	nwrong = count_different(dtype, c, want, nelem);
	CHECK_MSG(nwrong == 0,
		  "%s: %zu of %s wrong: m %d n %d k %d ta %d tb %d batch %d alpha %g bias %d "
		  "accumulate %d lead %d values %d parts %d, C of %s",
		  isa, nwrong, srt_dtype_name(mm.dtype), (int)mm.shape.m, (int)n, (int)mm.shape.k,
		  mm.shape.trans_a, mm.shape.trans_b, (int)mm.shape.batch, (double)mm.shape.alpha,
		  mm.bias != NULL, mm.shape.accumulate, (int)lead, (int)kind, nparts,
		  srt_dtype_name(dtype));
	free(c);
	free(want);
}

/* mm: sizes and options; lead = what leading dimensions have beyond their rows. With operands of 16
 * bits C is of them, then of floats. */
static void check_case(srt_cpu_matmul_t mm, values_t kind, int64_t lead, int nparts)
{
	const srt_dtype_t dtype = mm.dtype;
	int64_t batch = mm.shape.batch > 1 ? mm.shape.batch : 1;
	int64_t rows_a = mm.shape.trans_a ? mm.shape.k : mm.shape.m,
		rows_b = mm.shape.trans_b ? mm.shape.n : mm.shape.k;
	const int64_t m = mm.shape.m, n = mm.shape.n;
	size_t nelem_a, nelem_b;
	float *a, *b, *bias, *sums;
	void *half_a, *half_b, *half_bias;
	srt_cpu_matmul_t wide;

	mm.shape.lda = (mm.shape.trans_a ? mm.shape.m : mm.shape.k) + lead;
	mm.shape.ldb = (mm.shape.trans_b ? mm.shape.k : mm.shape.n) + lead;
	mm.shape.ldc = mm.shape.n + lead;
	mm.shape.stride_a = rows_a * mm.shape.lda + lead;
	mm.shape.stride_b = rows_b * mm.shape.ldb + lead;
	mm.shape.stride_c = mm.shape.m * mm.shape.ldc + lead;
	wide = mm;
	nelem_a = (size_t)(batch * mm.shape.stride_a);
	nelem_b = (size_t)(batch * mm.shape.stride_b);
	wide.a = a = fill(dtype, nelem_a, kind);
	wide.b = b = fill(dtype, nelem_b, kind);
	bias = fill(dtype, (size_t)mm.shape.n, kind);
	mm.a = half_a = convert(dtype, a, nelem_a);
	mm.b = half_b = convert(dtype, b, nelem_b);
	half_bias = convert(dtype, bias, (size_t)mm.shape.n);
	if (mm.bias != NULL) {
		wide.bias = bias;
		mm.bias = half_bias;
	}
	sums = malloc(((size_t)(batch * m * n) + 1) * sizeof(*sums));
	CHECK_OR_DIE(sums != NULL);
	for (int64_t e = 0; e < batch * m * n; e++)
		sums[e] = reference(&wide, e / n / m, e / n % m, e % n);
	check_c(mm, sums, kind, lead, nparts);
	mm.shape.c_is_f32 = 1;
	if (dtype != SRT_F32)
		check_c(mm, sums, kind, lead, nparts);
	free(a);
	free(b);
	free(bias);
	free(sums);
	free(half_a);
	free(half_b);
	free(half_bias);
}

static srt_cpu_matmul_t options(int64_t m, int64_t n, int64_t k, unsigned bits)
{
	static const float none;

	return (srt_cpu_matmul_t){
		.shape.m = m,
		.shape.n = n,
		.shape.k = k,
		.shape.trans_a = bits & 1,
		.shape.trans_b = bits >> 1 & 1,
		.shape.accumulate = bits >> 2 & 1,
		.bias = bits >> 3 & 1 ? &none : NULL,
		.dtype = type,
		.shape.alpha = bits >> 4 & 1 ? 0.3f :
			       bits >> 5 & 1 ? 1.0f :
					       0.0f,
		.shape.batch = bits >> 6 & 1 ? 3 : 0,
	};
}

/* Every number of rows and columns of a tile, with every transposition. */
static void test_tiles(void)
{
	for (int64_t m = 1; m <= 13; m++)
		for (int64_t n = 1; n <= 34; n++)
			check_case(options(m, n, 1 + random32() % 9, random32() % 128), HARD,
				   random32() % 4, 1 + (int)(random32() % 3));
}

static void test_sizes(void)
{
	static const int64_t sizes[] = { 0, 1, 2, 7, 16, 31, 33, 64, 67, 130, 257 };
	static const int64_t depths[] = { 0, 1, 3, 64, 511, 512, 513, 1024, 1031, 1600 };

	for (int i = 0; i < 120; i++) {
		int64_t m = sizes[random32() % 11], n = sizes[random32() % 11];
		int64_t k = depths[random32() % 10];

		if (m * n * k > 6000000)
			k = 33;
		check_case(options(m, n, k, random32() % 128), (values_t)(i % 3), random32() % 9,
			   1 + (int)(random32() % 7));
	}
}

/* Shapes beyond each of the driver's block sizes; distances that make it pack A. */
static void test_blocks(void)
{
	for (unsigned trans = 0; trans < 4; trans++) {
		check_case(options(250, 40, 520, trans | 4), PLAIN, 0, 2);
		check_case(options(13, 2100, 30, trans), PLAIN, 0, 1);
		check_case(options(25, 700, 512, trans), PLAIN, 0, 3);
	}
	check_case(options(970, 9, 600, 4), PLAIN, 0, 1);
	check_case(options(970, 9, 600, 5), PLAIN, 1, 1);
	check_case(options(5, 6, 4096, 2), PLAIN, 0, 1);
	check_case(options(250, 6, 512, 3), PLAIN, 0, 1);
}

/* So few rows that they are one block: one span of k and several, A packed and in place. */
static void test_few_rows(void)
{
	for (unsigned trans_b = 0; trans_b <= 2; trans_b += 2) {
		check_case(options(53, 70, 530, trans_b | 8), PLAIN, 0, 1);
		check_case(options(53, 70, 1024, trans_b), PLAIN, 0, 1);
		check_case(options(53, 70, 1030, trans_b | 16), PLAIN, 1, 2);
	}
	check_case(options(264, 40, 300, 2), PLAIN, 0, 3);
	check_case(options(264, 40, 769, 4 | 8), PLAIN, 0, 2);
}

/* A few rows times a B stored (n,k), as in decoding: ragged panels, ends of vectors along k, blocks
 * and spans of k. */
static void test_rows(void)
{
	static const int64_t rows[] = { 1, 2, 3, 5, 8, 9, 16, 17 };
	static const int64_t lengths[] = { 1, 15, 17, 33, 511, 512, 513, 1027 };

	for (int i = 0; i < 8; i++)
		for (int k = 0; k < 8; k++) {
			int64_t n = lengths[random32() % 8];

			n = rows[i] * n * lengths[k] > 600000 ? 67 : n;
			check_case(options(rows[i], n, lengths[k], 2 | (random32() % 128 & ~1u)),
				   (values_t)(k % 3), random32() % 3, 1 + (int)(random32() % 3));
		}
	for (unsigned bits = 0; bits < 8; bits++) /* accumulate, bias, alpha */
		check_case(options(3, 97, 2083, 2 | bits << 2), PLAIN, 0, 2);
	check_case(options(2, 2100, 40, 2 | 8), PLAIN, 0, 1);
}

/* Equal bits for any number of parts; every element belongs to exactly one. */
static void test_parts(void)
{
	for (int nparts = 1; nparts <= 17; nparts++) {
		check_case(options(100, 70, 20, 4), PLAIN, 1, nparts);
		check_case(options(1, 200, 20, 2), PLAIN, 0, nparts);
		check_case(options(200, 3, 20, 1), PLAIN, 0, nparts);
		check_case(options(20, 20, 20, 64), PLAIN, 0, nparts);
	}
}

int main(void)
{
	for (int i = 0; i < SRT_ISA_COUNT; i++) {
		isa = srt_cpu_isa_name((srt_cpu_isa_t)i);
		if (!srt_cpu_isa_usable((srt_cpu_isa_t)i))
			continue;
		gemm = srt_cpu_gemm_find(isa);
		CHECK_OR_DIE(gemm != NULL);
		for (type = SRT_F32; type <= SRT_BF16; type++) {
			test_tiles();
			test_sizes();
			test_blocks();
			test_few_rows();
			test_rows();
			test_parts();
		}
	}
	CHECK(srt_cpu_gemm_find("none") == NULL);
	return check_done();
}
