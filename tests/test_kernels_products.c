/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The definitions of matrix product and attention against plain references, element by element, and
 * the attention gradient against finite differences in double.
 */
#include "tests/kernel_check.h"

void srt_math_eval_baseline(int function, const float *x, float *y, int64_t n);

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
	    accumulate = form >> 3 & 1;
	srt_k_matmul_t a = { .m = m,
			     .n = n,
			     .k = k,
			     .batch = batch,
			     .trans_a = ta,
			     .trans_b = tb,
			     .alpha = form & 16 ? 0.3f : 1.0f,
			     .accumulate = accumulate };
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
	kc_begin(SRT_K_MATMUL, &a, "product");
	kc_out(old, want, a.stride_c * batch);
	kc_in(x, (size_t)(a.stride_a * batch) * sizeof(float));
	kc_in(y, (size_t)(a.stride_b * batch) * sizeof(float));
	if (with_bias)
		kc_in(bias, (size_t)n * sizeof(float));
	else
		kc_absent();
	kc_run();
	free(x);
	free(y);
	free(bias);
	free(old);
	free(want);
}

/* ---- attention -------------------------------------------------------------------------- */
typedef struct attention {
	srt_k_attention_t a;
	int64_t nout, nqkv, nrows;
	float *qkv, *out, *stats, *dout, *dqkv, *dsum, *p, *ds;
} attention_t;

/* Part 0, 1, 2 = q, k, v of (item, t, head). */
static float *part(const attention_t *t, float *qkv, int64_t b, int64_t pos, int64_t h, int which)
{
	return qkv + (((b * t->a.context + pos) * 3 + which) * t->a.heads + h) * t->a.head_dim;
}

static float *head_row(const attention_t *t, float *out, int64_t b, int64_t pos, int64_t h)
{
	return out + ((b * t->a.context + pos) * t->a.heads + h) * t->a.head_dim;
}

static int64_t nseen(const attention_t *t, int64_t i)
{
	return t->a.causal ? i + 1 : t->a.context;
}

/* Row i of P into p, and the statistics. */
static void reference_row(attention_t *t, int64_t b, int64_t h, int64_t i, float *p, float *stats)
{
	int64_t d = t->a.head_dim, n = nseen(t, i);
	float inv;

	for (int64_t j = 0; j < n; j++)
		p[j] = chain(part(t, t->qkv, b, i, h, 0), 1, part(t, t->qkv, b, j, h, 1), 1, d) *
		       t->a.scale;
	stats[0] = kc_row_max(p, n);
	for (int64_t j = 0; j < n; j++)
		p[j] = p[j] - stats[0];
	srt_math_eval_baseline(0, p, p, n);
	stats[1] = kc_row_sum(p, n);
	inv = 1.0f / stats[1];
	for (int64_t j = 0; j < n; j++)
		p[j] = p[j] * inv;
}

static void reference_head(attention_t *t, int64_t b, int64_t h)
{
	int64_t n = t->a.context, d = t->a.head_dim, base = (b * t->a.heads + h) * n;

	for (int64_t i = 0; i < n; i++) {
		float *out = head_row(t, t->out, b, i, h);

		reference_row(t, b, h, i, t->p + i * n, t->stats + 2 * (base + i));
		for (int64_t c = 0; c < d; c++) {
			out[c] = 0.0f;
			for (int64_t j = 0; j < nseen(t, i); j++)
				out[c] = fmaf(t->p[i * n + j], part(t, t->qkv, b, j, h, 2)[c],
					      out[c]);
		}
	}
	for (int64_t i = 0; i < n; i++) {
		float *dout = head_row(t, t->dout, b, i, h);

		t->dsum[base + i] = kc_row_dot(dout, head_row(t, t->out, b, i, h), d);
		for (int64_t j = 0; j < nseen(t, i); j++) {
			float dp = chain(dout, 1, part(t, t->qkv, b, j, h, 2), 1, d);

			t->ds[i * n + j] =
				(t->p[i * n + j] * (dp - t->dsum[base + i])) * t->a.scale;
		}
	}
	for (int64_t i = 0; i < n; i++) {
		for (int64_t c = 0; c < d; c++) {
			float dq = 0.0f, dk = 0.0f, dv = 0.0f;

			for (int64_t j = 0; j < nseen(t, i); j++)
				dq = fmaf(t->ds[i * n + j], part(t, t->qkv, b, j, h, 1)[c], dq);
			for (int64_t q = t->a.causal ? i : 0; q < n; q++) {
				dk = fmaf(t->ds[q * n + i], part(t, t->qkv, b, q, h, 0)[c], dk);
				dv = fmaf(t->p[q * n + i], head_row(t, t->dout, b, q, h)[c], dv);
			}
			part(t, t->dqkv, b, i, h, 0)[c] = dq;
			part(t, t->dqkv, b, i, h, 1)[c] = dk;
			part(t, t->dqkv, b, i, h, 2)[c] = dv;
		}
	}
}

