/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels on rows: softmax, cross-entropy, also over parts of the columns, squared
 * error and sum, in f32, f16 and bf16, against
 * plain references in the order that docs/numerics.md fixes.
 */
#include "tests/kernels/kernel_check.h"

static srt_dtype_t dtype;

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

	kc_round(dtype, dy, rows * n);
	kc_round(dtype, y, rows * n);
	for (int log_form = 0; log_form < 2; log_form++) {
		for (int64_t r = 0; r < rows; r++) {
			const float *g = dy + r * n, *v = y + r * n;
			float sum = log_form ? kc_row_sum(g, n) : kc_row_dot(g, v, n);

			for (int64_t i = 0; i < n; i++)
				want[r * n + i] = log_form ? fmaf(-my_exp(v[i]), sum, g[i]) :
							     (g[i] - sum) * v[i];
		}
		kc_begin_as(dtype, log_form ? SRT_K_LOG_SOFTMAX_BACKWARD : SRT_K_SOFTMAX_BACKWARD,
			    &args, "softmax gradient");
		kc_out(in_place ? dy : NULL, want, rows * n);
		if (in_place)
			kc_same(0);
		else
			kc_in_t(dy, rows * n);
		kc_in_t(y, rows * n);
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

	kc_round(dtype, x, rows * n);
	for (int64_t r = 0; r < rows; r++) {
		float log_sum = my_log(exps(x + r * n, n, want + r * n, &max));

		for (int64_t i = 0; i < n; i++)
			want[r * n + i] = (x[r * n + i] - max) - log_sum;
	}
	kc_begin_as(dtype, SRT_K_LOG_SOFTMAX, &args, "log softmax");
	kc_out(in_place ? x : NULL, want, rows * n);
	if (in_place)
		kc_same(0);
	else
		kc_in_t(x, rows * n);
	kc_run();
	free(x);
	free(want);
}

/* The place of the scale in device memory that multiplies the gradients of a loss, or NULL. */
static void put_scale(const float *scale)
{
	if (scale != NULL)
		kc_in(scale, sizeof(*scale));
	else
		kc_absent();
}

