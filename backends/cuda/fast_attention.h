/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attention of numerics mode fast on tensor cores, for one HEAD_DIM: the forward pass by an online
 * softmax, and two kernels of the backward pass, one for D and dq, one for dk and dv, so that no
 * sum depends on the order of blocks. Both compute the weights again. A block of four warps has OWN
 * rows and goes over tiles of TILE rows of the other tensors, which lie in shared memory with gaps,
 * so that the rows of a fragment are in different banks. The next tile is copied meanwhile.
 *
 *   fast_scores    (own,n) = own rows^T: the fragments of `own` are in registers
 *   fast_weighted  (own,HEAD_DIM) += weights (own,n) * rows (n,HEAD_DIM)
 *
 * A warp has 16 * STRIPS rows; a fragment's array is of strips, then of columns. Rows begin at
 * multiples of 16 bytes. A hidden weight is 0, which does not keep infinities and NaN of the hidden
 * row out of the sum.
 */
#define STRIPS (128 / HEAD_DIM)
#define OWN (64 * STRIPS)
#define TILE (4096 / HEAD_DIM)
#define HEAD_CHUNKS (HEAD_DIM / 8)      /* of a row: 16 bytes each */
#define PITCH (HEAD_CHUNKS + 1)         /* of a row in shared memory */
#define STAGE (2 * TILE * PITCH)        /* two tiles; also the block's rows */
#define STEPS (HEAD_DIM / 16)           /* of a product over HEAD_DIM */
#define COLUMNS (STRIPS * HEAD_DIM / 8) /* fragments of sums (own,HEAD_DIM) */

#ifndef SRT_FAST_ATTENTION_WHERE
#define SRT_FAST_ATTENTION_WHERE
#define FAST_THREADS 128
#define LOG2E 0x1.715476p+0f

/* A block's head, and the first of its rows. */
typedef struct fast_where {
	int item, head, first;
} fast_where_t;

/* The blocks of a head with the most tiles come first: if causal, those of the last queries and of
 * the first keys. */
GPU_FN fast_where_t fast_where(const srt_k_attention_t A, int64_t positions, int own, int reversed)
{
	const int nblocks = ((int)positions + own - 1) / own, block = (int)GROUP % nblocks;
	fast_where_t w;

	w.first = (reversed ? nblocks - 1 - block : block) * own;
	w.head = (int)GROUP / nblocks % (int)A.heads;
	w.item = (int)GROUP / nblocks / (int)A.heads;
	return w;
}

/* The rows of a head in a tensor. */
typedef struct fast_rows {
	uint16_t *p;
	int64_t ld; /* between rows */
	int end;
} fast_rows_t;

/* log2 of the sum of exp(score): weights are 2^(score * log2(e) - it). */
GPU_FN float fast_log2_sum(const float *stats)
{
	return FMA(stats[0], LOG2E, WARP_LOG2(stats[1]));
}
#endif

GPU_FN fast_rows_t NAME_D(fast_rows)(uint16_t *p, fast_where_t w, int64_t positions, int64_t ld)
{
	fast_rows_t r;

	r.p = p + w.item * positions * ld + w.head * HEAD_DIM;
	r.ld = ld;
	r.end = (int)positions;
	return r;
}

/* Starts the copy of n rows from `first` on, zeros after the last one. */
GPU_FN void NAME_D(fast_copy)(uint4 *tile, fast_rows_t rows, int first, const int n)
{
	const int row = (int)threadIdx.x / HEAD_CHUNKS, chunk = (int)threadIdx.x % HEAD_CHUNKS;
	const uint16_t *from = rows.p + (first + row) * rows.ld + chunk * 8;

	GPU_UNROLLED
	for (int i = 0; i < n; i += FAST_THREADS / HEAD_CHUNKS)
		WARP_COPY(tile + (row + i) * PITCH + chunk, from + i * rows.ld,
			  first + row + i < rows.end);
}

