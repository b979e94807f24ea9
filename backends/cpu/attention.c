/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attention, forward; see attention.h for the contract, attention_backward.c for the other half.
 *
 * Per (batch item, head): K is packed transposed into panels of nr columns, V plainly unless tiles
 * read it where it lies; then for each mr rows of queries: the needed columns of the scores by
 * tiles, softmax row by row, and the tiles of P V as chains over j, in causal attention ragged at
 * their end: row i takes no step beyond j = i, so whatever lies at masked positions (infinities,
 * NaN) is never read into a result. Keys beyond the item's length take part in nothing.
 * Scores of mr rows stay in the first-level cache from their tiles to P V.
 */
#include <math.h>
#include <string.h>

#include "backends/cpu/attention_parts.h"

typedef struct layout {
	size_t k, v, s, total; /* floats from the start of the scratch */
	int64_t lds;
} layout_t;

static layout_t scratch_layout(const srt_cpu_gemm_t *gemm, const srt_cpu_attention_t *at)
{
	layout_t l = { .lds = srt_cpu_attention_lds(at) };

	l.v = l.k + srt_cpu_attention_panels(gemm, at->head_dim, at->keys);
	l.s = l.v + srt_cpu_rows_scratch(gemm, at->keys, at->head_dim);
	l.total = l.s + (size_t)(gemm->mr * l.lds);
	return l;
}

size_t srt_cpu_attention_scratch(const srt_cpu_gemm_t *gemm, const srt_cpu_attention_t *at)
{
	return srt_align_up(scratch_layout(gemm, at).total * sizeof(float), 64);
}

/* Scores of a row to weights; a row that sees nothing has none. */
static void softmax(const srt_cpu_gemm_t *gemm, float *s, int64_t n, float stats[2])
{
	if (n > 0) {
		gemm->softmax(s, n, stats);
		return;
	}
	stats[0] = -INFINITY;
	stats[1] = 0.0f;
}

static void forward_head(const srt_cpu_gemm_t *gemm, const srt_cpu_attention_t *at, int64_t item,
			 int64_t head, float *scratch)
{
	const layout_t l = scratch_layout(gemm, at);
	const int64_t t = at->queries, hd = at->head_dim, d = at->heads * hd;
	const int64_t n = srt_cpu_attention_keys(at, item);
	const float *q = at->q + item * t * at->ldq + head * hd;
	const float *k = at->k + item * at->keys * at->ldk + head * hd;
	const float *v = at->v + item * at->keys * at->ldv + head * hd;
	float *out = at->out + item * t * d + head * hd;
	float *stats = at->stats + (item * at->heads + head) * t * 2;
	float *s = scratch + l.s;
	srt_cpu_rows_t v_rows;
	srt_cpu_queries_t now;

	srt_cpu_pack_columns(gemm, n, hd, k, at->ldk, scratch + l.k);
	v_rows = srt_cpu_place_rows(gemm, n, hd, v, at->ldv, scratch + l.v);
	for (int64_t i = 0; i < t; i += now.rows) {
		srt_cpu_tile_io_t io = { .c = out + i * d, .ldc = d, .alpha = 1.0f };

		now = srt_cpu_attention_queries(gemm, at, i, t, n);
		io.ragged = now.ragged;
		srt_cpu_scores(gemm, now.rows, now.seen, hd, q + i * at->ldq, at->ldq,
			       scratch + l.k, at->scale, s, l.lds);
		for (int r = 0; r < now.rows; r++)
			softmax(gemm, s + r * l.lds, srt_cpu_attention_seen(&now, r),
				stats + (i + r) * 2);
		srt_cpu_chains(gemm, now.rows, hd, now.seen, s, l.lds, 1, &v_rows, 0, &io);
	}
}

void srt_cpu_attention(const srt_cpu_gemm_t *gemm, const srt_cpu_attention_t *at, int part,
		       int nparts, void *scratch)
{
	int64_t total = at->batch * at->heads;

	if (at->queries <= 0 || at->head_dim <= 0)
		return;
	for (int64_t unit = part; unit < total; unit += nparts)
		forward_head(gemm, at, unit / at->heads, unit % at->heads, scratch);
}
