/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attention and its gradient for devices of CPU type, equal to kernels/attention.k bit for bit. A
 * work-item computes complete heads, with its part of the scratch; see srt_ocl_attention_t. As in
 * backends/cpu/attention*.c, chains of causal attention are ragged: masked terms are not used.
 * Launched by attention.c.
 */
#include "backends/opencl/vector_tile.cl"

#define ROWS 96 /* query rows of a block of the backward pass: a multiple of MR */
#define RUN 16  /* positions of a row that are worked on together */

/* One head: where its rows begin; those of out and dout are d apart. */
typedef struct head {
	int64_t t, n, hd, d; /* queries, keys of the item */
	int64_t q, k, v, dq, dk, dv, out;
	int64_t row; /* first of its statistics */
} head_t;

FN head_t head_of(const srt_k_attention_t *s, GLOBAL const int32_t *lengths, int64_t unit)
{
	const int64_t item = unit / s->heads, column = unit % s->heads * s->head_dim;
	head_t h;

	h.t = s->queries;
	h.n = lengths ? lengths[item] : s->keys;
	h.n = h.n < 0 ? 0 : MIN_OF(h.n, s->keys);
	h.hd = s->head_dim;
	h.d = s->heads * s->head_dim;
	h.q = item * s->queries * s->ldq + column;
	h.k = item * s->keys * s->ldk + column;
	h.v = item * s->keys * s->ldv + column;
	h.dq = item * s->queries * s->lddq + column;
	h.dk = item * s->keys * s->lddk + column;
	h.dv = item * s->keys * s->lddv + column;
	h.out = item * h.t * h.d + column;
	h.row = unit * h.t;
	return h;
}

/* Query rows that are worked on together: all see the same keys, or row r sees one more than row
 * r - 1 and the last one all `seen`. */
typedef struct queries {
	int rows, ragged;
	int64_t seen; /* by the last row */
} queries_t;

/* The next rows from query i on, of those before `end`. */
FN queries_t next_queries(const srt_k_attention_t *s, const head_t *h, int64_t i, int64_t end)
{
	const int64_t rows = MIN_OF(MR, end - i);
	queries_t now;

	now.ragged = s->causal && i < h->n;
	now.rows = now.ragged ? MIN_OF(rows, h->n - i) : rows;
	now.seen = now.ragged ? i + now.rows : h->n;
	return now;
}

/* How many keys row r of them sees. */
FN int64_t seen_by(const queries_t *now, int r)
{
	return now->ragged ? now->seen - now->rows + r + 1 : now->seen;
}

/* x (t,hd) as columns: panels (hd,NR) over t; as rows: panels (t,NR) over hd. */
FN void pack_columns(GLOBAL float *dst, GLOBAL const float *x, int64_t ld, int64_t t, int64_t hd)
{
	for (int64_t j = 0; j < t; j += NR)
		pack_panel_transposed(dst + j * hd, x + j * ld, ld, NR, t - j, 0, hd);
}

FN void pack_rows(GLOBAL float *dst, GLOBAL const float *x, int64_t ld, int64_t t, int64_t hd)
{
	for (int64_t j = 0; j < hd; j += NR)
		pack_panel(dst + j * t, x + j, ld, NR, hd - j, 0, t);
}

#define SCORE(i, j)                                                                                \
	{                                                                                          \
		GLOBAL float *to = s + i * lds + j * VL;                                           \
                                                                                                   \
		if (k > 0)                                                                         \
			c.c[i][j] = VLOAD(to) + c.c[i][j];                                         \
		VSTORE(c.c[i][j] * factor, to);                                                    \
	}
#define SCORE_ROW(i) EACH_VECTOR(SCORE, i)

