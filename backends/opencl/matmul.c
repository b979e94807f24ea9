/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tuned matrix product's launcher. tiled (GPUs) is in tiled.c.
 *
 * vector (devices of CPU type): for runs of batch items, stretches of columns and of rows, and
 * spans of several blocks of k, so that scratch is bounded:
 *   1. pack B into panels of the tile's columns, in scratch; and A into panels of its rows, unless
 *      it can be read in place;
 *   2. all tiles; a work-item takes the rows of one tile and as many columns as stay in its cache.
 * A span's sums are added to the earlier spans' in C itself; with `accumulate` C holds the old
 * values, so sums of several spans gather in scratch and the last span adds them onto C.
 */
#include "backends/opencl/tuned.h"
#include "base/base.h"

#define K_SPAN (4 * SRT_K_MATMUL_KB)
#define B_FLOATS (1 << 22) /* packed at a time: 16 MiB */
#define A_FLOATS (1 << 22)
#define SUM_FLOATS (1 << 21)   /* span sums */
#define GROUP_FLOATS (1 << 17) /* of B per work-item: half a second-level cache */

/* What one product is cut into. */
typedef struct plan {
	const srt_k_matmul_t *mm;
	const srt_binding_t *places; /* c, a, b, bias */
	int64_t mr, nr;
	bool packs_a, needs_sum;
	int64_t kc, rows, columns, items; /* of a span, a stretch, a run: at most */
	int64_t b_item, a_item, sum_item; /* floats of scratch of one item */
	int64_t a, sum, total;            /* offsets in scratch; B is at 0 */
} plan_t;

/* The part of the product between these bounds. */
typedef struct part {
	int64_t item, nitems, i, rows, j, columns, k, kc;
} part_t;

