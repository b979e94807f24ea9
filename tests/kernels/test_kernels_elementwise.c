/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Elementwise kernels, the sum over ranks, random numbers and the order-independent sums, against
 * plain references.
 */
#include "tests/kernels/kernel_check.h"

void srt_math_eval_baseline(int function, const float *x, float *y, int64_t n);

static float my_exp(float x)
{
	float y;

	srt_math_eval_baseline(0, &x, &y, 1);
	return y;
}

static const int64_t sizes[] = { 0, 1, 3, 63, 64, 65, 1009, 2047, 2048, 2049, 6151 };

#define NSIZES (sizeof(sizes) / sizeof(sizes[0]))

enum { FILL, SCALE, DIVIDE, AXPY, ADD, MUL, RELU, RELU_BACKWARD, GELU, GELU_BACKWARD, NOPS };

static const srt_kernel_id_t kernels[NOPS] = {
	SRT_K_FILL, SRT_K_SCALE, SRT_K_DIVIDE,        SRT_K_AXPY,      SRT_K_ADD,
	SRT_K_MUL,  SRT_K_RELU,  SRT_K_RELU_BACKWARD, SRT_K_GELU_TANH, SRT_K_GELU_TANH_BACKWARD,
};

static float gelu_exp(float x)
{
	float c = x > -16.0f ? x : -16.0f;
	float u;

	c = c < 16.0f ? c : 16.0f;
	u = 0.7978845608f * fmaf(0.044715f * c * c, c, c);
	return my_exp(-2.0f * u);
}

static float reference(int op, float a, float b, float value)
{
	float e, s, c, du;

	switch (op) {
	case FILL:
		return value;
	case SCALE:
		return a * value;
	case DIVIDE:
		return a / value;
	case AXPY:
		return fmaf(value, b, a);
	case ADD:
		return a + b;
	case MUL:
		return a * b;
	case RELU:
		return a != a ? a : a > 0.0f ? a : 0.0f;
	case RELU_BACKWARD:
		return b > 0.0f ? a : 0.0f;
	case GELU:
		return a / (1.0f + gelu_exp(a));
	case GELU_BACKWARD:
		e = gelu_exp(b);
		s = 1.0f / (1.0f + e);
		c = b > -16.0f ? b : -16.0f;
		c = c < 16.0f ? c : 16.0f;
		du = 0.7978845608f * fmaf(0.134145f * c, c, 1.0f);
		return a * (b != b ? b : fmaf(c * (s * (s > 0.0f ? e * s : 1.0f)), 2.0f * du, s));
	default:
		CHECK_OR_DIE(!"an operation without a reference");
		return 0.0f;
	}
}

static void test_elementwise(srt_dtype_t dtype, int64_t n, int op, int in_place)
{
	srt_k_elem_t args = { .nelem = n, .value = 1.0f / 3.0f };
	float *a = kc_floats(n, kc_hard), *b = kc_floats(n, kc_hard), *want = kc_floats(n, NULL);
	int ninputs = srt_kernel_info(kernels[op])->nplaces - 1;

	kc_round(dtype, a, n);
	kc_round(dtype, b, n);
	for (int64_t i = 0; i < n; i++)
		want[i] = reference(op, a[i], op == AXPY && in_place ? a[i] : b[i], args.value);
	kc_begin_as(dtype, kernels[op], &args, in_place ? "in place" : "elementwise");
	kc_out(in_place || op == AXPY ? a : NULL, want, n);
	if (op == AXPY && !in_place)
		kc_in_t(b, n);
	else if (ninputs >= 1 && in_place)
		kc_same(0);
	else if (ninputs >= 1)
		kc_in_t(a, n);
	if (ninputs >= 2)
		kc_in_t(b, n);
	kc_run();
	free(a);
	free(b);
	free(want);
}

/* GELU against the definition in double: within a few units of the last place of x. */
static void test_gelu_accuracy(void)
{
	srt_k_elem_t args = { .nelem = 1 };
	double worst = 0.0;

	for (float x = -12.0f; x < 12.0f; x += 0x1p-8f) {
		unsigned char *places[2];
		float y;
		double d = (double)x, want, error;

		places[0] = (unsigned char *)&y;
		places[1] = (unsigned char *)&x;
		srt_kernel_cpu(SRT_K_GELU_TANH, SRT_F32, SRT_ISA_BASELINE)(places, &args, 0, 1);
		want = d / (1.0 + exp(-2.0 * sqrt(2.0 / M_PI) * (d + 0.044715 * d * d * d)));
		error = fabs((double)y - want) / (fabs(want) + 1e-30);
		if (error > worst && fabsf(x) < 4.0f)
			worst = error;
		CHECK(fabs((double)y - want) <= 4e-7 * (fabs(d) + 1e-30));
	}
	CHECK_MSG(worst < 4e-6, "gelu relative error %g on |x| < 4", worst);
}

