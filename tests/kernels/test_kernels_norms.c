/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RMSNorm and BatchNorm, forward and backward, against plain references in the order that
 * docs/numerics.md fixes, in every dtype. (LayerNorm: test_kernels_layernorm.)
 */
#include "tests/kernels/norm_check.h"

static void kc_in_floats(const float *x, int64_t n)
{
	kc_in(x, (size_t)n * sizeof(float));
}

/* ---- RMSNorm ------------------------------------------------------------------------------ */
static float rms_weight(const norm_t *t, int64_t i, int one_plus)
{
	return one_plus ? 1.0f + t->gamma[i] : t->gamma[i];
}

static void rms_forward(norm_t *t, int one_plus)
{
	srt_k_rows_t args = { .rows = t->rows, .n = t->n, .value = 1e-5f, .one_plus = one_plus };

	for (int64_t r = 0; r < t->rows; r++) {
		const float *x = t->x + r * t->n;

		t->rstd[r] = 1.0f / sqrtf(kc_row_dot(x, x, t->n) / (float)t->n + 1e-5f);
		for (int64_t i = 0; i < t->n; i++) {
			t->h[r * t->n + i] = x[i] * t->rstd[r];
			t->want[r * t->n + i] = t->h[r * t->n + i] * rms_weight(t, i, one_plus);
		}
	}
	kc_begin_as(t->dtype, SRT_K_RMSNORM, &args, "forward");
	kc_out(NULL, t->want, t->rows * t->n);
	kc_out_floats(NULL, t->rstd, t->rows);
	kc_in_t(t->x, t->rows * t->n);
	kc_in_t(t->gamma, t->n);
	kc_run();
}

static void rms_backward(norm_t *t, int accumulate, int one_plus)
{
	srt_k_rows_t args = {
		.rows = t->rows, .n = t->n, .accumulate = accumulate, .one_plus = one_plus
	};
	float *w = kc_floats(t->n, NULL);

	for (int64_t r = 0; r < t->rows; r++) {
		float b;

		for (int64_t i = 0; i < t->n; i++)
			w[i] = t->dy[r * t->n + i] * rms_weight(t, i, one_plus);
		b = kc_row_dot(w, t->h + r * t->n, t->n) / (float)t->n;
		for (int64_t i = 0; i < t->n; i++) {
			int64_t at = r * t->n + i;
			float d = fmaf(-t->h[at], b, w[i]) * t->rstd[r];

			t->want[at] = accumulate ? t->old[at] + d : d;
		}
	}
	kc_begin_as(t->dtype, SRT_K_RMSNORM_BACKWARD, &args, "backward");
	kc_out(accumulate ? t->old : NULL, t->want, t->rows * t->n);
	kc_in_t(t->dy, t->rows * t->n);
	kc_in_t(t->x, t->rows * t->n);
	kc_in_floats(t->rstd, t->rows);
	kc_in_t(t->gamma, t->n);
	kc_run();
	free(w);
}

static void rms_params(norm_t *t, int accumulate)
{
	srt_k_rows_t args = { .rows = t->rows, .n = t->n, .accumulate = accumulate };

	for (int64_t j = 0; j < t->n; j++) {
		float a = kc_column_sum(t->dy, t->h, t->rows, t->n, j);

		t->want[j] = accumulate ? t->old[j] + a : a;
	}
	kc_begin_as(t->dtype, SRT_K_RMSNORM_BACKWARD_PARAMS, &args, "params");
	kc_out(accumulate ? t->old : NULL, t->want, t->n);
	kc_in_t(t->dy, t->rows * t->n);
	kc_in_t(t->x, t->rows * t->n);
	kc_in_floats(t->rstd, t->rows);
	kc_run();
}

static void test_rmsnorm(srt_dtype_t dtype, int64_t rows, int64_t n, float (*source)(void))
{
	norm_t t = norm_make(dtype, rows, n, source);

	if (n > 1)
		t.gamma[1] = -0.0f; /* stays, unless 1 is added */
	for (int one_plus = 1; one_plus >= 0; one_plus--)
		rms_forward(&t, one_plus);
	for (int accumulate = 0; accumulate < 2; accumulate++) {
		rms_backward(&t, accumulate, 0);
		rms_backward(&t, accumulate, 1);
		rms_params(&t, accumulate);
	}
	norm_free(&t);
}

/* ---- BatchNorm ---------------------------------------------------------------------------- */
/* t->old: the running statistics before; t->want: after. */
static void batch_stats(norm_t *t, int with_running)
{
	srt_k_batchnorm_t args = { .rows = t->rows, .n = t->n, .eps = 1e-5f, .momentum = 0.1f };
	float *running = kc_floats(4 * t->n, kc_mild), *after = running + 2 * t->n;

	for (int64_t j = 0; j < t->n; j++) {
		float squares;

		t->mean[j] = kc_column_sum(t->x, NULL, t->rows, t->n, j) / (float)t->rows;
		for (int64_t r = 0; r < t->rows; r++)
			t->h[r * t->n + j] = t->x[r * t->n + j] - t->mean[j];
		squares = kc_column_sum(t->h, t->h, t->rows, t->n, j);
		t->rstd[j] = 1.0f / sqrtf(squares / (float)t->rows + 1e-5f);
		for (int64_t r = 0; r < t->rows; r++)
			t->h[r * t->n + j] = t->h[r * t->n + j] * t->rstd[j];
		after[j] = fmaf(0.1f, t->mean[j], (1.0f - 0.1f) * running[j]);
		after[t->n + j] = fmaf(0.1f, squares / (float)(t->rows - 1),
				       (1.0f - 0.1f) * running[t->n + j]);
	}
	kc_begin_as(t->dtype, SRT_K_BATCHNORM_STATS, &args, "statistics");
	kc_out_floats(NULL, t->mean, t->n);
	kc_out_floats(NULL, t->rstd, t->n);
	if (with_running) {
		kc_out_floats(running, after, t->n);
		kc_out_floats(running + t->n, after + t->n, t->n);
	} else {
		kc_absent();
		kc_absent();
	}
	kc_in_t(t->x, t->rows * t->n);
	kc_run();
	free(running);
}

