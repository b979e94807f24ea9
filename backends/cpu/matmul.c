/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The matrix product's driver: cuts C into parts, blocks and tiles, packs operands, calls the tile
 * kernel of an instruction set (gemm_tile.h). See matmul.h for the contract.
 *
 * For stretches of columns and each span of k:
 *   for groups of columns: pack B into panels of nr columns; then
 *     for blocks of rows of A: run all tiles (matmul_span.h).
 * Operands that the tiles read as fast in place are not packed; then tiles prefetch the next panel
 * while they multiply.
 * Adjacent rows pass one panel (mr rows) at a time over a group that stays in the second-level
 * cache; the tiles of the first rows pack its panels while they run. Their span is several blocks
 * of k, which a tile runs in order with its sums in the first-level cache. Other rows are split
 * into blocks of a third of the second-level cache, which stay there while a wide group streams
 * through, so that nothing is packed twice; their span is one block of k. A few rows are one block,
 * for one panel of B after the other. A span's sums are added to the earlier sums in C. With
 * `accumulate` C holds the old values, so spans are long, sums of several spans stay in scratch,
 * and the last span adds them onto C.
 * Operands of 16 bits are packed, as floats: A by blocks, B by panels. A span is one block of k,
 * and sums of several spans stay in scratch until C is rounded, in C if it is of floats.
 * For up to SRT_CPU_ROWS rows, as in decoding, tiles read a B that is stored (n,k) in place, of any
 * type, except columns that do not fill a tile.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <string.h>

#include "backends/cpu/matmul_span.h"
#include "base/base.h"
#include "kernels/args.h"

_Static_assert(SRT_CPU_KB == SRT_K_MATMUL_KB, "one length of chains for all devices");

#define K_SPAN (4 * SRT_CPU_KB)
#define N_STRETCH 2048    /* columns */
#define M_STRETCH_SUM 960 /* rows whose span sums are kept in scratch: a multiple of every mr */
#define A_ROWS 192        /* rows of A packed at a time at most: a multiple of every mr */
#define A_BLOCK (A_ROWS * SRT_CPU_KB) /* floats of A packed at a time: 384 KiB */
#define FEW_ROWS 264                  /* rows that are one block; a multiple of every mr */
#define FEW_ROWS_K 768                /* maximum floats of such a row */
#define STAYS (FEW_ROWS * FEW_ROWS_K) /* floats that stay in the second-level cache */
#define B_GROUP (1 << 17)             /* floats of B that are packed at a time: 512 KiB */
#define B_GROUP_WIDE (1 << 20)        /* the same if A is packed by blocks: 4 MiB */
#define B_GROUP_THIN 4096             /* the same if each panel is used once: first-level cache */

/* The rows [m0,m1) and columns [n0,n1) of one product. */
typedef struct range {
	int64_t m0, m1, n0, n1;
} range_t;

/* Scratch of a part, in floats from its start. */
typedef struct layout {
	size_t a, b, sum, bias, total;
	int64_t ldsum;
} layout_t;

/* Whether the operands have 16 bits. */
static int is_half(const srt_cpu_matmul_t *mm)
{
	return mm->dtype != SRT_F32;
}

/* Whether C has too; else the sums of spans may stay there. */
static int c_is_half(const srt_cpu_matmul_t *mm)
{
	return is_half(mm) && !mm->shape.c_is_f32;
}

static int64_t round_up(int64_t n, int64_t to)
{
	return (n + to - 1) / to * to;
}

/* Whether rows of A are split into blocks: A is stored (k,m), its rows share cache sets, or they
 * must be widened. */
static int blocks_a(const srt_cpu_matmul_t *mm)
{
	if (is_half(mm))
		return 1;
	return mm->shape.trans_a ? mm->shape.lda > 64 :
				   mm->shape.lda % 1024 == 0 && mm->shape.k > 64;
}

/* Whether tiles read a B that is stored (n,k) in place: packing it would take longer than to
 * multiply so few rows. */
static int b_in_rows(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm)
{
	return gemm->tile_rows != NULL && mm->shape.trans_b && !mm->shape.trans_a &&
	       mm->shape.m <= SRT_CPU_ROWS;
}