static void test_cross_entropy(int64_t rows, int64_t n, float (*source)(void), int form,
			       const float *scale)
{
	const float factor = scale != NULL ? 0.125f * *scale : 0.125f;
	srt_k_rows_t args = { .rows = rows, .n = n, .value = 0.125f };
	float *x = kc_floats(rows * n, source), *dx = kc_floats(rows * n, NULL);
	float *loss = kc_floats(rows, NULL);
	int32_t *targets = malloc(((size_t)rows + 1) * sizeof(*targets));

	CHECK_OR_DIE(targets != NULL);
	kc_round(dtype, x, rows * n);
	for (int64_t r = 0; r < rows; r++) {
		float max, sum, *row = dx + r * n;
		int64_t t = r == 1 ? -1 : r == 2 ? n : (int64_t)(random32() % (uint32_t)n);
		int valid = t >= 0 && t < n;
		float other = t < 0 ? 0.0f : NAN;

		targets[r] = (int32_t)t;
		sum = exps(x + r * n, n, row, &max);
		loss[r] = valid ? my_log(sum) - (x[r * n + t] - max) : other;
		for (int64_t i = 0; i < n; i++)
			row[i] = valid ? (row[i] * (1.0f / sum) - (i == t ? 1.0f : 0.0f)) * factor :
					 other;
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
	put_scale(scale);
	kc_run();
	free(x);
	free(dx);
	free(loss);
	free(targets);
}

/* The columns of logits in parts: x (rows,vocab) has them in order, part p from p * chunk on. */
typedef struct cut {
	int64_t rows, vocab, chunk;
	const float *x;
	const int32_t *targets;
	float *part;  /* the columns of one part */
	float *stats; /* (parts,stride) */
	int64_t stride;
} cut_t;

/* The statistics of part p: returns its width. */
static int64_t make_part(const cut_t *c, int64_t p)
{
	const int64_t first = p * c->chunk;
	const int64_t n = c->chunk < c->vocab - first ? c->chunk : c->vocab - first;
	float *stats = c->stats + p * c->stride, *e = kc_floats(n, NULL);

	for (int64_t r = 0; r < c->rows; r++) {
		float *row = c->part + r * n, sum;
		int64_t t = c->targets[r] - first;

		memcpy(row, c->x + r * c->vocab + first, (size_t)n * sizeof(*row));
		sum = exps(row, n, e, &stats[r]);
		stats[c->rows + r] = stats[r] == -INFINITY ? 0.0f : sum;
		stats[2 * c->rows + r] = t >= 0 && t < n ? row[t] : -INFINITY;
	}
	free(e);
	return n;
}

/* dx of the part and the loss from all statistics. */
static void merge_parts(const cut_t *c, int64_t p, int64_t n, float factor, float *loss, float *dx)
{
	const int64_t nparts = (c->vocab + c->chunk - 1) / c->chunk, first = p * c->chunk;

	for (int64_t r = 0; r < c->rows; r++) {
		const int valid = c->targets[r] >= 0 && c->targets[r] < c->vocab;
		const float other = c->targets[r] < 0 ? 0.0f : NAN;
		const float *s = c->stats + r;
		float max = -INFINITY, logit = -INFINITY, sum = 0.0f;

		for (int64_t q = 0; q < nparts; q++) {
			const float m = s[q * c->stride], l = s[q * c->stride + 2 * c->rows];

			max = m > max || m != m ? m : max;
			logit = l > logit || l != l ? l : logit;
		}
		for (int64_t q = 0; q < nparts; q++)
			sum = fmaf(s[q * c->stride + c->rows], my_exp(s[q * c->stride] - max), sum);
		loss[r] = valid ? my_log(sum) - (logit - max) : other;
		for (int64_t i = 0; i < n; i++) {
			const float e = my_exp(c->part[r * n + i] - max) * (1.0f / sum);

			dx[r * n + i] = valid ? (e - (first + i == c->targets[r])) * factor : other;
		}
	}
}

static void run_part(const cut_t *c, int64_t p, int64_t n)
{
	const srt_k_vocab_t args = {
		.rows = c->rows, .n = n, .first = p * c->chunk, .vocab = c->vocab
	};

	kc_begin_as(dtype, SRT_K_CROSS_ENTROPY_PART, &args, "statistics of a part");
	kc_out_floats(NULL, c->stats + p * c->stride, 3 * c->rows);
	kc_in_t(c->part, c->rows * n);
	kc_in(c->targets, (size_t)c->rows * sizeof(*c->targets));
	kc_run();
}

/* form as in test_cross_entropy(). */
static void run_merge(const cut_t *c, int64_t p, int64_t n, int form, const float *scale)
{
	const int64_t nparts = (c->vocab + c->chunk - 1) / c->chunk;
	const srt_k_vocab_t args = { .rows = c->rows,
				     .n = n,
				     .first = p * c->chunk,
				     .vocab = c->vocab,
				     .stride = c->stride,
				     .nparts = (int32_t)nparts,
				     .value = 0.125f };
	float *loss = kc_floats(c->rows, NULL), *dx = kc_floats(c->rows * n, NULL);

	merge_parts(c, p, n, scale != NULL ? 0.125f * *scale : 0.125f, loss, dx);
	kc_begin_as(dtype, SRT_K_CROSS_ENTROPY_MERGE, &args, "merged parts");
	kc_out_floats(NULL, loss, c->rows);
	if (form == 0)
		kc_absent();
	else
		kc_out(form == 2 ? c->part : NULL, dx, c->rows * n);
	if (form == 2)
		kc_same(1);
	else
		kc_in_t(c->part, c->rows * n);
	kc_in(c->stats, (size_t)(nparts * c->stride) * sizeof(*c->stats));
	kc_in(c->targets, (size_t)c->rows * sizeof(*c->targets));
	put_scale(scale);
	kc_run();
	free(loss);
	free(dx);
}

/* Row 1 has no target, row 2 a target past the end, and part 0 of row 3 is infinitely unlikely. */
static void test_parts(int64_t rows, int64_t n, float (*source)(void), int form, const float *scale)
{
	const int64_t vocab = 3 * n - n / 2; /* the last of three parts has less */
	float *x = kc_floats(rows * vocab, source);
	int32_t *targets = malloc(((size_t)rows + 1) * sizeof(*targets));
	cut_t c = { .rows = rows, .vocab = vocab, .chunk = n, .x = x, .stride = 3 * rows + form };

	CHECK_OR_DIE(targets != NULL);
	c.targets = targets;
	c.part = kc_floats(rows * n, NULL);
	c.stats = kc_floats(3 * c.stride, NULL);
	kc_round(dtype, x, rows * vocab);
	for (int64_t r = 0; r < rows; r++)
		targets[r] = (int32_t)(r == 1 ? -1 : r == 2 ? vocab : random32() % (uint32_t)vocab);
	for (int64_t i = 0; i < n && rows > 3; i++)
		x[3 * vocab + i] = -INFINITY;
	for (int64_t p = 0; p < 3; p++)
		run_part(&c, p, make_part(&c, p));
	for (int64_t p = 0; p < 3; p++)
		run_merge(&c, p, make_part(&c, p), form, scale);
	free(x);
	free(targets);
	free(c.part);
	free(c.stats);
}

static void test_mse(int64_t rows, int64_t n, int with_dx, const float *scale)
{
	const float factor = scale != NULL ? 0.3f * *scale : 0.3f;
	srt_k_rows_t args = { .rows = rows, .n = n, .value = 0.3f };
	float *x = kc_floats(rows * n, kc_mild), *t = kc_floats(rows * n, kc_mild);
	float *d = kc_floats(rows * n, NULL), *dx = kc_floats(rows * n, NULL);
	float *loss = kc_floats(rows, NULL);

	kc_round(dtype, x, rows * n);
	kc_round(dtype, t, rows * n);
	for (int64_t i = 0; i < rows * n; i++) {
		d[i] = x[i] - t[i];
		dx[i] = 2.0f * d[i] * factor;
	}
	for (int64_t r = 0; r < rows; r++)
		loss[r] = kc_row_dot(d + r * n, d + r * n, n);
	kc_begin_as(dtype, SRT_K_MSE, &args, "mse");
	kc_out_floats(NULL, loss, rows);
	if (with_dx)
		kc_out(NULL, dx, rows * n);
	else
		kc_absent();
	kc_in_t(x, rows * n);
	kc_in_t(t, rows * n);
	put_scale(scale);
	kc_run();
	free(x);
	free(t);
	free(d);
	free(dx);
	free(loss);
}

static void test_sum_loss(int64_t rows, int64_t n, int with_dx, const float *scale)
{
	const float factor = scale != NULL ? 0.3f * *scale : 0.3f;
	srt_k_rows_t args = { .rows = rows, .n = n, .value = 0.3f };
	float *x = kc_floats(rows * n, kc_mild), *dx = kc_floats(rows * n, NULL);
	float *loss = kc_floats(rows, NULL);

	kc_round(dtype, x, rows * n);
	for (int64_t i = 0; i < rows * n; i++)
		dx[i] = factor;
	for (int64_t r = 0; r < rows; r++)
		loss[r] = kc_row_sum(x + r * n, n);
	kc_begin_as(dtype, SRT_K_SUM_LOSS, &args, "sum loss");
	kc_out_floats(NULL, loss, rows);
	if (with_dx)
		kc_out(NULL, dx, rows * n);
	else
		kc_absent();
	kc_in_t(x, rows * n);
	put_scale(scale);
	kc_run();
	free(x);
	free(dx);
	free(loss);
}

int main(void)
{
	static const int64_t widths[] = { 1, 2, 63, 64, 65, 127, 128, 1009 };
	static const float scales[] = { 65536.0f, 1.7f, INFINITY };

	for (dtype = SRT_F32; dtype <= SRT_BF16; dtype++) {
		for (size_t w = 0; w < sizeof(widths) / sizeof(widths[0]); w++) {
			int64_t n = widths[w];

			for (int form = 0; form < 3; form++) {
				float (*source)(void) = form == 2 ? kc_hard : kc_mild;

				test_softmax(5, n, source, form == 1);
				test_softmax_backward(5, n, source, form == 1);
				test_log_softmax(5, n, source, form == 1);
				test_cross_entropy(5, n, kc_mild, form, NULL);
				test_cross_entropy(5, n, kc_hard, form, NULL);
				test_cross_entropy(5, n, kc_mild, form, &scales[form]);
				test_parts(5, n, kc_mild, form, NULL);
				test_parts(5, n, kc_hard, form, &scales[form]);
			}
			for (int with_dx = 0; with_dx <= 1; with_dx++) {
				test_mse(3, n, with_dx, NULL);
				test_mse(3, n, with_dx, &scales[with_dx]);
				test_sum_loss(3, n, with_dx, NULL);
				test_sum_loss(3, n, with_dx, &scales[1 + with_dx]);
			}
		}
		test_softmax(0, 64, kc_mild, 0);
	}
	return kc_done();
}