/* x as the 16-bit words of its type, to be freed. */
static uint16_t *halves(srt_dtype_t dtype, const float *x, int64_t n)
{
	uint16_t *h = malloc((size_t)n * sizeof(*h));

	CHECK_OR_DIE(h != NULL);
	for (int64_t i = 0; i < n; i++)
		h[i] = half_bits(dtype, x[i]);
	return h;
}

/* All values of the type, or ties and hard floats, to each type. */
static void test_casts(srt_dtype_t from)
{
	static const srt_kernel_id_t casts[] = { [SRT_F32] = SRT_K_CAST_FROM_F32,
						 [SRT_F16] = SRT_K_CAST_FROM_F16,
						 [SRT_BF16] = SRT_K_CAST_FROM_BF16 };
	enum { N = 1 << 16 };
	srt_k_elem_t args = { .nelem = N };
	float *x = kc_floats(N, kc_hard);
	uint16_t *h;

	for (int i = 0; i < N; i++) {
		srt_dtype_t dtype = i % 3 ? SRT_F16 : SRT_BF16;
		float a = half_value(dtype, (uint16_t)i), b = half_value(dtype, (uint16_t)(i + 1));

		if (from != SRT_F32)
			x[i] = half_value(from, (uint16_t)i);
		else if (i % 8)
			x[i] = (float)(((double)a + (double)b) / 2);
	}
	h = halves(from, x, N);
	for (int to = SRT_F32; to <= SRT_BF16; to++) {
		kc_begin_as((srt_dtype_t)to, casts[from], &args, srt_dtype_name(from));
		kc_out(NULL, x, N);
		if (from == SRT_F32)
			kc_in(x, N * sizeof(*x));
		else
			kc_in(h, N * sizeof(*h));
		kc_run();
	}
	free(x);
	free(h);
}

/* Onto hard values: the bits of a cast and an add. */
static void test_accumulate(srt_dtype_t from, srt_dtype_t to, int64_t n)
{
	static const srt_kernel_id_t sums[] = { [SRT_F32] = SRT_K_ACCUMULATE_F32,
						[SRT_F16] = SRT_K_ACCUMULATE_F16,
						[SRT_BF16] = SRT_K_ACCUMULATE_BF16 };
	srt_k_elem_t args = { .nelem = n };
	float *x = kc_floats(n, kc_hard), *y = kc_floats(n, kc_hard), *want = kc_floats(n, NULL);
	uint16_t *h;

	kc_round(from, x, n);
	kc_round(to, y, n);
	h = halves(from, x, n);
	for (int64_t i = 0; i < n; i++)
		want[i] = y[i] + half_round(to, x[i]);
	kc_begin_as(to, sums[from], &args, srt_dtype_name(from));
	kc_out(y, want, n);
	if (from == SRT_F32)
		kc_in(x, (size_t)n * sizeof(*x));
	else
		kc_in(h, (size_t)n * sizeof(*h));
	kc_run();
	free(x);
	free(y);
	free(want);
	free(h);
}

static void reduce_inputs(float **x, int64_t n, int nranks, int into)
{
	for (int r = 0; r < SRT_K_MAX_RANKS; r++) {
		if (r >= nranks)
			kc_absent();
		else if (r == into)
			kc_same(0);
		else
			kc_in_t(x[r], n);
	}
}