/* The warp's rows of the block's. */
GPU_FN void NAME_D(fast_own)(unsigned (*a)[4], const uint4 *rows)
{
	const uint4 *p =
		rows + (16 * STRIPS * WARP_INDEX + WARP_LANE % 16) * PITCH + WARP_LANE / 16;

	GPU_UNROLLED
	for (int i = 0; i < STRIPS * STEPS; i++)
		WARP_LOAD(a[i], p + i / STEPS * 16 * PITCH + i % STEPS * 2);
}

/* s (own,n) = a (own,HEAD_DIM) times n rows, transposed. */
GPU_FN void NAME_D(fast_scores)(float (*s)[4], unsigned (*a)[4], const uint4 *rows, const int n)
{
	const uint4 *p = rows + (WARP_LANE % 8 + WARP_LANE / 16 * 8) * PITCH + WARP_LANE / 8 % 2;

	GPU_UNROLLED
	for (int i = 0; i < STRIPS * n / 8; i++)
		s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0.0f;
	GPU_UNROLLED
	for (int k = 0; k < STEPS; k++) {
		GPU_UNROLLED
		for (int j = 0; j < n / 8; j += 2) {
			unsigned b[4];

			WARP_LOAD(b, p + 8 * j * PITCH + 2 * k);
			GPU_UNROLLED
			for (int m = 0; m < STRIPS; m++) {
				WARP_MMA(s[m * n / 8 + j], a[m * STEPS + k], b);
				WARP_MMA(s[m * n / 8 + j + 1], a[m * STEPS + k], b + 2);
			}
		}
	}
}

/* out (own,HEAD_DIM) += weights (own,n) times n rows. */
GPU_FN void NAME_D(fast_weighted)(float (*out)[4], float (*weights)[4], const uint4 *rows,
				  const int n)
{
	const uint4 *p = rows + WARP_LANE % 16 * PITCH + WARP_LANE / 16;

	GPU_UNROLLED
	for (int j = 0; j < n / 8; j += 2) {
		unsigned a[STRIPS][4];

		GPU_UNROLLED
		for (int i = 0; i < STRIPS * 4; i++) {
			const float *w = weights[i / 4 * n / 8 + j + i % 4 / 2] + i % 2 * 2;

			a[i / 4][i % 4] = WARP_PAIR(w[0], w[1]);
		}
		GPU_UNROLLED
		for (int e = 0; e < STEPS; e++) {
			unsigned b[4];

			WARP_LOAD_T(b, p + 8 * j * PITCH + 2 * e);
			GPU_UNROLLED
			for (int m = 0; m < STRIPS; m++) {
				WARP_MMA(out[(m * STEPS + e) * 2], a[m], b);
				WARP_MMA(out[(m * STEPS + e) * 2 + 1], a[m], b + 2);
			}
		}
	}
}

GPU_FN void NAME_D(fast_zero)(float (*x)[4])
{
	GPU_UNROLLED
	for (int i = 0; i < COLUMNS; i++)
		x[i][0] = x[i][1] = x[i][2] = x[i][3] = 0.0f;
}

/* Hides the n scores from key `first` on that queries from row0 on do not see. */
GPU_FN void NAME_D(fast_hide)(float (*s)[4], const int n, int row0, int first,
			      const srt_k_attention_t A, const float value)
{
	GPU_UNROLLED
	for (int i = 0; i < STRIPS * n / 2; i++) {
		const int row = row0 + i * 2 / n * 16 + i % 4 / 2 * 8 + WARP_LANE / 4;
		const int key = first + i / 4 % (n / 8) * 8 + WARP_LANE % 4 * 2 + i % 2;

		if (key >= (int)A.keys || (A.causal && key > row))
			s[i / 4][i % 4] = value;
	}
}

/* The warp's rows, from `first` on, times a factor. */
GPU_FN void NAME_D(fast_store)(fast_rows_t rows, int first, float (*x)[4], float factor)
{
	GPU_UNROLLED
	for (int i = 0; i < 2 * STRIPS; i++) { /* strips, and halves of them */
		const int row = first + 8 * i + WARP_LANE / 4;
		unsigned *to = (unsigned *)(rows.p + row * rows.ld) + WARP_LANE % 4;

		GPU_UNROLLED
		for (int e = 0; row < rows.end && e < 2 * STEPS; e++) {
			const float *v = x[i / 2 * 2 * STEPS + e] + i % 2 * 2;

			to[4 * e] = WARP_PAIR(v[0] * factor, v[1] * factor);
		}
	}
}

