/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The matrix product's driver: cuts C into parts, blocks and tiles, packs operands, calls the tile
 * kernel of an instruction set (gemm_tile.h). See matmul.h for the contract.
 *
 * For columns in stretches of NC_MAX, for rows in stretches (all rows, unless block sums need a
 * scratch of their own), for each block of SRT_CPU_KB of k:
 *   1. pack B (k block, stretch of columns) into panels of nr columns;
 *   2. for row groups of MC: pack A where it cannot be read in place well;
 *   3. for column groups whose panels fill half the second-level cache: all tiles; a panel of A (mr
 *      rows) stays in the first-level cache while the panels of B stream past it.
 * A block's sums are added to the earlier blocks' in C itself; with `accumulate` C holds the old
 * values, so sums of several blocks gather in scratch and the last block adds them onto C.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <string.h>

#include "backends/cpu/gemm_tile.h"
#include "base/base.h"

#define NC_MAX 2048       /* columns packed at a time: 4 MiB of B */
#define MC 240            /* rows packed at a time: 480 KiB of A, a multiple of every mr */
#define MC_SUM 960        /* rows whose block sums are kept in scratch */
#define B_GROUP (1 << 17) /* floats of B that the inner loops keep in the second-level cache */

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

static layout_t scratch_layout(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm)
{
	int64_t kc = min64(mm->k, SRT_CPU_KB), nc = min64(round_up(mm->n, gemm->nr), NC_MAX);
	layout_t l = { 0 };

	l.ldsum = nc;
	l.b = l.a + (packs_a(mm) ? (size_t)(min64(round_up(mm->m, gemm->mr), MC) * (kc + 16)) : 0);
	l.b = srt_align_up(l.b, 16);
	l.sum = srt_align_up(l.b + (size_t)(nc * kc), 16);
	l.total = l.sum + (needs_sum(mm) ? (size_t)(min64(mm->m, MC_SUM) * nc) : 0);
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

		if (mm->trans_b) {
			gemm->pack_transposed(cols, kc, b + (n0 + j) * mm->ldb + k0, mm->ldb, dst);
			continue;
		}
		for (int64_t k = 0; k < kc; k++) {
			memcpy(dst + k * nr, b + (k0 + k) * mm->ldb + n0 + j,
			       (size_t)cols * sizeof(float));
			memset(dst + k * nr + cols, 0, (size_t)(nr - cols) * sizeof(float));
		}
	}
}

/* A's block as panels of mr rows: (k,mr) from a transposed A, (mr,kc+16) from a plain one. */
static void pack_a(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm, const float *a,
		   int64_t m0, int64_t mc, int64_t k0, int64_t kc, float *dst)
{
	const int mr = gemm->mr;

	for (int64_t i = 0; i < mc; i += mr, dst += mr * (kc + 16)) {
		int64_t rows = min64(mr, mc - i);

		if (mm->trans_a)
			for (int64_t k = 0; k < kc; k++)
				memcpy(dst + k * mr, a + (k0 + k) * mm->lda + m0 + i,
				       (size_t)rows * sizeof(float));
		else
			for (int64_t r = 0; r < rows; r++)
				memcpy(dst + r * (kc + 16), a + (m0 + i + r) * mm->lda + k0,
				       (size_t)kc * sizeof(float));
	}
}

/* What the tiles of one block of k have in common. */
typedef struct block {
	const srt_cpu_gemm_t *gemm;
	int64_t kc;
	const float *a;        /* element (0,0) of the row group */
	int64_t rs, cs, panel; /* A: between rows, between k, between panels of mr rows */
	const float *b;        /* packed panels */
	srt_cpu_tile_io_t out; /* of the row group's first row, the stretch's first column */
} block_t;

