/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attention, backward; see attention.h for the contract.
 *
 * Per (batch item, head), for each block of ROWS query rows: the weights P are computed again from
 * the saved maximum and sum, dP = dout V^T becomes dS in place, dq is computed by chains over j.
 * Then each mr rows of dk and dv (the columns of dS and P, read in place) continue their chains
 * over the block's i; between blocks the chains are stored in dk and dv. Causal: chains of dq are
 * ragged at the end, those of dk and dv at the start, so masked terms are not used. Chains of dq
 * skip keys that the mask hides; their rows of dk and dv are computed like the others, then set to
 * zero. D is the sum of dout * out, of 16 bits the sum of P * dP. Scratch grows with the context,
 * not with its square. Rows of 16 bits are widened by blocks; dk and dv are floats in scratch until
 * the last block.
 */
#include <math.h>
#include <string.h>

#include "backends/cpu/attention_parts.h"

#define ROWS 96 /* query rows of a block; a multiple of every mr */

typedef struct layout {
	size_t keys, kt, vt, k, q, dout, p, ds; /* floats from the start of the scratch */
	size_t shown, wide[2], dq, dk, dv, total;
	int64_t lds;
} layout_t;

/* A block of query rows: as floats, and as the tiles of dk and dv read them. */
typedef struct block {
	srt_cpu_floats_t q, dout;
	srt_cpu_rows_t q_rows, dout_rows;
} block_t;

/* One (batch item, head): pointers to its rows, distance d in out and dout. */
typedef struct head {
	const srt_cpu_gemm_t *gemm;
	const srt_cpu_attention_t *at;
	layout_t l;
	srt_cpu_keys_t keys;
	int64_t t, hd, d; /* t: queries */
	const void *q, *k, *v, *out, *dout;
	const float *stats;
	void *dq;
	srt_cpu_result_t dk, dv;
	srt_cpu_rows_t k_rows;
	block_t block;
	float *scratch;
} head_t;

static layout_t scratch_layout(const srt_cpu_gemm_t *gemm, const srt_cpu_attention_t *at)
{
	const int64_t rows = srt_min64(ROWS, at->shape.queries), hd = at->shape.head_dim;
	const int half = at->dtype != SRT_F32;
	size_t across = srt_cpu_attention_panels(gemm, hd, at->shape.keys);
	size_t down = srt_cpu_rows_scratch(gemm, SRT_F32, rows, hd, 0);
	layout_t l = { .lds = srt_cpu_attention_lds(at) };

	l.kt = l.keys + srt_cpu_attention_keys_scratch(at);
	l.vt = l.kt + across;
	l.k = l.vt + across;
	l.q = l.k + srt_cpu_rows_scratch(gemm, at->dtype, at->shape.keys, hd, at->mask != NULL);
	l.dout = l.q + down;
	l.p = l.dout + down;
	l.ds = l.p + (size_t)(rows * l.lds);
	l.shown = l.ds + (size_t)(rows * l.lds);
	l.total = l.shown + (at->mask != NULL ? (size_t)(gemm->mr * l.lds) : 0);
	for (int i = 0; i < 2 && half; i++, l.total += (size_t)(rows * hd))
		l.wide[i] = l.total;
	l.dq = l.total;
	l.dk = l.dq + (half && at->dq != NULL ? (size_t)(gemm->mr * hd) : 0);
	l.dv = l.dk + (half && at->dk != NULL ? (size_t)(at->shape.keys * hd) : 0);
	l.total = l.dv + (half && at->dv != NULL ? (size_t)(at->shape.keys * hd) : 0);
	return l;
}

size_t srt_cpu_attention_backward_scratch(const srt_cpu_gemm_t *gemm, const srt_cpu_attention_t *at)
{
	return srt_align_up(scratch_layout(gemm, at).total * sizeof(float), 64);
}

/* Prefetches the rows of out during the scores: they are far apart and read once. */
static void prefetch_out(const head_t *h, int64_t i, int64_t rows)
{
	const float *out = h->out;

	if (h->at->dtype != SRT_F32) /* not read */
		return;
	for (int64_t r = i; r < i + rows; r++)
		for (int64_t k = 0; k < h->hd; k += 16)
			__builtin_prefetch(out + r * h->d + k, 0, 2);
}

