/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sums that must not depend on order: any split and any order gives the same bits, the value
 * agrees with a long double sum, and what is not finite decides. On a device of another backend its
 * sums of the whole are compared with the CPU's of the parts.
 */
#include "tests/kernels/kernel_check.h"

static srt_cpu_isa_t best_isa(void)
{
	srt_cpu_isa_t best = SRT_ISA_BASELINE;

	for (int isa = 0; isa < SRT_ISA_COUNT; isa++)
		if (srt_cpu_isa_usable((srt_cpu_isa_t)isa))
			best = (srt_cpu_isa_t)isa;
	return best;
}

static void run_device(srt_kernel_id_t kernel, const srt_k_bins_t *args, void *const places[3])
{
	const size_t x_nbytes = (size_t)args->nelem * sizeof(float);
	const size_t nbytes[3] = {
		kernel == SRT_K_BIN_SUM ? 2 * sizeof(double) : sizeof(float),
		kernel == SRT_K_ABSMAX    ? x_nbytes :
		kernel == SRT_K_BIN_TOTAL ? (size_t)args->nelem * 2 * sizeof(double) :
					    sizeof(float),
		kernel == SRT_K_BIN_SUM ? x_nbytes : sizeof(float),
	};
	const int n = srt_kernel_info(kernel)->nplaces;
	srt_buffer_t *buffers[3] = { NULL };
	srt_view_t views[3];

	kc_open();
	for (int i = 0; i < n; i++) {
		buffers[i] = test_buffer(kc_device, nbytes[i], "place");
		test_put(kc_stream, buffers[i], 0, places[i], nbytes[i]);
		views[i] = srt_view(buffers[i], 0, SRT_U8);
	}
	CHECK_OK(srt_launch(kc_stream, kernel, SRT_F32, srt_kernel_grid(kernel, args), args,
			    sizeof(*args), views, n));
	test_get(kc_stream, places[0], buffers[0], 0, nbytes[0]);
	for (int i = 0; i < n; i++)
		srt_buffer_destroy(buffers[i]);
}

/* isa: the best one means the device under test. */
static void run(srt_cpu_isa_t isa, srt_kernel_id_t kernel, const void *args, void *p0,
		const void *p1, const void *p2)
{
	unsigned char *places[3] = { p0, (unsigned char *)(uintptr_t)p1,
				     (unsigned char *)(uintptr_t)p2 };

	if (!test_is_cpu() && isa == best_isa()) {
		run_device(kernel, args, (void *const *)places);
		return;
	}
	srt_kernel_cpu(kernel, SRT_F32, isa)(places, args, 0, srt_kernel_grid(kernel, args));
}

/* The sum of x by cutting it into nparts, taken from the last to the first, in nbins pairs of
 * bins. */
static float split_sum(const float *x, int64_t n, int nparts, int power, int flag, int root,
		       srt_cpu_isa_t isa)
{
	double bins[16] = { 0 };
	float max = 0.0f, out;
	srt_k_bins_t total = { .nelem = nparts, .power = power, .flag = root };

	for (int pass = 0; pass < 2; pass++) {
		for (int k = nparts; k-- > 0;) {
			int64_t from = n * k / nparts, to = n * (k + 1) / nparts;
			srt_k_bins_t args = {
				.nelem = to - from, .total_nelem = n, .power = power, .flag = flag
			};

			if (pass == 0)
				run(isa, SRT_K_ABSMAX, &args, &max, x + from, NULL);
			else
				run(isa, SRT_K_BIN_SUM, &args, bins + 2 * k, &max, x + from);
		}
	}
	run(isa, SRT_K_BIN_TOTAL, &total, &out, bins, &max);
	return out;
}

static double exact_sum(const float *x, int64_t n, int power, int flag, int root)
{
	long double sum = 0.0L;

	for (int64_t i = 0; i < n; i++) {
		long double v = flag ? (long double)x[i] : fabsl((long double)x[i]);

		sum += power == 1 ? v : power == 2 ? v * v : v * v * v;
	}
	if (!root)
		return (double)sum;
	return (double)(power == 1 ? sum : power == 2 ? sqrtl(sum) : cbrtl(sum));
}

static void test_split(float (*source)(void), int64_t n, float scale)
{
	float *x = kc_floats(n, source);

	for (int64_t i = 0; i < n; i++)
		x[i] *= scale;
	for (int power = 1; power <= 3; power++) {
		for (int flag = 0; flag <= (power == 1); flag++) {
			for (int root = 0; root <= !flag; root++) {
				float whole = split_sum(x, n, 1, power, flag, root, best_isa());
				double exact = exact_sum(x, n, power, flag, root);
				double size = exact_sum(x, n, power, 0, root);

				if (fabs(exact) < 0x1p127 && fabs(exact) > 0x1p-126)
					CHECK_MSG(fabs((double)whole - exact) <=
							  fabs(exact) * 0x1.01p-24 + size * 1e-12,
						  "power %d signed %d root %d n %lld: %.9g, exact "
						  "%.9g",
						  power, flag, root, (long long)n, (double)whole,
						  exact);
				for (int nparts = 2; nparts <= 8; nparts++) {
					float parts = split_sum(x, n, nparts, power, flag, root,
								SRT_ISA_BASELINE);

					CHECK_BITS(&whole, &parts, 1);
				}
			}
		}
	}
	free(x);
}

