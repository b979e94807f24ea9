/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by both passes of attention: packing of one head's operands into panels and the
 * products over tiles. Inline functions over the tile kernels of gemm_tile.h.
 */
#ifndef SRT_BACKENDS_CPU_ATTENTION_PARTS_H
#define SRT_BACKENDS_CPU_ATTENTION_PARTS_H

#include <string.h>

#include "backends/cpu/attention.h"
#include "backends/cpu/pack.h"

/* Floats of panels that hold depth rows by n columns. */
static inline size_t srt_cpu_attention_panels(const srt_cpu_gemm_t *gemm, int64_t depth, int64_t n)
{
	return srt_align_up((size_t)(depth * ((n + gemm->nr - 1) / gemm->nr * gemm->nr)), 16);
}

/*
 * The keys of an item: those before n, except the keys that its mask hides (holes), and for each
 * query those before its first one. Scores are
 * computed for all n. Chains over keys use the shown keys only; `before` maps them to adjacent
 * positions: in rows of scores (srt_cpu_close_holes) and in the panels (srt_cpu_place_rows). There
 * are no holes where queries have first keys.
 */
typedef struct srt_cpu_keys {
	int64_t n;
	const unsigned char *mask; /* (n), or NULL: no holes */
	const int64_t *before;     /* (n + 1): number of shown keys before key j; NULL: no holes */
	const int32_t *first;      /* (queries), or NULL */
} srt_cpu_keys_t;

/* Floats of scratch for them. */
static inline size_t srt_cpu_attention_keys_scratch(const srt_cpu_attention_t *at)
{
	const size_t nbytes = (size_t)(at->shape.keys + 1) * sizeof(int64_t);

	return at->mask != NULL ? srt_align_up(nbytes / sizeof(float), 16) : 0;
}

static inline srt_cpu_keys_t srt_cpu_attention_keys(const srt_cpu_attention_t *at, int64_t item,
						    float *scratch)
{
	const unsigned char *mask = at->mask != NULL ? at->mask + item * at->shape.keys : NULL;
	int64_t n = at->lengths != NULL ? at->lengths[item] : at->shape.keys;
	int64_t *before = (int64_t *)(void *)scratch;

	n = n < 0 ? 0 : n < at->shape.keys ? n : at->shape.keys;
	if (at->shape.causal) /* no query sees the others */
		n = srt_min64(n, at->shape.offset + at->shape.queries);
	if (mask == NULL)
		return (srt_cpu_keys_t){ .n = n,
					 .first = at->first != NULL ?
							  at->first + item * at->shape.queries :
							  NULL };
	while (n > 0 && !mask[n - 1])
		n--;
	before[0] = 0;
	for (int64_t j = 0; j < n; j++)
		before[j + 1] = before[j] + (mask[j] != 0);
	if (before[n] == n)
		return (srt_cpu_keys_t){ .n = n };
	return (srt_cpu_keys_t){ .n = n, .mask = mask, .before = before };
}

/* Number of shown keys among the first j. */
static inline int64_t srt_cpu_shown(const srt_cpu_keys_t *keys, int64_t j)
{
	return keys->before != NULL ? keys->before[j] : j;
}

/* Copies the shown scores of a row of n to adjacent positions; to may be s. Writes up to n. */
static inline void srt_cpu_close_holes(const srt_cpu_keys_t *keys, const float *s, int64_t n,
				       float *to)
{
	for (int64_t j = 0; j < n; j++)
		to[keys->before[j]] = s[j];
}

/* Query i sees the keys before this one. */
static inline int64_t srt_cpu_seen_by(const srt_cpu_attention_t *at, const srt_cpu_keys_t *keys,
				      int64_t i)
{
	return at->shape.causal ? srt_min64(at->shape.offset + i + 1, keys->n) : keys->n;
}

/* Query i sees the keys from this one on. */
static inline int64_t srt_cpu_first_key(const srt_cpu_keys_t *keys, int64_t i)
{
	return keys->first != NULL && keys->first[i] > 0 ? keys->first[i] : 0;
}

/* A group of query rows. All rows see the same last key, or row r sees one key more than row r - 1.
 * The last row sees the keys before `seen`. Of the shown keys row r sees the same or one more; the
 * last row sees `shown`. First keys rise; the last row's is one that the first row sees, or the one
 * after it. */
