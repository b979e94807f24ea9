/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernels of fast_attention.cu for one HEAD_DIM: forward by an online softmax, and two of the
 * backward pass, one for dq, one for dk and dv, so that no sum depends on the order of blocks.
 * Scores are made again in each. A block has 64 rows of its own, 16 for each warp, and goes over
 * tiles of the others, which it keeps in shared memory with gaps, so that the rows of a fragment
 * lie in different banks.
 *
 *   scores    (own,others) = own others^T: fragments of `own` are in registers
 *   weighted  (own,HEAD_DIM) += weights (own,others) * others: the weights are the scores'
 *             registers
 *
 * Launched where all rows begin at multiples of 16 bytes. A hidden score is -infinity and its
 * weight 0, which does not keep infinities and NaN of the hidden row out of the sum.
 */
#define OWN 64                    /* rows of a block */
#define CHUNKS (HEAD_DIM / 8)     /* 16 bytes each, of a row */
#define PITCH (CHUNKS + 1)        /* of a row in shared memory */
#define STEPS (HEAD_DIM / 16)     /* of a product over HEAD_DIM */
#define TILE 64                   /* keys at a time, forward */
#define TILE_Q 32                 /* keys at a time, for dq */
#define TILE_KV (2048 / HEAD_DIM) /* queries at a time, for dk and dv */
#define LOG2E 0x1.715476p+0f
#define LN2 0x1.62e43p-1f

#ifndef SRT_FAST_ATTENTION_WHERE
#define SRT_FAST_ATTENTION_WHERE
/* A block's head, and the first of its rows. */
typedef struct fast_where {
	int64_t item, head;
	int first;
} fast_where_t;

WARP_FN fast_where_t fast_where(const srt_k_attention_t A, int64_t positions)
{
	const int64_t nblocks = (positions + OWN - 1) / OWN;
	fast_where_t w;

	/* The last queries see most: they begin first. */
	w.first = (int)(nblocks - 1 - GROUP % nblocks) * OWN;
	w.head = GROUP / nblocks % A.heads;
	w.item = GROUP / nblocks / A.heads;
	return w;
}

WARP_FN float fast_max(float a, float b)
{
	return a > b ? a : b;
}

/* Over the four lanes that share rows. */
WARP_FN float fast_row_max(float v)
{
	v = fast_max(v, WARP_XOR(v, 1));
	return fast_max(v, WARP_XOR(v, 2));
}

WARP_FN float fast_row_sum(float v)
{
	v += WARP_XOR(v, 1);
	return v + WARP_XOR(v, 2);
}
#endif

/* The rows of a head: of `positions` an item, ld apart. */
WARP_FN const uint4 *NAME_D(fast_rows)(const uint4 *p, fast_where_t w, int64_t positions,
				       int64_t ld)
{
	return p + (w.item * positions * ld + w.head * HEAD_DIM) / 8;
}

/* n rows from `first` on, zeros behind `end`. */
WARP_FN void NAME_D(fast_tile)(uint4 *tile, const uint4 *rows, int64_t ld, int first, int end,
			       int n)
{
	for (int c = (int)threadIdx.x; c < n * CHUNKS; c += WARP_THREADS) {
		const int row = c / CHUNKS, chunk = c % CHUNKS;
		uint4 v = make_uint4(0, 0, 0, 0);

		if (first + row < end)
			v = rows[(first + row) * (ld / 8) + chunk];
		tile[row * PITCH + chunk] = v;
	}
}

/* The warp's 16 rows of a tile of OWN. */
WARP_FN void NAME_D(fast_own)(unsigned (*a)[4], const uint4 *tile)
{
	const int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32 * 16 + lane % 16;

	UNROLLED
	for (int k = 0; k < STEPS; k++)
		WARP_LOAD(a[k], tile + row * PITCH + 2 * k + lane / 16);
}

/* s (16,n) = a (16,HEAD_DIM) times the tile's n rows, transposed. */
WARP_FN void NAME_D(fast_scores)(float (*s)[4], unsigned (*a)[4], const uint4 *tile, const int n)
{
	const int lane = (int)threadIdx.x % 32;
	const uint4 *p = tile + (lane % 8 + lane / 16 * 8) * PITCH + lane / 8 % 2;

	UNROLLED
	for (int j = 0; j < n / 8; j++)
		s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0.0f;
	UNROLLED
	for (int k = 0; k < STEPS; k++) {
		UNROLLED
		for (int j = 0; j < n / 16; j++) {
			unsigned b[4];

			WARP_LOAD(b, p + 16 * j * PITCH + 2 * k);
			WARP_MMA(s[2 * j], a[k], b);
			WARP_MMA(s[2 * j + 1], a[k], b + 2);
		}
	}
}