/* s (MR,columns) = (x (rows,hd) . panels of columns, by the matmul rule) * scale */
FN void scores(GLOBAL float *s, int64_t lds, GLOBAL const float *x, int64_t ldx, int rows,
	       GLOBAL const float *panels, int64_t columns, int64_t hd, float scale)
{
	for (int64_t j = 0; j < columns; j += NR, s += NR, panels += hd * NR) {
		for (int64_t k = 0; k < hd; k += SRT_K_MATMUL_KB) {
			const int last = k + SRT_K_MATMUL_KB >= hd;
			const float factor = last ? scale : 1.0f;
			tile_t c;

			tile_zero(&c);
			tile_chain(&c, x + k, ldx, 1, rows, panels + k * NR,
				   last ? hd - k : SRT_K_MATMUL_KB);
			EACH_ROW(SCORE_ROW)
		}
	}
}

#define START(i, j)                                                                                \
	if (i < rows)                                                                              \
		c.c[i][j] = load_columns(to + i * ld + j * VL, n - j * VL);
#define START_ROW(i) EACH_VECTOR(START, i)
#define LEAVE(i, j)                                                                                \
	if (i < rows && j * VL < n)                                                                \
		store_columns(c.c[i][j], to + i * ld + j * VL, n - j * VL);
#define LEAVE_ROW(i) EACH_VECTOR(LEAVE, i)

/* Chains of causal attention, of which some steps are not of all rows; kc counts all. */
#define HEAD 1 /* row i takes part from step i on */
#define TAIL 2 /* row i leaves rows - 1 - i steps before the end */

/* to (rows,hd) = chains over kc steps of A times rows of x from panels of depth t; they go on from
 * `to` if go_on. kind is a constant at each call; unless `ragged`, all rows take all steps. */
FN void chains(GLOBAL float *to, int64_t ld, int rows, GLOBAL const float *a, int64_t rs,
	       int64_t cs, int64_t kc, GLOBAL const float *panels, int64_t t, int64_t hd,
	       const int kind, int ragged, int go_on)
{
	const int64_t some = ragged ? rows - 1 : 0, all = kc - some;
	const int64_t first = kind == HEAD ? some : 0;

	for (int64_t n = hd; n > 0; n -= NR, to += NR, panels += t * NR) {
		tile_t c;

		tile_zero(&c);
		if (go_on) {
			EACH_ROW(START_ROW)
		}
		if (kind == HEAD && ragged)
			tile_chain_head(&c, a, rs, cs, rows, panels);
		tile_chain(&c, a + first * cs, rs, cs, rows, panels + first * NR, all);
		if (kind == TAIL && ragged)
			tile_chain_tail(&c, a + all * cs, rs, cs, rows, panels + all * NR);
		EACH_ROW(LEAVE_ROW)
	}
}

#define TREE_LEVEL(v, op, h)                                                                       \
	for (int l = 0; l < (h); l++)                                                              \
		v[l] = op(v[l], v[l + (h)]);
#define TREE_64(v, op)                                                                             \
	TREE_LEVEL(v, op, 32)                                                                      \
	TREE_LEVEL(v, op, 16)                                                                      \
	TREE_LEVEL(v, op, 8)                                                                       \
	TREE_LEVEL(v, op, 4)                                                                       \
	TREE_LEVEL(v, op, 2)                                                                       \
	TREE_LEVEL(v, op, 1)

/* Scores to weights; stats = (maximum, sum). The row has room for n rounded up to 64; scores beyond
 * n become -infinity: they add +0 to the sum, or NaN to one that is NaN already. */
FN void softmax(GLOBAL float *s, int64_t n, GLOBAL float *stats)
{
	const int64_t end = (n + RUN - 1) / RUN * RUN;
	float z[LANES], m[LANES], max, inv;

	if (n == 0) { /* a query that sees nothing */
		stats[0] = -INFINITY;
		stats[1] = 0.0f;
		return;
	}
	for (int64_t j = n; j < (n + LANES - 1) / LANES * LANES; j++)
		s[j] = -INFINITY;
	for (int l = 0; l < LANES; l++) {
		m[l] = s[l];
		z[l] = 0.0f;
	}
	for (int64_t j = LANES; j < n; j += LANES)
		for (int l = 0; l < LANES; l++)
			m[l] = MAX_NAN(m[l], s[j + l]);
	TREE_64(m, MAX_NAN)
	max = m[0] + 0.0f;
	for (int64_t j = 0; j < end; j += RUN) {
		float *lanes = z + j % LANES;

		for (int l = 0; l < RUN; l++) {
			float e = k_exp(s[j + l] - max);

			s[j + l] = e;
			lanes[l] = lanes[l] + e;
		}
	}
	TREE_64(z, PLUS)
	stats[0] = max;
	stats[1] = z[0];
	inv = 1.0f / z[0];
	for (int64_t j = 0; j < end; j++)
		s[j] = s[j] * inv;
}