typedef struct srt_cpu_queries {
	int rows;
	int64_t seen, shown; /* by the last row */
	srt_cpu_ragged_t ragged, shown_ragged;
	int64_t i, from; /* the first row and its first key; `seen` if it sees none */
} srt_cpu_queries_t;

/* At most n rows from query i on whose first keys rise to at most what row i sees. */
static inline int64_t srt_cpu_rising_rows(const srt_cpu_keys_t *keys, int64_t i, int64_t n,
					  int64_t seen)
{
	int64_t rows = 1;

	if (keys->first == NULL)
		return n;
	while (rows < n && srt_cpu_first_key(keys, i + rows) <= seen &&
	       srt_cpu_first_key(keys, i + rows) >= srt_cpu_first_key(keys, i + rows - 1))
		rows++;
	return rows;
}

/* The next rows from query i on, of those before `end`. */
static inline srt_cpu_queries_t srt_cpu_attention_queries(const srt_cpu_gemm_t *gemm,
							  const srt_cpu_attention_t *at, int64_t i,
							  int64_t end, const srt_cpu_keys_t *keys)
{
	const int64_t n = keys->n, seen = srt_cpu_seen_by(at, keys, i), j = at->shape.offset + i;
	const int64_t most = srt_cpu_rising_rows(keys, i, srt_min64(end - i, gemm->mr), seen);
	const int64_t from = srt_min64(srt_cpu_first_key(keys, i), seen);
	const unsigned char *mask = keys->mask;
	srt_cpu_ragged_t shown_ragged = SRT_CPU_TAIL;
	int64_t rows = 1;

	if (!at->shape.causal || j >= n)
		return (srt_cpu_queries_t){
			(int)most, n, srt_cpu_shown(keys, n), SRT_CPU_FULL, SRT_CPU_FULL, i, from
		};
	if (mask == NULL)
		rows = most < n - j ? most : n - j;
	else if (j + 1 < n && !mask[j + 1])
		shown_ragged = SRT_CPU_FULL;
	while (mask != NULL && rows < most && j + rows < n && !mask[j + rows] == !mask[j + 1])
		rows++;
	return (srt_cpu_queries_t){ (int)rows,    j + rows,     srt_cpu_shown(keys, j + rows),
				    SRT_CPU_TAIL, shown_ragged, i,
				    from };
}

/* Row r of the group sees the keys from the returned one on. */
static inline int64_t srt_cpu_attention_from(const srt_cpu_keys_t *keys,
					     const srt_cpu_queries_t *rows, int r)
{
	return r == 0 ? rows->from : srt_cpu_first_key(keys, rows->i + r);
}

/* Row r of the group sees the keys before the returned one. */
static inline int64_t srt_cpu_attention_seen(const srt_cpu_queries_t *rows, int r)
{
	return rows->ragged == SRT_CPU_FULL ? rows->seen : rows->seen - rows->rows + r + 1;
}

/* Distance of rows of scores: a multiple of 64 lanes, plus 16 so that rows use different cache
 * sets. With first keys the lanes begin anywhere. */
static inline int64_t srt_cpu_attention_lds(const srt_cpu_attention_t *at)
{
	return (at->shape.keys + 63) / 64 * 64 + 16 + (at->first != NULL ? 64 : 0);
}

/* Rows of x (n,hd) of dtype as floats: in place, or widened to scratch (n,hd). */
typedef struct srt_cpu_floats {
	const float *p;
	int64_t ld;
} srt_cpu_floats_t;

static inline srt_cpu_floats_t srt_cpu_float_rows(const srt_cpu_gemm_t *gemm, srt_dtype_t dtype,
						  int64_t n, int64_t hd, const void *x, int64_t ld,
						  float *scratch)
{
	if (dtype == SRT_F32)
		return (srt_cpu_floats_t){ x, ld };
	gemm->widen(dtype, n, hd, scratch, hd, x, ld);
	return (srt_cpu_floats_t){ scratch, hd };
}