/* dq of query rows from i on: chains of their rows of dS over the visible keys. */
static void query_gradients(const head_t *h, int64_t i, const srt_cpu_queries_t *now,
			    const float *ds)
{
	const int64_t lds = h->l.lds, lddq = h->at->shape.lddq;
	const srt_dtype_t dtype = h->at->dtype;
	const srt_cpu_result_t dq =
		srt_cpu_result(dtype, h->hd, srt_cpu_element(h->dq, dtype, i * lddq), lddq,
			       h->scratch + h->l.dq);
	srt_cpu_tile_io_t io = {
		.c = dq.p, .ldc = dq.ld, .alpha = 1.0f, .ragged = now->shown_ragged
	};

	if (h->keys.mask != NULL) { /* dk and dv still need P and dS */
		float *shown = h->scratch + h->l.shown;

		for (int r = 0; r < now->rows; r++)
			srt_cpu_close_holes(&h->keys, ds + r * lds, srt_cpu_attention_seen(now, r),
					    shown + r * lds);
		ds = shown;
	}
	srt_cpu_chains(h->gemm, now->rows, h->hd, now->shown, ds, lds, 1, &h->k_rows, 0, &io);
	srt_cpu_store_result(h->gemm, &dq, now->rows);
}

/* Scores p of query row i to weights, and dP to dS; it sees n keys. */
static void score_gradients(const head_t *h, int64_t i, int64_t n, const float *dout, float *p,
			    float *ds)
{
	const srt_cpu_gemm_t *gemm = h->gemm;
	const float *out = h->out, *stats = h->stats + i * 2, scale = h->at->shape.scale;

	if (h->at->dtype == SRT_F32) {
		gemm->softmax_backward(p, ds, n, stats, gemm->dot(dout, out + i * h->d, h->hd),
				       scale);
		return;
	}
	for (int64_t j = 0; h->keys.mask != NULL && j < n; j++) {
		if (h->keys.mask[j])
			continue;
		p[j] = -INFINITY;
		ds[j] = -0.0f;
	}
	gemm->softmax_backward_half(p, ds, n, stats, scale);
}

/* P, dS and dq of query rows from i on; row of the block = its first. */
static void query_rows(const head_t *h, int64_t i, const srt_cpu_queries_t *now, int64_t row)
{
	const srt_cpu_gemm_t *gemm = h->gemm;
	const srt_cpu_floats_t q = h->block.q, dout = h->block.dout;
	const int64_t lds = h->l.lds;
	float *p = h->scratch + h->l.p + row * lds, *ds = h->scratch + h->l.ds + row * lds;

	prefetch_out(h, i, now->rows);
	srt_cpu_scores(gemm, now->rows, now->seen, h->hd, q.p + row * q.ld, q.ld,
		       h->scratch + h->l.kt, h->at->shape.scale, p, lds);
	srt_cpu_scores(gemm, now->rows, now->seen, h->hd, dout.p + row * dout.ld, dout.ld,
		       h->scratch + h->l.vt, 1.0f, ds, lds);
	for (int r = 0; r < now->rows; r++)
		score_gradients(h, i + r, srt_cpu_attention_seen(now, r),
				dout.p + (row + r) * dout.ld, p + r * lds, ds + r * lds);
	if (h->dq != NULL)
		query_gradients(h, i, now, ds);
}

/* Continues the chains of key rows [j, j + cols), cols <= mr, of dk or dv (to) over query rows
 * [i0, i1): columns of dS or P (rows of the block) times the block's rows of q or dout. */
static void key_rows(const head_t *h, const srt_cpu_result_t *to, int64_t j, int cols, int64_t i0,
		     int64_t i1, size_t rows, const srt_cpu_rows_t *x)
{
	const int64_t lds = h->l.lds, ld = to->ld;
	int ragged = h->at->shape.causal && j >= i0;
	int64_t first = ragged ? j : i0;
	srt_cpu_tile_io_t io = { .c = to->p + j * ld,
				 .ldc = ld,
				 .ldstart = ld,
				 .alpha = 1.0f,
				 .ragged = ragged ? SRT_CPU_HEAD : SRT_CPU_FULL };

	io.start = !ragged && i0 > 0 ? io.c : NULL;
	srt_cpu_chains(h->gemm, cols, h->hd, i1 - first, h->scratch + rows + (first - i0) * lds + j,
		       1, lds, x, first - i0, &io);
}

/* Sets the gradients of keys that no query sees to zero. */
static void zero_unseen(const head_t *h, const srt_cpu_result_t *to)
{
	const int64_t n = h->at->shape.causal ? srt_min64(h->keys.n, h->t) : h->keys.n;

	for (int64_t j = h->keys.mask != NULL ? 0 : n; to->p != NULL && j < h->at->shape.keys; j++)
		if (j >= n || !h->keys.mask[j])
			memset(to->p + j * to->ld, 0, (size_t)h->hd * sizeof(float));
}

static void place_keys(head_t *h)
{
	const srt_cpu_gemm_t *gemm = h->gemm;
	const srt_cpu_attention_t *at = h->at;

	srt_cpu_pack_columns(gemm, at->dtype, h->keys.n, h->hd, h->k, at->shape.ldk,
			     h->scratch + h->l.kt);
	srt_cpu_pack_columns(gemm, at->dtype, h->keys.n, h->hd, h->v, at->shape.ldv,
			     h->scratch + h->l.vt);
	h->k_rows = srt_cpu_place_keys(gemm, at->dtype, &h->keys, h->hd, h->k, at->shape.ldk,
				       h->scratch + h->l.k);
}

