/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tiles of one span of k, one group of columns and one block of rows, for the matrix product's
 * driver (matmul.c): runs them in order; tiles also pack and prefetch the next operands.
 */
#ifndef SRT_BACKENDS_CPU_MATMUL_SPAN_H
#define SRT_BACKENDS_CPU_MATMUL_SPAN_H

#include "backends/cpu/matmul_pack.h"
#include "base/base.h"

#define TILE_MAX (12 * 32) /* floats of the largest tile */
#define LINE 64            /* bytes of a cache line */

/* Memory that n tiles prefetch: tile t from p + t * ld on, `step` further in each step of k. */
typedef struct fetch {
	const char *p;
	int64_t n, ld, step; /* ld, step: bytes */
} fetch_t;

/* Shared by the tiles of one span of k, one group of columns and one block of rows. */
typedef struct span {
	const srt_cpu_gemm_t *gemm;
	const srt_cpu_matmul_t *mm;
	const void *a_src, *b_src; /* the item's operands */
	float *a_packed, *b_packed;
	const float *bias; /* of the stretch's first column, or NULL */
	int64_t k0, kc;
	int64_t i, rows;       /* the block of rows */
	int64_t j, cols;       /* the group of columns */
	const float *a;        /* element (0,0) of the block as tiles read it */
	int64_t rs, cs, panel; /* A: between rows, between k, between panels of mr rows */
	int64_t b_ready;       /* panels of B that are packed */
	int b_first;           /* whether the next group's first panel is */
	int tiles_pack;        /* whether tiles pack panels of B */
	int one_panel;         /* packed panels of B use the same memory in turn */
	int fetches_b;         /* whether tiles prefetch the next panel of B */
	int64_t n1;            /* end of the columns */
	int b_in_place;        /* except columns that do not fill a tile: they become one panel */
	int b_in_rows;         /* full tiles read a B stored (n,k) in place, by tile_rows() */
	srt_cpu_tile_io_t io;  /* of the block's first row, the group's first column */
	uint16_t *c_half;      /* C of them in 16 bits, NULL: io.c is where sums go */
	int last_block;        /* of the group */
	/* The first panel of the next group, and the operands packed or read after this block. The
	 * last tiles pack and prefetch them while they run. */
	srt_cpu_panel_t next_b;
	fetch_t next[2];
} span_t;

static inline srt_cpu_panel_t panel_b(const span_t *sp, int64_t panel)
{
	const int64_t col = panel * sp->gemm->nr;

	return srt_cpu_panel_b(sp->gemm, sp->mm, sp->b_src, sp->k0, sp->kc, sp->j + col,
			       sp->cols - col, sp->b_packed + (sp->one_panel ? 0 : col * sp->kc));
}

/*
 * Chooses what a tile of panel j packs while it runs: the next panel, or the first panel of the
 * next group when no tile reads the memory of this group's first panel any more.
 */
static inline srt_cpu_panel_t choose_pack(span_t *sp, int64_t j)
{
	srt_cpu_panel_t p = { .src = NULL };

	if (sp->b_ready * sp->gemm->nr < sp->cols && sp->b_ready <= j + 1)
		return panel_b(sp, sp->b_ready++);
	if (sp->next_b.src != NULL && j > 0 && sp->last_block) {
		p = sp->next_b;
		sp->next_b.src = NULL;
		sp->b_first = 1;
	}
	return p;
}

/* B as tiles read it. */
typedef struct columns {
	const float *p;
	int64_t ld, step; /* step: floats between blocks of k */
	int n;
} columns_t;

/* Panel j of the group; packs it if necessary. */
static inline columns_t place_b(span_t *sp, int64_t j)
{
	const int nr = sp->gemm->nr;
	const int cols = (int)srt_min64(nr, sp->cols - j * nr);
	const int64_t ld = sp->mm->shape.ldb, col = sp->j + j * nr;

	for (; sp->b_ready <= j; sp->b_ready++)
		srt_cpu_pack_panel_b(sp->gemm, panel_b(sp, sp->b_ready));
	if (sp->b_in_place && cols == nr)
		return (columns_t){ (const float *)sp->b_src + sp->k0 * ld + col, ld,
				    SRT_CPU_KB * ld, cols };
	if (sp->b_in_rows && cols == nr)
		return (columns_t){ srt_cpu_element(sp->b_src, sp->mm->dtype, col * ld + sp->k0),
				    ld, SRT_CPU_KB * srt_cpu_element_nbytes(sp->mm->dtype) / 4,
				    cols };
	return (columns_t){ panel_b(sp, j).dst, nr, SRT_CPU_KB * nr, cols };
}

static inline void run_block(const span_t *sp, int rows, int64_t kc, const float *a, columns_t b,
			     const srt_cpu_tile_io_t *io)
{
	if (io->pack_src != NULL)
		sp->gemm->tile_pack(kc, a, sp->rs, sp->cs, b.p, b.ld, io);
	else if (sp->b_in_rows && b.n == sp->gemm->nr)
		sp->gemm->tile_rows(sp->mm->dtype, rows, kc, a, sp->rs, b.p, b.ld, io);
	else
		sp->gemm->tile(rows, b.n, kc, a, sp->rs, sp->cs, b.p, b.ld, io);
}

/*
 * One tile: the blocks of the span in rising order, their sums in `sums` until the last. A tile of
 * 16 bits, c_half, is rounded from there.
 */