/* Results (n,hd) of dtype, which are computed as floats: in place, or in scratch and rounded. */
typedef struct srt_cpu_result {
	srt_dtype_t dtype;
	float *p; /* NULL: not computed */
	int64_t ld, hd;
	void *y;
	int64_t ldy;
} srt_cpu_result_t;

static inline srt_cpu_result_t srt_cpu_result(srt_dtype_t dtype, int64_t hd, void *y, int64_t ldy,
					      float *scratch)
{
	srt_cpu_result_t r = { .dtype = dtype, .p = y, .ld = ldy, .hd = hd, .y = y, .ldy = ldy };

	if (y != NULL && dtype != SRT_F32) {
		r.p = scratch;
		r.ld = hd;
	}
	return r;
}

/* The first n rows. */
static inline void srt_cpu_store_result(const srt_cpu_gemm_t *gemm, const srt_cpu_result_t *r,
					int64_t n)
{
	if (r->p == r->y)
		return;
	if (r->dtype == SRT_F32)
		for (int64_t i = 0; i < n; i++)
			memcpy((float *)r->y + i * r->ldy, r->p + i * r->ld,
			       (size_t)r->hd * sizeof(float));
	else
		gemm->round(r->dtype, n, r->hd, r->y, r->ldy, r->p, r->ld);
}

/* Packs the rows of x (t,hd) as columns: panels (hd,nr) over t. */
static inline void srt_cpu_pack_columns(const srt_cpu_gemm_t *gemm, srt_dtype_t dtype, int64_t t,
					int64_t hd, const void *x, int64_t ld, float *dst)
{
	for (int64_t j = 0; j < t; j += gemm->nr, dst += hd * gemm->nr)
		gemm->pack_transposed(dtype, (int)srt_min64(t - j, gemm->nr), hd,
				      srt_cpu_element(x, dtype, j * ld), ld, dst);
}

/* Rows of x (t,hd) as tiles read them: row k, column j at p[j / nr * panel + k * ld + j % nr]. */
typedef struct srt_cpu_rows {
	const float *p;
	int64_t ld, panel;
} srt_cpu_rows_t;

/* Whether tiles read dense rows as fast as panels. */
static inline int srt_cpu_rows_dense(const srt_cpu_gemm_t *gemm, int64_t hd)
{
	return gemm->in_place && hd % gemm->nr == 0;
}

/* Floats of scratch for them; masked: there may be holes. */
static inline size_t srt_cpu_rows_scratch(const srt_cpu_gemm_t *gemm, srt_dtype_t dtype, int64_t t,
					  int64_t hd, int masked)
{
	if (dtype == SRT_F32 && srt_cpu_rows_dense(gemm, hd) && !masked)
		return 0;
	return srt_cpu_attention_panels(gemm, t, hd);
}

/* Packs the shown rows of x (n,hd) as panels over hd, without the holes. */
static inline srt_cpu_rows_t srt_cpu_pack_shown(const srt_cpu_gemm_t *gemm, srt_dtype_t dtype,
						const srt_cpu_keys_t *keys, int64_t hd,
						const void *x, int64_t ld, float *scratch)
{
	const int64_t nr = gemm->nr, t = srt_cpu_shown(keys, keys->n);

	for (int64_t k = 0, end; k < keys->n; k = end + 1) {
		for (end = k; end < keys->n && keys->mask[end];)
			end++;
		srt_cpu_pack_panels(gemm, dtype, hd, gemm->nr, end - k,
				    srt_cpu_element(x, dtype, k * ld), ld,
				    scratch + keys->before[k] * nr, t * nr);
	}
	return (srt_cpu_rows_t){ scratch, nr, t * nr };
}

/* Rows in place or widened, or packed as panels (t,nr) over hd, padded with +0. */
static inline srt_cpu_rows_t srt_cpu_place_rows(const srt_cpu_gemm_t *gemm, srt_dtype_t dtype,
						int64_t t, int64_t hd, const void *x, int64_t ld,
						float *scratch)
{
	const int64_t nr = gemm->nr;

	if (srt_cpu_rows_dense(gemm, hd)) {
		const srt_cpu_floats_t rows =
			srt_cpu_float_rows(gemm, dtype, t, hd, x, ld, scratch);

		return (srt_cpu_rows_t){ rows.p, rows.ld, nr };
	}
	srt_cpu_pack_panels(gemm, dtype, hd, gemm->nr, t, x, ld, scratch, t * nr);
	return (srt_cpu_rows_t){ scratch, nr, t * nr };
}

