/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/kernels/attention_ref.h"

#include <math.h>

#include "kernels/dialect/math.h"
#include "tests/harness/check.h"
#include "tests/harness/half.h"
#include "tests/harness/random.h"
#include "tests/kernels/kernel_check.h"

srt_k_attention_t att_shape(int64_t batch, int64_t queries, int64_t keys, int64_t heads,
			    int64_t head_dim, int causal, att_layout_t layout)
{
	const int64_t d = heads * head_dim;
	srt_k_attention_t a = { .batch = batch,
				.queries = queries,
				.keys = keys,
				.heads = heads,
				.kv_heads = heads,
				.head_dim = head_dim,
				.causal = causal };

	a.scale = 1.0f / sqrtf((float)head_dim);
	a.ldq = a.ldk = a.ldv = a.lddq = a.lddk = a.lddv = layout == ATT_PACKED ? 3 * d : d;
	if (layout == ATT_GAPS) {
		a.ldq += 3;
		a.ldk += 1;
		a.lddq += 2;
		a.lddv += 5;
	}
	return a;
}

static int64_t extent(int64_t rows, int64_t d, int64_t ld)
{
	return rows && d ? (rows - 1) * ld + d : 0;
}

int64_t att_queries_extent(const srt_k_attention_t *a, int64_t ld)
{
	return extent(a->batch * a->queries, a->heads * a->head_dim, ld);
}

int64_t att_keys_extent(const srt_k_attention_t *a, int64_t ld)
{
	return extent(a->batch * a->keys, a->kv_heads * a->head_dim, ld);
}

/* The first key of query i. */
static int64_t first_key(const att_t *t, int64_t b, int64_t i)
{
	const int64_t first = t->first != NULL ? t->first[b * t->a.queries + i] : 0;

	return first < 0 ? 0 : first;
}

int att_sees(const att_t *t, int64_t b, int64_t i, int64_t j)
{
	return (t->lengths == NULL || j < t->lengths[b]) &&
	       (t->mask == NULL || t->mask[b * t->a.keys + j]) &&
	       (!t->a.causal || j <= t->a.offset + i) && j >= first_key(t, b, i);
}

int64_t att_row(const att_t *t, int64_t b, int64_t h, int64_t positions, int64_t i, int64_t ld)
{
	return (b * positions + i) * ld + h * t->a.head_dim;
}

/* The rule of the matrix product. */
static float att_dot(const float *a, const float *b, int64_t n)
{
	float sum = 0.0f;

	for (int64_t k0 = 0; k0 < n; k0 += 512) {
		float x = 0.0f;

		for (int64_t k = k0; k < n && k < k0 + 512; k++)
			x = fmaf(a[k], b[k], x);
		sum = k0 ? sum + x : x;
	}
	return sum;
}

/* Row i of P, its statistics and its output. */
static void att_forward_row(const att_t *t, int64_t b, int64_t h, int64_t i, float *p, float *stats)
{
	float m = -INFINITY, z[64] = { 0 }, *out = ATT_OUT(t, out, b, h, i);
	const int64_t first = first_key(t, b, i);
	const float *v;

	for (int64_t j = 0; j < t->a.keys; j++) {
		if (!att_sees(t, b, i, j))
			continue;
		p[j] = att_dot(ATT_Q(t, b, h, i), ATT_K(t, b, h, j), t->a.head_dim) * t->a.scale;
		m = p[j] > m || p[j] != p[j] ? p[j] : m;
	}
	m = m + 0.0f;
	for (int64_t j = 0; j < t->a.keys; j++) {
		if (!att_sees(t, b, i, j))
			continue;
		p[j] = k_exp(p[j] - m);
		z[(j - first) % 64] = z[(j - first) % 64] + p[j];
	}
	stats[0] = m;
	stats[1] = kc_tree64(z);
	for (int64_t e = 0; e < t->a.head_dim; e++)
		out[e] = 0.0f;
	for (int64_t j = 0; j < t->a.keys; j++) {
		if (!att_sees(t, b, i, j))
			continue;
		p[j] = p[j] * (1.0f / stats[1]);
		v = ATT_V(t, b, h, j);
		for (int64_t e = 0; e < t->a.head_dim; e++)
			out[e] = fmaf(p[j], v[e], out[e]);
	}
	for (int64_t e = 0; e < t->a.head_dim; e++)
		out[e] = half_round(t->dtype, out[e]);
}

