/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The matrix product's driver: cuts C into parts, blocks and tiles, packs operands, calls the tile
 * kernel of an instruction set (gemm_tile.h). See matmul.h for the contract.
 *
 * For stretches of columns and each span of k:
 *   for groups of columns: pack B into panels of nr columns; then
 *     for blocks of rows of A: run all tiles.
 * Rows that are read in place pass one panel (mr rows) at a time over a group that stays in the
 * second-level cache; their span is several blocks of k, which a tile runs one after another with
 * their sums in the first-level cache. Rows that must be packed are packed by blocks of a third of
 * that cache, which stay there while a wide group streams past, so that nothing is packed twice;
 * their span is one block of k. A span's sums are added to the earlier spans' in C itself; with
 * `accumulate` C holds the old values, so spans are long there, sums of several spans gather in
 * scratch and the last span adds them onto C.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <string.h>

#include "backends/cpu/gemm_tile.h"
#include "backends/cpu/matmul_pack.h"
#include "base/base.h"
#include "kernels/args.h"

_Static_assert(SRT_CPU_KB == SRT_K_MATMUL_KB, "one length of chains for all devices");

#define K_SPAN (4 * SRT_CPU_KB)
#define N_STRETCH 2048    /* columns */
#define M_STRETCH_SUM 960 /* rows whose span sums are kept in scratch: a multiple of every mr */
#define A_ROWS 192        /* rows of A packed at a time at most: a multiple of every mr */
#define A_BLOCK (A_ROWS * SRT_CPU_KB) /* floats of A packed at a time: 384 KiB */
#define B_GROUP (1 << 17)             /* floats of B that are packed at a time: 512 KiB */
#define B_GROUP_WIDE (1 << 20)        /* the same beside packed blocks of A: 4 MiB */
#define B_GROUP_THIN 4096  /* the same where each panel is used once: first-level cache */
#define LINE 16            /* floats of a cache line */
#define TILE_MAX (12 * 32) /* floats of the largest tile */

/* The rows [m0,m1) and columns [n0,n1) of one product. */
typedef struct range {
	int64_t m0, m1, n0, n1;
} range_t;

/* Scratch of a part, in floats from its start. */
typedef struct layout {
	size_t a, b, sum, total;
	int64_t ldsum;
} layout_t;

static int64_t round_up(int64_t n, int64_t to)
{
	return (n + to - 1) / to * to;
}

/* A's rows are read in place unless their distance makes them fight for the same cache sets. */
static int packs_a(const srt_cpu_matmul_t *mm)
{
	return mm->trans_a ? mm->lda > 64 : mm->lda % 1024 == 0 && mm->k > 64;
}

/* One block of k where A is packed, so that a packed block has many rows. */
static int64_t k_span(const srt_cpu_matmul_t *mm)
{
	return packs_a(mm) && !mm->accumulate ? SRT_CPU_KB : K_SPAN;
}

/* Whether span sums must stay apart from C until the last span. */
static int needs_sum(const srt_cpu_matmul_t *mm)
{
	return mm->accumulate && mm->k > k_span(mm);
}

/* Rows of a stretch. */
static int64_t m_stretch(const srt_cpu_matmul_t *mm)
{
	return needs_sum(mm) ? srt_cpu_min64(mm->m, M_STRETCH_SUM) : mm->m;
}

/* Rows of a block of A, for a span of length kc. */
static int64_t m_block(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm, int64_t kc)
{
	int64_t rows = srt_cpu_min64(A_BLOCK / (kc ? kc : 1) / gemm->mr * gemm->mr, A_ROWS);

	return packs_a(mm) ? srt_cpu_min64(rows, round_up(mm->m, gemm->mr)) : gemm->mr;
}

/* Columns of a group, for a span of length kc; all groups of a stretch are about as wide. */
static int64_t n_group(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm, int64_t kc)
{
	int64_t floats = mm->m <= gemm->mr ? B_GROUP_THIN : packs_a(mm) ? B_GROUP_WIDE : B_GROUP;
	int64_t panels = (srt_cpu_min64(mm->n ? mm->n : 1, N_STRETCH) + gemm->nr - 1) / gemm->nr;
	int64_t most = floats / (kc ? kc : 1) / gemm->nr, groups;

	most = most ? most : 1;
	groups = (panels + most - 1) / most;
	return (panels + groups - 1) / groups * gemm->nr;
}