/* Bindings of the command: out, stats, q, k, v. */
GPU_KERNEL(5, NAME_D(fast_attention), srt_k_attention_t, FAST_THREADS, 256)
{
	TENSOR(0, uint16_t, out);
	TENSOR(1, float, stats);
	TENSOR(2, uint16_t, q);
	TENSOR(3, uint16_t, k);
	TENSOR(4, uint16_t, v);
	__shared__ __align__(16) uint4 tiles[2 * STAGE];
	const fast_where_t w = fast_where(A, A.queries, OWN, 1);
	const int nk = (int)A.keys;
	const int end = A.causal && w.first + OWN < nk ? w.first + OWN : nk;
	const int row0 = w.first + 16 * STRIPS * WARP_INDEX;       /* of the warp */
	const int all = A.causal && row0 + 1 < nk ? row0 + 1 : nk; /* keys that its rows see */
	const float factor = A.scale * LOG2E;
	const fast_rows_t rows_k = NAME_D(fast_rows)(k, w, A.keys, A.ldk);
	const fast_rows_t rows_v = NAME_D(fast_rows)(v, w, A.keys, A.ldv);
	float sums[COLUMNS][4], max[2 * STRIPS], z[2 * STRIPS];
	unsigned own[STRIPS * STEPS][4];
	int stage = 0;

	NAME_D(fast_copy)(tiles + STAGE, NAME_D(fast_rows)(q, w, A.queries, A.ldq), w.first, OWN);
	NAME_D(fast_copy)(tiles, rows_k, 0, TILE);
	NAME_D(fast_copy)(tiles + STAGE / 2, rows_v, 0, TILE);
	WARP_WAIT();
	__syncthreads();
	NAME_D(fast_own)(own, tiles + STAGE);
	NAME_D(fast_zero)(sums);
	GPU_UNROLLED
	for (int i = 0; i < 2 * STRIPS; i++) {
		max[i] = -INFINITY;
		z[i] = 0.0f;
	}
	for (int first = 0; first < end; first += TILE, stage ^= 1) {
		const uint4 *tile = tiles + stage * STAGE;
		uint4 *next = tiles + (stage ^ 1) * STAGE;
		float s[STRIPS * TILE / 8][4];

		WARP_WAIT();
		__syncthreads();
		if (first + TILE < end) {
			NAME_D(fast_copy)(next, rows_k, first + TILE, TILE);
			NAME_D(fast_copy)(next + STAGE / 2, rows_v, first + TILE, TILE);
		}
		if (A.causal && first >= row0 + 16 * STRIPS)
			continue;
		NAME_D(fast_scores)(s, own, tile, TILE);
		if (first + TILE > all)
			NAME_D(fast_hide)(s, TILE, row0, first, A, -INFINITY);
		GPU_UNROLLED
		for (int i = 0; i < 2 * STRIPS; i++) {
			float(*t)[4] = s + i / 2 * (TILE / 8);
			const int h = i % 2 * 2;
			float most = max[i], base, old;

			GPU_UNROLLED
			for (int j = 0; j < TILE / 8; j++)
				most = fmaxf(most, fmaxf(t[j][h], t[j][h + 1]));
			most = warp_row_max(most);
			/* Weights of scores that are -infinity so far are 0, not NaN. */
			base = most == -INFINITY ? 0.0f : most * factor;
			old = WARP_EXP2(max[i] * factor - base); /* 1 if it is the same */
			max[i] = most;
			z[i] *= old;
			GPU_UNROLLED
			for (int j = 0; j < TILE / 8; j++) {
				t[j][h] = WARP_EXP2(FMA(t[j][h], factor, -base));
				t[j][h + 1] = WARP_EXP2(FMA(t[j][h + 1], factor, -base));
				z[i] += t[j][h] + t[j][h + 1];
			}
			GPU_UNROLLED
			for (int e = 0; e < 2 * STEPS; e++) {
				sums[i / 2 * 2 * STEPS + e][h] *= old;
				sums[i / 2 * 2 * STEPS + e][h + 1] *= old;
			}
		}
		NAME_D(fast_weighted)(sums, s, tile + STAGE / 2, TILE);
	}
	GPU_UNROLLED
	for (int i = 0; i < 2 * STRIPS; i++) {
		const int row = row0 + 8 * i + WARP_LANE / 4;
		float *of = stats + ((w.item * A.heads + w.head) * A.queries + row) * 2;

		z[i] = warp_row_sum(z[i]);
		if (row < A.queries && WARP_LANE % 4 == 0) {
			of[0] = max[i] * A.scale;
			of[1] = z[i];
		}
		z[i] = 1.0f / z[i];
		GPU_UNROLLED
		for (int e = 0; e < 2 * STEPS; e++) {
			sums[i / 2 * 2 * STEPS + e][i % 2 * 2] *= z[i];
			sums[i / 2 * 2 * STEPS + e][i % 2 * 2 + 1] *= z[i];
		}
	}
	NAME_D(fast_store)
	(NAME_D(fast_rows)(out, w, A.queries, A.heads * HEAD_DIM), row0, sums, 1.0f);
}