/* Row i of dS, and D. */
static void att_backward_row(const att_t *t, int64_t b, int64_t h, int64_t i, const float *p,
			     float *ds, float *dsum)
{
	const float *dout = ATT_OUT(t, dout, b, h, i), *out = ATT_OUT(t, out, b, h, i);
	const int64_t first = first_key(t, b, i);
	float lanes[64] = { 0 };

	for (int64_t j = 0; j < t->a.keys; j++) {
		if (!att_sees(t, b, i, j))
			continue;
		ds[j] = att_dot(dout, ATT_V(t, b, h, j), t->a.head_dim); /* dP */
		if (t->dtype != SRT_F32)
			lanes[(j - first) % 64] = fmaf(p[j], ds[j], lanes[(j - first) % 64]);
	}
	for (int64_t e = 0; t->dtype == SRT_F32 && e < t->a.head_dim; e++)
		lanes[e % 64] = fmaf(dout[e], out[e], lanes[e % 64]);
	*dsum = kc_tree64(lanes);
	for (int64_t j = 0; j < t->a.keys; j++)
		if (att_sees(t, b, i, j))
			ds[j] = (p[j] * (ds[j] - *dsum)) * t->a.scale;
}

/* dq of head h, and its part of dk and dv (keys,head_dim). */
static void att_gradients(const att_t *t, int64_t b, int64_t h, const float *p, const float *ds,
			  float *dks, float *dvs)
{
	const int64_t nq = t->a.queries, nk = t->a.keys;

	for (int64_t i = 0; i < nq; i++) {
		float *dq = t->dq + att_row(t, b, h, nq, i, t->a.lddq);

		for (int64_t e = 0; e < t->a.head_dim; e++)
			dq[e] = 0.0f;
		for (int64_t j = 0; j < nk; j++) {
			const float *k = ATT_K(t, b, h, j);
			const int64_t n = att_sees(t, b, i, j) ? t->a.head_dim : 0;

			for (int64_t e = 0; e < n; e++)
				dq[e] = fmaf(ds[i * nk + j], k[e], dq[e]);
		}
	}
	for (int64_t j = 0; j < nk; j++) {
		float *dk = dks + j * t->a.head_dim, *dv = dvs + j * t->a.head_dim;

		for (int64_t e = 0; e < t->a.head_dim; e++)
			dk[e] = dv[e] = 0.0f;
		for (int64_t i = 0; i < nq; i++) {
			const float *q = ATT_Q(t, b, h, i), *dout = ATT_OUT(t, dout, b, h, i);
			const int64_t n = att_sees(t, b, i, j) ? t->a.head_dim : 0;

			for (int64_t e = 0; e < n; e++) {
				dk[e] = fmaf(ds[i * nk + j], q[e], dk[e]);
				dv[e] = fmaf(p[i * nk + j], dout[e], dv[e]);
			}
		}
	}
}

/* The tree over n neighbours, `each` apart: level by level. */
static float att_tree(float *x, int64_t n, int64_t each)
{
	for (; n > 1; n = (n + 1) / 2)
		for (int64_t i = 0; i < (n + 1) / 2; i++)
			x[i * each] = 2 * i + 1 < n ? x[2 * i * each] + x[(2 * i + 1) * each] :
						      x[2 * i * each];
	return x[0];
}

/* y: rows of a head of keys, from (heads of the group,keys,head_dim). */
static void att_sum_heads(const att_t *t, float *y, int64_t ld, float *own)
{
	const int64_t hd = t->a.head_dim, n = t->a.keys * hd;

	for (int64_t at = 0; at < n; at++)
		y[at / hd * ld + at % hd] = att_tree(own + at, t->a.heads / t->a.kv_heads, n);
}

