/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attention, backward; see attention.h for the contract.
 *
 * Per (batch item, head), for each block of ROWS query rows: the weights P are made again from the
 * saved maximum and sum, dP = dout V^T becomes dS in place, dq leaves as chains over j. Then every
 * mr rows of dk and dv (the columns of dS and P, read in place) go on with their chains over the
 * block's i; they lie in dqkv between blocks. Causal: dq's chains end ragged, those of dk and dv
 * begin ragged, so masked terms take part in nothing. Scratch grows with the context, not with its
 * square.
 */
#include <string.h>

#include "backends/cpu/attention_parts.h"

#define ROWS 96 /* query rows of a block; a multiple of every mr */

typedef struct layout {
	size_t kt, vt, k, q, dout, p, ds, total; /* floats from the start of the scratch */
	int64_t lds;
} layout_t;

/* One (batch item, head): pointers to its rows, distance ld in qkv and dqkv, d in dout. */
typedef struct head {
	const srt_cpu_gemm_t *gemm;
	const srt_cpu_attention_t *at;
	layout_t l;
	int64_t t, hd, d, ld;
	const float *q, *k, *v, *out, *dout, *stats;
	float *dq, *dk, *dv;
	float *scratch;
} head_t;

static int64_t min64(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static layout_t scratch_layout(const srt_cpu_gemm_t *gemm, const srt_cpu_attention_t *at)
{
	size_t across = srt_cpu_attention_panels(gemm, at->head_dim, at->context);
	size_t down = srt_cpu_attention_panels(gemm, at->context, at->head_dim);
	layout_t l = { .lds = srt_cpu_attention_lds(at) };

	l.vt = l.kt + across;
	l.k = l.vt + across;
	l.q = l.k + down;
	l.dout = l.q + down;
	l.p = l.dout + down;
	l.ds = l.p + (size_t)(min64(ROWS, at->context) * l.lds);
	l.total = l.ds + (size_t)(min64(ROWS, at->context) * l.lds);
	return l;
}

size_t srt_cpu_attention_backward_scratch(const srt_cpu_gemm_t *gemm, const srt_cpu_attention_t *at)
{
	return srt_align_up(scratch_layout(gemm, at).total * sizeof(float), 64);
}

/* The rows of out are read once and far apart: they are fetched while the scores are made. */
static void fetch_out(const head_t *h, int64_t i, int64_t rows)
{
	for (int64_t r = i; r < i + rows && r < h->t; r++)
		for (int64_t k = 0; k < h->hd; k += 16)
			__builtin_prefetch(h->out + r * h->d + k, 0, 2);
}

/* P, dS and dq of the query rows [i, i + rows), rows <= mr; row of the block = its first. */
static void query_rows(const head_t *h, int64_t i, int rows, int64_t row)
{
	const srt_cpu_gemm_t *gemm = h->gemm;
	const int64_t lds = h->l.lds, seen = h->at->causal ? i + rows : h->t;
	float *p = h->scratch + h->l.p + row * lds, *ds = h->scratch + h->l.ds + row * lds;
	srt_cpu_tile_io_t io = { .c = h->dq + i * h->ld,
				 .ldc = h->ld,
				 .alpha = 1.0f,
				 .ragged = h->at->causal ? SRT_CPU_TAIL : SRT_CPU_FULL };

	fetch_out(h, i, rows);
	srt_cpu_scores(gemm, rows, seen, h->hd, h->q + i * h->ld, h->ld, h->scratch + h->l.kt,
		       h->at->scale, p, lds);
	srt_cpu_scores(gemm, rows, seen, h->hd, h->dout + i * h->d, h->d, h->scratch + h->l.vt,
		       1.0f, ds, lds);
	for (int r = 0; r < rows; r++) {
		int64_t n = h->at->causal ? i + r + 1 : h->t;
		float dot = gemm->dot(h->dout + (i + r) * h->d, h->out + (i + r) * h->d, h->hd);

		gemm->softmax_backward(p + r * lds, ds + r * lds, n, h->stats + (i + r) * 2, dot,
				       h->at->scale);
	}
	srt_cpu_chains(gemm, rows, h->hd, seen, ds, lds, 1, h->scratch + h->l.k, h->t, &io);
}

/* dk and dv of the key rows [j, j + cols), cols <= mr, go on over the query rows [i0, i1). */
static void key_rows(const head_t *h, int64_t j, int cols, int64_t i0, int64_t i1)
{
	const int64_t nr = h->gemm->nr, lds = h->l.lds;
	int ragged = h->at->causal && j >= i0;
	int64_t first = ragged ? j : i0;
	srt_cpu_tile_io_t io = { .ldc = h->ld,
				 .ldstart = h->ld,
				 .alpha = 1.0f,
				 .ragged = ragged ? SRT_CPU_HEAD : SRT_CPU_FULL };
	const float *p = h->scratch + h->l.p + (first - i0) * lds + j;
	const float *ds = h->scratch + h->l.ds + (first - i0) * lds + j;
	int go_on = !ragged && i0 > 0;

	io.c = h->dk + j * h->ld;
	io.start = go_on ? io.c : NULL;
	srt_cpu_chains(h->gemm, cols, h->hd, i1 - first, ds, 1, lds,
		       h->scratch + h->l.q + first * nr, h->t, &io);
	io.c = h->dv + j * h->ld;
	io.start = go_on ? io.c : NULL;
	srt_cpu_chains(h->gemm, cols, h->hd, i1 - first, p, 1, lds,
		       h->scratch + h->l.dout + first * nr, h->t, &io);
}

static void backward_head(const head_t *h)
{
	const srt_cpu_gemm_t *gemm = h->gemm;
	const int64_t mr = gemm->mr;

	srt_cpu_pack_columns(gemm, h->t, h->hd, h->k, h->ld, h->scratch + h->l.kt);
	srt_cpu_pack_columns(gemm, h->t, h->hd, h->v, h->ld, h->scratch + h->l.vt);
	srt_cpu_pack_rows(gemm, h->t, h->hd, h->k, h->ld, h->scratch + h->l.k);
	srt_cpu_pack_rows(gemm, h->t, h->hd, h->q, h->ld, h->scratch + h->l.q);
	srt_cpu_pack_rows(gemm, h->t, h->hd, h->dout, h->d, h->scratch + h->l.dout);
	for (int64_t i0 = 0; i0 < h->t; i0 += ROWS) {
		int64_t i1 = min64(i0 + ROWS, h->t), keys = h->at->causal ? i1 : h->t;

		for (int64_t i = i0; i < i1; i += mr)
			query_rows(h, i, (int)min64(mr, i1 - i), i - i0);
		for (int64_t j = 0; j < keys; j += mr)
			key_rows(h, j, (int)min64(mr, keys - j), i0, i1);
	}
}

void srt_cpu_attention_backward(const srt_cpu_gemm_t *gemm, const srt_cpu_attention_t *at, int part,
				int nparts, void *scratch)
{
	const int64_t t = at->context, hd = at->head_dim, d = at->heads * hd;
	head_t h = {
		.gemm = gemm, .at = at, .t = t, .hd = hd, .d = d, .ld = 3 * d, .scratch = scratch
	};

	if (t <= 0 || hd <= 0)
		return;
	h.l = scratch_layout(gemm, at);
	for (int64_t unit = part; unit < at->batch * at->heads; unit += nparts) {
		int64_t item = unit / at->heads, head = unit % at->heads;
		int64_t row3 = item * t * h.ld + head * hd, row = item * t * d + head * hd;

		h.q = at->qkv + row3;
		h.k = h.q + d;
		h.v = h.k + d;
		h.dq = at->dqkv + row3;
		h.dk = h.dq + d;
		h.dv = h.dk + d;
		h.out = at->out + row;
		h.dout = at->dout + row;
		h.stats = at->stats + unit * t * 2;
		backward_head(&h);
	}
}
