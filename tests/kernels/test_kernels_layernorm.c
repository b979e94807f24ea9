/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * LayerNorm, its gradients and the bias gradient, in f32, f16 and bf16, against plain references in
 * the order that docs/numerics.md fixes.
 */
#include "tests/kernels/norm_check.h"

static srt_dtype_t dtype;

/* With its rows' statistics. */
static norm_t make(int64_t rows, int64_t n, float (*source)(void))
{
	norm_t t = norm_make(dtype, rows, n, source);

	for (int64_t r = 0; r < rows; r++) {
		float *d = t.h + r * n;

		t.mean[r] = kc_row_sum(t.x + r * n, n) / (float)n;
		for (int64_t i = 0; i < n; i++)
			d[i] = t.x[r * n + i] - t.mean[r];
		t.rstd[r] = 1.0f / sqrtf(kc_row_dot(d, d, n) / (float)n + 1e-5f);
		for (int64_t i = 0; i < n; i++)
			d[i] = d[i] * t.rstd[r];
	}
	return t;
}

static void norm_forward(norm_t *t, int with_beta)
{
	srt_k_rows_t args = { .rows = t->rows, .n = t->n, .value = 1e-5f };

	for (int64_t i = 0; i < t->rows * t->n; i++)
		t->want[i] = with_beta ? fmaf(t->h[i], t->gamma[i % t->n], t->beta[i % t->n]) :
					 t->h[i] * t->gamma[i % t->n];
	kc_begin_as(dtype, SRT_K_LAYERNORM, &args, "forward");
	kc_out(NULL, t->want, t->rows * t->n);
	kc_out_floats(NULL, t->mean, t->rows);
	kc_out_floats(NULL, t->rstd, t->rows);
	kc_in_t(t->x, t->rows * t->n);
	kc_in_t(t->gamma, t->n);
	if (with_beta)
		kc_in_t(t->beta, t->n);
	else
		kc_absent();
	kc_run();
}

static void norm_backward(norm_t *t, int accumulate)
{
	srt_k_rows_t args = { .rows = t->rows, .n = t->n, .accumulate = accumulate };
	float *w = kc_floats(t->n, NULL);

	for (int64_t r = 0; r < t->rows; r++) {
		float a, b;

		for (int64_t i = 0; i < t->n; i++)
			w[i] = t->dy[r * t->n + i] * t->gamma[i];
		a = kc_row_sum(w, t->n) / (float)t->n;
		b = kc_row_dot(w, t->h + r * t->n, t->n) / (float)t->n;
		for (int64_t i = 0; i < t->n; i++) {
			int64_t at = r * t->n + i;
			float d = (w[i] - fmaf(t->h[at], b, a)) * t->rstd[r];

			t->want[at] = accumulate ? t->old[at] + d : d;
		}
	}
	kc_begin_as(dtype, SRT_K_LAYERNORM_BACKWARD, &args, "backward");
	kc_out(accumulate ? t->old : NULL, t->want, t->rows * t->n);
	kc_in_t(t->dy, t->rows * t->n);
	kc_in_t(t->x, t->rows * t->n);
	kc_in(t->mean, (size_t)t->rows * sizeof(float));
	kc_in(t->rstd, (size_t)t->rows * sizeof(float));
	kc_in_t(t->gamma, t->n);
	kc_run();
	free(w);
}

static void norm_params(norm_t *t, int accumulate, int accumulate2, int absent)
{
	srt_k_rows_t args = {
		.rows = t->rows, .n = t->n, .accumulate = accumulate, .accumulate2 = accumulate2
	};

	for (int64_t j = 0; j < t->n; j++) {
		float a = kc_column_sum(t->dy, t->h, t->rows, t->n, j);
		float b = kc_column_sum(t->dy, NULL, t->rows, t->n, j);

		t->want[j] = accumulate ? t->old[j] + a : a;
		t->want2[j] = accumulate2 ? t->old[j] + b : b;
	}
	kc_begin_as(dtype, SRT_K_LAYERNORM_BACKWARD_PARAMS, &args, "params");
	if (absent == 1)
		kc_absent();
	else
		kc_out(accumulate ? t->old : NULL, t->want, t->n);
	if (absent == 2)
		kc_absent();
	else
		kc_out(accumulate2 ? t->old : NULL, t->want2, t->n);
	kc_in_t(t->dy, t->rows * t->n);
	kc_in_t(t->x, t->rows * t->n);
	kc_in(t->mean, (size_t)t->rows * sizeof(float));
	kc_in(t->rstd, (size_t)t->rows * sizeof(float));
	kc_run();
	/* the same order without the product: the bias gradient */
	kc_begin_as(dtype, SRT_K_BIAS_BACKWARD, &args, "bias");
	for (int64_t j = 0; j < t->n; j++) {
		float b = kc_column_sum(t->dy, NULL, t->rows, t->n, j);

		t->want[j] = accumulate ? t->old[j] + b : b;
	}
	kc_out(accumulate ? t->old : NULL, t->want, t->n);
	kc_in_t(t->dy, t->rows * t->n);
	kc_run();
}

static void test_layernorm(int64_t rows, int64_t n, float (*source)(void))
{
	norm_t t = make(rows, n, source);

	norm_forward(&t, 1);
	norm_forward(&t, 0);
	norm_backward(&t, 0);
	norm_backward(&t, 1);
	norm_params(&t, 0, 0, 0);
	norm_params(&t, 1, 0, 0);
	norm_params(&t, 0, 1, 1);
	norm_params(&t, 1, 1, 2);
	norm_free(&t);
}

int main(void)
{
	static const int64_t widths[] = { 1, 2, 63, 64, 65, 127, 128, 1009 };

	for (dtype = SRT_F32; dtype <= SRT_BF16; dtype++) {
		for (size_t w = 0; w < sizeof(widths) / sizeof(widths[0]); w++) {
			int64_t n = widths[w];

			test_layernorm(n == 65 ? 900 : 3, n, kc_mild);
			test_layernorm(2, n, kc_hard);
		}
		test_layernorm(0, 65, kc_mild);
		test_layernorm(128, 3, kc_mild);
		test_layernorm(129, 3, kc_mild);
		test_layernorm(128 * 7, 3, kc_mild);
	}
	return kc_done();
}