static void batch_forward(norm_t *t, int with_beta)
{
	srt_k_rows_t args = { .rows = t->rows, .n = t->n };

	for (int64_t i = 0; i < t->rows * t->n; i++)
		t->want[i] = with_beta ? fmaf(t->h[i], t->gamma[i % t->n], t->beta[i % t->n]) :
					 t->h[i] * t->gamma[i % t->n];
	kc_begin_as(t->dtype, SRT_K_BATCHNORM, &args, "forward");
	kc_out(NULL, t->want, t->rows * t->n);
	kc_in_t(t->x, t->rows * t->n);
	kc_in_floats(t->mean, t->n);
	kc_in_floats(t->rstd, t->n);
	kc_in_t(t->gamma, t->n);
	if (with_beta)
		kc_in_t(t->beta, t->n);
	else
		kc_absent();
	kc_run();
}

/* averages (2,n) = of dy and of dy h */
static void batch_params(norm_t *t, float *averages, int form)
{
	srt_k_rows_t args = { .rows = t->rows, .n = t->n, .accumulate = form == 1 };
	float *dbeta = kc_floats(t->n, NULL);

	for (int64_t j = 0; j < t->n; j++) {
		float a = kc_column_sum(t->dy, t->h, t->rows, t->n, j);
		float b = kc_column_sum(t->dy, NULL, t->rows, t->n, j);

		t->want[j] = form == 1 ? t->old[j] + a : a;
		dbeta[j] = b;
		averages[j] = b / (float)t->rows;
		averages[t->n + j] = a / (float)t->rows;
	}
	kc_begin_as(t->dtype, SRT_K_BATCHNORM_BACKWARD_PARAMS, &args, "params");
	kc_out(form == 1 ? t->old : NULL, t->want, t->n);
	kc_out(NULL, dbeta, t->n);
	if (form == 2)
		kc_absent();
	else
		kc_out_floats(NULL, averages, 2 * t->n);
	kc_in_t(t->dy, t->rows * t->n);
	kc_in_t(t->x, t->rows * t->n);
	kc_in_floats(t->mean, t->n);
	kc_in_floats(t->rstd, t->n);
	kc_run();
	free(dbeta);
}

static void batch_backward(norm_t *t, const float *averages, int in_place)
{
	srt_k_rows_t args = { .rows = t->rows, .n = t->n };

	for (int64_t i = 0; i < t->rows * t->n; i++) {
		int64_t j = i % t->n;
		float scale = t->gamma[j] * t->rstd[j];

		t->want[i] = averages != NULL ?
				     (t->dy[i] - fmaf(t->h[i], averages[t->n + j], averages[j])) *
					     scale :
				     t->dy[i] * scale;
	}
	kc_begin_as(t->dtype, SRT_K_BATCHNORM_BACKWARD, &args, "backward");
	kc_out(in_place ? t->dy : NULL, t->want, t->rows * t->n);
	if (in_place)
		kc_same(0);
	else
		kc_in_t(t->dy, t->rows * t->n);
	kc_in_t(t->x, t->rows * t->n);
	kc_in_floats(t->mean, t->n);
	kc_in_floats(t->rstd, t->n);
	kc_in_t(t->gamma, t->n);
	if (averages != NULL)
		kc_in_floats(averages, 2 * t->n);
	else
		kc_absent();
	kc_run();
}

static void batch_rstd(const norm_t *t)
{
	srt_k_elem_t args = { .nelem = t->n, .value = 1e-5f };

	for (int64_t j = 0; j < t->n; j++)
		t->want[j] = 1.0f / sqrtf(t->h[j] + 1e-5f);
	kc_begin(SRT_K_BATCHNORM_RSTD, &args, "evaluation");
	kc_out_floats(NULL, t->want, t->n);
	kc_in_floats(t->h, t->n);
	kc_run();
}

static void test_batchnorm(srt_dtype_t dtype, int64_t rows, int64_t n, float (*source)(void))
{
	norm_t t = norm_make(dtype, rows, n, source);
	float *averages = kc_floats(2 * n, NULL);

	batch_stats(&t, 0);
	batch_stats(&t, 1);
	batch_forward(&t, 0);
	batch_forward(&t, 1);
	for (int form = 0; form < 3; form++)
		batch_params(&t, averages, form);
	batch_backward(&t, averages, 0);
	batch_backward(&t, averages, 1);
	batch_backward(&t, NULL, 0);
	if (dtype == SRT_F32)
		batch_rstd(&t);
	free(averages);
	norm_free(&t);
}

int main(void)
{
	for (int d = SRT_F32; d <= SRT_BF16; d++) {
		srt_dtype_t dtype = (srt_dtype_t)d;

		test_rmsnorm(dtype, 1, 1, kc_mild);
		test_rmsnorm(dtype, 3, 131, kc_mild);
		test_rmsnorm(dtype, 300, 70, kc_mild);
		test_rmsnorm(dtype, 5, 1009, kc_hard);
		test_batchnorm(dtype, 2, 1, kc_mild);
		test_batchnorm(dtype, 3, 131, kc_mild);
		test_batchnorm(dtype, 400, 70, kc_mild);
		test_batchnorm(dtype, 129, 65, kc_hard);
	}
	return kc_done();
}
