/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The definition of the matrix product against a plain reference, element by element. C of floats
 * has what comes of operands that were widened.
 */
#include "tests/kernels/kernel_check.h"

static srt_dtype_t dtype = SRT_F32; /* of the tensors of all cases */

/* sum of x[k * sx] * y[k * sy]: chains that restart at multiples of 512 */
static float chain(const float *x, int64_t sx, const float *y, int64_t sy, int64_t n)
{
	float sum = 0.0f;

	for (int64_t k0 = 0; k0 < n; k0 += 512) {
		float block = 0.0f;

		for (int64_t k = k0; k < n && k < k0 + 512; k++)
			block = fmaf(x[k * sx], y[k * sy], block);
		sum = k0 ? sum + block : block;
	}
	return sum;
}

static void test_matmul(int64_t m, int64_t n, int64_t k, int64_t batch, int form,
			float (*source)(void))
{
	int ta = form & 1, tb = form >> 1 & 1, with_bias = form >> 2 & 1,
	    accumulate = form >> 3 & 1, c_is_f32 = dtype != SRT_F32 && form >> 5 & 1;
	const srt_dtype_t c_dtype = c_is_f32 ? SRT_F32 : dtype;
	srt_k_matmul_t a = { .m = m,
			     .n = n,
			     .k = k,
			     .batch = batch,
			     .trans_a = ta,
			     .trans_b = tb,
			     .alpha = form & 16 ? 0.3f : 1.0f,
			     .accumulate = accumulate,
			     .c_is_f32 = c_is_f32 };
	float *x, *y, *bias, *old, *want;

	a.lda = (ta ? m : k) + 2;
	a.ldb = (tb ? k : n) + 1;
	a.ldc = n + 3;
	a.stride_a = a.lda * (ta ? k : m) + 5;
	a.stride_b = a.ldb * (tb ? n : k);
	a.stride_c = a.ldc * m + 1;
	x = kc_floats(a.stride_a * batch, source);
	y = kc_floats(a.stride_b * batch, source);
	bias = kc_floats(n, kc_mild);
	old = kc_floats(a.stride_c * batch, kc_mild);
	want = kc_floats(a.stride_c * batch, NULL);
	kc_round(dtype, x, a.stride_a * batch);
	kc_round(dtype, y, a.stride_b * batch);
	kc_round(dtype, bias, n);
	kc_round(c_dtype, old, a.stride_c * batch);
	memcpy(want, old, (size_t)(a.stride_c * batch) * sizeof(float));
	for (int64_t b = 0; b < batch; b++) {
		for (int64_t i = 0; i < m; i++) {
			for (int64_t j = 0; j < n; j++) {
				float *c = &want[b * a.stride_c + i * a.ldc + j];
				float v = chain(x + b * a.stride_a + (ta ? i : i * a.lda),
						ta ? a.lda : 1,
						y + b * a.stride_b + (tb ? j * a.ldb : j),
						tb ? 1 : a.ldb, k);

				v = a.alpha == 1.0f ? v : v * a.alpha;
				v = with_bias ? v + bias[j] : v;
				*c = accumulate ? *c + v : v;
			}
		}
	}
	kc_begin_as(dtype, SRT_K_MATMUL, &a, "product");
	if (c_is_f32)
		kc_out_floats(old, want, a.stride_c * batch);
	else
		kc_out(old, want, a.stride_c * batch);
	kc_in_t(x, a.stride_a * batch);
	kc_in_t(y, a.stride_b * batch);
	if (with_bias)
		kc_in_t(bias, n);
	else
		kc_absent();
	kc_run();
	free(x);
	free(y);
	free(bias);
	free(old);
	free(want);
}

int main(void)
{
	for (int form = 0; form < 32; form++) {
		test_matmul(3, 65, 7, 1, form, kc_mild);
		test_matmul(2, 5, 513, 2, form, kc_hard);
	}
	test_matmul(1, 1, 1, 1, 0, kc_hard);
	test_matmul(2, 67, 1031, 1, 4, kc_mild);
	test_matmul(3, 3, 512, 1, 12, kc_mild);
	test_matmul(2, 3, 0, 1, 4, kc_mild);
	test_matmul(0, 3, 4, 1, 0, kc_mild);
	test_matmul(3, 0, 4, 1, 0, kc_mild);
	for (dtype = SRT_F16; dtype <= SRT_BF16; dtype++) {
		for (int form = 0; form < 64; form++)
			test_matmul(2, 67, 5 + 509 * (form % 3 == 0), 2, form,
				    form % 2 ? kc_hard : kc_mild);
		test_matmul(2, 3, 0, 1, 12, kc_mild);
		test_matmul(2, 3, 0, 1, 12 | 32, kc_mild);
	}
	return kc_done();
}