/* Scores p to weights again; ds = (p * (ds - d)) * scale */
FN void softmax_backward(GLOBAL float *restrict p, GLOBAL float *restrict ds, int64_t n, float max,
			 float inv, float d, float scale)
{
	for (int64_t j = 0; j < n; j++) {
		float w = k_exp(p[j] - max) * inv;

		p[j] = w;
		ds[j] = (w * (ds[j] - d)) * scale;
	}
}

/* Sum of a * b in the row shape. */
FN float row_dot(GLOBAL const float *a, GLOBAL const float *b, int64_t n)
{
	float sum[LANES];

	for (int l = 0; l < LANES; l++)
		sum[l] = 0.0f;
	for (int64_t j = 0; j < n; j += LANES)
		for (int l = 0; l < MIN_OF(LANES, n - j); l++)
			sum[l] = FMA(a[j + l], b[j + l], sum[l]);
	TREE_64(sum, PLUS)
	return sum[0];
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void attention_vector(
	K_PLACES_7 srt_ocl_attention_t A)
{
	TENSOR(0, float, out);
	TENSOR(1, float, stats);
	TENSOR(2, const float, q);
	TENSOR(3, const float, k);
	TENSOR(4, const float, v);
	TENSOR(5, const int32_t, lengths);
	TENSOR(6, float, scratch);
	const srt_k_attention_t shape = A.shape;

	scratch += get_global_id(0) * A.total;
	for (int64_t unit = get_global_id(0); unit < shape.batch * shape.heads;
	     unit += get_global_size(0)) {
		const head_t h = head_of(&shape, lengths, unit);
		GLOBAL float *s = scratch + A.p;
		queries_t now;

		pack_columns(scratch + A.kt, k + h.k, shape.ldk, h.n, h.hd);
		pack_rows(scratch + A.v, v + h.v, shape.ldv, h.n, h.hd);
		for (int64_t i = 0; i < h.t; i += now.rows) {
			now = next_queries(&shape, &h, i, h.t);
			scores(s, A.lds, q + h.q + i * shape.ldq, shape.ldq, now.rows,
			       scratch + A.kt, now.seen, h.hd, shape.scale);
			for (int r = 0; r < now.rows; r++)
				softmax(s + r * A.lds, seen_by(&now, r),
					stats + 2 * (h.row + i + r));
			chains(out + h.out + i * h.d, h.d, now.rows, s, A.lds, 1, now.seen,
			       scratch + A.v, h.n, h.hd, TAIL, now.ragged, 0);
		}
	}
}

/* P and dS of query rows; p, ds, q, dout, out, stats: their first rows. */
FN void query_rows(const srt_ocl_attention_t *A, const head_t *h, const queries_t *now,
		   GLOBAL const float *scratch, GLOBAL float *p, GLOBAL float *ds,
		   GLOBAL const float *q, GLOBAL const float *dout, GLOBAL const float *out,
		   GLOBAL const float *stats)
{
	for (int of_p = 0; of_p < 2; of_p++)
		scores(of_p ? p : ds, A->lds, of_p ? q : dout, of_p ? A->shape.ldq : h->d,
		       now->rows, scratch + (of_p ? A->kt : A->vt), now->seen, h->hd,
		       of_p ? A->shape.scale : 1.0f);
	for (int r = 0; r < now->rows; r++) {
		const float d = row_dot(dout + r * h->d, out + r * h->d, h->hd);

		softmax_backward(p + r * A->lds, ds + r * A->lds, seen_by(now, r), stats[2 * r],
				 1.0f / stats[2 * r + 1], d, A->shape.scale);
	}
}

/* The keys that no query sees have no sums. */
FN void zero_unseen(const srt_ocl_attention_t *A, const head_t *h, GLOBAL float *to, int64_t ld)
{
	for (int64_t j = A->shape.causal ? MIN_OF(h->n, h->t) : h->n; j < A->shape.keys; j++)
		for (int64_t e = 0; e < h->hd; e++)
			to[j * ld + e] = 0.0f;
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void attention_backward_vector(
	K_PLACES_11 srt_ocl_attention_t A)
{
	TENSOR(0, float, dq);
	TENSOR(1, float, dk);
	TENSOR(2, float, dv);
	TENSOR(3, const float, dout);
	TENSOR(4, const float, out);
	TENSOR(5, const float, q);
	TENSOR(6, const float, k);
	TENSOR(7, const float, v);
	TENSOR(8, const float, stats);
	TENSOR(9, const int32_t, lengths);
	TENSOR(10, float, scratch);
	const srt_k_attention_t shape = A.shape;
	const int causal = shape.causal;

	scratch += get_global_id(0) * A.total;
	for (int64_t unit = get_global_id(0); unit < shape.batch * shape.heads;
	     unit += get_global_size(0)) {
		const head_t h = head_of(&shape, lengths, unit);

		pack_columns(scratch + A.kt, k + h.k, shape.ldk, h.n, h.hd);
		pack_columns(scratch + A.vt, v + h.v, shape.ldv, h.n, h.hd);
		pack_rows(scratch + A.k, k + h.k, shape.ldk, h.n, h.hd);
		pack_rows(scratch + A.q, q + h.q, shape.ldq, h.t, h.hd);
		pack_rows(scratch + A.dout, dout + h.out, h.d, h.t, h.hd);
		for (int64_t i0 = 0; i0 < h.t; i0 += ROWS) {
			const int64_t i1 = MIN_OF(i0 + ROWS, h.t);
			const int64_t keys = causal ? MIN_OF(i1, h.n) : h.n;
			queries_t now;

			for (int64_t i = i0; i < i1; i += now.rows) {
				GLOBAL float *p = scratch + A.p + (i - i0) * A.lds;
				GLOBAL float *ds = scratch + A.ds + (i - i0) * A.lds;
				const int64_t row = h.out + i * h.d;

				now = next_queries(&shape, &h, i, i1);
				query_rows(&A, &h, &now, scratch, p, ds, q + h.q + i * shape.ldq,
					   dout + row, out + row, stats + 2 * (h.row + i));
				if (dq)
					chains(dq + h.dq + i * shape.lddq, shape.lddq, now.rows, ds,
					       A.lds, 1, now.seen, scratch + A.k, h.n, h.hd, TAIL,
					       now.ragged, 0);
			}
			/* The chains of dk and dv go on over the block's queries. */
			for (int64_t j = 0; j < keys; j += MR) {
				const int ragged = causal && j >= i0;
				const int64_t first = ragged ? j : i0;
				const int64_t at = (first - i0) * A.lds + j;

				for (int of_v = 0; of_v < 2; of_v++) {
					GLOBAL float *to = of_v ? dv : dk;
					const int64_t ld = of_v ? shape.lddv : shape.lddk;

					if (to)
						chains(to + (of_v ? h.dv : h.dk) + j * ld, ld,
						       MIN_OF(MR, keys - j),
						       scratch + (of_v ? A.p : A.ds) + at, 1, A.lds,
						       i1 - first,
						       scratch + (of_v ? A.dout : A.q) + first * NR,
						       h.t, h.hd, HEAD, ragged, !ragged && i0 > 0);
				}
			}
		}
		if (dk)
			zero_unseen(&A, &h, dk + h.dk, shape.lddk);
		if (dv)
			zero_unseen(&A, &h, dv + h.dv, shape.lddv);
	}
}