/* Whether all rows of A are one block and tiles prefetch the next panel of B. */
static int few_rows(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm)
{
	if (is_half(mm) || b_in_rows(gemm, mm))
		return mm->shape.m <= FEW_ROWS;
	return gemm->in_place && mm->shape.m > 4 * gemm->mr && mm->shape.m <= FEW_ROWS &&
	       !mm->shape.trans_a && !mm->shape.accumulate;
}

/* Whether blocks of A are packed: unless tiles read them as fast in place. */
static int packs_a(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm)
{
	return is_half(mm) ||
	       (blocks_a(mm) && !(mm->shape.trans_a && gemm->in_place) && !b_in_rows(gemm, mm));
}

static int b_in_place(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm)
{
	return gemm->in_place && !mm->shape.trans_b && !is_half(mm);
}

/* Whether all packed panels of B use the same memory in turn: each is used once. */
static int one_panel(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm)
{
	return b_in_place(gemm, mm) || few_rows(gemm, mm);
}

/* The length of a span: one block of k if A is split into blocks, so that these have many rows. */
static int64_t choose_span(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm)
{
	if (b_in_rows(gemm, mm))
		return K_SPAN;
	if (few_rows(gemm, mm))
		return mm->shape.k <= FEW_ROWS_K ? K_SPAN : SRT_CPU_KB;
	return blocks_a(mm) && (is_half(mm) || !mm->shape.accumulate) ? SRT_CPU_KB : K_SPAN;
}

/* Whether span sums must stay apart from C until the last span. */
static int needs_sum(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm)
{
	return (c_is_half(mm) || mm->shape.accumulate) && mm->shape.k > choose_span(gemm, mm);
}

/* Rows of a stretch. */
static int64_t choose_stretch(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm)
{
	return needs_sum(gemm, mm) ? srt_min64(mm->shape.m, M_STRETCH_SUM) : mm->shape.m;
}

/* Rows of a block of A, for a span of length kc. */
static int64_t choose_block(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm, int64_t kc)
{
	int64_t rows = srt_min64(A_BLOCK / (kc ? kc : 1) / gemm->mr * gemm->mr, A_ROWS);

	if (few_rows(gemm, mm))
		return round_up(mm->shape.m, gemm->mr);
	return blocks_a(mm) ? srt_min64(rows, round_up(mm->shape.m, gemm->mr)) : gemm->mr;
}

/* Columns of a group, for a span of length kc; all groups of a stretch are about as wide. */
static int64_t choose_group(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm, int64_t kc)
{
	int64_t floats = mm->shape.m <= gemm->mr ? B_GROUP_THIN :
			 blocks_a(mm)            ? B_GROUP_WIDE :
						   B_GROUP;
	int64_t panels =
		(srt_min64(mm->shape.n ? mm->shape.n : 1, N_STRETCH) + gemm->nr - 1) / gemm->nr;
	int64_t most = floats / (kc ? kc : 1) / gemm->nr, groups;

	if (b_in_rows(gemm, mm)) /* no panels */
		most = panels;
	else if (few_rows(gemm, mm) && !packs_a(gemm, mm)) /* A is read once in any case */
		most = 1;
	most = most ? most : 1;
	groups = (panels + most - 1) / most;
	return (panels + groups - 1) / groups * gemm->nr;
}

static layout_t scratch_layout(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm)
{
	const int64_t span = choose_span(gemm, mm), rest = mm->shape.k % span;
	const int64_t kcs[2] = { srt_min64(mm->shape.k, span),
				 rest }; /* a short one has larger blocks */
	layout_t l = { .ldsum = srt_min64(mm->shape.n, N_STRETCH) };
	size_t b = 0;

	for (int i = 0; i < 2; i++) {
		size_t a_floats =
			srt_cpu_packed_a(gemm, mm, choose_block(gemm, mm, kcs[i]), kcs[i]);
		int64_t cols = one_panel(gemm, mm) ? gemm->nr : choose_group(gemm, mm, kcs[i]);
		size_t b_floats = (size_t)(cols * kcs[i]);

		if (packs_a(gemm, mm) && a_floats > l.b)
			l.b = a_floats;
		b = b_floats > b ? b_floats : b;
	}
	l.b = srt_align_up(l.b, 16);
	l.sum = srt_align_up(l.b + b, 16);
	l.bias = l.sum + (needs_sum(gemm, mm) ? (size_t)(choose_stretch(gemm, mm) * l.ldsum) : 0);
	l.total = l.bias + (is_half(mm) ? (size_t)l.ldsum : 0);
	return l;
}

