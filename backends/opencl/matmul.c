/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The plan of the vector form's matrix product. For runs of batch items, stretches of columns and
 * of rows, and spans of several blocks of k, so that scratch is bounded, a step is:
 *   1. pack B into panels of the tile's columns, in scratch; and A into panels of its rows, unless
 *      it can be read in place;
 *   2. all tiles; a work-item computes the rows of one tile and the columns that fit its cache.
 * A span's sums are added to the earlier sums in C. With `accumulate` C holds the old values, so
 * sums of several spans stay in scratch, and the last span adds them onto C.
 */
#include "backends/opencl/tuned.h"
#include "base/base.h"

#define K_SPAN (4 * SRT_K_MATMUL_KB)
#define B_FLOATS (1 << 22) /* packed at a time: 16 MiB */
#define A_FLOATS (1 << 22)
#define SUM_FLOATS (1 << 21)   /* span sums */
#define GROUP_FLOATS (1 << 17) /* of B per work-item: half a second-level cache */

static int64_t round_up(int64_t n, int64_t to)
{
	return (n + to - 1) / to * to;
}

/* The largest multiple of `unit` that fits `floats` at `each` floats, from `unit` to n. */
static int64_t fit_tiles(int64_t n, int64_t unit, int64_t each, int64_t floats)
{
	int64_t most = floats / each / unit * unit;

	return srt_min64(n, most > unit ? most : unit);
}

/* The part of the next step: from item, j and i on. */
static void set_part(srt_ocl_product_t *p)
{
	p->nitems = srt_min64(p->most_items, p->mm->batch - p->item);
	p->columns = srt_min64(p->most_columns, p->mm->n - p->j);
	p->rows = srt_min64(p->most_rows, p->mm->m - p->i);
	p->depth = srt_min64(K_SPAN, p->mm->k - p->k);
}

/* Advances by a span of k, then by rows, columns, items. */
static void advance_binding(srt_ocl_product_t *p)
{
	p->k += K_SPAN;
	if (p->k < p->mm->k)
		return;
	p->k = 0;
	p->i += p->most_rows;
	if (p->i < p->mm->m)
		return;
	p->i = 0;
	p->j += p->most_columns;
	if (p->j < p->mm->n)
		return;
	p->j = 0;
	p->item += p->most_items;
}

size_t srt_ocl_vector_matmul_plan(srt_ocl_product_t *p, const srt_ocl_tuning_t *tuning,
				  const srt_k_matmul_t *mm)
{
	const int64_t most_k = srt_min64(mm->k, K_SPAN), depth = most_k ? most_k : 1;

	*p = (srt_ocl_product_t){ .mm = mm };
	p->mr = tuning->width == 16 ? 12 : 6; /* vector_tile.cl */
	p->nr = 2 * tuning->width;
	/* In place unless the rows' distance maps them to the same cache sets. */
	p->packs_a = mm->trans_a ? mm->lda > 64 : mm->lda % 1024 == 0 && mm->k > 64;
	p->needs_sum = mm->accumulate && mm->k > K_SPAN;
	p->most_columns = fit_tiles(mm->n, p->nr, depth, B_FLOATS);
	p->most_rows = mm->m;
	if (p->packs_a)
		p->most_rows = fit_tiles(p->most_rows, p->mr, depth, A_FLOATS);
	if (p->needs_sum)
		p->most_rows = fit_tiles(p->most_rows, p->mr, p->most_columns, SUM_FLOATS);
	p->b_item = round_up(p->most_columns, p->nr) * most_k;
	p->a_item = p->packs_a ? round_up(p->most_rows, p->mr) * most_k : 0;
	p->sum_item = p->needs_sum ? p->most_rows * p->most_columns : 0;
	p->most_items = fit_tiles(mm->batch, 1, p->b_item + p->a_item + p->sum_item + 1,
				  B_FLOATS + A_FLOATS + SUM_FLOATS);
	p->a = round_up(p->most_items * p->b_item, 16);
	p->sum = round_up(p->a + p->most_items * p->a_item, 16);
	return (size_t)(p->sum + p->most_items * p->sum_item) * sizeof(float);
}

/* A binding with `floats` added to its offset; the same for scratch. */
static srt_binding_t offset_binding(const srt_binding_t *binding, int64_t floats)
{
	return srt_gpu_at(binding, floats * (int64_t)sizeof(float));
}

static srt_binding_t scratch_binding(int64_t floats)
{
	return offset_binding(&(srt_binding_t){ .mem = srt_gpu_scratch }, floats);
}

static void add_pack(srt_ocl_plan_t *plan, const srt_ocl_pack_t *matrix, srt_binding_t dst,
		     srt_binding_t src)
{
	srt_ocl_pack_t args = *matrix;

	args.k = plan->product.depth;
	if (!args.k)
		return;
	args.groups[0] = (args.n + SRT_OCL_PACK_COLUMNS - 1) / SRT_OCL_PACK_COLUMNS;
	args.groups[1] = (args.k + SRT_OCL_PACK_ROWS - 1) / SRT_OCL_PACK_ROWS;
	srt_gpu_add(&plan->gpu, SRT_OCL_MATMUL_PACK, (srt_binding_t[]){ dst, src }, 2, &args,
		    sizeof(args), args.groups[0] * args.groups[1] * plan->product.nitems);
}

