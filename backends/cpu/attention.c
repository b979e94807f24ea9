/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attention, forward; see attention.h for the contract, attention_backward.c for the other half.
 *
 * Per (batch item, head of keys): K is packed transposed into panels of nr columns, V without
 * transposition unless tiles read it in place. Then, for each head that reads them, for each mr
 * rows of queries: the needed columns of the scores by tiles, softmax by row, and the tiles of P V
 * as chains over j. Chains of causal attention are ragged at the end: row i has no step beyond
 * j = offset + i, so values at masked positions (infinities, NaN) never reach a result. Keys beyond
 * the item's length are not used. Keys that the mask hides have scores of -infinity, which add +0
 * to a row's sum, and no step in the chains. Keys before a row's first one are in none of its
 * steps: its lanes and chains begin there. Scores of mr rows stay in the first-level cache from
 * their tiles to P V.
 */
#include <math.h>
#include <string.h>

#include "backends/cpu/attention_parts.h"

typedef struct layout {
	size_t keys, k, v, s, q, out, total; /* floats from the start of the scratch */
	int64_t lds;
} layout_t;

static layout_t scratch_layout(const srt_cpu_gemm_t *gemm, const srt_cpu_attention_t *at)
{
	const size_t wide = at->dtype == SRT_F32 ? 0 : (size_t)(gemm->mr * at->shape.head_dim);
	layout_t l = { .lds = srt_cpu_attention_lds(at) };

	l.k = l.keys + srt_cpu_attention_keys_scratch(at);
	l.v = l.k + srt_cpu_attention_panels(gemm, at->shape.head_dim, at->shape.keys);
	l.s = l.v + srt_cpu_rows_scratch(gemm, at->dtype, at->shape.keys, at->shape.head_dim,
					 at->mask != NULL);
	l.q = l.s + (size_t)(gemm->mr * l.lds);
	l.out = l.q + wide;
	l.total = l.out + wide;
	return l;
}

size_t srt_cpu_attention_scratch(const srt_cpu_gemm_t *gemm, const srt_cpu_attention_t *at)
{
	return srt_align_up(scratch_layout(gemm, at).total * sizeof(float), 64);
}

/* Converts the first n scores of a row to adjacent weights; a fully masked row has none. */
static void compute_weights(const srt_cpu_gemm_t *gemm, const srt_cpu_keys_t *keys, float *s,
			    int64_t n, float stats[2])
{
	if (srt_cpu_shown(keys, n) == 0) {
		stats[0] = -INFINITY;
		stats[1] = 0.0f;
		return;
	}
	for (int64_t j = 0; keys->mask != NULL && j < n; j++)
		s[j] = keys->mask[j] ? s[j] : -INFINITY;
	gemm->softmax(s, n, stats);
	if (keys->mask != NULL)
		srt_cpu_close_holes(keys, s, n, s);
}

/* A head of keys and values, for the heads that share it. */
typedef struct placed {
	int64_t unit; /* item * kv_heads + head */
	srt_cpu_keys_t keys;
	srt_cpu_rows_t v_rows;
} placed_t;

static placed_t place_keys(const srt_cpu_gemm_t *gemm, const srt_cpu_attention_t *at, int64_t unit,
			   const layout_t *l, float *scratch)
{
	const int64_t item = unit / at->shape.kv_heads, row = item * at->shape.keys;
	const int64_t hd = at->shape.head_dim, column = unit % at->shape.kv_heads * hd;
	const void *k = srt_cpu_element(at->k, at->dtype, row * at->shape.ldk + column);
	const void *v = srt_cpu_element(at->v, at->dtype, row * at->shape.ldv + column);
	placed_t p = { .unit = unit, .keys = srt_cpu_attention_keys(at, item, scratch + l->keys) };

	srt_cpu_pack_columns(gemm, at->dtype, p.keys.n, hd, k, at->shape.ldk, scratch + l->k);
	p.v_rows =
		srt_cpu_place_keys(gemm, at->dtype, &p.keys, hd, v, at->shape.ldv, scratch + l->v);
	return p;
}

static void forward_head(const srt_cpu_gemm_t *gemm, const srt_cpu_attention_t *at, int64_t item,
			 int64_t head, const placed_t *placed, const layout_t *l, float *scratch)
{
	const int64_t t = at->shape.queries, hd = at->shape.head_dim, d = at->shape.heads * hd;
	const srt_cpu_keys_t *keys = &placed->keys;
	const srt_dtype_t dtype = at->dtype;
	const void *q = srt_cpu_element(at->q, dtype, item * t * at->shape.ldq + head * hd);
	void *out = srt_cpu_element(at->out, dtype, item * t * d + head * hd);
	float *stats = at->stats + (item * at->shape.heads + head) * t * 2;
	float *s = scratch + l->s;
	srt_cpu_queries_t now;

	for (int64_t i = 0; i < t; i += now.rows) {
		srt_cpu_result_t to = srt_cpu_result(dtype, hd, srt_cpu_element(out, dtype, i * d),
						     d, scratch + l->out);
		srt_cpu_floats_t x;

		now = srt_cpu_attention_queries(gemm, at, i, t, keys);
		x = srt_cpu_float_rows(gemm, dtype, now.rows, hd,
				       srt_cpu_element(q, dtype, i * at->shape.ldq), at->shape.ldq,
				       scratch + l->q);
		srt_cpu_scores(gemm, now.rows, now.seen, hd, x.p, x.ld, scratch + l->k,
			       at->shape.scale, s, l->lds, now.from);
		for (int r = 0; r < now.rows; r++) {
			int64_t from = srt_cpu_attention_from(keys, &now, r);

			compute_weights(gemm, keys, s + r * l->lds + from,
					srt_cpu_attention_seen(&now, r) - from,
					stats + (i + r) * 2);
		}
		srt_cpu_key_chains(gemm, keys, &now, hd, s, l->lds, &placed->v_rows, &to);
		srt_cpu_store_result(gemm, &to, now.rows);
	}
}

void srt_cpu_attention(const srt_cpu_gemm_t *gemm, const srt_cpu_attention_t *at, int part,
		       int nparts, void *scratch)
{
	const int64_t total = at->shape.batch * at->shape.heads;
	const layout_t l = scratch_layout(gemm, at);
	placed_t placed = { .unit = -1 };

	if (at->shape.queries <= 0 || at->shape.head_dim <= 0)
		return;
	for (int64_t unit = part; unit < total; unit += nparts) {
		const int64_t item = unit / at->shape.heads, head = unit % at->shape.heads;
		const int64_t of = unit / (at->shape.heads / at->shape.kv_heads);

		if (of != placed.unit)
			placed = place_keys(gemm, at, of, &l, scratch);
		forward_head(gemm, at, item, head, &placed, &l, scratch);
	}
}