static layout_t scratch_layout(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm)
{
	const int64_t span = k_span(mm), rest = mm->k % span;
	const int64_t kcs[2] = { srt_cpu_min64(mm->k, span),
				 rest }; /* a short one has larger blocks */
	layout_t l = { .ldsum = srt_cpu_min64(mm->n, N_STRETCH) };
	size_t b = 0;

	for (int i = 0; i < 2; i++) {
		size_t a_floats = (size_t)(m_block(gemm, mm, kcs[i]) * (kcs[i] + A_SLACK));
		size_t b_floats = (size_t)(n_group(gemm, mm, kcs[i]) * kcs[i]);

		if (packs_a(mm) && a_floats > l.b)
			l.b = a_floats;
		b = b_floats > b ? b_floats : b;
	}
	l.b = srt_align_up(l.b, 16);
	l.sum = srt_align_up(l.b + b, 16);
	l.total = l.sum + (needs_sum(mm) ? (size_t)(m_stretch(mm) * l.ldsum) : 0);
	return l;
}

size_t srt_cpu_matmul_scratch(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm, int nparts)
{
	(void)nparts;
	return srt_align_up(scratch_layout(gemm, mm).total * sizeof(float), 64);
}

/* A region of memory for n tiles to fetch: tile t from p + t * ld on, `step` further in each step
 * of k. */
typedef struct fetch {
	const float *p;
	int64_t n, ld, step;
} fetch_t;

/* What the tiles of one span of k and one group of columns have in common. */
typedef struct span {
	const srt_cpu_gemm_t *gemm;
	int64_t kc;
	const float *a;        /* element (0,0) of the block of rows */
	int64_t rs, cs, panel; /* A: between rows, between k, between panels of mr rows */
	const float *b;        /* packed panels of the group */
	srt_cpu_tile_io_t io;  /* of the block's first row, the group's first column */
	/* What is packed or read after this block, the first thing last: the last tiles of the
	 * block fetch it while they run. */
	fetch_t next[2];
} span_t;

/* One tile: the blocks of the span in rising order, their sums in `sums` until the last. */
static void run_tile(const span_t *sp, int rows, int cols, const float *a, const float *b,
		     const srt_cpu_tile_io_t *io)
{
	const int nr = sp->gemm->nr;
	float sums[TILE_MAX] __attribute__((aligned(64)));
	srt_cpu_tile_io_t part = { .alpha = 1.0f, .c = sums, .ldc = nr };
	int64_t k = 0;

	part.prior = io->prior;
	part.ldprior = io->ldprior;
	part.ahead = io->ahead;
	part.ahead_step = io->ahead_step;
	for (; sp->kc - k > SRT_CPU_KB; k += SRT_CPU_KB) {
		sp->gemm->tile(rows, cols, SRT_CPU_KB, a + k * sp->cs, sp->rs, sp->cs, b + k * nr,
			       nr, &part);
		part.prior = sums;
		part.ldprior = nr;
		if (part.ahead)
			part.ahead += SRT_CPU_KB * io->ahead_step;
	}
	part.c = io->c;
	part.ldc = io->ldc;
	part.alpha = io->alpha;
	part.bias = io->bias;
	part.old = io->old;
	part.ldold = io->ldold;
	sp->gemm->tile(rows, cols, sp->kc - k, a + k * sp->cs, sp->rs, sp->cs, b + k * nr, nr,
		       &part);
}

/* What a tile fetches that has left - 1 tiles of its block after it. */
static void choose_ahead(const span_t *sp, int64_t left, srt_cpu_tile_io_t *io)
{
	for (size_t i = 0; i < SRT_ARRAY_LEN(sp->next); i++) {
		const fetch_t *f = &sp->next[i];

		if (left <= f->n) {
			io->ahead = f->p + (f->n - left) * f->ld;
			io->ahead_step = f->step;
			return;
		}
		left -= f->n;
	}
}

