/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The matrix product's driver: cuts C into parts, blocks and tiles, packs operands, calls the tile
 * kernel of an instruction set (gemm_tile.h). See matmul.h for the contract.
 *
 * For stretches of columns, stretches of rows, and each span of several blocks of k:
 *   1. pack A's rows of the stretch, unless they are read in place;
 *   2. for groups of columns whose panels fill half the second-level cache: pack B into panels
 *      of nr columns, then run all tiles; the panels of B stream past a panel of A (mr rows).
 * A tile runs the blocks of a span one after another, with their sums in the first-level cache. A
 * span's sums are added to the earlier spans' in C itself; with `accumulate` C holds the old
 * values, so sums of several spans gather in scratch and the last span adds them onto C.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <string.h>

#include "backends/cpu/gemm_tile.h"
#include "base/base.h"
#include "kernels/args.h"

_Static_assert(SRT_CPU_KB == SRT_K_MATMUL_KB, "one length of chains for all devices");

#define K_SPAN (4 * SRT_CPU_KB)
#define N_STRETCH 2048        /* columns */
#define M_STRETCH_SUM 960     /* rows whose span sums are kept in scratch: a multiple of every mr */
#define A_STRETCH (480 << 11) /* floats of A packed at a time: 4 MiB */
#define B_GROUP (1 << 17)     /* floats of B that are packed at a time: 512 KiB */
#define PACK_ROWS 16          /* rows that go through all panels at a time */
#define TILE_MAX (12 * 32)    /* floats of the largest tile */
#define B_GROUP_THIN 4096     /* the same where each panel is used once: first-level cache */
#define A_SLACK 16 /* floats between packed panels of A: the packing writes whole vectors */

/* The rows [m0,m1) and columns [n0,n1) of one product. */
typedef struct range {
	int64_t m0, m1, n0, n1;
} range_t;

/* Scratch of a part, in floats from its start. */
typedef struct layout {
	size_t a, b, sum, total;
	int64_t ldsum;
} layout_t;

