/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attention of 16-bit tensors; see attention_half.h. A head's rows are dense in scratch, as a
 * problem of one item and one head for attention.c and attention_backward.c. Keys beyond the item's
 * length are not read, so they are not widened.
 */
#include "backends/cpu/attention_half.h"
#include "base/base.h"

/* One head: the problem in floats, and the offset of its first row in the tensors. */
typedef struct head {
	const srt_cpu_attention_half_t *half;
	srt_cpu_attention_t at;
	int64_t item, column;
	float *next; /* free scratch */
} head_t;

static size_t row_floats(const srt_cpu_attention_half_t *half, int64_t positions)
{
	return srt_align_up((size_t)(positions * half->at.head_dim), 16);
}

/* The head `unit`, without tensors. */
static head_t head_of(const srt_cpu_attention_half_t *half, int64_t unit, float *scratch)
{
	const srt_cpu_attention_t *at = &half->at;
	const int64_t item = unit / at->heads;
	head_t h = { .half = half, .at = *at, .item = item, .next = scratch };

	h.column = unit % at->heads * at->head_dim;
	h.at.batch = h.at.heads = 1;
	h.at.ldq = h.at.ldk = h.at.ldv = at->head_dim;
	h.at.lddq = h.at.lddk = h.at.lddv = at->head_dim;
	h.at.lengths = at->lengths ? at->lengths + item : NULL;
	h.at.mask = at->mask ? at->mask + item * at->keys : NULL;
	h.at.stats = at->stats + unit * at->queries * 2;
	return h;
}

static float *allocate_rows(head_t *h, int64_t positions)
{
	float *p = h->next;

	h->next += row_floats(h->half, positions);
	return p;
}

/* Widens the first rows of a tensor with `positions` rows an item, ld apart. */
static float *widen_rows(head_t *h, const uint16_t *x, int64_t positions, int64_t ld, int64_t rows)
{
	const int64_t hd = h->at.head_dim;
	float *y = allocate_rows(h, positions);

	srt_cpu_widen(&h->half->casts, NULL, rows, hd, y, hd,
		      x + h->item * positions * ld + h->column, ld);
	return y;
}

/* Rounds and stores a result; y NULL: does nothing. */
static void store_rounded(const head_t *h, uint16_t *y, int64_t positions, int64_t ld,
			  const float *x)
{
	const int64_t hd = h->at.head_dim;

	if (y)
		srt_cpu_round(&h->half->casts, NULL, positions, hd,
			      y + h->item * positions * ld + h->column, ld, x, hd);
}

static void widen_operands(head_t *h)
{
	const srt_cpu_attention_t *at = &h->half->at;
	int64_t n = at->lengths ? at->lengths[h->item] : at->keys;

	n = n < 0 ? 0 : n < at->keys ? n : at->keys;
	h->at.q = widen_rows(h, h->half->q, at->queries, at->ldq, at->queries);
	h->at.k = widen_rows(h, h->half->k, at->keys, at->ldk, n);
	h->at.v = widen_rows(h, h->half->v, at->keys, at->ldv, n);
}

/* ---- forward --------------------------------------------------------------------------- */

static size_t forward_floats(const srt_cpu_attention_half_t *half)
{
	return 2 * row_floats(half, half->at.queries) + 2 * row_floats(half, half->at.keys);
}

size_t srt_cpu_attention_half_scratch(const srt_cpu_gemm_t *gemm,
				      const srt_cpu_attention_half_t *half)
{
	return forward_floats(half) * sizeof(float) + srt_cpu_attention_scratch(gemm, &half->at);
}

static void forward_head(const srt_cpu_gemm_t *gemm, head_t *h)
{
	const srt_cpu_attention_t *at = &h->half->at;

	widen_operands(h);
	h->at.out = allocate_rows(h, at->queries);
	srt_cpu_attention(gemm, &h->at, 0, 1, h->next);
	store_rounded(h, h->half->out, at->queries, at->heads * at->head_dim, h->at.out);
}

void srt_cpu_attention_half(const srt_cpu_gemm_t *gemm, const srt_cpu_attention_half_t *half,
			    int part, int nparts, void *scratch)
{
	for (int64_t unit = part; unit < half->at.batch * half->at.heads; unit += nparts) {
		head_t h = head_of(half, unit, scratch);

		forward_head(gemm, &h);
	}
}

/* ---- backward -------------------------------------------------------------------------- */

static size_t backward_floats(const srt_cpu_attention_half_t *half)
{
	return (size_t)(half->dq ? 4 : 3) * row_floats(half, half->at.queries) +
	       (size_t)(2 + (half->dk != NULL) + (half->dv != NULL)) *
		       row_floats(half, half->at.keys);
}

size_t srt_cpu_attention_half_backward_scratch(const srt_cpu_gemm_t *gemm,
					       const srt_cpu_attention_half_t *half)
{
	return backward_floats(half) * sizeof(float) +
	       srt_cpu_attention_backward_scratch(gemm, &half->at);
}

static void backward_head(const srt_cpu_gemm_t *gemm, head_t *h)
{
	const srt_cpu_attention_half_t *half = h->half;
	const int64_t t = half->at.queries, keys = half->at.keys;
	const int64_t d = half->at.heads * half->at.head_dim;

	widen_operands(h);
	h->at.dout = widen_rows(h, half->dout, t, d, t);
	h->at.out = widen_rows(h, half->out, t, d, t);
	h->at.dq = half->dq ? allocate_rows(h, t) : NULL;
	h->at.dk = half->dk ? allocate_rows(h, keys) : NULL;
	h->at.dv = half->dv ? allocate_rows(h, keys) : NULL;
	srt_cpu_attention_backward(gemm, &h->at, 0, 1, h->next);
	store_rounded(h, half->dq, t, half->at.lddq, h->at.dq);
	store_rounded(h, half->dk, keys, half->at.lddk, h->at.dk);
	store_rounded(h, half->dv, keys, half->at.lddv, h->at.dv);
}

void srt_cpu_attention_half_backward(const srt_cpu_gemm_t *gemm,
				     const srt_cpu_attention_half_t *half, int part, int nparts,
				     void *scratch)
{
	for (int64_t unit = part; unit < half->at.batch * half->at.heads; unit += nparts) {
		head_t h = head_of(half, unit, scratch);

		backward_head(gemm, &h);
	}
}