size_t srt_cpu_matmul_scratch(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm, int nparts)
{
	(void)nparts;
	return srt_align_up(scratch_layout(gemm, mm).total * sizeof(float), 64);
}

/* Sets how tiles store the sums of a block in r; item: of the batch, sum: scratch of r's sums or
 * NULL. */
static void place_c(span_t *sp, range_t r, int64_t item, float *sum, int64_t ldsum)
{
	const srt_cpu_matmul_t *mm = sp->mm;
	const int last = sp->k0 + choose_span(sp->gemm, mm) >= mm->shape.k;
	void *c = srt_cpu_element(mm->c, c_is_half(mm) ? mm->dtype : SRT_F32,
				  item * mm->shape.stride_c + sp->i * mm->shape.ldc + sp->j);
	srt_cpu_tile_io_t io = { .alpha = 1.0f,
				 .c = c_is_half(mm) ? NULL : c,
				 .ldc = mm->shape.ldc };

	sp->c_half = c_is_half(mm) && last ? c : NULL;
	sum = sum != NULL ? sum + (sp->i - r.m0) * ldsum + (sp->j - r.n0) : NULL;
	if (sp->k0 > 0) {
		io.prior = sum != NULL ? sum : io.c;
		io.ldprior = sum != NULL ? ldsum : mm->shape.ldc;
	}
	if (last) {
		io.alpha = mm->shape.alpha;
		io.bias = sp->bias != NULL ? sp->bias + (sp->j - r.n0) : NULL;
		io.old = mm->shape.accumulate ? io.c : NULL;
		io.ldold = mm->shape.ldc;
	} else if (sum != NULL) {
		io.c = sum;
		io.ldc = ldsum;
	}
	sp->io = io;
}

/* The lines of rows of nbytes, ld bytes apart: each tile fetches one of every row. */
static fetch_t fetch_lines(const char *p, int64_t nbytes, int64_t ld)
{
	return (fetch_t){ .p = p, .n = (nbytes + LINE - 1) / LINE, .ld = LINE, .step = ld };
}

/* Rows of A from row i and column k on, as the tiles of the previous block prefetch them. */
static fetch_t fetch_rows(const span_t *sp, int64_t i, int64_t k, int64_t rows)
{
	const srt_cpu_matmul_t *mm = sp->mm;
	const int64_t tiles = (sp->cols + sp->gemm->nr - 1) / sp->gemm->nr;
	const int64_t nbytes = srt_cpu_element_nbytes(mm->dtype), ld = mm->shape.lda * nbytes;
	fetch_t f = { .p = srt_cpu_element(sp->a_src, mm->dtype, i * mm->shape.lda + k),
		      .n = rows,
		      .ld = ld,
		      .step = nbytes };

	if (mm->shape.trans_a) /* across rows, a line at a time */
		return fetch_lines(srt_cpu_element(sp->a_src, mm->dtype, k * mm->shape.lda + i),
				   rows * nbytes, ld);
	if (!blocks_a(mm) &&
	    mm->shape.lda == sp->kc) { /* contiguous memory: each tile fetches a part */
		f.n = tiles;
		f.step = (rows + tiles - 1) / tiles * nbytes;
		f.ld = f.step * sp->kc;
	}
	return f;
}