/* Bindings of the command: dq, dk, dv, dout, out, q, k, v, stats, scratch; D is stored in scratch,
 * and dq may be absent. */
GPU_KERNEL(10, NAME_D(fast_attention_q), srt_k_attention_t, FAST_THREADS, 256)
{
	TENSOR(0, uint16_t, dq);
	TENSOR(3, uint16_t, dout);
	TENSOR(4, uint16_t, out);
	TENSOR(5, uint16_t, q);
	TENSOR(6, uint16_t, k);
	TENSOR(7, uint16_t, v);
	TENSOR(8, const float, stats);
	TENSOR(9, float, dsum);
	__shared__ __align__(16) uint4 tiles[2 * STAGE];
	const fast_where_t w = fast_where(A, A.queries, OWN, 1);
	const int nk = (int)A.keys;
	const int end = A.causal && w.first + OWN < nk ? w.first + OWN : nk;
	const int row0 = w.first + 16 * STRIPS * WARP_INDEX;
	const int all = A.causal && row0 + 1 < nk ? row0 + 1 : nk;
	const float factor = A.scale * LOG2E;
	const int64_t width = A.heads * HEAD_DIM, at = (w.item * A.heads + w.head) * A.queries;
	const fast_rows_t rows_k = NAME_D(fast_rows)(k, w, A.keys, A.ldk);
	const fast_rows_t rows_v = NAME_D(fast_rows)(v, w, A.keys, A.ldv);
	float sums[COLUMNS][4], log2_sum[2 * STRIPS], of[2 * STRIPS];
	unsigned own[STRIPS * STEPS][4], down[STRIPS * STEPS][4];

	NAME_D(fast_copy)(tiles, NAME_D(fast_rows)(q, w, A.queries, A.ldq), w.first, OWN);
	NAME_D(fast_copy)(tiles + STAGE, NAME_D(fast_rows)(out, w, A.queries, width), w.first, OWN);
	WARP_WAIT();
	__syncthreads();
	NAME_D(fast_own)(own, tiles);
	NAME_D(fast_own)(down, tiles + STAGE);
	__syncthreads();
	NAME_D(fast_copy)
	(tiles + STAGE, NAME_D(fast_rows)(dout, w, A.queries, width), w.first, OWN);
	NAME_D(fast_copy)(tiles, rows_k, 0, TILE);
	NAME_D(fast_copy)(tiles + STAGE / 2, rows_v, 0, TILE);
	WARP_WAIT();
	__syncthreads();
	GPU_UNROLLED
	for (int i = 0; i < 2 * STRIPS; i++)
		of[i] = 0.0f;
	GPU_UNROLLED
	for (int i = 0; i < STRIPS * STEPS; i++) { /* `down` is out still, and dout afterwards */
		unsigned a[4];

		WARP_LOAD(a, tiles + STAGE +
				     (16 * (STRIPS * WARP_INDEX + i / STEPS) + WARP_LANE % 16) *
					     PITCH +
				     i % STEPS * 2 + WARP_LANE / 16);
		GPU_UNROLLED
		for (int c = 0; c < 4; c++) {
			float *sum = &of[i / STEPS * 2 + c % 2];

			*sum = warp_dot(a[c], down[i][c], *sum);
			down[i][c] = a[c];
		}
	}
	GPU_UNROLLED
	for (int i = 0; i < 2 * STRIPS; i++) {
		const int row = row0 + 8 * i + WARP_LANE / 4;

		of[i] = warp_row_sum(of[i]);
		log2_sum[i] = row < A.queries ? fast_log2_sum(stats + (at + row) * 2) : 0.0f;
		if (row < A.queries && WARP_LANE % 4 == 0)
			dsum[at + row] = of[i];
	}
	if (!dq)
		return;
	NAME_D(fast_zero)(sums);
	for (int first = 0; first < end; first += TILE) {
		const int stage = (first & TILE) / TILE;
		const uint4 *tile = tiles + stage * STAGE;
		uint4 *next = tiles + (stage ^ 1) * STAGE;

		WARP_WAIT();
		__syncthreads();
		if (first + TILE < end) {
			NAME_D(fast_copy)(next, rows_k, first + TILE, TILE);
			NAME_D(fast_copy)(next + STAGE / 2, rows_v, first + TILE, TILE);
		}
		if (A.causal && first >= row0 + 16 * STRIPS)
			continue;
		GPU_UNROLLED
		for (int n = 0; n < TILE; n += 16) {
			float s[STRIPS * 2][4], dp[STRIPS * 2][4];

			NAME_D(fast_scores)(s, own, tile + n * PITCH, 16);
			NAME_D(fast_scores)(dp, down, tile + STAGE / 2 + n * PITCH, 16);
			GPU_UNROLLED
			for (int i = 0; i < STRIPS * 8; i++) {
				const int r = i / 8 * 2 + i % 4 / 2;

				s[i / 4][i % 4] =
					WARP_EXP2(FMA(s[i / 4][i % 4], factor, -log2_sum[r]));
			}
			if (first + TILE > all)
				NAME_D(fast_hide)(s, 16, row0, first + n, A, 0.0f);
			GPU_UNROLLED
			for (int i = 0; i < STRIPS * 8; i++)
				s[i / 4][i % 4] *= dp[i / 4][i % 4] - of[i / 8 * 2 + i % 4 / 2];
			NAME_D(fast_weighted)(sums, s, tile + n * PITCH, 16);
		}
	}
	NAME_D(fast_store)(NAME_D(fast_rows)(dq, w, A.queries, A.lddq), row0, sums, A.scale);
}