static int64_t min64(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t round_up(int64_t n, int64_t to)
{
	return (n + to - 1) / to * to;
}

/* As many of `unit` as fit `floats` at `each` floats, at least one of them, at most n of all. */
static int64_t fitting(int64_t n, int64_t unit, int64_t each, int64_t floats)
{
	int64_t most = floats / each / unit * unit;

	return min64(n, most > unit ? most : unit);
}

static void make_plan(plan_t *p, const srt_ocl_tuning_t *tuning, const srt_k_matmul_t *mm,
		      const srt_binding_t *places)
{
	int64_t depth;

	*p = (plan_t){ .mm = mm, .places = places };
	p->mr = tuning->width == 16 ? 12 : 6; /* vector_tile.cl */
	p->nr = 2 * tuning->width;
	/* In place unless the rows' distance makes them fight for the same cache sets. */
	p->packs_a = mm->trans_a ? mm->lda > 64 : mm->lda % 1024 == 0 && mm->k > 64;
	p->needs_sum = mm->accumulate && mm->k > K_SPAN;
	p->kc = min64(mm->k, K_SPAN);
	depth = p->kc ? p->kc : 1;
	p->columns = fitting(mm->n, p->nr, depth, B_FLOATS);
	p->rows = mm->m;
	if (p->packs_a)
		p->rows = fitting(p->rows, p->mr, depth, A_FLOATS);
	if (p->needs_sum)
		p->rows = fitting(p->rows, p->mr, p->columns, SUM_FLOATS);
	p->b_item = round_up(p->columns, p->nr) * p->kc;
	p->a_item = p->packs_a ? round_up(p->rows, p->mr) * p->kc : 0;
	p->sum_item = p->needs_sum ? p->rows * p->columns : 0;
	p->items = fitting(mm->batch, 1, p->b_item + p->a_item + p->sum_item + 1,
			   B_FLOATS + A_FLOATS + SUM_FLOATS);
	p->a = round_up(p->items * p->b_item, 16);
	p->sum = round_up(p->a + p->items * p->a_item, 16);
	p->total = p->sum + p->items * p->sum_item;
}

static srt_status_t pack(srt_ocl_stream_t *stream, const srt_ocl_pack_t *args, srt_ocl_at_t dst,
			 srt_ocl_at_t src, int64_t nitems)
{
	const int64_t groups[3] = {
		(args->n + SRT_OCL_PACK_COLUMNS - 1) / SRT_OCL_PACK_COLUMNS,
		(args->k + SRT_OCL_PACK_ROWS - 1) / SRT_OCL_PACK_ROWS,
		nitems,
	};

	return srt_ocl_tuned_launch(stream, SRT_OCL_MATMUL_PACK, (srt_ocl_at_t[]){ dst, src }, 2,
				    args, sizeof(*args), groups);
}

static srt_status_t pack_b(srt_ocl_stream_t *stream, const plan_t *p, const part_t *part)
{
	const srt_k_matmul_t *mm = p->mm;
	const srt_ocl_pack_t args = {
		.k = part->kc,
		.n = part->columns,
		.ld = mm->ldb,
		.stride_src = mm->stride_b,
		.stride_dst = p->b_item,
		.width = (int32_t)p->nr,
		.transposed = mm->trans_b != 0,
	};
	const int64_t first =
		mm->trans_b ? part->j * mm->ldb + part->k : part->k * mm->ldb + part->j;

	return pack(stream, &args, srt_ocl_scratch_at(stream, 0),
		    srt_ocl_at(&p->places[2], part->item * mm->stride_b + first), part->nitems);
}

/* First element of A's part. */
static int64_t first_of_a(const srt_k_matmul_t *mm, const part_t *part)
{
	return part->item * mm->stride_a +
	       (mm->trans_a ? part->k * mm->lda + part->i : part->i * mm->lda + part->k);
}

static srt_status_t pack_a(srt_ocl_stream_t *stream, const plan_t *p, const part_t *part)
{
	const srt_k_matmul_t *mm = p->mm;
	const srt_ocl_pack_t args = {
		.k = part->kc,
		.n = part->rows,
		.ld = mm->lda,
		.stride_src = mm->stride_a,
		.stride_dst = p->a_item,
		.width = (int32_t)p->mr,
		.transposed = !mm->trans_a,
	};

	return pack(stream, &args, srt_ocl_scratch_at(stream, p->a),
		    srt_ocl_at(&p->places[1], first_of_a(mm, part)), part->nitems);
}

/* Where A's elements lie. */
static srt_ocl_at_t place_a(srt_ocl_stream_t *stream, const plan_t *p, const part_t *part,
			    srt_ocl_tiles_t *args)
{
	const srt_k_matmul_t *mm = p->mm;

	if (p->packs_a) {
		args->row_a = 1;
		args->step_a = p->mr;
		args->panel_a = p->mr * part->kc;
		args->stride_a = p->a_item;
		return srt_ocl_scratch_at(stream, p->a);
	}
	args->row_a = mm->trans_a ? 1 : mm->lda;
	args->step_a = mm->trans_a ? mm->lda : 1;
	args->panel_a = p->mr * args->row_a;
	args->stride_a = mm->stride_a;
	return srt_ocl_at(&p->places[1], first_of_a(mm, part));
}

static srt_status_t run_tiles(srt_ocl_stream_t *stream, const plan_t *p, const part_t *part)
{
	const srt_k_matmul_t *mm = p->mm;
	const int64_t depth = part->kc ? part->kc : 1;
	const bool last = part->k + K_SPAN >= mm->k;
	const srt_ocl_at_t none = { .buffer = NULL };
	const srt_ocl_at_t c =
		srt_ocl_at(&p->places[0], part->item * mm->stride_c + part->i * mm->ldc + part->j);
	const srt_ocl_at_t sum = p->needs_sum ? srt_ocl_scratch_at(stream, p->sum) : c;
	srt_ocl_tiles_t args = {
		.m = part->rows,
		.n = part->columns,
		.k = part->kc,
		.ldc = mm->ldc,
		.stride_c = mm->stride_c,
		.ldprior = p->needs_sum ? p->columns : mm->ldc,
		.stride_prior = p->needs_sum ? p->sum_item : mm->stride_c,
		.stride_b = p->b_item,
		.group = fitting(round_up(part->columns, p->nr), p->nr, depth, GROUP_FLOATS),
		.alpha = last ? mm->alpha : 1.0f,
		.accumulate = last && mm->accumulate,
	};
	const int64_t groups[3] = {
		(part->rows + p->mr - 1) / p->mr,
		(part->columns + args.group - 1) / args.group,
		part->nitems,
	};
	srt_ocl_at_t places[5] = {
		c,
		place_a(stream, p, part, &args),
		srt_ocl_scratch_at(stream, 0),
		last ? srt_ocl_at(&p->places[3], part->j) : none,
		part->k > 0 ? sum : none,
	};

	if (!last && p->needs_sum) {
		places[0] = sum;
		args.ldc = args.ldprior;
		args.stride_c = args.stride_prior;
	}
	return srt_ocl_tuned_launch(stream, SRT_OCL_MATMUL_TILES, places, 5, &args, sizeof(args),
				    groups);
}

/* The spans of k of one stretch of rows and columns. */
static srt_status_t run_spans(srt_ocl_stream_t *stream, const plan_t *p, part_t part)
{
	part.k = 0;
	do { /* once for k = 0 too: sums of no terms are +0 */
		part.kc = min64(K_SPAN, p->mm->k - part.k);
		SRT_TRY(pack_b(stream, p, &part));
		if (p->packs_a)
			SRT_TRY(pack_a(stream, p, &part));
		SRT_TRY(run_tiles(stream, p, &part));
		part.k += K_SPAN;
	} while (part.k < p->mm->k);
	return SRT_OK;
}

srt_status_t srt_ocl_vector_matmul(srt_ocl_stream_t *stream, const srt_command_t *command)
{
	const srt_k_matmul_t *mm = &command->matmul;
	plan_t p;
	part_t part;

	make_plan(&p, &stream->device->tuning, mm, command->bindings);
	SRT_TRY(srt_ocl_scratch(stream, p.total));
	for (part.item = 0; part.item < mm->batch; part.item += p.items) {
		part.nitems = min64(p.items, mm->batch - part.item);
		for (part.j = 0; part.j < mm->n; part.j += p.columns) {
			part.columns = min64(p.columns, mm->n - part.j);
			for (part.i = 0; part.i < mm->m; part.i += p.rows) {
				part.rows = min64(p.rows, mm->m - part.i);
				SRT_TRY(run_spans(stream, &p, part));
			}
		}
	}
	return SRT_OK;
}

size_t srt_ocl_vector_matmul_scratch(const srt_ocl_device_t *device, const srt_k_matmul_t *mm)
{
	plan_t p;

	make_plan(&p, &device->tuning, mm, NULL);
	return (size_t)p.total * sizeof(float);
}
