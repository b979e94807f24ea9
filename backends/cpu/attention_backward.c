/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attention, backward; see attention.h for the contract.
 *
 * Per (batch item, head), for each block of ROWS query rows: the weights P are computed again from
 * the saved maximum and sum, dP = dout V^T becomes dS in place, dq is computed by chains over j.
 * Then each mr rows of dk and dv (the columns of dS and P, read in place) continue their chains
 * over the block's i; between blocks the chains are stored in dk and dv. Causal: chains of dq are
 * ragged at the end, those of dk and dv at the start, so masked terms are not used. With first keys
 * a query has a step only in the chains of the keys that it sees. Chains of dq
 * skip keys that the mask hides; their rows of dk and dv are computed like the others, then set to
 * zero. D is the sum of dout * out, of 16 bits the sum of P * dP. Scratch grows with the context,
 * not with its square. Rows of 16 bits are widened by blocks; dk and dv are floats in scratch until
 * the last block. Heads that share a head of keys are computed one after another; their dk and dv
 * are floats in scratch, a stack of the complete subtrees of their pairwise tree.
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

/* One (batch item, head): pointers to its rows, distance d in out and dout; dk and dv: the chains
 * of this head alone. */
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

/* The most arrays of dk, and of dv, that one head of keys has in scratch at a time. */
static int64_t count_subtrees(const srt_cpu_attention_t *at)
{
	int64_t n = 0;

	for (int64_t group = at->shape.heads / at->shape.kv_heads; group > 0; group /= 2)
		n++;
	return n > 1 || at->dtype != SRT_F32 ? n : 0;
}

static layout_t scratch_layout(const srt_cpu_gemm_t *gemm, const srt_cpu_attention_t *at)
{
	const int64_t rows = srt_min64(ROWS, at->shape.queries), hd = at->shape.head_dim;
	const int half = at->dtype != SRT_F32;
	size_t across = srt_cpu_attention_panels(gemm, hd, at->shape.keys);
	size_t down = srt_cpu_rows_scratch(gemm, SRT_F32, rows, hd, 0);
	const size_t chains = (size_t)(count_subtrees(at) * at->shape.keys * hd);
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
	l.dv = l.dk + (at->dk != NULL ? chains : 0);
	l.total = l.dv + (at->dv != NULL ? chains : 0);
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

	if (h->keys.mask != NULL) { /* dk and dv still need P and dS */
		float *shown = h->scratch + h->l.shown;

		for (int r = 0; r < now->rows; r++)
			srt_cpu_close_holes(&h->keys, ds + r * lds, srt_cpu_attention_seen(now, r),
					    shown + r * lds);
		ds = shown;
	}
	srt_cpu_key_chains(h->gemm, &h->keys, now, h->hd, ds, lds, &h->k_rows, &dq);
	srt_cpu_store_result(h->gemm, &dq, now->rows);
}

/* Scores p of query row i to weights, and dP to dS, of the n keys that it sees. */
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
		       h->scratch + h->l.kt, h->at->shape.scale, p, lds, now->from);
	srt_cpu_scores(gemm, now->rows, now->seen, h->hd, dout.p + row * dout.ld, dout.ld,
		       h->scratch + h->l.vt, 1.0f, ds, lds, now->from);
	for (int r = 0; r < now->rows; r++) {
		int64_t from = srt_cpu_attention_from(&h->keys, now, r);

		score_gradients(h, i + r, srt_cpu_attention_seen(now, r) - from,
				dout.p + (row + r) * dout.ld, p + r * lds + from,
				ds + r * lds + from);
	}
	if (h->dq != NULL)
		query_gradients(h, i, now, ds);
}

/* The keys of a tile of rows of dk and dv that a query sees: n from `first` on, or none. */
typedef struct span {
	int64_t first, n;
} span_t;

static span_t seen_of_tile(const head_t *h, int64_t i, int64_t j, int cols)
{
	const int64_t first = srt_max64(j, srt_cpu_first_key(&h->keys, i));
	const int64_t end = srt_min64(j + cols, srt_cpu_seen_by(h->at, &h->keys, i));

	return end > first ? (span_t){ first, end - first } : (span_t){ j, 0 };
}

/* Queries from i on, before `end`, that are one product with the tile: they see the same keys of
 * it, or (ragged) query i its first one, each query after it one more. */
