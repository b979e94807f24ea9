/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Activations and their gradients, and dropout, against plain references; their accuracy against
 * the definitions in double; dropout's rate.
 */
#include "tests/kernels/kernel_check.h"

void srt_math_eval_baseline(int function, const float *x, float *y, int64_t n);

static float eval(int function, float x)
{
	float y;

	srt_math_eval_baseline(function, &x, &y, 1);
	return y;
}

/* Numbers in tests/kernels/math_eval.c. */
enum { EXP = 0, TANH = 5, SIGMOID = 6, BELOW = 8, BELL = 9 };

static const int64_t sizes[] = { 0, 1, 3, 63, 65, 1009, 2049, 6151 };

#define NSIZES (sizeof(sizes) / sizeof(sizes[0]))

static const srt_kernel_id_t kernels[] = {
	SRT_K_TANH,    SRT_K_TANH_BACKWARD,    SRT_K_SIGMOID,  SRT_K_SIGMOID_BACKWARD,
	SRT_K_SILU,    SRT_K_SILU_BACKWARD,    SRT_K_GELU_ERF, SRT_K_GELU_ERF_BACKWARD,
	SRT_K_SOFTCAP, SRT_K_SOFTCAP_BACKWARD,
};
static const float cap = 0.7f; /* which divides with a rounding */

#define NKERNELS (sizeof(kernels) / sizeof(kernels[0]))

static float clamped(float x, float limit)
{
	return x > limit ? limit : x < -limit ? -limit : x;
}

/* y from x = a, or dx from dy = a and x or y = b. */
static float reference(srt_kernel_id_t kernel, float a, float b)
{
	float e, w, c;

	switch (kernel) {
	case SRT_K_TANH:
		return eval(TANH, a);
	case SRT_K_TANH_BACKWARD:
		return a * fmaf(-b, b, 1.0f);
	case SRT_K_SIGMOID:
		return eval(SIGMOID, a);
	case SRT_K_SIGMOID_BACKWARD:
		return a * (b * (1.0f - b));
	case SRT_K_SILU:
		e = eval(EXP, -fabsf(a));
		return (a < 0.0f ? a * e : a) / (1.0f + e);
	case SRT_K_SILU_BACKWARD:
		c = clamped(b, 128.0f);
		e = eval(EXP, -fabsf(c));
		w = 1.0f / (1.0f + e);
		return c < 0.0f ? a * fmaf(c * (e * w), w, e * w) : a * fmaf(c * w, e * w, w);
	case SRT_K_GELU_ERF:
		return a * eval(BELOW, a);
	case SRT_K_GELU_ERF_BACKWARD:
		c = clamped(b, 16.0f);
		return a * fmaf(c, eval(BELL, c) * 0x1.988454p-2f, eval(BELOW, c));
	case SRT_K_SOFTCAP:
		return cap * eval(TANH, a / cap);
	case SRT_K_SOFTCAP_BACKWARD:
		c = b / cap;
		return a * fmaf(-c, c, 1.0f);
	default:
		CHECK_OR_DIE(!"a kernel without a reference");
		return 0.0f;
	}
}

static void test_activation(srt_dtype_t dtype, srt_kernel_id_t kernel, int64_t n, int in_place)
{
	srt_k_elem_t args = { .nelem = n, .value = cap };
	float *a = kc_floats(n, kc_hard), *b = kc_floats(n, kc_hard), *want = kc_floats(n, NULL);

	kc_round(dtype, a, n);
	kc_round(dtype, b, n);
	for (int64_t i = 0; i < n; i++)
		want[i] = reference(kernel, a[i], b[i]);
	kc_begin_as(dtype, kernel, &args, in_place ? "in place" : "activation");
	kc_out(in_place ? a : NULL, want, n);
	if (in_place)
		kc_same(0);
	else
		kc_in_t(a, n);
	if (srt_kernel_info(kernel)->nplaces == 3)
		kc_in_t(b, n);
	kc_run();
	free(a);
	free(b);
	free(want);
}

/* ---- against the definitions -------------------------------------------------------------- */
static double silu(double x)
{
	return x / (1.0 + exp(-x));
}

static double silu_slope(double x)
{
	double s = 1.0 / (1.0 + exp(-x));

	return s * (1.0 + x / (1.0 + exp(x)));
}

static double gelu(double x)
{
	return x * 0.5 * erfc(-x * M_SQRT1_2);
}

static double gelu_slope(double x)
{
	return 0.5 * erfc(-x * M_SQRT1_2) + x * exp(-0.5 * x * x) * 0.3989422804014327;
}

/* The largest |y - f(x)| in units of relative * |f(x)| + absolute. */
static void test_accuracy(srt_kernel_id_t kernel, double (*f)(double x), double relative,
			  double absolute)
{
	const int backward = srt_kernel_info(kernel)->nplaces == 3;
	const double unit = 0x1p-23;
	double worst = 0.0, at = 0.0;

	for (float x = -110.0f; x < 20.0f; x += x < -16.0f ? 0x1p-4f : 0x1.01p-9f) {
		srt_k_elem_t args = { .nelem = 1 };
		float y, one = 1.0f;
		unsigned char *places[3] = { (unsigned char *)&y,
					     (unsigned char *)(backward ? &one : &x),
					     (unsigned char *)&x };
		double want = f((double)x), error;

		srt_kernel_cpu(kernel, SRT_F32, SRT_ISA_BASELINE)(places, &args, 0, 1);
		error = fabs((double)y - want) / (relative * unit * fabs(want) + absolute);
		if (error > worst) {
			worst = error;
			at = (double)x;
		}
	}
	printf("%s: %.2f of the bound at %g\n", srt_kernel_info(kernel)->name, worst, at);
	CHECK_MSG(worst <= 1.0 && worst > 0.0, "%s at %g is %.2f of its bound",
		  srt_kernel_info(kernel)->name, at, worst);
}

