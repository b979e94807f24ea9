/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels on rows and over rows: softmax, cross-entropy, squared error, LayerNorm, bias and
 * embedding gradients, against plain references in the order that docs/numerics.md fixes.
 */
#include "tests/kernel_check.h"

static srt_dtype_t dtype = SRT_F32; /* of the rows of softmax and cross-entropy */

void srt_math_eval_baseline(int function, const float *x, float *y, int64_t n);

static float my_exp(float x)
{
	float y;

	srt_math_eval_baseline(0, &x, &y, 1);
	return y;
}

static float my_log(float x)
{
	float y;

	srt_math_eval_baseline(1, &x, &y, 1);
	return y;
}

/* ---- rows ----------------------------------------------------------------------------- */
/* e[i] = exp(x[i] - max); returns their sum, and the maximum. */
static float exps(const float *x, int64_t n, float *e, float *max)
{
	*max = kc_row_max(x, n);
	for (int64_t i = 0; i < n; i++)
		e[i] = my_exp(x[i] - *max);
	return kc_row_sum(e, n);
}

static void test_softmax(int64_t rows, int64_t n, float (*source)(void), int in_place)
{
	srt_k_rows_t args = { .rows = rows, .n = n };
	float *x = kc_floats(rows * n, source), *want = kc_floats(rows * n, NULL), max;

	kc_round(dtype, x, rows * n);
	for (int64_t r = 0; r < rows; r++) {
		float inv = 1.0f / exps(x + r * n, n, want + r * n, &max);

		for (int64_t i = 0; i < n; i++)
			want[r * n + i] *= inv;
	}
	kc_begin_as(dtype, SRT_K_SOFTMAX, &args, "softmax");
	kc_out(in_place ? x : NULL, want, rows * n);
	if (in_place)
		kc_same(0);
	else
		kc_in_t(x, rows * n);
	kc_run();
	free(x);
	free(want);
}

static void test_softmax_backward(int64_t rows, int64_t n, float (*source)(void), int in_place)
{
	srt_k_rows_t args = { .rows = rows, .n = n };
	float *dy = kc_floats(rows * n, source), *y = kc_floats(rows * n, source);
	float *want = kc_floats(rows * n, NULL);

	for (int log_form = 0; log_form < 2; log_form++) {
		for (int64_t r = 0; r < rows; r++) {
			const float *g = dy + r * n, *v = y + r * n;
			float sum = log_form ? kc_row_sum(g, n) : kc_row_dot(g, v, n);

			for (int64_t i = 0; i < n; i++)
				want[r * n + i] = log_form ? fmaf(-my_exp(v[i]), sum, g[i]) :
							     (g[i] - sum) * v[i];
		}
		kc_begin(log_form ? SRT_K_LOG_SOFTMAX_BACKWARD : SRT_K_SOFTMAX_BACKWARD, &args,
			 "softmax gradient");
		kc_out(in_place ? dy : NULL, want, rows * n);
		if (in_place)
			kc_same(0);
		else
			kc_in(dy, (size_t)(rows * n) * sizeof(float));
		kc_in(y, (size_t)(rows * n) * sizeof(float));
		kc_run();
	}
	free(dy);
	free(y);
	free(want);
}

static void test_log_softmax(int64_t rows, int64_t n, float (*source)(void), int in_place)
{
	srt_k_rows_t args = { .rows = rows, .n = n };
	float *x = kc_floats(rows * n, source), *want = kc_floats(rows * n, NULL), max;

	for (int64_t r = 0; r < rows; r++) {
		float log_sum = my_log(exps(x + r * n, n, want + r * n, &max));

		for (int64_t i = 0; i < n; i++)
			want[r * n + i] = (x[r * n + i] - max) - log_sum;
	}
	kc_begin(SRT_K_LOG_SOFTMAX, &args, "log softmax");
	kc_out(in_place ? x : NULL, want, rows * n);
	if (in_place)
		kc_same(0);
	else
		kc_in(x, (size_t)(rows * n) * sizeof(float));
	kc_run();
	free(x);
	free(want);
}

