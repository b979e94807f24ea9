/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sums of parts, in f32, f16 and bf16, against a plain reference: 1 to 8 parts, next to each other
 * and apart, with and without a bias, added onto the destination, in place of the first part.
 */
#include "tests/kernels/kernel_check.h"

enum { APART = 1, WITH_BIAS = 2, ONTO = 4, IN_PLACE = 8, FORMS = 16 };

static void test_sum_parts(srt_dtype_t dtype, int64_t rows, int64_t n, int nparts, int form)
{
	const int64_t nelem = rows * n, stride = nelem + (form & APART ? 5 : 0);
	const int64_t nothers = nparts > 1 ? (nparts - 2) * stride + nelem : 0;
	const srt_k_sum_parts_t args = { .rows = rows,
					 .n = n,
					 .stride = stride,
					 .nparts = nparts,
					 .accumulate = (form & ONTO) != 0 };
	float *part = kc_floats(nelem, kc_hard), *others = kc_floats(nothers, kc_hard);
	float *bias = kc_floats(n, kc_hard), *old = kc_floats(nelem, kc_hard);
	float *want = kc_floats(nelem, NULL);
	const float *before = form & IN_PLACE ? part : old;

	kc_round(dtype, bias, n);
	kc_round(dtype, old, nelem);
	for (int64_t i = 0; i < nelem; i++) {
		float x[SRT_K_MAX_PARTS] = { part[i] };

		if (i % 16 == 0) { /* a sum of -0 alone is -0 */
			x[0] = part[i] = old[i] = -0.0f;
			for (int p = 1; p < nparts; p++)
				others[(p - 1) * stride + i] = -0.0f;
		}

		for (int p = 1; p < nparts; p++)
			x[p] = others[(p - 1) * stride + i];
		want[i] = kc_pairwise(x, nparts);
		want[i] = form & WITH_BIAS ? want[i] + bias[i % n] : want[i];
		want[i] = form & ONTO ? before[i] + want[i] : want[i];
	}
	kc_begin_as(dtype, SRT_K_SUM_PARTS, &args, "sum of parts");
	kc_out(form & (ONTO | IN_PLACE) ? before : NULL, want, nelem);
	if (form & IN_PLACE)
		kc_same(0);
	else
		kc_in(part, (size_t)nelem * sizeof(*part));
	if (nparts > 1)
		kc_in(others, (size_t)nothers * sizeof(*others));
	else
		kc_absent();
	if (form & WITH_BIAS)
		kc_in_t(bias, n);
	else
		kc_absent();
	kc_run();
	free(part);
	free(others);
	free(bias);
	free(old);
	free(want);
}

int main(void)
{
	static const int64_t sizes[][2] = { { 0, 3 }, { 1, 1 }, { 3, 7 }, { 2, 131 }, { 2, 2051 } };

	for (int d = SRT_F32; d <= SRT_BF16; d++)
		for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
			for (int nparts = 1; nparts <= SRT_K_MAX_PARTS; nparts++)
				for (int form = 0; form < FORMS; form++)
					if (d == SRT_F32 || !(form & IN_PLACE))
						test_sum_parts((srt_dtype_t)d, sizes[s][0],
							       sizes[s][1], nparts, form);
	return kc_done();
}