static void test_ends(void)
{
	static const float ends[] = { -INFINITY, INFINITY, NAN, 0.0f };
	static const srt_kernel_id_t slopes[] = { SRT_K_SILU_BACKWARD, SRT_K_GELU_ERF_BACKWARD };
	static const float want[] = { 0.0f, 1.0f, NAN, 0.5f };

	for (int k = 0; k < 2; k++) {
		for (int i = 0; i < 4; i++) {
			srt_k_elem_t args = { .nelem = 1 };
			float y, one = 1.0f, x = ends[i];
			unsigned char *places[3] = { (unsigned char *)&y, (unsigned char *)&one,
						     (unsigned char *)&x };

			srt_kernel_cpu(slopes[k], SRT_F32, SRT_ISA_BASELINE)(places, &args, 0, 1);
			CHECK_MSG(y == want[i] || (y != y && want[i] != want[i]), "%s at %g is %g",
				  srt_kernel_info(slopes[k])->name, (double)x, (double)y);
		}
	}
}

/* ---- dropout ------------------------------------------------------------------------------ */
static uint32_t philox_word(uint64_t seed, uint64_t name, uint64_t e)
{
	uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
	uint32_t c[4] = { (uint32_t)(e >> 2), (uint32_t)(e >> 34), (uint32_t)name,
			  (uint32_t)(name >> 32) };

	for (int round = 0; round < 10; round++) {
		uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];

		c[0] = (uint32_t)(b >> 32) ^ c[1] ^ k0;
		c[1] = (uint32_t)b;
		c[2] = (uint32_t)(a >> 32) ^ c[3] ^ k1;
		c[3] = (uint32_t)a;
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	return c[e % 4];
}

static void test_dropout(srt_dtype_t dtype, int64_t first, int64_t n, float rate, int in_place)
{
	srt_k_dropout_t args = { .seed = 0x123456789abcdef0u,
				 .name = srt_kernel_name_hash("h.0.drop"),
				 .first = first,
				 .nelem = n,
				 .rate = rate,
				 .scale = rate < 1.0f ? 1.0f / (1.0f - rate) : 0.0f };
	float *x = kc_floats(n, kc_hard), *want = kc_floats(n, NULL);
	int64_t kept = 0;

	kc_round(dtype, x, n);
	for (int64_t i = 0; i < n; i++) {
		uint32_t w = philox_word(args.seed, args.name, (uint64_t)(first + i));
		int keep = (float)(w >> 8) * 0x1p-24f >= rate;

		want[i] = keep ? x[i] * args.scale : 0.0f;
		kept += keep;
	}
	if (n > 1000)
		CHECK_MSG(fabs((double)kept / (double)n - (1.0 - (double)rate)) < 0.03,
			  "rate %g keeps %lld of %lld", (double)rate, (long long)kept,
			  (long long)n);
	if (rate == 0.0f)
		CHECK(kept == n && args.scale == 1.0f);
	if (rate == 1.0f)
		CHECK_INT(kept, 0);
	kc_begin_as(dtype, SRT_K_DROPOUT, &args, "dropout");
	kc_out(in_place ? x : NULL, want, n);
	if (in_place)
		kc_same(0);
	else
		kc_in_t(x, n);
	kc_run();
	free(x);
	free(want);
}

int main(void)
{
	static const float rates[] = { 0.0f, 0.1f, 0.5f, 1.0f };

	for (size_t s = 0; s < NSIZES; s++) {
		for (size_t k = 0; k < NKERNELS; k++)
			for (int d = SRT_F32; d <= SRT_BF16; d++)
				test_activation((srt_dtype_t)d, kernels[k], sizes[s],
						(int)(s + k) % 2);
		for (int r = 0; r < 4; r++) {
			test_dropout(SRT_F32, 0, sizes[s], rates[r], 0);
			test_dropout(SRT_F32, ((int64_t)1 << 34) - 5, sizes[s], rates[r], 1);
		}
		test_dropout(SRT_F16, 7, sizes[s], 0.25f, 0);
		test_dropout(SRT_BF16, 7, sizes[s], 0.25f, 1);
	}
	test_accuracy(SRT_K_SILU, silu, 4.0, 0x1p-142);
	test_accuracy(SRT_K_SILU_BACKWARD, silu_slope, 4.0, 0x1p-22);
	test_accuracy(SRT_K_GELU_ERF, gelu, 8.0, 0x1p-144);
	test_accuracy(SRT_K_GELU_ERF_BACKWARD, gelu_slope, 8.0, 0x1p-22);
	test_ends();
	return kc_done();
}
