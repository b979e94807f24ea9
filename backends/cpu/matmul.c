/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The matrix product's driver: cuts C into parts, blocks and tiles, packs operands, calls the tile
 * kernel of an instruction set (gemm_tile.h). See matmul.h for the contract.
 *
 * For stretches of columns, stretches of rows, and each block of SRT_CPU_KB of k:
 *   1. pack A's rows of the stretch, unless they are read in place;
 *   2. for groups of columns whose panels fill half the second-level cache: pack B into panels
 *      of nr columns, then run all tiles; a panel of A (mr rows) stays in the first-level cache
 *      while the panels of B stream past it.
 * A block's sums are added to the earlier blocks' in C itself; with `accumulate` C holds the old
 * values, so sums of several blocks gather in scratch and the last block adds them onto C.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <string.h>

#include "backends/cpu/gemm_tile.h"
#include "base/base.h"
#include "kernels/args.h"

_Static_assert(SRT_CPU_KB == SRT_K_MATMUL_KB, "one length of chains for all devices");

#define N_STRETCH 2048    /* columns */
#define M_STRETCH_SUM 960 /* rows whose block sums are kept in scratch */
#define M_STRETCH_A 1920  /* rows of A packed at a time: 4 MiB; both are multiples of every mr */
#define B_GROUP (1 << 17) /* floats of B that are packed at a time: 512 KiB */
#define B_GROUP_THIN 4096 /* the same where each panel is used once: first-level cache */
#define A_SLACK 16        /* floats between packed panels of A: the packing writes whole vectors */

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

/* Whether block sums must stay apart from C until the last block. */
static int needs_sum(const srt_cpu_matmul_t *mm)
{
	return mm->accumulate && mm->k > SRT_CPU_KB;
}

/* A's rows are read in place unless their distance makes them fight for the same cache sets. */
static int packs_a(const srt_cpu_matmul_t *mm)
{
	return mm->trans_a ? mm->lda > 64 : mm->lda % 512 == 0 && mm->k > 64;
}

/* Rows of a stretch. */
static int64_t m_stretch(const srt_cpu_matmul_t *mm)
{
	return min64(mm->m, needs_sum(mm) ? M_STRETCH_SUM : packs_a(mm) ? M_STRETCH_A : mm->m);
}

/* Columns of a group, for a block of length kc. */
static int64_t n_group(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm, int64_t kc)
{
	int64_t floats = mm->m <= gemm->mr ? B_GROUP_THIN : B_GROUP;
	int64_t group = floats / (kc ? kc : 1) / gemm->nr * gemm->nr;

	group = group < gemm->nr ? gemm->nr : group;
	return min64(group, round_up(min64(mm->n, N_STRETCH), gemm->nr));
}

