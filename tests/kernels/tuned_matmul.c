/* SPDX-License-Identifier: BSD-3-Clause */
/* Part of test_tuned: the matrix product. */
#include "tests/harness/half.h"
#include "tests/kernels/tuned_tensor.h"

/* The host's side of t in floats. */
static tensor_t widen(const tensor_t *t)
{
	tensor_t wide = { .host = NULL };

	if (t->host == NULL)
		return wide;
	wide = tt_tensor(SRT_F32, (int64_t)t->nelem, "wide");
	for (size_t i = 0; i < t->nelem; i++)
		tt_put(&wide, (int64_t)i, half_get(t->dtype, tt_at(t, 0), i));
	return wide;
}

/* What C, of floats, should become: the product of operands in floats. */
static void multiply_wide(const srt_k_matmul_t *args, tensor_t *c, tensor_t *const operands[3])
{
	tensor_t wide[3];

	for (int i = 0; i < 3; i++)
		wide[i] = widen(operands[i]);
	tt_portable(SRT_K_MATMUL, SRT_F32, args, (tensor_t *[]){ c, &wide[0], &wide[1], &wide[2] });
	for (int i = 0; i < 3; i++)
		tt_drop(&wide[i]);
}

/* bits: transpositions, accumulate, bias, alpha, batch, C of floats; lead: what rows have beyond
 * their length. */
static void check_matmul_as(srt_dtype_t dtype, int64_t m, int64_t n, int64_t k, unsigned bits,
			    values_t kind, int64_t lead)
{
	srt_k_matmul_t args = {
		.m = m,
		.n = n,
		.k = k,
		.batch = bits >> 5 & 1 ? 3 : 1,
		.trans_a = bits & 1,
		.trans_b = bits >> 1 & 1,
		.accumulate = bits >> 2 & 1,
		.alpha = bits >> 4 & 1 ? 0.3f : 1.0f,
	};
	const srt_dtype_t c_dtype = bits >> 6 & 1 ? SRT_F32 : dtype;
	tensor_t a, b, c, bias = { .host = NULL };
	srt_matmul_t mm;
	size_t nwrong;

	args.lda = (args.trans_a ? m : k) + lead;
	args.ldb = (args.trans_b ? k : n) + lead;
	args.ldc = n + lead;
	args.stride_a = (args.trans_a ? k : m) * args.lda + lead;
	args.stride_b = (args.trans_b ? n : k) * args.ldb + lead;
	args.stride_c = m * args.ldc + lead;
	a = tt_random_tensor(dtype, args.batch * args.stride_a, kind, "a");
	b = tt_random_tensor(dtype, args.batch * args.stride_b, kind, "b");
	c = tt_tensor(c_dtype, args.batch * args.stride_c, "c");
	for (int64_t r = 0; r < args.batch * m; r++)
		for (int64_t j = 0; j < n; j++)
			tt_put(&c, r / m * args.stride_c + r % m * args.ldc + j,
			       tt_value(c_dtype, kind));
	if (bits >> 3 & 1)
		bias = tt_random_tensor(dtype, n, kind, "bias");
	tt_upload(&a);
	tt_upload(&b);
	tt_upload(&c);
	if (bias.host != NULL)
		tt_upload(&bias);
	mm = (srt_matmul_t){
		.size = sizeof(srt_matmul_t),
		.m = m,
		.n = n,
		.k = k,
		.batch = args.batch,
		.trans_a = args.trans_a,
		.trans_b = args.trans_b,
		.a = tt_view(&a),
		.b = tt_view(&b),
		.c = tt_view(&c),
		.lda = args.lda,
		.ldb = args.ldb,
		.ldc = args.ldc,
		.stride_a = args.stride_a,
		.stride_b = args.stride_b,
		.stride_c = args.stride_c,
		.alpha = bits >> 4 & 1 ? 0.3f : 1.0f,
		.bias = tt_view(&bias),
		.accumulate = args.accumulate,
	};
	CHECK_OK(srt_op_matmul(&mm, tt_stream));
	if (c_dtype != dtype)
		multiply_wide(&args, &c, (tensor_t *[]){ &a, &b, &bias });
	else
		tt_portable(SRT_K_MATMUL, dtype, &args, (tensor_t *[]){ &c, &a, &b, &bias });
	nwrong = tt_wrong(&c);
	CHECK_MSG(nwrong == 0, "%s: %zu of %s wrong: m %d n %d k %d options %u values %d lead %d",
		  tt_form, nwrong, srt_dtype_name(dtype), (int)m, (int)n, (int)k, bits, (int)kind,
		  (int)lead);
	tt_drop(&a);
	tt_drop(&b);
	tt_drop(&c);
	tt_drop(&bias);
}

static void check_matmul(int64_t m, int64_t n, int64_t k, unsigned bits, values_t kind,
			 int64_t lead)
{
	check_matmul_as(SRT_F32, m, n, k, bits, kind, lead);
}

/* Every number of rows and many of columns of a tile. */
static void test_tiles(void)
{
	for (int64_t m = 1; m <= 13; m++)
		for (int64_t n = 1; n <= 34; n += 1 + tt_random() % 3)
			check_matmul(m, n, 1 + tt_random() % 9, tt_random() % 64, HARD,
				     tt_random() % 4);
}