/* Query rows of the block [i0,i1) from a tensor; wide: its scratch. */
static srt_cpu_floats_t block_rows(const head_t *h, const void *x, int64_t ld, int64_t i0,
				   int64_t i1, size_t wide)
{
	return srt_cpu_float_rows(h->gemm, h->at->dtype, i1 - i0, h->hd,
				  srt_cpu_element(x, h->at->dtype, i0 * ld), ld, h->scratch + wide);
}

static void place_block(head_t *h, int64_t i0, int64_t i1)
{
	const layout_t *l = &h->l;
	block_t *b = &h->block;

	b->q = block_rows(h, h->q, h->at->shape.ldq, i0, i1, l->wide[0]);
	b->dout = block_rows(h, h->dout, h->d, i0, i1, l->wide[1]);
	b->q_rows = srt_cpu_place_rows(h->gemm, SRT_F32, i1 - i0, h->hd, b->q.p, b->q.ld,
				       h->scratch + l->q);
	b->dout_rows = srt_cpu_place_rows(h->gemm, SRT_F32, i1 - i0, h->hd, b->dout.p, b->dout.ld,
					  h->scratch + l->dout);
}

static void backward_head(head_t *h)
{
	const srt_cpu_attention_t *at = h->at;
	const int64_t mr = h->gemm->mr;

	place_keys(h);
	for (int64_t i0 = 0; i0 < h->t; i0 += ROWS) {
		int64_t i1 = srt_min64(i0 + ROWS, h->t);
		int64_t keys = at->shape.causal ? srt_min64(i1, h->keys.n) : h->keys.n;
		srt_cpu_queries_t now;

		place_block(h, i0, i1);
		for (int64_t i = i0; i < i1; i += now.rows) {
			now = srt_cpu_attention_queries(h->gemm, at, i, i1, &h->keys);
			query_rows(h, i, &now, i - i0);
		}
		for (int64_t j = 0; j < keys; j += mr) {
			int cols = (int)srt_min64(mr, keys - j);

			if (h->dk.p != NULL)
				key_rows(h, &h->dk, j, cols, i0, i1, h->l.ds, &h->block.q_rows);
			if (h->dv.p != NULL)
				key_rows(h, &h->dv, j, cols, i0, i1, h->l.p, &h->block.dout_rows);
		}
	}
	zero_unseen(h, &h->dk);
	zero_unseen(h, &h->dv);
	srt_cpu_store_result(h->gemm, &h->dk, at->shape.keys);
	srt_cpu_store_result(h->gemm, &h->dv, at->shape.keys);
}

/* The first row of an item and head; NULL for NULL. */
static void *offset_rows(const head_t *h, const void *p, int64_t row, int64_t ld, int64_t column)
{
	return srt_cpu_element(p, h->at->dtype, row * ld + column);
}

void srt_cpu_attention_backward(const srt_cpu_gemm_t *gemm, const srt_cpu_attention_t *at, int part,
				int nparts, void *scratch)
{
	const int64_t t = at->shape.queries, hd = at->shape.head_dim, d = at->shape.heads * hd;
	head_t h = { .gemm = gemm, .at = at, .t = t, .hd = hd, .d = d, .scratch = scratch };
	const srt_cpu_keys_t none = { .n = 0 };

	if (hd <= 0)
		return;
	h.l = scratch_layout(gemm, at);
	for (int64_t unit = part; unit < at->shape.batch * at->shape.heads; unit += nparts) {
		int64_t item = unit / at->shape.heads, column = unit % at->shape.heads * hd;

		h.keys = t > 0 ? srt_cpu_attention_keys(at, item, h.scratch + h.l.keys) : none;
		h.q = offset_rows(&h, at->q, item * t, at->shape.ldq, column);
		h.k = offset_rows(&h, at->k, item * at->shape.keys, at->shape.ldk, column);
		h.v = offset_rows(&h, at->v, item * at->shape.keys, at->shape.ldv, column);
		h.dq = offset_rows(&h, at->dq, item * t, at->shape.lddq, column);
		h.dk = srt_cpu_result(at->dtype, hd,
				      offset_rows(&h, at->dk, item * at->shape.keys, at->shape.lddk,
						  column),
				      at->shape.lddk, h.scratch + h.l.dk);
		h.dv = srt_cpu_result(at->dtype, hd,
				      offset_rows(&h, at->dv, item * at->shape.keys, at->shape.lddv,
						  column),
				      at->shape.lddv, h.scratch + h.l.dv);
		h.out = offset_rows(&h, at->out, item * t, d, column);
		h.dout = offset_rows(&h, at->dout, item * t, d, column);
		h.stats = at->stats + unit * t * 2;
		backward_head(&h);
	}
}