static void test_reduce_ranks(srt_dtype_t dtype, int64_t n, int nranks, float divisor,
			      float predivisor, int accumulate, int in_place)
{
	srt_k_reduce_ranks_t args = { .nelem = n,
				      .nranks = nranks,
				      .divisor = divisor,
				      .accumulate = accumulate,
				      .predivisor = predivisor };
	float *x[SRT_K_MAX_RANKS], *old = kc_floats(n, kc_hard), *want = kc_floats(n, NULL);
	float *sum = kc_floats(n, NULL);
	int into = in_place ? nranks / 2 : -1;

	kc_round(dtype, old, n);
	for (int r = 0; r < nranks; r++) {
		x[r] = kc_floats(n, kc_hard);
		kc_round(dtype, x[r], n);
		for (int64_t i = 0; i < n; i += 16) /* a sum of -0 alone is -0 */
			x[r][i] = old[i] = predivisor < 0.0f ? 0.0f : -0.0f;
	}
	for (int64_t i = 0; i < n; i++) {
		float terms[SRT_K_MAX_RANKS];
		float before = in_place ? x[into][i] : old[i];

		for (int r = 0; r < nranks; r++)
			terms[r] = x[r][i];
		for (int r = 0; r < nranks && predivisor != 0.0f; r++)
			terms[r] = half_round(dtype, terms[r] / predivisor);
		sum[i] = kc_pairwise(terms, nranks);
		want[i] = half_round(dtype, sum[i]);
		if (divisor != 0.0f && divisor != 1.0f)
			want[i] = half_round(dtype, want[i] / divisor);
		if (accumulate)
			want[i] = before + want[i];
	}
	kc_begin_as(dtype, SRT_K_REDUCE_RANKS, &args, "ranks");
	kc_out(in_place ? x[into] : accumulate ? old : NULL, want, n);
	reduce_inputs(x, n, nranks, into);
	kc_run();
	if (!in_place) { /* the same in two steps */
		kc_begin_as(dtype, SRT_K_REDUCE_PARTIAL, &args, "partial");
		kc_out_floats(NULL, sum, n);
		reduce_inputs(x, n, nranks, -1);
		kc_run();
		kc_begin_as(dtype, SRT_K_REDUCE_FINISH, &args, "finish");
		kc_out(accumulate ? old : NULL, want, n);
		kc_in(sum, (size_t)n * sizeof(float));
		kc_run();
		args.is_f32 = 1;
		kc_begin_as(dtype, SRT_K_REDUCE_FINISH, &args, "finish in floats");
		kc_out_floats(accumulate ? old : NULL, want, n);
		kc_in(sum, (size_t)n * sizeof(float));
		kc_run();
	}
	free(sum);
	for (int r = 0; r < nranks; r++)
		free(x[r]);
	free(old);
	free(want);
}

/* The published vectors of Philox 4x32-10 have keys and counters that `normal` cannot produce all
 * of; the generator is written again here and checked against them, then serves as reference. */