/* Chooses the panel after the block: of the next rows, or of the next group or span. */
static void choose_next_panel(span_t *sp, range_t r)
{
	const srt_cpu_matmul_t *mm = sp->mm;
	int64_t i = sp->i + sp->rows, j = sp->j, k0 = sp->k0;

	memset(sp->next, 0, sizeof(sp->next));
	sp->next_b.src = NULL;
	sp->b_first = 0;
	sp->last_block = i >= r.m1;
	if (sp->last_block) {
		i = r.m0;
		j += sp->cols;
	}
	if (j >= r.n1) {
		j = r.n0;
		k0 += sp->kc;
	}
	/* the panels of a shorter span have other offsets; there is one such span */
	if (mm->shape.k - k0 < sp->kc || sp->kc == 0)
		return;
	sp->next[0] = fetch_rows(sp, i, k0, srt_min64(sp->rows, r.m1 - i));
	if (!sp->last_block || mm->shape.trans_b)
		return;
	if (sp->tiles_pack)
		sp->next_b = srt_cpu_panel_b(sp->gemm, mm, sp->b_src, k0, sp->kc, j, r.n1 - j,
					     sp->b_packed);
	else if (k0 > sp->k0 && sp->cols == r.n1 - r.n0) /* all of it is packed at once, or none */
		sp->next[1] = fetch_lines(srt_cpu_element(sp->b_src, mm->dtype,
							  k0 * mm->shape.ldb + r.n0),
					  sp->cols * srt_cpu_element_nbytes(mm->dtype),
					  mm->shape.ldb * srt_cpu_element_nbytes(mm->dtype));
}

/* Sets where the tiles of a block read A: in place, or packed by this function. */
static void place_a(span_t *sp)
{
	const srt_cpu_matmul_t *mm = sp->mm;

	if (packs_a(sp->gemm, mm)) {
		srt_cpu_pack_a(sp->gemm, mm, sp->a_src, sp->i, sp->rows, sp->k0, sp->kc,
			       sp->a_packed);
		sp->a = sp->a_packed;
		sp->rs = mm->shape.trans_a ? 1 : sp->kc + A_SLACK;
		sp->cs = mm->shape.trans_a ? sp->gemm->mr : 1;
		sp->panel = sp->gemm->mr * (sp->kc + A_SLACK);
		if (mm->shape.trans_a && sp->gemm->in_place) {
			sp->cs = srt_cpu_pitch_a(sp->rows);
			sp->panel = sp->gemm->mr;
		}
	} else {
		sp->rs = mm->shape.trans_a ? 1 : mm->shape.lda;
		sp->cs = mm->shape.trans_a ? mm->shape.lda : 1;
		sp->a = (const float *)sp->a_src + sp->i * sp->rs + sp->k0 * sp->cs;
		sp->panel = sp->gemm->mr * sp->rs;
	}
}

/*
 * Packs all panels of B at once. If A is packed too, few tiles would pack while they run, and the
 * packing would slow them more than it saves.
 */
static void pack_group(span_t *sp)
{
	const srt_cpu_matmul_t *mm = sp->mm;

	srt_cpu_pack_panels(sp->gemm, mm->dtype, sp->cols, sp->gemm->nr, sp->kc,
			    srt_cpu_element(sp->b_src, mm->dtype, sp->k0 * mm->shape.ldb + sp->j),
			    mm->shape.ldb, sp->b_packed, sp->kc * sp->gemm->nr);
	sp->b_ready = sp->cols;
}

/* One span of k for the rows and columns of r; item: of the batch, sum: scratch of the span sums,
 * or NULL. */
static void run_span(span_t *sp, range_t r, int64_t item, float *sum, int64_t ldsum)
{
	const srt_cpu_matmul_t *mm = sp->mm;
	const int64_t group = choose_group(sp->gemm, mm, sp->kc);
	const int64_t block = choose_block(sp->gemm, mm, sp->kc);

	for (sp->j = r.n0; sp->j < r.n1; sp->j += group) {
		sp->cols = srt_min64(group, r.n1 - sp->j);
		sp->b_ready =
			sp->b_in_place || sp->b_in_rows ? sp->cols / sp->gemm->nr : sp->b_first;
		if (packs_a(sp->gemm, mm) && !mm->shape.trans_b && !sp->one_panel)
			pack_group(sp);
		for (sp->i = r.m0; sp->i < r.m1; sp->i += block) {
			sp->rows = srt_min64(block, r.m1 - sp->i);
			choose_next_panel(sp, r);
			sp->fetches_b = sp->gemm->in_place &&
					(sp->i == r.m0 || sp->kc * (r.n1 - r.n0) > STAYS);
			place_a(sp);
			place_c(sp, r, item, sum, ldsum);
			run_tiles(sp);
		}
	}
}