static void run_tiles(const block_t *bl, int64_t rows, int64_t cols)
{
	const int mr = bl->gemm->mr, nr = bl->gemm->nr;
	int64_t group = B_GROUP / (bl->kc ? bl->kc : 1) / nr * nr;

	group = group < nr ? nr : group;
	for (int64_t g = 0; g < cols; g += group) {
		int64_t end = min64(g + group, cols);

		for (int64_t i = 0; i < rows; i += mr) {
			int tile_rows = (int)min64(mr, rows - i);
			srt_cpu_tile_io_t out;

			for (int64_t j = g; j < end; j += nr) {
				out = bl->out;
				out.c += i * out.ldc + j;
				if (out.prior)
					out.prior += i * out.ldprior + j;
				if (out.old)
					out.old += i * out.ldold + j;
				if (out.bias)
					out.bias += j;
				bl->gemm->tile(tile_rows, (int)min64(nr, end - j), bl->kc,
					       bl->a + i / mr * bl->panel, bl->rs, bl->cs,
					       bl->b + j * bl->kc, nr, &out);
			}
		}
	}
}

/* How the sums of the block at k0 leave their tiles; i, j = first row and column of the rectangle. */
static srt_cpu_tile_io_t block_out(const srt_cpu_matmul_t *mm, float *c, float *sum, int64_t ldsum,
				   int64_t k0, int64_t i, int64_t j)
{
	int last = k0 + SRT_CPU_KB >= mm->k;
	srt_cpu_tile_io_t out = { .alpha = 1.0f, .c = c + i * mm->ldc + j, .ldc = mm->ldc };

	if (k0 > 0) {
		out.prior = sum ? sum : out.c;
		out.ldprior = sum ? ldsum : mm->ldc;
	}
	if (last) {
		out.alpha = mm->alpha != 0.0f ? mm->alpha : 1.0f;
		out.bias = mm->bias ? mm->bias + j : NULL;
		out.old = mm->accumulate ? out.c : NULL;
		out.ldold = mm->ldc;
	} else if (sum) {
		out.c = sum;
		out.ldc = ldsum;
	}
	return out;
}

static void run_range(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm, int64_t item,
		      range_t r, float *scratch)
{
	const float *a = mm->a + item * mm->stride_a, *b = mm->b + item * mm->stride_b;
	float *c = mm->c + item * mm->stride_c;
	const layout_t l = scratch_layout(gemm, mm);
	float *sum = needs_sum(mm) ? scratch + l.sum : NULL;
	int64_t stretch = sum ? MC_SUM : r.m1 - r.m0;
	const int packed = packs_a(mm);

	for (int64_t n0 = r.n0; n0 < r.n1; n0 += NC_MAX) {
		int64_t nc = min64(NC_MAX, r.n1 - n0);

		for (int64_t s0 = r.m0; s0 < r.m1; s0 += stretch) {
			int64_t s1 = min64(s0 + stretch, r.m1), k0 = 0;

			do { /* once for k = 0 too: sums of no terms are +0 */
				int64_t kc = min64(SRT_CPU_KB, mm->k - k0);
				block_t bl = { .gemm = gemm, .kc = kc, .b = scratch + l.b };

				pack_b(gemm, mm, b, k0, kc, n0, nc, scratch + l.b);
				for (int64_t m0 = s0; m0 < s1; m0 += MC) {
					int64_t mc = min64(MC, s1 - m0);

					bl.out = block_out(mm, c,
							   sum ? sum + (m0 - s0) * l.ldsum : NULL,
							   l.ldsum, k0, m0, n0);
					bl.rs = mm->trans_a ? 1 : mm->lda;
					bl.cs = mm->trans_a ? mm->lda : 1;
					bl.a = a + m0 * bl.rs + k0 * bl.cs;
					bl.panel = gemm->mr * bl.rs;
					if (packed) {
						pack_a(gemm, mm, a, m0, mc, k0, kc, scratch + l.a);
						bl.a = scratch + l.a;
						bl.rs = mm->trans_a ? 1 : kc + 16;
						bl.cs = mm->trans_a ? gemm->mr : 1;
						bl.panel = gemm->mr * (kc + 16);
					}
					run_tiles(&bl, mc, nc);
				}
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