/* out (16,HEAD_DIM) += weights (16,n) times the tile's n rows. */
WARP_FN void NAME_D(fast_weighted)(float (*out)[4], float (*weights)[4], const uint4 *tile,
				   const int n)
{
	const int lane = (int)threadIdx.x % 32;
	const uint4 *p = tile + lane % 16 * PITCH + lane / 16;

	UNROLLED
	for (int j = 0; j < n / 16; j++) {
		const float *w0 = weights[2 * j], *w1 = weights[2 * j + 1];
		const unsigned a[4] = { warp_pair(w0[0], w0[1]), warp_pair(w0[2], w0[3]),
					warp_pair(w1[0], w1[1]), warp_pair(w1[2], w1[3]) };

		UNROLLED
		for (int e = 0; e < STEPS; e++) {
			unsigned b[4];

			WARP_LOAD_T(b, p + 16 * j * PITCH + 2 * e);
			WARP_MMA(out[2 * e], a, b);
			WARP_MMA(out[2 * e + 1], a, b + 2);
		}
	}
}

WARP_FN void NAME_D(fast_zero)(float (*x)[4])
{
	UNROLLED
	for (int e = 0; e < 2 * STEPS; e++)
		x[e][0] = x[e][1] = x[e][2] = x[e][3] = 0.0f;
}

/* The warp's rows, times a factor for each half of them, where they are rows at all. */
WARP_FN void NAME_D(fast_store)(unsigned *rows, int64_t ld, int first, int end, float (*x)[4],
				float f0, float f1)
{
	const int lane = (int)threadIdx.x % 32;
	const int row = first + (int)threadIdx.x / 32 * 16 + lane / 4;

	UNROLLED
	for (int e = 0; e < 2 * STEPS; e++) {
		if (row < end)
			rows[row * (ld / 2) + 4 * e + lane % 4] =
				warp_pair(x[e][0] * f0, x[e][1] * f0);
		if (row + 8 < end)
			rows[(row + 8) * (ld / 2) + 4 * e + lane % 4] =
				warp_pair(x[e][2] * f1, x[e][3] * f1);
	}
}

/* Places: out, stats, q, k, v. */
WARP_KERNEL(5, NAME_D(fast_attention), srt_k_attention_t)
{
	TENSOR(0, unsigned, out);
	TENSOR(1, float, stats);
	TENSOR(2, const uint4, q);
	TENSOR(3, const uint4, k);
	TENSOR(4, const uint4, v);
	__shared__ __align__(16) uint4 tile_k[TILE * PITCH];
	__shared__ __align__(16) uint4 tile_v[TILE * PITCH];
	const fast_where_t w = fast_where(A, A.queries);
	const int lane = (int)threadIdx.x % 32, nq = (int)A.queries, nk = (int)A.keys;
	const int row = w.first + (int)threadIdx.x / 32 * 16 + lane / 4; /* and row + 8 */
	const int end = A.causal && w.first + OWN < nk ? w.first + OWN : nk;
	const float factor = A.scale * LOG2E;
	const int64_t width = A.heads * HEAD_DIM;
	float s[TILE / 8][4], sums[2 * STEPS][4], m[2] = { -INFINITY, -INFINITY }, z[2] = { 0, 0 };
	unsigned own[STEPS][4];

	NAME_D(fast_tile)
	(tile_k, NAME_D(fast_rows)(q, w, A.queries, A.ldq), A.ldq, w.first, nq, OWN);
	__syncthreads();
	NAME_D(fast_own)(own, tile_k);
	NAME_D(fast_zero)(sums);
	for (int first = 0; first < end; first += TILE) {
		__syncthreads();
		NAME_D(fast_tile)
		(tile_k, NAME_D(fast_rows)(k, w, A.keys, A.ldk), A.ldk, first, nk, TILE);
		NAME_D(fast_tile)
		(tile_v, NAME_D(fast_rows)(v, w, A.keys, A.ldv), A.ldv, first, nk, TILE);
		__syncthreads();
		NAME_D(fast_scores)(s, own, tile_k, TILE);
		UNROLLED
		for (int h = 0; h < 2; h++) { /* row, row + 8 */
			const int seen = A.causal && row + 8 * h + 1 < nk ? row + 8 * h + 1 : nk;
			float most = m[h], base, old;

			UNROLLED
			for (int j = 0; j < TILE / 8; j++) {
				UNROLLED
				for (int c = 2 * h; c < 2 * h + 2; c++) {
					const int key = first + 8 * j + lane % 4 * 2 + c % 2;

					s[j][c] = key < seen ? s[j][c] * factor : -INFINITY;
					most = fast_max(most, s[j][c]);
				}
			}
			most = fast_row_max(most);
			/* Of scores that are -infinity so far weights are 0, not NaN. */
			base = most == -INFINITY ? 0.0f : most;
			old = WARP_EXP2(m[h] - base);
			m[h] = most;
			z[h] *= old;
			UNROLLED
			for (int j = 0; j < TILE / 8; j++) {
				UNROLLED
				for (int c = 2 * h; c < 2 * h + 2; c++) {
					s[j][c] = WARP_EXP2(s[j][c] - base);
					z[h] += s[j][c];
				}
			}
			UNROLLED
			for (int e = 0; e < 2 * STEPS; e++) {
				sums[e][2 * h] *= old;
				sums[e][2 * h + 1] *= old;
			}
		}
		NAME_D(fast_weighted)(sums, s, tile_v, TILE);
	}
	z[0] = fast_row_sum(z[0]);
	z[1] = fast_row_sum(z[1]);
	NAME_D(fast_store)
	(out + (w.item * A.queries * width + w.head * HEAD_DIM) / 2, width, w.first, nq, sums,
	 1.0f / z[0], 1.0f / z[1]);
	UNROLLED
	for (int h = 0; h < 2; h++) {
		if (row + 8 * h < nq && lane % 4 == 0) {
			float *st =
				stats + ((w.item * A.heads + w.head) * A.queries + row + 8 * h) * 2;

			st[0] = m[h] * LN2;
			st[1] = z[h];
		}
	}
}