/* Sizes over 2^40: low bits that only the second bin can hold, and some that neither may. */
static float wide(void)
{
	float v = kc_mild();

	return ldexpf(v, -(int)(random32() % 40));
}

/* Bins themselves, not only their sum, in one pair of bins and any order of elements. */
static void test_order(int64_t n, int power)
{
	float *x = kc_floats(n, wide);
	float max = 0.0f;
	double first[2] = { 0 };
	srt_k_bins_t args = { .nelem = n, .total_nelem = n, .power = power };

	for (int64_t i = 0; i < n; i++)
		max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
	for (int trial = 0; trial < 6; trial++) {
		double bins[2] = { 0 };

		run(best_isa(), SRT_K_BIN_SUM, &args, bins, &max, x);
		if (trial == 0)
			memcpy(first, bins, sizeof(bins));
		CHECK(!memcmp(first, bins, sizeof(bins)));
		for (int64_t i = n - 1; i > 0; i--) {
			int64_t j = (int64_t)(random32() % (uint64_t)(i + 1));
			float t = x[i];

			x[i] = x[j];
			x[j] = t;
		}
	}
	free(x);
}

static void test_not_finite(void)
{
	float x[100], y;
	static const float bad[] = { INFINITY, -INFINITY, NAN };

	for (int k = 0; k < 3; k++) {
		for (int i = 0; i < 100; i++)
			x[i] = kc_mild();
		x[77] = bad[k];
		y = split_sum(x, 100, 3, 2, 0, 1, SRT_ISA_BASELINE);
		CHECK(k == 2 ? isnan(y) : y == INFINITY);
	}
	x[78] = INFINITY; /* NaN over inf, whichever comes first */
	y = split_sum(x, 100, 3, 2, 0, 1, best_isa());
	CHECK(isnan(y));
	memset(x, 0, sizeof(x));
	y = split_sum(x, 100, 2, 3, 0, 1, best_isa());
	CHECK(y == 0.0f && !signbit(y));
	y = split_sum(x, 0, 1, 2, 0, 1, best_isa());
	CHECK(y == 0.0f);
}

static void test_absmax(srt_dtype_t dtype, int64_t n)
{
	float *x = kc_floats(n, kc_mild);
	float old = 0.5f, want = old;
	srt_k_bins_t args = { .nelem = n };

	kc_round(dtype, x, n);
	for (int64_t i = 0; i < n; i++)
		want = fabsf(x[i]) > want ? fabsf(x[i]) : want;
	kc_begin_as(dtype, SRT_K_ABSMAX, &args, "absmax");
	kc_out_floats(&old, &want, 1);
	kc_in_t(x, n);
	kc_run();
	free(x);
}

/* 16 bits are widened first: the bins are those of the same values as floats. */
static void test_widened(srt_dtype_t dtype, int64_t n)
{
	float *x = kc_floats(n, wide), max = 0.0f;

	kc_round(dtype, x, n);
	for (int64_t i = 0; i < n; i++)
		max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
	for (int power = 1; power <= 3; power++) {
		for (int is_signed = 0; is_signed <= (power == 1); is_signed++) {
			srt_k_bins_t args = {
				.nelem = n, .total_nelem = n, .power = power, .flag = is_signed
			};
			double none[2] = { 0 }, want[2] = { 0 };
			unsigned char *places[3] = { (void *)want, (void *)&max, (void *)x };

			srt_kernel_cpu(SRT_K_BIN_SUM, SRT_F32,
				       SRT_ISA_BASELINE)(places, &args, 0,
							 srt_kernel_grid(SRT_K_BIN_SUM, &args));
			CHECK((want[0] != 0.0) == (max != 0.0f)); /* a single one may round to 0 */
			kc_begin_as(dtype, SRT_K_BIN_SUM, &args, "widened");
			kc_out_bytes(none, want, sizeof(want));
			kc_in(&max, sizeof(max));
			kc_in_t(x, n);
			kc_run();
		}
	}
	free(x);
}

int main(void)
{
	static const int64_t sizes[] = { 1, 63, 64, 65, 1009, 16384, 16385, 70001 };

	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		for (srt_dtype_t dtype = SRT_F32; dtype <= SRT_BF16; dtype++)
			test_absmax(dtype, sizes[s]);
		test_widened(SRT_F16, sizes[s]);
		test_widened(SRT_BF16, sizes[s]);
		test_split(kc_mild, sizes[s], 1.0f);
		for (int power = 1; power <= 3; power++)
			test_order(sizes[s], power);
		test_split(wide, sizes[s], 1.0f);
	}
	test_absmax(SRT_F32, 0);
	test_split(kc_mild, 1009, 0x1p-130f); /* subnormal */
	test_split(kc_mild, 1009, 0x1p125f);
	test_not_finite();
	return kc_done();
}