static void test_sizes(void)
{
	static const int64_t sizes[] = { 0, 1, 2, 7, 16, 31, 33, 64, 67, 130, 257 };
	static const int64_t depths[] = { 0, 1, 3, 64, 511, 512, 513, 1024, 1031, 1600 };

	for (int i = 0; i < 60; i++) {
		int64_t m = sizes[tt_random() % SRT_ARRAY_LEN(sizes)];
		int64_t n = sizes[tt_random() % SRT_ARRAY_LEN(sizes)];
		int64_t k = depths[tt_random() % SRT_ARRAY_LEN(depths)];

		if (m * n * k > 2000000)
			k = 33;
		check_matmul(m, n, k, tt_random() % 64, (values_t)(i % NVALUES), tt_random() % 9);
	}
}

/* Every depth with every way into and out of a product; spans of k; distances of cache sets. In
 * forms that need not all of it, any two options of a depth of up to two blocks have their four
 * pairs of values, and deeper products have one combination each. */
static void test_depths(bool all)
{
	static const int64_t depths[] = { 1, 511, 512, 513, 1024, 2047, 2048, 2049, 4200 };
	static const unsigned pairs[] = { 0, 7, 25, 42, 52, 63 };

	for (size_t i = 0; i < SRT_ARRAY_LEN(depths); i++) {
		const values_t kind = i % 2 ? HARD : PLAIN;

		for (unsigned bits = 0; all && bits < 64; bits += 3)
			check_matmul(5, 9, depths[i], bits, kind, 1);
		for (size_t b = 0; !all && b < SRT_ARRAY_LEN(pairs); b++)
			if (depths[i] <= 513 || b == i % SRT_ARRAY_LEN(pairs))
				check_matmul(5, 9, depths[i], pairs[b], kind, 1);
	}
	check_matmul(25, 37, 1024, 2, PLAIN, 0);
	check_matmul(25, 37, 2048, 4 | 32, PLAIN, 0);
}

/* More than is packed at a time: of columns, of rows, of sums, of batch items. */
static void test_stretches(void)
{
	check_matmul(3, 2100, 2049, 4, PLAIN, 0);
	check_matmul(2100, 5, 2049, 1, PLAIN, 0);
	check_matmul(520, 2048, 2049, 4, PLAIN, 0);
	check_matmul(2, 2048, 2048, 2 | 32, PLAIN, 0);
}

/* In 16 bits: the same options, sizes beyond a group of the casts, several blocks of k. */
static void test_halves(void)
{
	static const int64_t sizes[] = { 1, 2, 7, 16, 33, 67, 130 };

	for (int dtype = SRT_F16; dtype <= SRT_BF16; dtype++) {
		for (unsigned bits = 0; bits < 128; bits++)
			check_matmul_as((srt_dtype_t)dtype, sizes[tt_random() % 7],
					sizes[tt_random() % 7], 1 + tt_random() % 70, bits,
					(values_t)(bits % NVALUES), tt_random() % 3);
		for (unsigned wide = 0; wide <= 64; wide += 64) {
			check_matmul_as((srt_dtype_t)dtype, 67, 130, 1031, 2 | wide, PLAIN, 0);
			check_matmul_as((srt_dtype_t)dtype, 3, 5, 0, 4 | 8 | wide, HARD, 1);
		}
	}
}

void tt_test_matmul(bool all)
{
	test_tiles();
	test_sizes();
	test_depths(all || check_is_long());
	if (all) {
		test_halves();
		test_stretches();
	}
}

void tt_test_matmul_tiny(void)
{
	for (unsigned bits = 0; bits < 64; bits += 7)
		check_matmul(5, 9, 35, bits, HARD, 1);
	check_matmul(25, 37, 40, 2, PLAIN, 0);
	for (unsigned bits = 0; bits < 8; bits++) /* whole tiles and ragged ones */
		check_matmul(129, 133, 53, bits & 3, HARD, bits < 4 ? 3 : 0);
	check_matmul(3, 5, 515, 4, PLAIN, 0);
}

/* Every transposition: of whole tiles, aligned or not, and of ragged ones; of one block of k, two
 * and three; with each part of the epilogue; with C of floats too. */
void tt_test_matmul_large(srt_dtype_t dtype)
{
	const size_t odd = tt_nguard;

	for (unsigned bits = 0; bits < 8; bits++) {
		tt_nguard = 64;
		check_matmul_as(dtype, 256, 128, 48, bits ^ (bits & 1) << 3, HARD, 4);
		if (bits < 4)
			check_matmul_as(dtype, 256, 128, bits ? 528 : 1040, bits | 4, PLAIN, 4);
		tt_nguard = odd;
		check_matmul_as(dtype, 256, 128, 48, bits, HARD, 1);
	}
	for (unsigned bits = 0; bits < 4; bits++) {
		check_matmul_as(dtype, 250, 120, bits == 1 ? 530 : 53, bits | 8 | 16, PLAIN, 1);
		check_matmul_as(dtype, 250, 60, bits == 2 ? 530 : 53, bits | 4, PLAIN, 0);
	}
	if (dtype == SRT_F32)
		return;
	check_matmul_as(dtype, 256, 128, 48, 1 | 4 | 64, HARD, 4);
	check_matmul_as(dtype, 250, 60, 53, 2 | 8 | 16 | 64, PLAIN, 1);
	check_matmul_as(dtype, 250, 60, 530, 3 | 64, PLAIN, 1);
}