/* Bindings as above. A block's rows are keys, its columns queries. */
GPU_KERNEL(10, NAME_D(fast_attention_kv), srt_k_attention_t, FAST_THREADS, 256)
{
	TENSOR(1, uint16_t, dk);
	TENSOR(2, uint16_t, dv);
	TENSOR(3, uint16_t, dout);
	TENSOR(5, uint16_t, q);
	TENSOR(6, uint16_t, k);
	TENSOR(7, uint16_t, v);
	TENSOR(8, const float, stats);
	TENSOR(9, const float, dsum);
	__shared__ __align__(16) uint4 tiles[2 * STAGE];
	__shared__ float of[2][2][TILE]; /* of a stage's queries: log2 of the sum; D */
	const fast_where_t w = fast_where(A, A.keys, OWN, 0);
	const int nq = (int)A.queries;
	const int begin = A.causal ? w.first : 0;
	const int row0 = w.first + 16 * STRIPS * WARP_INDEX;
	const float factor = A.scale * LOG2E;
	const int64_t width = A.heads * HEAD_DIM, at = (w.item * A.heads + w.head) * A.queries;
	const fast_rows_t rows_q = NAME_D(fast_rows)(q, w, A.queries, A.ldq);
	const fast_rows_t rows_d = NAME_D(fast_rows)(dout, w, A.queries, width);
	float sums_k[COLUMNS][4], sums_v[COLUMNS][4];
	unsigned own[STRIPS * STEPS][4], down[STRIPS * STEPS][4];

	NAME_D(fast_copy)(tiles, NAME_D(fast_rows)(k, w, A.keys, A.ldk), w.first, OWN);
	NAME_D(fast_copy)(tiles + STAGE, NAME_D(fast_rows)(v, w, A.keys, A.ldv), w.first, OWN);
	WARP_WAIT();
	__syncthreads();
	NAME_D(fast_own)(own, tiles);
	NAME_D(fast_own)(down, tiles + STAGE);
	NAME_D(fast_zero)(sums_k);
	NAME_D(fast_zero)(sums_v);
	/* The first turn only copies. */
	for (int first = begin - TILE; first < nq; first += TILE) {
		const int stage = (first & TILE) / TILE;
		const uint4 *tile = tiles + stage * STAGE;
		uint4 *next = tiles + (stage ^ 1) * STAGE;

		WARP_WAIT();
		__syncthreads();
		if (first + TILE < nq) {
			NAME_D(fast_copy)(next, rows_q, first + TILE, TILE);
			NAME_D(fast_copy)(next + STAGE / 2, rows_d, first + TILE, TILE);
			if (threadIdx.x < TILE) {
				const int query = first + TILE + (int)threadIdx.x;
				const int is = query < nq; /* else its weights are 0 */

				of[stage ^ 1][0][threadIdx.x] =
					is ? fast_log2_sum(stats + (at + query) * 2) : INFINITY;
				of[stage ^ 1][1][threadIdx.x] = is ? dsum[at + query] : 0.0f;
			}
		}
		GPU_ROLLED
		for (int n = 0; first >= begin && n < TILE; n += 16) {
			float s[STRIPS * 2][4], dp[STRIPS * 2][4];

			if (A.causal && first + n + 16 <= row0)
				continue;
			NAME_D(fast_scores)(s, own, tile + n * PITCH, 16);
			GPU_UNROLLED
			for (int i = 0; i < STRIPS * 8; i++)
				s[i / 4][i % 4] =
					WARP_EXP2(FMA(s[i / 4][i % 4], factor,
						      -of[stage][0][n + i / 4 % 2 * 8 +
								    WARP_LANE % 4 * 2 + i % 2]));
			if (A.causal && first + n < row0 + 16 * STRIPS) {
				GPU_UNROLLED
				for (int i = 0; i < STRIPS * 8; i++) {
					const int key = i / 8 * 16 + i % 4 / 2 * 8 + WARP_LANE / 4;
					const int query = i / 4 % 2 * 8 + WARP_LANE % 4 * 2 + i % 2;

					if (row0 + key > first + n + query)
						s[i / 4][i % 4] = 0.0f;
				}
			}
			NAME_D(fast_weighted)(sums_v, s, tile + STAGE / 2 + n * PITCH, 16);
			NAME_D(fast_scores)(dp, down, tile + STAGE / 2 + n * PITCH, 16);
			GPU_UNROLLED
			for (int i = 0; i < STRIPS * 8; i++)
				s[i / 4][i % 4] *=
					dp[i / 4][i % 4] -
					of[stage][1][n + i / 4 % 2 * 8 + WARP_LANE % 4 * 2 + i % 2];
			NAME_D(fast_weighted)(sums_k, s, tile + n * PITCH, 16);
		}
	}
	if (dk)
		NAME_D(fast_store)(NAME_D(fast_rows)(dk, w, A.keys, A.lddk), row0, sums_k, A.scale);
	if (dv)
		NAME_D(fast_store)(NAME_D(fast_rows)(dv, w, A.keys, A.lddv), row0, sums_v, 1.0f);
}

#undef STRIPS
#undef OWN
#undef TILE
#undef HEAD_CHUNKS
#undef PITCH
#undef STAGE
#undef STEPS
#undef COLUMNS