static int64_t end_of_run(const head_t *h, int64_t i, int64_t end, int64_t j, int cols, span_t span,
			  int ragged)
{
	int64_t next = i + 1;

	if (h->keys.first == NULL)
		return ragged || span.n == cols ? end : next;
	for (; next < end; next++) {
		const span_t other = seen_of_tile(h, next, j, cols);

		if (other.first != span.first || (ragged ? other.n == 0 : other.n != span.n))
			break;
	}
	return next;
}

/* Continues the chains of key rows [j, j + cols), cols <= mr, of dk or dv (to) over query rows
 * [i0, i1): columns of dS or P (rows of the block) times the block's rows of q or dout. */
static void key_rows(const head_t *h, const srt_cpu_result_t *to, int64_t j, int cols, int64_t i0,
		     int64_t i1, size_t rows, const srt_cpu_rows_t *x)
{
	const int64_t lds = h->l.lds, ld = to->ld;
	int64_t i = h->at->shape.causal ? srt_max64(i0, j - h->at->shape.offset) : i0, end;

	for (; i < i1; i = end) {
		span_t span = seen_of_tile(h, i, j, cols);
		int ragged = span.first == j && span.n == 1 && cols > 1;

		end = end_of_run(h, i, i1, j, cols, span, ragged);
		if (ragged && end - i < cols - 1) {
			ragged = 0;
			end = i + 1;
		}
		if (ragged)
			span.n = cols;
		if (span.n > 0)
			srt_cpu_chains(h->gemm, (int)span.n, h->hd, end - i,
				       h->scratch + rows + (i - i0) * lds + span.first, 1, lds, x,
				       i - i0,
				       &(srt_cpu_tile_io_t){ .c = to->p + span.first * ld,
							     .ldc = ld,
							     .start = to->p + span.first * ld,
							     .ldstart = ld,
							     .alpha = 1.0f,
							     .ragged = ragged ? SRT_CPU_HEAD :
										SRT_CPU_FULL });
	}
}