/* All tiles of a block of rows and a group of columns: each panel of B meets all rows at once. */
static void run_tiles(const span_t *sp, int64_t rows, int64_t cols)
{
	const int mr = sp->gemm->mr, nr = sp->gemm->nr;
	int64_t left = (cols + nr - 1) / nr * ((rows + mr - 1) / mr);

	for (int64_t j = 0; j < cols; j += nr) {
		for (int64_t i = 0; i < rows; i += mr, left--) {
			srt_cpu_tile_io_t io = sp->io;

			choose_ahead(sp, left, &io);
			io.c += i * io.ldc + j;
			if (io.prior)
				io.prior += i * io.ldprior + j;
			if (io.old)
				io.old += i * io.ldold + j;
			if (io.bias)
				io.bias += j;
			run_tile(sp, (int)srt_cpu_min64(mr, rows - i),
				 (int)srt_cpu_min64(nr, cols - j), sp->a + i / mr * sp->panel,
				 sp->b + j * sp->kc, &io);
		}
	}
}

/* How the sums of the span at k0 leave their tiles; i, j = first row and column of the
 * rectangle. */
static srt_cpu_tile_io_t span_io(const srt_cpu_matmul_t *mm, float *c, float *sum, int64_t ldsum,
				 int64_t k0, int64_t i, int64_t j)
{
	int last = k0 + k_span(mm) >= mm->k;
	srt_cpu_tile_io_t io = { .alpha = 1.0f, .c = c + i * mm->ldc + j, .ldc = mm->ldc };

	if (k0 > 0) {
		io.prior = sum ? sum : io.c;
		io.ldprior = sum ? ldsum : mm->ldc;
	}
	if (last) {
		io.alpha = mm->alpha != 0.0f ? mm->alpha : 1.0f;
		io.bias = mm->bias ? mm->bias + j : NULL;
		io.old = mm->accumulate ? io.c : NULL;
		io.ldold = mm->ldc;
	} else if (sum) {
		io.c = sum;
		io.ldc = ldsum;
	}
	return io;
}

/* What follows the block of rows at i, the group of columns at j and the span at k0: the next rows,
 * or the first of the next span and, if all of it is packed at once, the next span of B. */
static void choose_next(span_t *sp, const srt_cpu_matmul_t *mm, int64_t item, range_t r, int64_t k0,
			int64_t j, int64_t i)
{
	const int64_t block = m_block(sp->gemm, mm, sp->kc), group = n_group(sp->gemm, mm, sp->kc);
	const int64_t rs = mm->trans_a ? 1 : mm->lda, cs = mm->trans_a ? mm->lda : 1;
	int64_t rows = srt_cpu_min64(block, r.m1 - i - block);

	memset(sp->next, 0, sizeof(sp->next));
	if (rows <= 0) {
		k0 += sp->kc;
		if (!packs_a(mm) || k0 >= mm->k || j + group < r.n1)
			return;
		i = r.m0 - block;
		rows = srt_cpu_min64(block, r.m1 - r.m0);
		if (!mm->trans_b && group >= r.n1 - r.n0)
			sp->next[1] =
				(fetch_t){ .p = mm->b + item * mm->stride_b + k0 * mm->ldb + r.n0,
					   .n = (r.n1 - r.n0 + LINE - 1) / LINE,
					   .ld = LINE,
					   .step = mm->ldb };
	}
	/* along the rows of A, or across them a line at a time */
	sp->next[0] = (fetch_t){ .p = mm->a + item * mm->stride_a + (i + block) * rs + k0 * cs,
				 .n = mm->trans_a ? (rows + LINE - 1) / LINE : rows,
				 .ld = mm->trans_a ? LINE : mm->lda,
				 .step = cs };
}

/* One span of k for the rows [m0,m1) and columns [n0,n1); sum: the span sums' own place or
 * NULL. */