static void philox(uint32_t c[4], uint32_t k0, uint32_t k1)
{
	for (int round = 0; round < 10; round++) {
		uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
		uint32_t next[4] = { (uint32_t)(b >> 32) ^ c[1] ^ k0, (uint32_t)b,
				     (uint32_t)(a >> 32) ^ c[3] ^ k1, (uint32_t)a };

		memcpy(c, next, sizeof(next));
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
}

static void test_philox_vectors(void)
{
	uint32_t zero[4] = { 0, 0, 0, 0 };
	uint32_t ones[4] = { ~0u, ~0u, ~0u, ~0u };
	uint32_t pi[4] = { 0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u };

	philox(zero, 0, 0);
	CHECK(zero[0] == 0x6627e8d5u && zero[1] == 0xe169c58du && zero[2] == 0xbc57ac4cu &&
	      zero[3] == 0x9b00dbd8u);
	philox(ones, ~0u, ~0u);
	CHECK(ones[0] == 0x408f276du && ones[1] == 0x41c83b0eu && ones[2] == 0xa20bc7c6u &&
	      ones[3] == 0x6d5451fdu);
	philox(pi, 0xa4093822u, 0x299f31d0u);
	CHECK(pi[0] == 0xd16cfe09u && pi[1] == 0x94fdccebu && pi[2] == 0x5001e420u &&
	      pi[3] == 0x24126ea1u);
}

static void test_normal(srt_dtype_t dtype, int64_t first, int64_t n)
{
	srt_k_normal_t args = { .seed = 0x123456789abcdef0u,
				.name = srt_kernel_name_hash("h.0.w"),
				.first = first,
				.nelem = n,
				.mean = 0.25f,
				.std = 0.02f };
	float *want = kc_floats(n, NULL);

	for (int64_t i = 0; i < n; i++) {
		uint64_t e = (uint64_t)(first + i);
		uint32_t c[4] = { (uint32_t)(e / 4), (uint32_t)(e / 4 >> 32), (uint32_t)args.name,
				  (uint32_t)(args.name >> 32) };
		float u, v, log_u, wave;

		philox(c, (uint32_t)args.seed, (uint32_t)(args.seed >> 32));
		u = (float)((c[e / 2 % 2 * 2] >> 8) + 1) * 0x1p-24f;
		v = (float)(c[e / 2 % 2 * 2 + 1] >> 8) * 0x1p-23f;
		srt_math_eval_baseline(1, &u, &log_u, 1);
		srt_math_eval_baseline(e % 2 ? 2 : 3, &v, &wave, 1);
		want[i] = args.mean + args.std * (sqrtf(-2.0f * log_u) * wave);
	}
	kc_begin_as(dtype, SRT_K_NORMAL, &args, "normal");
	kc_out(NULL, want, n);
	kc_run();
	free(want);
}

static void test_uniform(srt_dtype_t dtype, int64_t first, int64_t n)
{
	srt_k_uniform_t args = { .seed = 0x123456789abcdef0u,
				 .name = srt_kernel_name_hash("h.0.w"),
				 .first = first,
				 .nelem = n,
				 .low = -0.3f,
				 .range = 0.7f,
				 .least = -0.25f,
				 .most = 0.375f };
	float *want = kc_floats(n, NULL);

	for (int64_t i = 0; i < n; i++) {
		uint64_t e = (uint64_t)(first + i);
		uint32_t c[4] = { (uint32_t)(e / 4), (uint32_t)(e / 4 >> 32), (uint32_t)args.name,
				  (uint32_t)(args.name >> 32) };

		philox(c, (uint32_t)args.seed, (uint32_t)(args.seed >> 32));
		want[i] = args.low + args.range * ((float)(c[e % 4] >> 8) * 0x1p-24f);
		want[i] = want[i] < args.least ? args.least : want[i];
		want[i] = want[i] > args.most ? args.most : want[i];
	}
	kc_begin_as(dtype, SRT_K_UNIFORM, &args, "uniform");
	kc_out(NULL, want, n);
	kc_run();
	free(want);
}

static void test_normal_moments(void)
{
	enum { N = 200000 };
	srt_k_normal_t args = { .seed = 7, .name = 9, .nelem = N, .std = 1.0f };
	float *y = kc_floats(N, NULL);
	unsigned char *places[1] = { (unsigned char *)y };
	double sum = 0.0, square = 0.0, pair = 0.0, fourth = 0.0;

	srt_kernel_cpu(SRT_K_NORMAL, SRT_F32,
		       SRT_ISA_BASELINE)(places, &args, 0, srt_kernel_grid(SRT_K_NORMAL, &args));
	for (int i = 0; i < N; i++) {
		double d = (double)y[i];

		sum += d;
		square += d * d;
		fourth += d * d * d * d;
		pair += i ? d * (double)y[i - 1] : 0.0;
	}
	CHECK_MSG(fabs(sum / N) < 0.01, "mean %g", sum / N);
	CHECK_MSG(fabs(square / N - 1.0) < 0.015, "variance %g", square / N);
	CHECK_MSG(fabs(fourth / N - 3.0) < 0.15, "fourth moment %g", fourth / N);
	CHECK_MSG(fabs(pair / N) < 0.01, "neighbours' correlation %g", pair / N);
	free(y);
}

int main(void)
{
	static const float divisors[] = { 0.0f, 1.0f, 3.0f };
	static const float predivisors[8] = { [0] = 1.5f, [4] = -1.5f };

	for (size_t s = 0; s < NSIZES; s++) {
		for (int op = 0; op < NOPS; op++) {
			test_elementwise(SRT_F32, sizes[s], op, 0);
			test_elementwise(SRT_F32, sizes[s], op, op != FILL);
			test_elementwise(SRT_F16, sizes[s], op, op != FILL && s % 2);
			test_elementwise(SRT_BF16, sizes[s], op, op != FILL && s % 2);
		}
		test_normal(SRT_F32, 0, sizes[s]);
		test_normal(SRT_F32, ((int64_t)1 << 34) - 5, sizes[s]);
		test_normal(SRT_F16, 0, sizes[s]);
		test_normal(SRT_BF16, 0, sizes[s]);
		test_uniform(SRT_F32, 0, sizes[s]);
		test_uniform(SRT_F32, ((int64_t)1 << 34) - 5, sizes[s]);
		test_uniform(SRT_F16, 0, sizes[s]);
		test_uniform(SRT_BF16, 0, sizes[s]);
	}
	for (int nranks = 1; nranks <= SRT_K_MAX_RANKS; nranks++)
		for (int k = 0; k < 12; k++)
			for (int d = SRT_F32; d <= SRT_BF16; d++)
				test_reduce_ranks((srt_dtype_t)d, k % 2 ? 2049 : 67, nranks,
						  divisors[k % 3], predivisors[(k + nranks) % 8],
						  k / 3 % 2, k / 6);
	test_reduce_ranks(SRT_F32, 0, 2, 0.0f, 0.0f, 0, 0);
	for (int from = SRT_F32; from <= SRT_BF16; from++)
		test_casts((srt_dtype_t)from);
	for (int from = SRT_F32; from <= SRT_BF16; from++)
		for (size_t s = 0; s < 3 * NSIZES; s++)
			test_accumulate((srt_dtype_t)from, (srt_dtype_t)(SRT_F32 + s % 3),
					sizes[s / 3]);
	test_gelu_accuracy();
	test_philox_vectors();
	test_normal_moments();
	return kc_done();
}
