/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attention and its gradient for devices of CPU type, equal to kernels/attention.k bit for bit. A
 * work-item takes whole heads, with a scratch of its own; see srt_ocl_attention_t. As in
 * backends/cpu/attention*.c, chains of causal attention are ragged: masked terms take part in
 * nothing. Launched by attention.c.
 */
#include "backends/opencl/vector_tile.cl"

#define ROWS 96 /* query rows of a block of the backward pass: a multiple of MR */
#define RUN 16  /* positions of a row that are worked on together */

/* One head: rows of q, k, v, dq, dk, dv are ld apart, those of out and dout d. */
typedef struct head {
	int64_t t, hd, d, ld, first3, first, row; /* row: first of its statistics */
} head_t;

FN head_t head_of(const srt_k_attention_t *s, int64_t unit)
{
	const int64_t item = unit / s->heads, head = unit % s->heads;
	head_t h;

	h.t = s->context;
	h.hd = s->head_dim;
	h.d = s->heads * s->head_dim;
	h.ld = 3 * h.d;
	h.first = item * h.t * h.d + head * h.hd;
	h.first3 = item * h.t * h.ld + head * h.hd;
	h.row = unit * h.t;
	return h;
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
	K_PLACES_4 srt_ocl_attention_t A)
{
	TENSOR(0, float, out);
	TENSOR(1, float, stats);
	TENSOR(2, const float, qkv);
	TENSOR(3, float, scratch);
	const srt_k_attention_t shape = A.shape;

	scratch += get_global_id(0) * A.total;
	for (int64_t unit = get_global_id(0); unit < shape.batch * shape.heads;
	     unit += get_global_size(0)) {
		const head_t h = head_of(&shape, unit);
		GLOBAL const float *q = qkv + h.first3;
		GLOBAL float *s = scratch + A.p;

		pack_columns(scratch + A.kt, q + h.d, h.ld, h.t, h.hd);
		pack_rows(scratch + A.v, q + 2 * h.d, h.ld, h.t, h.hd);
		for (int64_t i = 0; i < h.t; i += MR) {
			const int rows = MIN_OF(MR, h.t - i);
			const int64_t seen = shape.causal ? i + rows : h.t; /* by the last row */

			scores(s, A.lds, q + i * h.ld, h.ld, rows, scratch + A.kt, seen, h.hd,
			       shape.scale);
			for (int r = 0; r < rows; r++)
				softmax(s + r * A.lds, shape.causal ? i + r + 1 : h.t,
					stats + 2 * (h.row + i + r));
			chains(out + h.first + i * h.d, h.d, rows, s, A.lds, 1, seen,
			       scratch + A.v, h.t, h.hd, TAIL, shape.causal, 0);
		}
	}
}

/* P, dS and dq of the query rows [i, i + rows), rows <= MR; p, ds: their first rows. */
FN void query_rows(const srt_ocl_attention_t *A, const head_t *h, int64_t i, int rows,
		   GLOBAL float *scratch, GLOBAL float *p, GLOBAL float *ds, GLOBAL float *dq,
		   GLOBAL const float *q, GLOBAL const float *dout, GLOBAL const float *out,
		   GLOBAL const float *stats)
{
	const int64_t seen = A->shape.causal ? i + rows : h->t;

	for (int of_p = 0; of_p < 2; of_p++)
		scores(of_p ? p : ds, A->lds, of_p ? q : dout, of_p ? h->ld : h->d, rows,
		       scratch + (of_p ? A->kt : A->vt), seen, h->hd,
		       of_p ? A->shape.scale : 1.0f);
	for (int r = 0; r < rows; r++) {
		const float d = row_dot(dout + r * h->d, out + r * h->d, h->hd);

		softmax_backward(p + r * A->lds, ds + r * A->lds,
				 A->shape.causal ? i + r + 1 : h->t, stats[2 * r],
				 1.0f / stats[2 * r + 1], d, A->shape.scale);
	}
	chains(dq, h->ld, rows, ds, A->lds, 1, seen, scratch + A->k, h->t, h->hd,
	       TAIL, A->shape.causal, 0);
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void attention_backward_vector(
	K_PLACES_6 srt_ocl_attention_t A)
{
	TENSOR(0, float, dqkv);
	TENSOR(1, const float, dout);
	TENSOR(2, const float, out);
	TENSOR(3, const float, qkv);
	TENSOR(4, const float, stats);
	TENSOR(5, float, scratch);
	const int causal = A.shape.causal;

	scratch += get_global_id(0) * A.total;
	for (int64_t unit = get_global_id(0); unit < A.shape.batch * A.shape.heads;
	     unit += get_global_size(0)) {
		const head_t h = head_of(&A.shape, unit);
		GLOBAL const float *q = qkv + h.first3, *go = dout + h.first;
		GLOBAL float *dq = dqkv + h.first3;

		pack_columns(scratch + A.kt, q + h.d, h.ld, h.t, h.hd);
		pack_columns(scratch + A.vt, q + 2 * h.d, h.ld, h.t, h.hd);
		pack_rows(scratch + A.k, q + h.d, h.ld, h.t, h.hd);
		pack_rows(scratch + A.q, q, h.ld, h.t, h.hd);
		pack_rows(scratch + A.dout, go, h.d, h.t, h.hd);
		for (int64_t i0 = 0; i0 < h.t; i0 += ROWS) {
			const int64_t i1 = MIN_OF(i0 + ROWS, h.t), keys = causal ? i1 : h.t;

			for (int64_t i = i0; i < i1; i += MR)
				query_rows(&A, &h, i, MIN_OF(MR, i1 - i), scratch,
					   scratch + A.p + (i - i0) * A.lds,
					   scratch + A.ds + (i - i0) * A.lds, dq + i * h.ld,
					   q + i * h.ld, go + i * h.d, out + h.first + i * h.d,
					   stats + 2 * (h.row + i));
			/* The chains of dk and dv go on over the block's queries. */
			for (int64_t j = 0; j < keys; j += MR) {
				const int ragged = causal && j >= i0;
				const int64_t first = ragged ? j : i0;
				const int64_t at = (first - i0) * A.lds + j;

				for (int v = 0; v < 2; v++)
					chains(dq + (v ? 2 : 1) * h.d + j * h.ld, h.ld,
					       MIN_OF(MR, keys - j),
					       scratch + (v ? A.p : A.ds) + at, 1, A.lds,
					       i1 - first,
					       scratch + (v ? A.dout : A.q) + first * NR, h.t, h.hd,
					       HEAD, ragged, !ragged && i0 > 0);
			}
		}
	}
}