/* srt_cpu_place_rows() of the visible keys. */
static inline srt_cpu_rows_t srt_cpu_place_keys(const srt_cpu_gemm_t *gemm, srt_dtype_t dtype,
						const srt_cpu_keys_t *keys, int64_t hd,
						const void *x, int64_t ld, float *scratch)
{
	return keys->mask != NULL ? srt_cpu_pack_shown(gemm, dtype, keys, hd, x, ld, scratch) :
				    srt_cpu_place_rows(gemm, dtype, keys->n, hd, x, ld, scratch);
}

/* s (rows,cols) = (x (rows,hd) . panels of columns, by the matmul rule) * scale. Begins at column
 * `from` or before. */
static inline void srt_cpu_scores(const srt_cpu_gemm_t *gemm, int rows, int64_t cols, int64_t hd,
				  const float *x, int64_t ldx, const float *panels, float scale,
				  float *s, int64_t lds, int64_t from)
{
	const int64_t nr = gemm->nr;

	for (int64_t j = from / nr * nr; j < cols; j += nr) {
		int width = (int)(cols - j < nr ? cols - j : nr);

		for (int64_t k = 0; k < hd; k += SRT_CPU_KB) {
			int last = k + SRT_CPU_KB >= hd;
			srt_cpu_tile_io_t io = { .c = s + j,
						 .ldc = lds,
						 .prior = k ? s + j : NULL,
						 .ldprior = lds,
						 .alpha = last ? scale : 1.0f };

			gemm->tile(rows, width, last ? hd - k : SRT_CPU_KB, x + k, ldx, 1,
				   panels + j * hd + k * nr, nr, &io);
		}
	}
}

/* io->c (rows,hd) = chains over kc steps of A (element (i,k) at a[i * rs + k * cs]) times the rows
 * of x from `first` on; io is of the first panel. */
static inline void srt_cpu_chains(const srt_cpu_gemm_t *gemm, int rows, int64_t hd, int64_t kc,
				  const float *a, int64_t rs, int64_t cs, const srt_cpu_rows_t *x,
				  int64_t first, const srt_cpu_tile_io_t *io)
{
	const int64_t nr = gemm->nr;
	const float *p = x->p + first * x->ld;

	for (int64_t j = 0; j < hd; j += nr, p += x->panel) {
		srt_cpu_tile_io_t tile = *io;

		tile.c += j;
		tile.start = io->start != NULL ? io->start + j : NULL;
		gemm->tile(rows, (int)(hd - j < nr ? hd - j : nr), kc, a, rs, cs, p, x->ld, &tile);
	}
}

/* to (rows of the group,hd) = chains over the shown keys that a row sees, of weights or dS in
 * rows lds apart, times rows of x. Keys that only the first r rows see come first, as products of
 * r rows; then all rows have the same first key. */
static inline void srt_cpu_key_chains(const srt_cpu_gemm_t *gemm, const srt_cpu_keys_t *keys,
				      const srt_cpu_queries_t *now, int64_t hd, const float *s,
				      int64_t lds, const srt_cpu_rows_t *x,
				      const srt_cpu_result_t *to)
{
	int64_t from = now->from;
	srt_cpu_tile_io_t io = { .c = to->p, .ldc = to->ld, .ldstart = to->ld, .alpha = 1.0f };

	if (srt_cpu_attention_from(keys, now, now->rows - 1) > from) {
		io.start = io.c;
		for (int r = 0; r < now->rows; r++)
			memset(io.c + r * io.ldc, 0, (size_t)hd * sizeof(float));
	}
	for (int r = 1; r < now->rows; r++) {
		const int64_t next = srt_cpu_attention_from(keys, now, r);

		if (next > from)
			srt_cpu_chains(gemm, r, hd, next - from, s + from, lds, 1, x, from, &io);
		from = next > from ? next : from;
	}
	io.ragged = now->shown_ragged;
	srt_cpu_chains(gemm, now->rows, hd, now->shown - from, s + from, lds, 1, x, from, &io);
}

#endif