static void test_cross_entropy(int64_t rows, int64_t n, float (*source)(void), int form)
{
	srt_k_rows_t args = { .rows = rows, .n = n, .value = 0.125f };
	float *x = kc_floats(rows * n, source), *dx = kc_floats(rows * n, NULL);
	float *loss = kc_floats(rows, NULL);
	int32_t *targets = malloc(((size_t)rows + 1) * sizeof(*targets));

	CHECK_OR_DIE(targets != NULL);
	kc_round(dtype, x, rows * n);
	for (int64_t r = 0; r < rows; r++) {
		float max, sum, *row = dx + r * n;
		int64_t t = r == 1 ? -1 : r == 2 ? n : (int64_t)(kc_random() % (uint32_t)n);
		int valid = t >= 0 && t < n;

		targets[r] = (int32_t)t;
		sum = exps(x + r * n, n, row, &max);
		loss[r] = valid ? my_log(sum) - (x[r * n + t] - max) : NAN;
		for (int64_t i = 0; i < n; i++)
			row[i] = valid ? (row[i] * (1.0f / sum) - (i == t ? 1.0f : 0.0f)) * 0.125f :
					 NAN;
	}
	kc_begin_as(dtype, SRT_K_CROSS_ENTROPY, &args, form == 0 ? "loss only" : "with gradient");
	kc_out_floats(NULL, loss, rows);
	if (form == 0)
		kc_absent();
	else
		kc_out(form == 2 ? x : NULL, dx, rows * n);
	if (form == 2)
		kc_same(1);
	else
		kc_in_t(x, rows * n);
	kc_in(targets, (size_t)rows * sizeof(*targets));
	kc_run();
	free(x);
	free(dx);
	free(loss);
	free(targets);
}

static void test_mse(int64_t rows, int64_t n, int with_dx)
{
	srt_k_rows_t args = { .rows = rows, .n = n, .value = 0.3f };
	float *x = kc_floats(rows * n, kc_mild), *t = kc_floats(rows * n, kc_mild);
	float *d = kc_floats(rows * n, NULL), *dx = kc_floats(rows * n, NULL);
	float *loss = kc_floats(rows, NULL);

	for (int64_t i = 0; i < rows * n; i++) {
		d[i] = x[i] - t[i];
		dx[i] = 2.0f * d[i] * 0.3f;
	}
	for (int64_t r = 0; r < rows; r++)
		loss[r] = kc_row_dot(d + r * n, d + r * n, n);
	kc_begin(SRT_K_MSE, &args, "mse");
	kc_out(NULL, loss, rows);
	if (with_dx)
		kc_out(NULL, dx, rows * n);
	else
		kc_absent();
	kc_in(x, (size_t)(rows * n) * sizeof(float));
	kc_in(t, (size_t)(rows * n) * sizeof(float));
	kc_run();
	free(x);
	free(t);
	free(d);
	free(dx);
	free(loss);
}

/* ---- LayerNorm ------------------------------------------------------------------------ */
typedef struct norm {
	int64_t rows, n;
	float *x, *dy, *gamma, *beta, *mean, *rstd, *h, *old, *want, *want2;
} norm_t;