/* Sets the chains of keys to zero: all, or those that the mask hides. */
static void zero_keys(const head_t *h, const srt_cpu_result_t *to, const unsigned char *mask)
{
	const int64_t n = mask != NULL ? h->keys.n : h->at->shape.keys;

	for (int64_t j = 0; to->p != NULL && j < n; j++)
		if (mask == NULL || !mask[j])
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

/* The first key that a query of the block [i0,i1) sees. */
static int64_t first_of_block(const head_t *h, int64_t i0, int64_t i1)
{
	int64_t first = srt_cpu_first_key(&h->keys, i0);

	for (int64_t i = i0 + 1; h->keys.first != NULL && i < i1; i++)
		first = srt_min64(first, srt_cpu_first_key(&h->keys, i));
	return first;
}

static void backward_head(head_t *h)
{
	const srt_cpu_attention_t *at = h->at;
	const int64_t mr = h->gemm->mr;

	zero_keys(h, &h->dk, NULL);
	zero_keys(h, &h->dv, NULL);
	for (int64_t i0 = 0; i0 < h->t; i0 += ROWS) {
		int64_t i1 = srt_min64(i0 + ROWS, h->t);
		int64_t keys = srt_cpu_seen_by(at, &h->keys, i1 - 1);
		srt_cpu_queries_t now;

		place_block(h, i0, i1);
		for (int64_t i = i0; i < i1; i += now.rows) {
			now = srt_cpu_attention_queries(h->gemm, at, i, i1, &h->keys);
			query_rows(h, i, &now, i - i0);
		}
		for (int64_t j = first_of_block(h, i0, i1) / mr * mr; j < keys; j += mr) {
			int cols = (int)srt_min64(mr, keys - j);

			if (h->dk.p != NULL)
				key_rows(h, &h->dk, j, cols, i0, i1, h->l.ds, &h->block.q_rows);
			if (h->dv.p != NULL)
				key_rows(h, &h->dv, j, cols, i0, i1, h->l.p, &h->block.dout_rows);
		}
	}
	if (h->keys.mask != NULL) {
		zero_keys(h, &h->dk, h->keys.mask);
		zero_keys(h, &h->dv, h->keys.mask);
	}
}

/* The first row of an item and head; NULL for NULL. */
static void *offset_rows(const head_t *h, const void *p, int64_t row, int64_t ld, int64_t column)
{
	return srt_cpu_element(p, h->at->dtype, row * ld + column);
}

/* The rows of a head of the queries. */
static void place_head(head_t *h, int64_t item, int64_t head)
{
	const srt_cpu_attention_t *at = h->at;
	const int64_t row = item * h->t, column = head * h->hd;

	h->q = offset_rows(h, at->q, row, at->shape.ldq, column);
	h->dq = offset_rows(h, at->dq, row, at->shape.lddq, column);
	h->out = offset_rows(h, at->out, row, h->d, column);
	h->dout = offset_rows(h, at->dout, row, h->d, column);
	h->stats = at->stats + (item * at->shape.heads + head) * h->t * 2;
}

/* Adds the chains of the stack's last entry onto those of the entry before it. */
static void add_last(const head_t *h, float *chains, int64_t last)
{
	const int64_t n = h->at->shape.keys * h->hd;
	const float *x = chains + last * n;
	float *y = chains + (last - 1) * n;

	for (int64_t i = 0; i < n; i++)
		y[i] = y[i] + x[i];
}

/* The heads that share head kv of the keys, whose dk and dv these are. */
static void backward_group(head_t *h, int64_t item, int64_t kv, const srt_cpu_result_t *dk,
			   const srt_cpu_result_t *dv)
{
	const int64_t group = h->at->shape.heads / h->at->shape.kv_heads;
	const int64_t n = h->at->shape.keys * h->hd;
	int64_t last = -1; /* of the stack */

	for (int64_t g = 0; g < group; g++) {
		last++;
		h->dk = *dk;
		h->dv = *dv;
		if (dk->p != NULL)
			h->dk.p += last * n;
		if (dv->p != NULL)
			h->dv.p += last * n;
		place_head(h, item, kv * group + g);
		backward_head(h);
		for (int64_t done = g; last > 0 && (done & 1 || g + 1 == group);
		     done /= 2, last--) {
			if (dk->p != NULL)
				add_last(h, dk->p, last);
			if (dv->p != NULL)
				add_last(h, dv->p, last);
		}
	}
	srt_cpu_store_result(h->gemm, dk, h->at->shape.keys);
	srt_cpu_store_result(h->gemm, dv, h->at->shape.keys);
}

/* dk or dv of a head of keys: in place, or floats at `scratch`. */
static srt_cpu_result_t key_result(const head_t *h, void *y, int64_t ldy, size_t scratch)
{
	srt_cpu_result_t r = srt_cpu_result(h->at->dtype, h->hd, y, ldy, h->scratch + scratch);

	if (y != NULL && h->at->shape.heads > h->at->shape.kv_heads) {
		r.p = h->scratch + scratch;
		r.ld = h->hd;
	}
	return r;
}

void srt_cpu_attention_backward(const srt_cpu_gemm_t *gemm, const srt_cpu_attention_t *at, int part,
				int nparts, void *scratch)
{
	const int64_t t = at->shape.queries, hd = at->shape.head_dim, d = at->shape.heads * hd;
	head_t h = { .gemm = gemm, .at = at, .t = t, .hd = hd, .d = d, .scratch = scratch };
	const srt_cpu_keys_t none = { .n = 0 };
	srt_cpu_result_t dk, dv;

	if (hd <= 0)
		return;
	h.l = scratch_layout(gemm, at);
	for (int64_t unit = part; unit < at->shape.batch * at->shape.kv_heads; unit += nparts) {
		int64_t item = unit / at->shape.kv_heads, kv = unit % at->shape.kv_heads;
		int64_t row = item * at->shape.keys, column = kv * hd;

		h.keys = t > 0 ? srt_cpu_attention_keys(at, item, h.scratch + h.l.keys) : none;
		h.k = offset_rows(&h, at->k, row, at->shape.ldk, column);
		h.v = offset_rows(&h, at->v, row, at->shape.ldv, column);
		dk = key_result(&h, offset_rows(&h, at->dk, row, at->shape.lddk, column),
				at->shape.lddk, h.l.dk);
		dv = key_result(&h, offset_rows(&h, at->dv, row, at->shape.lddv, column),
				at->shape.lddv, h.l.dv);
		place_keys(&h);
		backward_group(&h, item, kv, &dk, &dv);
	}
}