static int64_t min64(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t round_up(int64_t n, int64_t to)
{
	return (n + to - 1) / to * to;
}

/* Whether span sums must stay apart from C until the last span. */
static int needs_sum(const srt_cpu_matmul_t *mm)
{
	return mm->accumulate && mm->k > K_SPAN;
}

/* A's rows are read in place unless their distance makes them fight for the same cache sets. */
static int packs_a(const srt_cpu_matmul_t *mm)
{
	return mm->trans_a ? mm->lda > 64 : mm->lda % 1024 == 0 && mm->k > 64;
}

/* Rows of a stretch. */
static int64_t m_stretch(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm)
{
	int64_t packed = A_STRETCH / min64(mm->k ? mm->k : 1, K_SPAN) / gemm->mr * gemm->mr;

	return min64(mm->m, needs_sum(mm) ? M_STRETCH_SUM : packs_a(mm) ? packed : mm->m);
}

/* Columns of a group, for a span of length kc. */
static int64_t n_group(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm, int64_t kc)
{
	int64_t floats = mm->m <= gemm->mr ? B_GROUP_THIN : B_GROUP;
	int64_t group = floats / (kc ? kc : 1) / gemm->nr * gemm->nr;

	group = group < gemm->nr ? gemm->nr : group;
	return min64(group, round_up(min64(mm->n, N_STRETCH), gemm->nr));
}

static layout_t scratch_layout(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm)
{
	int64_t kc = min64(mm->k, K_SPAN), rows = m_stretch(gemm, mm);
	layout_t l = { .ldsum = min64(mm->n, N_STRETCH) };
	int64_t last = mm->k % K_SPAN; /* a short last span has wider groups */
	int64_t b = n_group(gemm, mm, kc) * kc;

	if (last && n_group(gemm, mm, last) * last > b)
		b = n_group(gemm, mm, last) * last;
	if (packs_a(mm))
		l.b = (size_t)(round_up(rows, gemm->mr) * (kc + A_SLACK));
	l.b = srt_align_up(l.b, 16);
	l.sum = srt_align_up(l.b + (size_t)b, 16);
	l.total = l.sum + (needs_sum(mm) ? (size_t)(rows * l.ldsum) : 0);
	return l;
}

size_t srt_cpu_matmul_scratch(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm, int nparts)
{
	(void)nparts;
	return srt_align_up(scratch_layout(gemm, mm).total * sizeof(float), 64);
}

/*
 * Packs `cols` columns of the rows [0,kc) of src into panels of `width`, `panel` floats apart. Rows
 * go a few at a time through all panels, so that each is read from memory in one sweep.
 */
static void pack_rows(const srt_cpu_gemm_t *gemm, int64_t cols, int width, int64_t kc,
		      const float *src, int64_t ld, float *dst, int64_t panel)
{
	for (int64_t k = 0; k < kc; k += PACK_ROWS) {
		int64_t rows = min64(PACK_ROWS, kc - k);

		for (int64_t j = 0; j < cols; j += width)
			gemm->pack((int)min64(width, cols - j), width, rows, src + k * ld + j, ld,
				   dst + j / width * panel + k * width);
	}
}

/* B's rows [k0,k0+kc), columns [n0,n0+nc), into panels of nr columns, padded with +0. */
static void pack_b(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm, const float *b,
		   int64_t k0, int64_t kc, int64_t n0, int64_t nc, float *dst)
{
	const int nr = gemm->nr;

	if (!mm->trans_b) {
		pack_rows(gemm, nc, nr, kc, b + k0 * mm->ldb + n0, mm->ldb, dst, kc * nr);
		return;
	}
	for (int64_t j = 0; j < nc; j += nr, dst += kc * nr)
		gemm->pack_transposed((int)min64(nr, nc - j), kc, b + (n0 + j) * mm->ldb + k0,
				      mm->ldb, dst);
}

/* A's rows as panels of mr: (k,mr) from a transposed A, (mr,kc+A_SLACK) from a plain one. */
static void pack_a(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm, const float *a,
		   int64_t m0, int64_t mc, int64_t k0, int64_t kc, float *dst)
{
	if (mm->trans_a) {
		pack_rows(gemm, mc, gemm->mr, kc, a + k0 * mm->lda + m0, mm->lda, dst,
			  gemm->mr * (kc + A_SLACK));
		return;
	}
	for (int64_t r = 0; r < mc; r++)
		memcpy(dst + r * (kc + A_SLACK), a + (m0 + r) * mm->lda + k0,
		       (size_t)kc * sizeof(float));
}

/* What the tiles of one span of k and one group of columns have in common. */
typedef struct span {
	const srt_cpu_gemm_t *gemm;
	int64_t kc;
	const float *a;        /* element (0,0) of the stretch of rows */
	int64_t rs, cs, panel; /* A: between rows, between k, between panels of mr rows */
	const float *b;        /* packed panels of the group */
	srt_cpu_tile_io_t io;  /* of the stretch's first row, the group's first column */
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
	for (; sp->kc - k > SRT_CPU_KB; k += SRT_CPU_KB) {
		sp->gemm->tile(rows, cols, SRT_CPU_KB, a + k * sp->cs, sp->rs, sp->cs, b + k * nr,
			       nr, &part);
		part.prior = sums;
		part.ldprior = nr;
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

static void run_tiles(const span_t *sp, int64_t rows, int64_t cols)
{
	const int mr = sp->gemm->mr, nr = sp->gemm->nr;

	for (int64_t i = 0; i < rows; i += mr) {
		int tile_rows = (int)min64(mr, rows - i);

		for (int64_t j = 0; j < cols; j += nr) {
			srt_cpu_tile_io_t io = sp->io;

			io.c += i * io.ldc + j;
			if (io.prior)
				io.prior += i * io.ldprior + j;
			if (io.old)
				io.old += i * io.ldold + j;
			if (io.bias)
				io.bias += j;
			run_tile(sp, tile_rows, (int)min64(nr, cols - j),
				 sp->a + i / mr * sp->panel, sp->b + j * sp->kc, &io);
		}
	}
}

/* How the sums of the span at k0 leave their tiles; i, j = first row and column of the
 * rectangle. */
static srt_cpu_tile_io_t span_io(const srt_cpu_matmul_t *mm, float *c, float *sum, int64_t ldsum,
				 int64_t k0, int64_t i, int64_t j)
{
	int last = k0 + K_SPAN >= mm->k;
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

/* One span of k for the rows [m0,m1) and columns [n0,n1); sum: the span sums' own place or
 * NULL. */
static void run_span(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm, int64_t item,
		     range_t r, int64_t k0, float *scratch, float *sum)
{
	const float *a = mm->a + item * mm->stride_a, *b = mm->b + item * mm->stride_b;
	const layout_t l = scratch_layout(gemm, mm);
	const int64_t kc = min64(K_SPAN, mm->k - k0), group = n_group(gemm, mm, kc);
	span_t sp = { .gemm = gemm, .kc = kc, .b = scratch + l.b };

	sp.rs = mm->trans_a ? 1 : mm->lda;
	sp.cs = mm->trans_a ? mm->lda : 1;
	sp.a = a + r.m0 * sp.rs + k0 * sp.cs;
	sp.panel = gemm->mr * sp.rs;
	if (packs_a(mm)) {
		pack_a(gemm, mm, a, r.m0, r.m1 - r.m0, k0, kc, scratch + l.a);
		sp.a = scratch + l.a;
		sp.rs = mm->trans_a ? 1 : kc + A_SLACK;
		sp.cs = mm->trans_a ? gemm->mr : 1;
		sp.panel = gemm->mr * (kc + A_SLACK);
	}
	for (int64_t j = r.n0; j < r.n1; j += group) {
		int64_t cols = min64(group, r.n1 - j);

		pack_b(gemm, mm, b, k0, kc, j, cols, scratch + l.b);
		sp.io = span_io(mm, mm->c + item * mm->stride_c, sum ? sum + (j - r.n0) : NULL,
				l.ldsum, k0, r.m0, j);
		run_tiles(&sp, r.m1 - r.m0, cols);
	}
}

static void run_range(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm, int64_t item,
		      range_t all, float *scratch)
{
	float *sum = needs_sum(mm) ? scratch + scratch_layout(gemm, mm).sum : NULL;
	const int64_t rows = m_stretch(gemm, mm);
	range_t r;

	for (r.n0 = all.n0; r.n0 < all.n1; r.n0 += N_STRETCH) {
		r.n1 = min64(r.n0 + N_STRETCH, all.n1);
		for (r.m0 = all.m0; r.m0 < all.m1; r.m0 += rows) {
			int64_t k0 = 0;

			r.m1 = min64(r.m0 + rows, all.m1);
			do { /* once for k = 0 too: sums of no terms are +0 */
				run_span(gemm, mm, item, r, k0, scratch, sum);
				k0 += K_SPAN;
			} while (k0 < mm->k);
		}
	}
}

/* First of `total` units that part `part` of `nparts` gets. */
static int64_t part_start(int64_t total, int64_t part, int64_t nparts)
{
	return total / nparts * part + min64(total % nparts, part);
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
	r.m0 = min64(part_start(row_units, part % down, down) * gemm->mr, mm->m);
	r.m1 = min64(part_start(row_units, part % down + 1, down) * gemm->mr, mm->m);
	r.n0 = min64(part_start(col_units, part / down, across) * gemm->nr, mm->n);
	r.n1 = min64(part_start(col_units, part / down + 1, across) * gemm->nr, mm->n);
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