static norm_t norm_make(int64_t rows, int64_t n, float (*source)(void))
{
	norm_t t = { .rows = rows, .n = n };

	t.x = kc_floats(rows * n, source);
	t.dy = kc_floats(rows * n, source);
	t.gamma = kc_floats(n, kc_mild);
	t.beta = kc_floats(n, kc_mild);
	t.mean = kc_floats(rows, NULL);
	t.rstd = kc_floats(rows, NULL);
	t.h = kc_floats(rows * n, NULL);
	t.old = kc_floats(rows * n + n, kc_mild);
	t.want = kc_floats(rows * n + n, NULL);
	t.want2 = kc_floats(n, NULL);
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

static void norm_free(norm_t *t)
{
	free(t->x);
	free(t->dy);
	free(t->gamma);
	free(t->beta);
	free(t->mean);
	free(t->rstd);
	free(t->h);
	free(t->old);
	free(t->want);
	free(t->want2);
}

static void norm_forward(norm_t *t, int with_beta)
{
	srt_k_rows_t args = { .rows = t->rows, .n = t->n, .value = 1e-5f };
	size_t nbytes = (size_t)(t->rows * t->n) * sizeof(float);

	for (int64_t i = 0; i < t->rows * t->n; i++)
		t->want[i] = with_beta ? fmaf(t->h[i], t->gamma[i % t->n], t->beta[i % t->n]) :
					 t->h[i] * t->gamma[i % t->n];
	kc_begin(SRT_K_LAYERNORM, &args, "forward");
	kc_out(NULL, t->want, t->rows * t->n);
	kc_out(NULL, t->mean, t->rows);
	kc_out(NULL, t->rstd, t->rows);
	kc_in(t->x, nbytes);
	kc_in(t->gamma, (size_t)t->n * sizeof(float));
	if (with_beta)
		kc_in(t->beta, (size_t)t->n * sizeof(float));
	else
		kc_absent();
	kc_run();
}

static void norm_backward(norm_t *t, int accumulate)
{
	srt_k_rows_t args = { .rows = t->rows, .n = t->n, .accumulate = accumulate };
	size_t nbytes = (size_t)(t->rows * t->n) * sizeof(float);
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
	kc_begin(SRT_K_LAYERNORM_BACKWARD, &args, "backward");
	kc_out(accumulate ? t->old : NULL, t->want, t->rows * t->n);
	kc_in(t->dy, nbytes);
	kc_in(t->x, nbytes);
	kc_in(t->mean, (size_t)t->rows * sizeof(float));
	kc_in(t->rstd, (size_t)t->rows * sizeof(float));
	kc_in(t->gamma, (size_t)t->n * sizeof(float));
	kc_run();
	free(w);
}

static void norm_params(norm_t *t, int accumulate, int accumulate2, int absent)
{
	srt_k_rows_t args = {
		.rows = t->rows, .n = t->n, .accumulate = accumulate, .accumulate2 = accumulate2
	};
	size_t nbytes = (size_t)(t->rows * t->n) * sizeof(float);

	for (int64_t j = 0; j < t->n; j++) {
		float a = kc_column_sum(t->dy, t->h, t->rows, t->n, j);
		float b = kc_column_sum(t->dy, NULL, t->rows, t->n, j);

		t->want[j] = accumulate ? t->old[j] + a : a;
		t->want2[j] = accumulate2 ? t->old[j] + b : b;
	}
	kc_begin(SRT_K_LAYERNORM_BACKWARD_PARAMS, &args, "params");
	if (absent == 1)
		kc_absent();
	else
		kc_out(accumulate ? t->old : NULL, t->want, t->n);
	if (absent == 2)
		kc_absent();
	else
		kc_out(accumulate2 ? t->old : NULL, t->want2, t->n);
	kc_in(t->dy, nbytes);
	kc_in(t->x, nbytes);
	kc_in(t->mean, (size_t)t->rows * sizeof(float));
	kc_in(t->rstd, (size_t)t->rows * sizeof(float));
	kc_run();
	/* the same order without the product: the bias gradient */
	kc_begin(SRT_K_BIAS_BACKWARD, &args, "bias");
	for (int64_t j = 0; j < t->n; j++) {
		float b = kc_column_sum(t->dy, NULL, t->rows, t->n, j);

		t->want[j] = accumulate ? t->old[j] + b : b;
	}
	kc_out(accumulate ? t->old : NULL, t->want, t->n);
	kc_in(t->dy, nbytes);
	kc_run();
}

static void test_layernorm(int64_t rows, int64_t n, float (*source)(void))
{
	norm_t t = norm_make(rows, n, source);

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

/* ---- embedding ------------------------------------------------------------------------ */
static void embedding_forward(const int32_t *ids, int64_t rows, int64_t n, int64_t vocab,
			      int64_t context, int with_position)
{
	srt_k_embedding_t args = { .rows = rows, .n = n, .vocab = vocab, .context = context };
	float *table = kc_floats(vocab * n, kc_hard), *position = kc_floats(context * n, kc_hard);
	float *want = kc_floats(rows * n, NULL);

	for (int64_t i = 0; i < rows * n; i++) {
		int64_t id = ids[i / n], t = i / n % context;

		if (id < 0 || id >= vocab)
			want[i] = NAN;
		else
			want[i] = with_position ? table[id * n + i % n] + position[t * n + i % n] :
						  table[id * n + i % n];
	}
	kc_begin(SRT_K_EMBEDDING, &args, "forward");
	kc_out(NULL, want, rows * n);
	kc_in(table, (size_t)(vocab * n) * sizeof(float));
	if (with_position)
		kc_in(position, (size_t)(context * n) * sizeof(float));
	else
		kc_absent();
	kc_in(ids, (size_t)rows * sizeof(*ids));
	kc_run();
	free(table);
	free(position);
	free(want);
}

/* Both gradients; owner(r) names the row of the output that row r belongs to. */
static void embedding_backward(const int32_t *ids, int64_t rows, int64_t n, int64_t vocab,
			       int64_t context, int accumulate, int positions)
{
	srt_k_embedding_t args = {
		.rows = rows, .n = n, .vocab = vocab, .context = context, .accumulate = accumulate
	};
	int64_t nowners = positions ? context : vocab;
	float *dy = kc_floats(rows * n, kc_mild), *old = kc_floats(nowners * n, kc_mild);
	float *want = kc_floats(nowners * n, NULL);

	if (nowners * n > 0)
		old[0] = -0.0f; /* a row that nothing is added to stays as it is */
	for (int64_t v = 0; v < nowners; v++) {
		for (int64_t j = 0; j < n; j++) {
			float sum = 0.0f;
			int hit = positions;

			for (int64_t r = 0; r < rows; r++) {
				if ((positions ? r % context : ids[r]) != v)
					continue;
				sum = sum + dy[r * n + j];
				hit = 1;
			}
			want[v * n + j] = !accumulate ? sum :
					  hit         ? old[v * n + j] + sum :
							old[v * n + j];
		}
	}
	kc_begin(positions ? SRT_K_POSITION_BACKWARD : SRT_K_EMBEDDING_BACKWARD, &args, "backward");
	kc_out(accumulate ? old : NULL, want, nowners * n);
	kc_in(dy, (size_t)(rows * n) * sizeof(float));
	if (!positions)
		kc_in(ids, (size_t)rows * sizeof(*ids));
	kc_run();
	free(dy);
	free(old);
	free(want);
}

/*
 * Rows of dtable that one group owns, SRT_K_EMBED_BUCKETS apart, in both ways to find their rows:
 * all listed at once, or each looked for, where they are too many for the list.
 */
static void test_embedding_owners(int64_t rows, int64_t frequent)
{
	const int64_t vocab = 2 * SRT_K_EMBED_BUCKETS + 7;
	int32_t *ids = malloc((size_t)rows * sizeof(*ids));

	CHECK_OR_DIE(ids != NULL);
	for (int64_t r = 0; r < rows; r++)
		ids[r] = (int32_t)(kc_random() % 3 * SRT_K_EMBED_BUCKETS + kc_random() % 9);
	for (int64_t r = 0; r < frequent; r++)
		ids[r * rows / frequent] = SRT_K_EMBED_BUCKETS + 5;
	ids[1] = -SRT_K_EMBED_BUCKETS + 5; /* outside, but in a group's share */
	for (int k = 0; k < 2; k++)
		embedding_backward(ids, rows, 3, vocab, 1, k, 0);
	free(ids);
}

static void test_embedding(int64_t rows, int64_t n, int64_t vocab, int64_t context)
{
	int32_t *ids = malloc(((size_t)rows + 1) * sizeof(*ids));

	CHECK_OR_DIE(ids != NULL);
	for (int64_t r = 0; r < rows; r++) /* never 0: a row of the table without any id */
		ids[r] = (int32_t)(1 + kc_random() % (uint32_t)(vocab - 1));
	for (int k = 0; k < 2; k++) {
		embedding_forward(ids, rows, n, vocab, context, k);
		embedding_backward(ids, rows, n, vocab, context, k, 0);
		embedding_backward(ids, rows, n, vocab, context, k, 1);
	}
	if (rows > 3) {
		ids[2] = -1;
		ids[3] = (int32_t)vocab;
		embedding_forward(ids, rows, n, vocab, context, 1);
	}
	free(ids);
}

int main(void)
{
	static const int64_t widths[] = { 1, 2, 63, 64, 65, 127, 128, 1009 };

	for (size_t w = 0; w < sizeof(widths) / sizeof(widths[0]); w++) {
		int64_t n = widths[w];

		for (int form = 0; form < 3; form++) {
			test_softmax(5, n, form == 2 ? kc_hard : kc_mild, form == 1);
			test_softmax_backward(5, n, form == 2 ? kc_hard : kc_mild, form == 1);
			test_log_softmax(5, n, form == 2 ? kc_hard : kc_mild, form == 1);
			test_cross_entropy(5, n, kc_mild, form);
			test_cross_entropy(5, n, kc_hard, form);
		}
		test_mse(3, n, 0);
		test_mse(3, n, 1);
		test_layernorm(n == 65 ? 900 : 3, n, kc_mild);
		test_layernorm(2, n, kc_hard);
	}
	test_softmax(0, 64, kc_mild, 0);
	test_layernorm(0, 65, kc_mild);
	test_layernorm(128, 3, kc_mild);
	test_layernorm(129, 3, kc_mild);
	test_layernorm(128 * 7, 3, kc_mild);
	test_embedding(7, 3, 5, 4);
	test_embedding(130, 65, 17, 13);
	test_embedding(64, 1009, 3, 64);
	test_embedding(0, 64, 4, 4);
	test_embedding_owners(600, 90);
	test_embedding_owners(1900, 1500);
	for (dtype = SRT_F16; dtype <= SRT_BF16; dtype++) {
		for (int form = 0; form < 3; form++)
			test_cross_entropy(4, 131, form ? kc_hard : kc_mild, form);
		test_softmax(3, 131, kc_mild, 0);
		test_softmax(3, 131, kc_hard, 1);
	}
	return kc_done();
}