/* Places: dq, dout, q, k, v, stats, D. */
WARP_KERNEL(7, NAME_D(fast_attention_q), srt_k_attention_t)
{
	TENSOR(0, unsigned, dq);
	TENSOR(1, const uint4, dout);
	TENSOR(2, const uint4, q);
	TENSOR(3, const uint4, k);
	TENSOR(4, const uint4, v);
	TENSOR(5, const float, stats);
	TENSOR(6, const float, dsum);
	__shared__ __align__(16) uint4 tile_k[OWN * PITCH];
	__shared__ __align__(16) uint4 tile_v[TILE_Q * PITCH];
	const fast_where_t w = fast_where(A, A.queries);
	const int lane = (int)threadIdx.x % 32, nq = (int)A.queries, nk = (int)A.keys;
	const int row = w.first + (int)threadIdx.x / 32 * 16 + lane / 4;
	const int end = A.causal && w.first + OWN < nk ? w.first + OWN : nk;
	const int64_t width = A.heads * HEAD_DIM, at = (w.item * A.heads + w.head) * A.queries;
	const float factor = A.scale * LOG2E;
	float s[TILE_Q / 8][4], dp[TILE_Q / 8][4], sums[2 * STEPS][4], m[2], inv[2], of[2];
	unsigned own[STEPS][4], down[STEPS][4];

	UNROLLED
	for (int h = 0; h < 2; h++) {
		const int is = row + 8 * h < nq;

		m[h] = is ? stats[(at + row + 8 * h) * 2] * LOG2E : 0.0f;
		inv[h] = is ? 1.0f / stats[(at + row + 8 * h) * 2 + 1] : 0.0f;
		of[h] = is ? dsum[at + row + 8 * h] : 0.0f;
	}
	NAME_D(fast_tile)
	(tile_k, NAME_D(fast_rows)(q, w, A.queries, A.ldq), A.ldq, w.first, nq, OWN);
	__syncthreads();
	NAME_D(fast_own)(own, tile_k);
	__syncthreads();
	NAME_D(fast_tile)
	(tile_k, NAME_D(fast_rows)(dout, w, A.queries, width), width, w.first, nq, OWN);
	__syncthreads();
	NAME_D(fast_own)(down, tile_k);
	NAME_D(fast_zero)(sums);
	for (int first = 0; first < end; first += TILE_Q) {
		__syncthreads();
		NAME_D(fast_tile)
		(tile_k, NAME_D(fast_rows)(k, w, A.keys, A.ldk), A.ldk, first, nk, TILE_Q);
		NAME_D(fast_tile)
		(tile_v, NAME_D(fast_rows)(v, w, A.keys, A.ldv), A.ldv, first, nk, TILE_Q);
		__syncthreads();
		NAME_D(fast_scores)(s, own, tile_k, TILE_Q);
		NAME_D(fast_scores)(dp, down, tile_v, TILE_Q);
		UNROLLED
		for (int j = 0; j < TILE_Q / 8; j++) {
			UNROLLED
			for (int c = 0; c < 4; c++) {
				const int h = c / 2, i = row + 8 * h;
				const int key = first + 8 * j + lane % 4 * 2 + c % 2;
				const int seen = key < nk && (!A.causal || key <= i);
				const float p = WARP_EXP2(s[j][c] * factor - m[h]) * inv[h];

				s[j][c] = seen ? p * (dp[j][c] - of[h]) * A.scale : 0.0f;
			}
		}
		NAME_D(fast_weighted)(sums, s, tile_k, TILE_Q);
	}
	NAME_D(fast_store)
	(dq + (w.item * A.queries * A.lddq + w.head * HEAD_DIM) / 2, A.lddq, w.first, nq, sums,
	 1.0f, 1.0f);
}