/* The heads of item b that share head kv of the keys. */
static void att_group(const att_t *t, int64_t b, int64_t kv)
{
	const int64_t nq = t->a.queries, nk = t->a.keys, group = t->a.heads / t->a.kv_heads;
	const int64_t n = nk * t->a.head_dim;
	float *p = calloc((size_t)(nq * nk + 1), sizeof(*p));
	float *ds = calloc((size_t)(nq * nk + 1), sizeof(*ds));
	float *dk = calloc((size_t)(group * n + 1), sizeof(*dk));
	float *dv = calloc((size_t)(group * n + 1), sizeof(*dv));

	CHECK_OR_DIE(p != NULL && ds != NULL && dk != NULL && dv != NULL);
	for (int64_t g = 0; g < group; g++) {
		const int64_t h = kv * group + g;

		for (int64_t i = 0; i < nq; i++) {
			const int64_t row = (b * t->a.heads + h) * nq + i;

			att_forward_row(t, b, h, i, p + i * nk, t->stats + 2 * row);
			att_backward_row(t, b, h, i, p + i * nk, ds + i * nk, t->dsum + row);
		}
		att_gradients(t, b, h, p, ds, dk + g * n, dv + g * n);
	}
	att_sum_heads(t, t->dk + att_row(t, b, kv, nk, 0, t->a.lddk), t->a.lddk, dk);
	att_sum_heads(t, t->dv + att_row(t, b, kv, nk, 0, t->a.lddv), t->a.lddv, dv);
	free(p);
	free(ds);
	free(dk);
	free(dv);
}

void att_reference(const att_t *t)
{
	for (int64_t unit = 0; unit < t->a.batch * t->a.kv_heads; unit++)
		att_group(t, unit / t->a.kv_heads, unit % t->a.kv_heads);
}

int32_t *att_lengths(const srt_k_attention_t *a)
{
	int32_t *lengths = malloc((size_t)(a->batch + 1) * sizeof(*lengths));

	CHECK_OR_DIE(lengths != NULL);
	for (int64_t b = 0; b < a->batch; b++) {
		const int64_t n[] = { (int64_t)(random32() % (uint32_t)(a->keys + 1)),
				      1,
				      0,
				      a->keys - 1,
				      a->keys + 3,
				      -2 };

		lengths[b] = (int32_t)n[(b + a->keys) % 6];
	}
	return lengths;
}

unsigned char *att_mask(const srt_k_attention_t *a)
{
	unsigned char *mask = malloc((size_t)(a->batch * a->keys + 1));

	CHECK_OR_DIE(mask != NULL);
	for (int64_t i = 0; i < a->batch * a->keys; i++) {
		const uint32_t r = random32(), kind = (uint32_t)(i / a->keys + a->keys) % 6;
		const int64_t j = i % a->keys, third = a->keys / 3;
		const int hidden = kind == 0 || (kind == 2 && j < third) ||
				   (kind == 3 && j >= third && j < 2 * third) ||
				   (kind > 3 && r % 3 == 0);

		mask[i] = hidden ? 0 : (unsigned char)(1 + r % 255);
	}
	return mask;
}

int32_t *att_first(const srt_k_attention_t *a)
{
	int32_t *first = malloc((size_t)(a->batch * a->queries + 1) * sizeof(*first));

	CHECK_OR_DIE(first != NULL);
	for (int64_t at = 0; at < a->batch * a->queries; at++) {
		const int64_t item = at / a->queries, i = at % a->queries, third = a->queries / 3;
		const int64_t of[] = { a->offset + i - third, a->offset + i,
				       i < third     ? 0 :
				       i < 2 * third ? a->offset + third :
						       a->offset + 2 * third,
				       (int64_t)(random32() % (uint32_t)(a->keys + 3)) - 1, 0 };

		first[at] = (int32_t)of[(item + a->keys) % 5];
	}
	return first;
}