static void run_span(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm, int64_t item,
		     range_t r, int64_t k0, float *scratch, float *sum)
{
	const float *a = mm->a + item * mm->stride_a, *b = mm->b + item * mm->stride_b;
	float *c = mm->c + item * mm->stride_c;
	const layout_t l = scratch_layout(gemm, mm);
	const int64_t kc = srt_cpu_min64(k_span(mm), mm->k - k0);
	const int64_t group = n_group(gemm, mm, kc), block = m_block(gemm, mm, kc);
	const int64_t rs = mm->trans_a ? 1 : mm->lda, cs = mm->trans_a ? mm->lda : 1;
	span_t sp = { .gemm = gemm, .kc = kc, .rs = rs, .cs = cs, .b = scratch + l.b };

	if (packs_a(mm)) {
		sp.a = scratch + l.a;
		sp.rs = mm->trans_a ? 1 : kc + A_SLACK;
		sp.cs = mm->trans_a ? gemm->mr : 1;
		sp.panel = gemm->mr * (kc + A_SLACK);
	}
	for (int64_t j = r.n0; j < r.n1; j += group) {
		int64_t cols = srt_cpu_min64(group, r.n1 - j);

		srt_cpu_pack_b(gemm, mm, b, k0, kc, j, cols, scratch + l.b);
		for (int64_t i = r.m0; i < r.m1; i += block) {
			int64_t rows = srt_cpu_min64(block, r.m1 - i);

			choose_next(&sp, mm, item, r, k0, j, i);
			if (packs_a(mm))
				srt_cpu_pack_a(gemm, mm, a, i, rows, k0, kc, scratch + l.a);
			else
				sp.a = a + i * rs + k0 * cs;
			sp.io = span_io(mm, c, sum ? sum + (i - r.m0) * l.ldsum + (j - r.n0) : NULL,
					l.ldsum, k0, i, j);
			run_tiles(&sp, rows, cols);
		}
	}
}

static void run_range(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm, int64_t item,
		      range_t all, float *scratch)
{
	float *sum = needs_sum(mm) ? scratch + scratch_layout(gemm, mm).sum : NULL;
	const int64_t rows = m_stretch(mm);
	range_t r;

	for (r.n0 = all.n0; r.n0 < all.n1; r.n0 += N_STRETCH) {
		r.n1 = srt_cpu_min64(r.n0 + N_STRETCH, all.n1);
		for (r.m0 = all.m0; r.m0 < all.m1; r.m0 += rows) {
			int64_t k0 = 0;

			r.m1 = srt_cpu_min64(r.m0 + rows, all.m1);
			do { /* once for k = 0 too: sums of no terms are +0 */
				run_span(gemm, mm, item, r, k0, scratch, sum);
				k0 += k_span(mm);
			} while (k0 < mm->k);
		}
	}
}

/* First of `total` units that part `part` of `nparts` gets. */
static int64_t part_start(int64_t total, int64_t part, int64_t nparts)
{
	return total / nparts * part + srt_cpu_min64(total % nparts, part);
}

void srt_cpu_matmul(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm, int part, int nparts,
		    void *scratch)
{
	int64_t batch = mm->batch > 1 ? mm->batch : 1;
	int64_t row_units = (mm->m + gemm->mr - 1) / gemm->mr;
	int64_t col_units = (mm->n + gemm->nr - 1) / gemm->nr;
	int64_t across = 1, down, item0 = 0, item1 = batch;
	range_t r;

	if (mm->m <= 0 || mm->n <= 0)
		return;
	if (batch >= nparts) { /* whole items */
		item0 = part_start(batch, part, nparts);
		item1 = part_start(batch, part + 1, nparts);
		part = 0;
		nparts = 1;
	}
	/* A grid of parts: columns first, since a part packs only its own columns of B. */
	for (int64_t d = 2; d <= nparts; d++)
		if (nparts % d == 0 && (col_units >= 2 * d || row_units < nparts / d * 2))
			across = d;
	down = nparts / across;
	r.m0 = srt_cpu_min64(part_start(row_units, part % down, down) * gemm->mr, mm->m);
	r.m1 = srt_cpu_min64(part_start(row_units, part % down + 1, down) * gemm->mr, mm->m);
	r.n0 = srt_cpu_min64(part_start(col_units, part / down, across) * gemm->nr, mm->n);
	r.n1 = srt_cpu_min64(part_start(col_units, part / down + 1, across) * gemm->nr, mm->n);
	if (r.m0 < r.m1 && r.n0 < r.n1)
		for (int64_t item = item0; item < item1; item++)
			run_range(gemm, mm, item, r, scratch);
}

const srt_cpu_gemm_t *srt_cpu_gemm_find(const char *isa)
{
	static const srt_cpu_gemm_t *const all[] = {
		&srt_cpu_gemm_baseline,
#ifdef HAVE_AVX2
		&srt_cpu_gemm_avx2,
#endif
#ifdef HAVE_AVX512
		&srt_cpu_gemm_avx512,
#endif
	};

	for (size_t i = 0; i < SRT_ARRAY_LEN(all); i++)
		if (strcmp(all[i]->isa, isa) == 0)
			return all[i];
	return NULL;
}