/* dqkv by central differences of sum(out * dout), in double. */
static double loss_in_double(const attention_t *t, const double *qkv)
{
	double loss = 0.0;

	for (int64_t b = 0; b < t->a.batch; b++) {
		for (int64_t h = 0; h < t->a.heads; h++) {
			for (int64_t i = 0; i < t->a.context; i++) {
				int64_t d = t->a.head_dim, n = nseen(t, i);
				const double *q = qkv + (part(t, t->qkv, b, i, h, 0) - t->qkv);
				double sum = 0.0, dot = 0.0;

				for (int64_t j = 0; j < n; j++) {
					const double *k =
						qkv + (part(t, t->qkv, b, j, h, 1) - t->qkv);
					const double *v =
						qkv + (part(t, t->qkv, b, j, h, 2) - t->qkv);
					double s = 0.0, g = 0.0;

					for (int64_t c = 0; c < d; c++) {
						s += q[c] * k[c];
						g += v[c] *
						     (double)head_row(t, t->dout, b, i, h)[c];
					}
					sum += exp(s * (double)t->a.scale);
					dot += exp(s * (double)t->a.scale) * g;
				}
				loss += dot / sum;
			}
		}
	}
	return loss;
}

static void check_gradient(attention_t *t)
{
	double *qkv = malloc((size_t)t->nqkv * sizeof(*qkv));

	CHECK_OR_DIE(qkv != NULL);
	for (int64_t i = 0; i < t->nqkv; i++)
		qkv[i] = (double)t->qkv[i];
	for (int64_t i = 0; i < t->nqkv; i++) {
		double up, down, want;

		qkv[i] += 1e-5;
		up = loss_in_double(t, qkv);
		qkv[i] -= 2e-5;
		down = loss_in_double(t, qkv);
		qkv[i] += 1e-5;
		want = (up - down) / 2e-5;
		CHECK_MSG(fabs(want - (double)t->dqkv[i]) < 1e-5 * (1.0 + fabs(want)),
			  "dqkv[%lld] is %g, by differences %g", (long long)i, (double)t->dqkv[i],
			  want);
	}
	free(qkv);
}

static void attention_run(attention_t *t)
{
	size_t qkv_nbytes = (size_t)t->nqkv * sizeof(float),
	       out_nbytes = (size_t)t->nout * sizeof(float);
	size_t row_nbytes = (size_t)t->nrows * sizeof(float);
	float *half = kc_floats(t->nqkv, NULL), *none = kc_floats(t->nqkv, kc_mild);

	kc_begin(SRT_K_ATTENTION, &t->a, "forward");
	kc_out(NULL, t->out, t->nout);
	kc_out(NULL, t->stats, 2 * t->nrows);
	kc_in(t->qkv, qkv_nbytes);
	kc_run();
	kc_begin(SRT_K_ATTENTION_BACKWARD_D, &t->a, "D");
	kc_out(NULL, t->dsum, t->nrows);
	kc_in(t->dout, out_nbytes);
	kc_in(t->out, out_nbytes);
	kc_run();
	for (int64_t i = 0; i < t->nqkv; i++) /* the q part alone, then the rest */
		half[i] = i / (t->a.heads * t->a.head_dim) % 3 ? none[i] : t->dqkv[i];
	for (int kv = 0; kv < 2; kv++) {
		kc_begin(kv ? SRT_K_ATTENTION_BACKWARD_KV : SRT_K_ATTENTION_BACKWARD_Q, &t->a,
			 "backward");
		kc_out(kv ? half : none, kv ? t->dqkv : half, t->nqkv);
		kc_in(t->dout, out_nbytes);
		kc_in(t->qkv, qkv_nbytes);
		kc_in(t->stats, 2 * row_nbytes);
		kc_in(t->dsum, row_nbytes);
		kc_run();
	}
	free(half);
	free(none);
}

static void test_attention(int64_t batch, int64_t context, int64_t heads, int64_t head_dim,
			   int causal, float (*source)(void))
{
	attention_t t = { .a = { .batch = batch,
				 .context = context,
				 .heads = heads,
				 .head_dim = head_dim,
				 .causal = causal } };

	t.a.scale = 1.0f / sqrtf((float)head_dim);
	t.nrows = batch * heads * context;
	t.nout = t.nrows * head_dim;
	t.nqkv = 3 * t.nout;
	t.qkv = kc_floats(t.nqkv, source);
	t.dout = kc_floats(t.nout, source);
	t.out = kc_floats(t.nout, NULL);
	t.stats = kc_floats(2 * t.nrows, NULL);
	t.dqkv = kc_floats(t.nqkv, NULL);
	t.dsum = kc_floats(t.nrows, NULL);
	t.p = kc_floats(context * context, NULL);
	t.ds = kc_floats(context * context, NULL);
	for (int64_t b = 0; b < batch; b++)
		for (int64_t h = 0; h < heads; h++)
			reference_head(&t, b, h);
	attention_run(&t);
	if (source == kc_mild && t.nqkv < 1000)
		check_gradient(&t);
	free(t.qkv);
	free(t.dout);
	free(t.out);
	free(t.stats);
	free(t.dqkv);
	free(t.dsum);
	free(t.p);
	free(t.ds);
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
	for (int causal = 0; causal < 2; causal++) {
		test_attention(1, 1, 1, 1, causal, kc_mild);
		test_attention(2, 5, 3, 7, causal, kc_mild);
		test_attention(1, 67, 2, 16, causal, kc_mild);
		test_attention(1, 9, 1, 65, causal, kc_hard);
		test_attention(1, 3, 1, 515, causal, kc_mild);
		test_attention(0, 3, 1, 4, causal, kc_mild);
	}
	return kc_done();
}