/* Places: dk, dv, dout, q, k, v, stats, D. A block's own rows are keys, the columns queries. */
WARP_KERNEL(8, NAME_D(fast_attention_kv), srt_k_attention_t)
{
	TENSOR(0, unsigned, dk);
	TENSOR(1, unsigned, dv);
	TENSOR(2, const uint4, dout);
	TENSOR(3, const uint4, q);
	TENSOR(4, const uint4, k);
	TENSOR(5, const uint4, v);
	TENSOR(6, const float, stats);
	TENSOR(7, const float, dsum);
	__shared__ __align__(16) uint4 tile_q[OWN * PITCH];
	__shared__ __align__(16) uint4 tile_d[TILE_KV * PITCH];
	__shared__ float of[3][TILE_KV]; /* of the tile's queries: maximum in base 2, 1 / sum, D */
	const fast_where_t w = fast_where(A, A.keys);
	const int lane = (int)threadIdx.x % 32, nq = (int)A.queries, nk = (int)A.keys;
	const int row = w.first + (int)threadIdx.x / 32 * 16 + lane / 4;
	const int64_t width = A.heads * HEAD_DIM, at = (w.item * A.heads + w.head) * A.queries;
	const float factor = A.scale * LOG2E;
	float s[TILE_KV / 8][4], dp[TILE_KV / 8][4], sums_k[2 * STEPS][4], sums_v[2 * STEPS][4];
	unsigned own[STEPS][4], down[STEPS][4];

	NAME_D(fast_tile)(tile_q, NAME_D(fast_rows)(k, w, A.keys, A.ldk), A.ldk, w.first, nk, OWN);
	__syncthreads();
	NAME_D(fast_own)(own, tile_q);
	__syncthreads();
	NAME_D(fast_tile)(tile_q, NAME_D(fast_rows)(v, w, A.keys, A.ldv), A.ldv, w.first, nk, OWN);
	__syncthreads();
	NAME_D(fast_own)(down, tile_q);
	NAME_D(fast_zero)(sums_k);
	NAME_D(fast_zero)(sums_v);
	for (int first = A.causal ? w.first : 0; first < nq; first += TILE_KV) {
		__syncthreads();
		NAME_D(fast_tile)
		(tile_q, NAME_D(fast_rows)(q, w, A.queries, A.ldq), A.ldq, first, nq, TILE_KV);
		NAME_D(fast_tile)
		(tile_d, NAME_D(fast_rows)(dout, w, A.queries, width), width, first, nq, TILE_KV);
		if (threadIdx.x < TILE_KV) {
			const int i = first + (int)threadIdx.x, is = i < nq;

			of[0][threadIdx.x] = is ? stats[(at + i) * 2] * LOG2E : 0.0f;
			of[1][threadIdx.x] = is ? 1.0f / stats[(at + i) * 2 + 1] : 0.0f;
			of[2][threadIdx.x] = is ? dsum[at + i] : 0.0f;
		}
		__syncthreads();
		NAME_D(fast_scores)(s, own, tile_q, TILE_KV);
		NAME_D(fast_scores)(dp, down, tile_d, TILE_KV);
		UNROLLED
		for (int j = 0; j < TILE_KV / 8; j++) {
			UNROLLED
			for (int c = 0; c < 4; c++) {
				const int key = row + c / 2 * 8;
				const int n = 8 * j + lane % 4 * 2 + c % 2, i = first + n;
				const int seen = i < nq && (!A.causal || key <= i);

				s[j][c] = seen ? WARP_EXP2(s[j][c] * factor - of[0][n]) * of[1][n] :
						 0.0f;
				dp[j][c] = seen ? (dp[j][c] - of[2][n]) * A.scale : 0.0f;
				dp[j][c] *= s[j][c];
			}
		}
		NAME_D(fast_weighted)(sums_v, s, tile_d, TILE_KV);
		NAME_D(fast_weighted)(sums_k, dp, tile_q, TILE_KV);
	}
	if (dk)
		NAME_D(fast_store)
	(dk + (w.item * A.keys * A.lddk + w.head * HEAD_DIM) / 2, A.lddk, w.first, nk, sums_k, 1.0f,
	 1.0f);
	if (dv)
		NAME_D(fast_store)
	(dv + (w.item * A.keys * A.lddv + w.head * HEAD_DIM) / 2, A.lddv, w.first, nk, sums_v, 1.0f,
	 1.0f);
}

#undef OWN
#undef CHUNKS
#undef PITCH
#undef STEPS
#undef TILE
#undef TILE_Q
#undef TILE_KV
#undef LOG2E
#undef LN2