static inline void run_tile(const span_t *sp, int rows, const float *a, columns_t b,
			    const srt_cpu_tile_io_t *io, uint16_t *c_half)
{
	const srt_cpu_matmul_t *mm = sp->mm;
	const int nr = sp->gemm->nr;
	float sums[TILE_MAX] __attribute__((aligned(64)));
	float old[TILE_MAX] __attribute__((aligned(64)));
	srt_cpu_tile_io_t part = *io;
	int64_t k = 0;

	part.alpha = 1.0f;
	part.c = sums;
	part.ldc = nr;
	part.bias = NULL;
	part.old = NULL;
	for (; sp->kc - k > SRT_CPU_KB; k += SRT_CPU_KB) {
		run_block(sp, rows, SRT_CPU_KB, a + k * sp->cs, b, &part);
		b.p += b.step;
		part.prior = sums;
		part.ldprior = nr;
		if (part.ahead != NULL)
			part.ahead += SRT_CPU_KB * io->ahead_step;
		if (part.pack_src != NULL) {
			part.pack_src += SRT_CPU_KB * io->pack_ld;
			part.pack_dst += SRT_CPU_KB * nr;
		}
	}
	part.alpha = io->alpha;
	part.bias = io->bias;
	if (c_half == NULL) {
		part.c = io->c;
		part.ldc = io->ldc;
		part.old = io->old;
	} else if (mm->shape.accumulate) {
		sp->gemm->widen(mm->dtype, rows, b.n, old, nr, c_half, mm->shape.ldc);
		part.old = old;
		part.ldold = nr;
	}
	run_block(sp, rows, sp->kc - k, a + k * sp->cs, b, &part);
	if (c_half != NULL)
		sp->gemm->round(mm->dtype, rows, b.n, c_half, mm->shape.ldc, sums, nr);
}

/* Chooses the packing and prefetching of a full tile; `left` - 1 tiles of its block follow. */
static inline void choose_overlap(span_t *sp, int64_t j, int64_t left, srt_cpu_tile_io_t *io)
{
	srt_cpu_panel_t p = { .src = NULL };

	if (sp->tiles_pack)
		p = choose_pack(sp, j);
	if (p.src != NULL) {
		io->pack_src = p.src;
		io->pack_dst = p.dst;
		io->pack_ld = p.ld;
		io->pack_cols = p.cols;
		return;
	}
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

/*
 * Chooses what tile i of ntiles full tiles of panel j prefetches of the next panel of B. Without
 * it, the next panel's first tile or its packing would read distant rows from memory. The last
 * tiles fetch a line of each row; of a B stored (n,k) each tile fetches a column, or two adjacent
 * ones.
 */
static inline void fetch_next_panel(const span_t *sp, int64_t j, int64_t i, int64_t ntiles,
				    srt_cpu_tile_io_t *io)
{
	const srt_cpu_matmul_t *mm = sp->mm;
	const int nr = sp->gemm->nr;
	const int64_t col = sp->j + (j + 1) * nr, nbytes = srt_cpu_element_nbytes(mm->dtype);

	if (!sp->fetches_b || ntiles < 4 || col + nr > sp->n1)
		return;
	if (mm->shape.trans_b) {
		const int step = mm->shape.ldb == sp->kc ? 2 : 1;

		if (i * step < nr) {
			io->ahead = srt_cpu_element(sp->b_src, mm->dtype,
						    (col + i * step) * mm->shape.ldb + sp->k0);
			io->ahead_step = step * nbytes;
		}
	} else if (sp->one_panel && (ntiles - 1 - i) * LINE < nr * nbytes) {
		io->ahead = (const char *)srt_cpu_element(sp->b_src, mm->dtype,
							  sp->k0 * mm->shape.ldb + col) +
			    (ntiles - 1 - i) * LINE;
		io->ahead_step = mm->shape.ldb * nbytes;
	}
}

/* Runs all tiles of a block of rows and a group of columns; each panel of B is used for all rows.
 * */
static inline void run_tiles(span_t *sp)
{
	const int mr = sp->gemm->mr, nr = sp->gemm->nr;
	int64_t left = (sp->cols + nr - 1) / nr * ((sp->rows + mr - 1) / mr);

	for (int64_t j = 0; j * nr < sp->cols; j++) {
		const columns_t b = place_b(sp, j);

		for (int64_t i = 0; i * mr < sp->rows; i++, left--) {
			int rows = (int)srt_min64(mr, sp->rows - i * mr);
			srt_cpu_tile_io_t io = sp->io;

			if (rows == mr && b.n == nr) {
				choose_overlap(sp, j, left, &io);
				fetch_next_panel(sp, j, i, sp->rows / mr, &io);
			}
			if (io.c != NULL)
				io.c += i * mr * io.ldc + j * nr;
			if (io.prior != NULL)
				io.prior += i * mr * io.ldprior + j * nr;
			if (io.old != NULL)
				io.old += i * mr * io.ldold + j * nr;
			if (io.bias != NULL)
				io.bias += j * nr;
			run_tile(sp, rows, sp->a + i * sp->panel, b, &io,
				 sp->c_half != NULL ?
					 sp->c_half + i * mr * sp->mm->shape.ldc + j * nr :
					 NULL);
		}
	}
}

#endif