static layout_t scratch_layout(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm)
{
	int64_t kc = min64(mm->k, SRT_CPU_KB), rows = m_stretch(mm);
	layout_t l = { .ldsum = min64(mm->n, N_STRETCH) };
	int64_t last = mm->k % SRT_CPU_KB; /* a short last block has wider groups */
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

/* B's block of rows [k0,k0+kc), columns [n0,n0+nc), into panels of nr columns, padded with +0. */
static void pack_b(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm, const float *b,
		   int64_t k0, int64_t kc, int64_t n0, int64_t nc, float *dst)
{
	const int nr = gemm->nr;

	for (int64_t j = 0; j < nc; j += nr, dst += kc * nr) {
		int cols = (int)min64(nr, nc - j);

		if (mm->trans_b)
			gemm->pack_transposed(cols, kc, b + (n0 + j) * mm->ldb + k0, mm->ldb, dst);
		else
			gemm->pack(cols, nr, kc, b + k0 * mm->ldb + n0 + j, mm->ldb, dst);
	}
}

/* A's block as panels of mr rows: (k,mr) from a transposed A, (mr,kc+A_SLACK) from a plain one. */
static void pack_a(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm, const float *a,
		   int64_t m0, int64_t mc, int64_t k0, int64_t kc, float *dst)
{
	const int mr = gemm->mr;

	for (int64_t i = 0; i < mc; i += mr, dst += mr * (kc + A_SLACK)) {
		int rows = (int)min64(mr, mc - i);

		if (mm->trans_a)
			gemm->pack(rows, mr, kc, a + k0 * mm->lda + m0 + i, mm->lda, dst);
		else
			for (int r = 0; r < rows; r++)
				memcpy(dst + r * (kc + A_SLACK), a + (m0 + i + r) * mm->lda + k0,
				       (size_t)kc * sizeof(float));
	}
}

/* What the tiles of one block of k and one group of columns have in common. */
typedef struct block {
	const srt_cpu_gemm_t *gemm;
	int64_t kc;
	const float *a;        /* element (0,0) of the stretch of rows */
	int64_t rs, cs, panel; /* A: between rows, between k, between panels of mr rows */
	const float *b;        /* packed panels of the group */
	srt_cpu_tile_io_t io;  /* of the stretch's first row, the group's first column */
} block_t;

static void run_tiles(const block_t *bl, int64_t rows, int64_t cols)
{
	const int mr = bl->gemm->mr, nr = bl->gemm->nr;

	for (int64_t i = 0; i < rows; i += mr) {
		int tile_rows = (int)min64(mr, rows - i);

		for (int64_t j = 0; j < cols; j += nr) {
			srt_cpu_tile_io_t io = bl->io;

			io.c += i * io.ldc + j;
			if (io.prior)
				io.prior += i * io.ldprior + j;
			if (io.old)
				io.old += i * io.ldold + j;
			if (io.bias)
				io.bias += j;
			bl->gemm->tile(tile_rows, (int)min64(nr, cols - j), bl->kc,
				       bl->a + i / mr * bl->panel, bl->rs, bl->cs,
				       bl->b + j * bl->kc, nr, &io);
		}
	}
}

/* How the sums of the block at k0 leave their tiles; i, j = first row and column of the
 * rectangle. */
static srt_cpu_tile_io_t block_io(const srt_cpu_matmul_t *mm, float *c, float *sum, int64_t ldsum,
				  int64_t k0, int64_t i, int64_t j)
{
	int last = k0 + SRT_CPU_KB >= mm->k;
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

/* One block of k for the rows [m0,m1) and columns [n0,n1); sum: the block sums' own place or
 * NULL. */
static void run_block(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm, int64_t item,
		      range_t r, int64_t k0, float *scratch, float *sum)
{
	const float *a = mm->a + item * mm->stride_a, *b = mm->b + item * mm->stride_b;
	const layout_t l = scratch_layout(gemm, mm);
	const int64_t kc = min64(SRT_CPU_KB, mm->k - k0), group = n_group(gemm, mm, kc);
	block_t bl = { .gemm = gemm, .kc = kc, .b = scratch + l.b };

	bl.rs = mm->trans_a ? 1 : mm->lda;
	bl.cs = mm->trans_a ? mm->lda : 1;
	bl.a = a + r.m0 * bl.rs + k0 * bl.cs;
	bl.panel = gemm->mr * bl.rs;
	if (packs_a(mm)) {
		pack_a(gemm, mm, a, r.m0, r.m1 - r.m0, k0, kc, scratch + l.a);
		bl.a = scratch + l.a;
		bl.rs = mm->trans_a ? 1 : kc + A_SLACK;
		bl.cs = mm->trans_a ? gemm->mr : 1;
		bl.panel = gemm->mr * (kc + A_SLACK);
	}
	for (int64_t j = r.n0; j < r.n1; j += group) {
		int64_t cols = min64(group, r.n1 - j);

		pack_b(gemm, mm, b, k0, kc, j, cols, scratch + l.b);
		bl.io = block_io(mm, mm->c + item * mm->stride_c, sum ? sum + (j - r.n0) : NULL,
				 l.ldsum, k0, r.m0, j);
		run_tiles(&bl, r.m1 - r.m0, cols);
	}
}

static void run_range(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm, int64_t item,
		      range_t all, float *scratch)
{
	float *sum = needs_sum(mm) ? scratch + scratch_layout(gemm, mm).sum : NULL;
	const int64_t rows = m_stretch(mm);
	range_t r;

	for (r.n0 = all.n0; r.n0 < all.n1; r.n0 += N_STRETCH) {
		r.n1 = min64(r.n0 + N_STRETCH, all.n1);
		for (r.m0 = all.m0; r.m0 < all.m1; r.m0 += rows) {
			int64_t k0 = 0;

			r.m1 = min64(r.m0 + rows, all.m1);
			do { /* once for k = 0 too: sums of no terms are +0 */
				run_block(gemm, mm, item, r, k0, scratch, sum);
				k0 += SRT_CPU_KB;
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