/* Sets the bias of the columns of r, which is widened if it must be. */
static void place_bias(span_t *sp, range_t r, float *wide)
{
	const srt_cpu_matmul_t *mm = sp->mm;

	sp->bias = srt_cpu_element(mm->bias, mm->dtype, r.n0);
	if (sp->bias != NULL && is_half(mm)) {
		sp->gemm->widen(mm->dtype, 1, r.n1 - r.n0, wide, 0, (const void *)sp->bias, 0);
		sp->bias = wide;
	}
}

static void run_range(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm, int64_t item,
		      range_t all, float *scratch)
{
	const layout_t l = scratch_layout(gemm, mm);
	float *sum = needs_sum(gemm, mm) ? scratch + l.sum : NULL;
	const int64_t rows = choose_stretch(gemm, mm);
	span_t sp = { .gemm = gemm,
		      .mm = mm,
		      .a_src = srt_cpu_element(mm->a, mm->dtype, item * mm->shape.stride_a),
		      .b_src = srt_cpu_element(mm->b, mm->dtype, item * mm->shape.stride_b),
		      .a_packed = scratch + l.a,
		      .b_packed = scratch + l.b,
		      .tiles_pack = gemm->tile_pack != NULL && !blocks_a(mm) && !mm->shape.trans_b,
		      .b_in_place = b_in_place(gemm, mm),
		      .b_in_rows = b_in_rows(gemm, mm),
		      .one_panel = one_panel(gemm, mm) };
	range_t r;

	sp.n1 = all.n1;
	for (r.n0 = all.n0; r.n0 < all.n1; r.n0 += N_STRETCH) {
		r.n1 = srt_min64(r.n0 + N_STRETCH, all.n1);
		place_bias(&sp, r, scratch + l.bias);
		for (r.m0 = all.m0; r.m0 < all.m1; r.m0 += rows) {
			r.m1 = srt_min64(r.m0 + rows, all.m1);
			sp.k0 = 0;
			do { /* once for k = 0 too: sums of no terms are +0 */
				sp.kc = srt_min64(choose_span(gemm, mm), mm->shape.k - sp.k0);
				run_span(&sp, r, item, sum, l.ldsum);
				sp.k0 += choose_span(gemm, mm);
			} while (sp.k0 < mm->shape.k);
		}
	}
}

/* First of `total` units that part `part` of `nparts` gets. */
static int64_t part_start(int64_t total, int64_t part, int64_t nparts)
{
	return total / nparts * part + srt_min64(total % nparts, part);
}

void srt_cpu_matmul(const srt_cpu_gemm_t *gemm, const srt_cpu_matmul_t *mm, int part, int nparts,
		    void *scratch)
{
	int64_t batch = mm->shape.batch > 1 ? mm->shape.batch : 1;
	int64_t row_units = (mm->shape.m + gemm->mr - 1) / gemm->mr;
	int64_t col_units = (mm->shape.n + gemm->nr - 1) / gemm->nr;
	int64_t across = 1, down, item0 = 0, item1 = batch;
	range_t r;

	if (mm->shape.m <= 0 || mm->shape.n <= 0)
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
	r.m0 = srt_min64(part_start(row_units, part % down, down) * gemm->mr, mm->shape.m);
	r.m1 = srt_min64(part_start(row_units, part % down + 1, down) * gemm->mr, mm->shape.m);
	r.n0 = srt_min64(part_start(col_units, part / down, across) * gemm->nr, mm->shape.n);
	r.n1 = srt_min64(part_start(col_units, part / down + 1, across) * gemm->nr, mm->shape.n);
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
#ifdef HAVE_NEON
		&srt_cpu_gemm_neon,
#endif
	};

	for (size_t i = 0; i < SRT_ARRAY_LEN(all); i++)
		if (strcmp(all[i]->isa, isa) == 0)
			return all[i];
	return NULL;
}