static void add_pack_b(srt_ocl_plan_t *plan)
{
	const srt_ocl_product_t *p = &plan->product;
	const srt_k_matmul_t *mm = p->mm;
	const srt_ocl_pack_t matrix = {
		.n = p->columns,
		.ld = mm->ldb,
		.stride_src = mm->stride_b,
		.stride_dst = p->b_item,
		.width = (int32_t)p->nr,
		.transposed = mm->trans_b != 0,
	};
	const int64_t first = mm->trans_b ? p->j * mm->ldb + p->k : p->k * mm->ldb + p->j;

	add_pack(plan, &matrix, scratch_binding(0),
		 offset_binding(&plan->gpu.command->bindings[2], p->item * mm->stride_b + first));
}

/* First element of A's part. */
static int64_t first_of_a(const srt_ocl_product_t *p)
{
	const srt_k_matmul_t *mm = p->mm;

	return p->item * mm->stride_a +
	       (mm->trans_a ? p->k * mm->lda + p->i : p->i * mm->lda + p->k);
}

static void add_pack_a(srt_ocl_plan_t *plan)
{
	const srt_ocl_product_t *p = &plan->product;
	const srt_k_matmul_t *mm = p->mm;
	const srt_ocl_pack_t matrix = {
		.n = p->rows,
		.ld = mm->lda,
		.stride_src = mm->stride_a,
		.stride_dst = p->a_item,
		.width = (int32_t)p->mr,
		.transposed = !mm->trans_a,
	};

	add_pack(plan, &matrix, scratch_binding(p->a),
		 offset_binding(&plan->gpu.command->bindings[1], first_of_a(p)));
}

/* Sets the address pattern of A's elements. */
static srt_binding_t bind_a(const srt_ocl_plan_t *plan, srt_ocl_tiles_t *args)
{
	const srt_ocl_product_t *p = &plan->product;
	const srt_k_matmul_t *mm = p->mm;

	if (p->packs_a) {
		args->row_a = 1;
		args->step_a = p->mr;
		args->panel_a = p->mr * p->depth;
		args->stride_a = p->a_item;
		return scratch_binding(p->a);
	}
	args->row_a = mm->trans_a ? 1 : mm->lda;
	args->step_a = mm->trans_a ? mm->lda : 1;
	args->panel_a = p->mr * args->row_a;
	args->stride_a = mm->stride_a;
	return offset_binding(&plan->gpu.command->bindings[1], first_of_a(p));
}

static void add_tiles(srt_ocl_plan_t *plan)
{
	const srt_ocl_product_t *p = &plan->product;
	const srt_k_matmul_t *mm = p->mm;
	const srt_binding_t *bindings = plan->gpu.command->bindings, none = { .mem = NULL };
	const bool last = p->k + K_SPAN >= mm->k;
	const srt_binding_t c =
		offset_binding(&bindings[0], p->item * mm->stride_c + p->i * mm->ldc + p->j);
	const srt_binding_t sum = p->needs_sum ? scratch_binding(p->sum) : c;
	srt_ocl_tiles_t args = {
		.m = p->rows,
		.n = p->columns,
		.k = p->depth,
		.ldc = mm->ldc,
		.stride_c = mm->stride_c,
		.ldprior = p->needs_sum ? p->most_columns : mm->ldc,
		.stride_prior = p->needs_sum ? p->sum_item : mm->stride_c,
		.stride_b = p->b_item,
		.group = fit_tiles(round_up(p->columns, p->nr), p->nr, p->depth ? p->depth : 1,
				   GROUP_FLOATS),
		.alpha = last ? mm->alpha : 1.0f,
		.accumulate = last && mm->accumulate,
	};
	srt_binding_t tensors[5] = {
		c,
		bind_a(plan, &args),
		scratch_binding(0),
		last ? offset_binding(&bindings[3], p->j) : none,
		p->k > 0 ? sum : none,
	};

	args.groups[0] = (p->rows + p->mr - 1) / p->mr;
	args.groups[1] = (p->columns + args.group - 1) / args.group;
	if (!last && p->needs_sum) {
		tensors[0] = sum;
		args.ldc = args.ldprior;
		args.stride_c = args.stride_prior;
	}
	srt_gpu_add(&plan->gpu, SRT_OCL_MATMUL_TILES, tensors, 5, &args, sizeof(args),
		    args.groups[0] * args.groups[1] * p->nitems);
}

bool srt_ocl_vector_matmul_next(srt_ocl_plan_t *plan)
{
	srt_ocl_product_t *p = &plan->product;

	if (p->item >= p->mm->batch)
		return false;
	set_part(p);
	add_pack_b(plan);
	if (p->packs_a)
		add_pack_a(plan);
	add_tiles(plan);
	advance_binding(p); /* once for k = 0 too: sums of no terms are +0 */
	return true;
}
