/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Muon, by the rules of torch.optim.Muon (docs/numerics.md, "Step and optimizers"):
 *
 *     momentum, update     elementwise: srt_op_muon_update()
 *     orthogonalised       of whole matrices: update / its norm, then ns_steps times
 *                          A = X X'; B = b A + c A A; X = a X + B X
 *     parameters           elementwise: srt_op_muon_step()
 *
 * X is the update or, if it has more rows than columns, its transpose, which is never made: A and B
 * are symmetric to the bit, so X X' is a product of the stored matrix with itself and B X one from
 * the right. Values are those of bf16, kept as floats, so that each line is computed in fp32 and
 * rounded once.
 *
 * An engine has parts of matrices on each rank: it brings the updates to one rank, and what came of
 * them back (runtime/engine/step/matrices.c).
 */
#include <math.h>

#include <shardrt/ops.h>

#include "base/fpenv.h"
#include "runtime/optimizer/optimizer.h"

bool srt_optim_has_muon(const srt_optim_t *optim)
{
	return srt_optim_kind(optim) == SRT_OPTIM_MUON;
}

/* ---- a matrix ---------------------------------------------------------------------------- */

/* Memory of the iteration: offsets in bytes. r is the smaller size, c the larger one. */
typedef struct work {
	size_t x;       /* float [r * c] */
	size_t product; /* float [r * c], or less */
	size_t gram;    /* float [r * r]: A, then B */
	size_t bins;    /* double [2] */
	size_t max, norm;
	size_t total;
} work_t;

static size_t reserve_bytes(size_t *at, size_t nbytes)
{
	const size_t offset = *at;

	*at = srt_align_up(offset + nbytes, SRT_OPTIM_ALIGN);
	return offset;
}

static int64_t smaller(int64_t rows, int64_t cols)
{
	return rows < cols ? rows : cols;
}

static work_t plan_work(int64_t rows, int64_t cols)
{
	const size_t nelem = (size_t)rows * (size_t)cols, r = (size_t)smaller(rows, cols);
	size_t at = 0;
	work_t w;

	w.x = reserve_bytes(&at, nelem * sizeof(float));
	w.product = reserve_bytes(&at, nelem * sizeof(float));
	w.gram = reserve_bytes(&at, r * r * sizeof(float));
	w.bins = reserve_bytes(&at, 2 * sizeof(double));
	w.max = reserve_bytes(&at, sizeof(float));
	w.norm = reserve_bytes(&at, sizeof(float));
	w.total = at;
	return w;
}

size_t srt_muon_work_nbytes(int64_t rows, int64_t cols)
{
	return rows > 0 && cols > 0 ? plan_work(rows, cols).total : 0;
}

/* The products of an iteration, without views: A = X X', A A, B X. */
typedef struct products {
	srt_matmul_t gram, square, last;
} products_t;

static products_t describe_products(const srt_optim_options_t *o, int64_t rows, int64_t cols)
{
	const bool tall = rows > cols;
	const int64_t r = smaller(rows, cols);
	products_t p = { SRT_MATMUL_INIT, SRT_MATMUL_INIT, SRT_MATMUL_INIT };

	p.gram.m = p.gram.n = r;
	p.gram.k = tall ? rows : cols;
	p.gram.trans_a = tall;
	p.gram.trans_b = !tall;
	p.square.m = p.square.n = p.square.k = r;
	p.square.alpha = o != NULL ? o->ns_coefficients[2] : 1.0f;
	p.last.m = rows;
	p.last.n = cols;
	p.last.k = r;
	return p;
}

srt_status_t srt_muon_scratch(srt_device_t *device, int64_t rows, int64_t cols, size_t *nbytes)
{
	const products_t p = describe_products(NULL, rows, cols);

	SRT_TRY(srt_op_matmul_memory(device, &p.gram, SRT_F32, nbytes));
	SRT_TRY(srt_op_matmul_memory(device, &p.square, SRT_F32, nbytes));
	return srt_op_matmul_memory(device, &p.last, SRT_F32, nbytes);
}

/* y = x over its norm, as floats. */
static srt_status_t scale(const srt_optim_options_t *o, srt_view_t y, srt_view_t x, int64_t nelem,
			  const work_t *w, srt_view_t work, srt_stream_t *stream)
{
	const srt_view_t bins = srt_view(work.buffer, work.offset + w->bins, SRT_F64);
	const srt_view_t max = srt_view(work.buffer, work.offset + w->max, SRT_F32);
	const srt_view_t norm = srt_view(work.buffer, work.offset + w->norm, SRT_F32);

	SRT_TRY(srt_op_absmax(max, x, nelem, 0, stream));
	SRT_TRY(srt_op_bin_sum(&(srt_bin_sum_t){ .bins = bins,
						 .max = max,
						 .x = x,
						 .nelem = nelem,
						 .total_nelem = nelem,
						 .power = 2 },
			       stream));
	SRT_TRY(srt_op_bin_total(&(srt_bin_total_t){ .out = norm,
						     .bins = bins,
						     .max = max,
						     .nbins = 1,
						     .power = 2,
						     .root = 1 },
				 stream));
	return srt_op_muon_scale(y, x, norm, o->eps, nelem, stream);
}

srt_status_t srt_muon_orthogonalise(const srt_optim_options_t *o, int64_t rows, int64_t cols,
				    srt_view_t x, srt_view_t work, srt_stream_t *stream)
{
	const int64_t nelem = rows * cols, r = smaller(rows, cols);
	products_t p = describe_products(o, rows, cols);
	srt_view_t wide, product, gram;
	work_t w;

	if (nelem == 0)
		return SRT_OK;
	w = plan_work(rows, cols);
	wide = srt_view(work.buffer, work.offset + w.x, SRT_F32);
	product = srt_view(work.buffer, work.offset + w.product, SRT_F32);
	gram = srt_view(work.buffer, work.offset + w.gram, SRT_F32);
	p.gram.a = p.gram.b = wide;
	p.gram.c = gram;
	p.square.a = p.square.b = gram;
	p.square.c = p.last.c = product;
	p.last.a = rows > cols ? wide : gram;
	p.last.b = rows > cols ? gram : wide;
	SRT_TRY(scale(o, wide, x, nelem, &w, work, stream));
	for (int step = 0; step < o->ns_steps; step++) {
		SRT_TRY(srt_op_matmul(&p.gram, stream));
		/* A is rounded by way of x, which has room for it and is free until the end. */
		SRT_TRY(srt_op_cast(x, gram, r * r, stream));
		SRT_TRY(srt_op_cast(gram, x, r * r, stream));
		SRT_TRY(srt_op_matmul(&p.square, stream));
		SRT_TRY(srt_op_muon_combine(gram, product, o->ns_coefficients[1], r * r, stream));
		SRT_TRY(srt_op_matmul(&p.last, stream));
		SRT_TRY(srt_op_muon_combine(wide, product, o->ns_coefficients[0], nelem, stream));
	}
	return srt_op_cast(x, wide, nelem, stream);
}

/* ---- the matrices of an optimizer -------------------------------------------------------- */

/* NULL: the entry has nothing to step by Muon. */
static const srt_optim_options_t *muon_group(const srt_optim_t *optim,
					     const srt_optim_entry_t *entry)
{
	const srt_optim_options_t *group = &optim->groups[entry->param.group];

	return group->kind == SRT_OPTIM_MUON && entry->run >= 0 ? group : NULL;
}

srt_status_t srt_muon_allocate(srt_optim_t *optim)
{
	size_t at = 0, work = 0;

	for (size_t i = 0; i < optim->nentries; i++) {
		srt_optim_entry_t *entry = &optim->entries[i];
		srt_optim_param_t *p = &entry->param;
		const size_t nbytes = srt_muon_work_nbytes(p->rows, p->cols);

		if (muon_group(optim, entry) == NULL)
			continue;
		work = nbytes > work ? nbytes : work;
		if (p->update.buffer == NULL)
			p->update = srt_view(NULL,
					     reserve_bytes(&at, (size_t)p->nelem *
									srt_dtype_size(SRT_BF16)),
					     SRT_BF16);
	}
	if (work == 0 || (optim->owner != NULL && optim->owner->orthogonalise != NULL))
		return SRT_OK;
	optim->muon_work = at;
	SRT_TRY(srt_buffer_create(optim->device, SRT_MEM_DEVICE, at + work, "updates of Muon",
				  &optim->muon_buffer));
	for (size_t i = 0; i < optim->nentries; i++) {
		srt_optim_entry_t *entry = &optim->entries[i];

		if (muon_group(optim, entry) == NULL || entry->param.update.buffer != NULL)
			continue;
		entry->param.update.buffer = optim->muon_buffer;
		srt_buffer_hold(optim->muon_buffer);
	}
	return SRT_OK;
}

/* The factor of the learning rate, in double as in torch. */
static float shape_ratio(srt_muon_adjust_t adjust, int64_t rows, int64_t cols)
{
	const srt_fpenv_t env = srt_fpenv_enter();
	const double a = (double)rows, b = (double)cols;
	double ratio;

	if (adjust == SRT_MUON_MATCH_RMS_ADAMW)
		ratio = 0.2 * sqrt(a > b ? a : b);
	else
		ratio = sqrt(adjust == SRT_MUON_ORIGINAL && a < b ? 1.0 : a / b);
	srt_fpenv_leave(env);
	return (float)ratio;
}

/* The arguments of the elementwise operations on an entry. */
static srt_optim_args_t entry_args(const srt_optim_t *optim, const srt_optim_entry_t *entry,
				   srt_muon_t *muon)
{
	const srt_optim_options_t *o = &optim->groups[entry->param.group];
	srt_optim_args_t args = optim->runs[entry->run].args;

	args.update = entry->param.update;
	*muon = (srt_muon_t){ .momentum = o->momentum,
			      .nesterov = o->nesterov,
			      .ratio = shape_ratio(o->adjust, entry->param.rows,
						   entry->param.cols) };
	return args;
}

/* Whole matrices. */
static srt_status_t orthogonalise_all(const srt_optim_t *optim, srt_stream_t *stream)
{
	const srt_view_t work = srt_view(optim->muon_buffer, optim->muon_work, SRT_U8);

	for (size_t i = 0; i < optim->nentries; i++) {
		const srt_optim_entry_t *entry = &optim->entries[i];
		const srt_optim_options_t *o = muon_group(optim, entry);

		if (o != NULL)
			SRT_TRY(srt_muon_orthogonalise(o, entry->param.rows, entry->param.cols,
						       entry->param.update, work, stream));
	}
	return SRT_OK;
}

static srt_status_t step_entry(const srt_optim_t *optim, const srt_optim_entry_t *entry,
			       srt_stream_t *stream)
{
	srt_muon_t muon;
	const srt_optim_args_t args = entry_args(optim, entry, &muon);

	SRT_TRY(srt_op_muon_step(&args, &muon, stream));
	return args.copy.buffer == NULL ? SRT_OK :
					  srt_op_cast(args.copy, args.param, args.nelem, stream);
}

srt_status_t srt_muon_apply(srt_optim_t *optim, srt_stream_t *stream)
{
	if (!srt_optim_has_muon(optim))
		return SRT_OK;
	for (size_t i = 0; i < optim->nentries; i++) {
		srt_optim_args_t args;
		srt_muon_t muon;

		if (muon_group(optim, &optim->entries[i]) == NULL)
			continue;
		args = entry_args(optim, &optim->entries[i], &muon);
		SRT_TRY(srt_op_muon_update(&args, &muon, stream));
	}
	if (optim->owner != NULL && optim->owner->orthogonalise != NULL)
		SRT_TRY(optim->owner->orthogonalise(optim->owner_arg, stream));
	else
		SRT_TRY(orthogonalise_all(optim, stream));
	for (size_t i = 0; i < optim->nentries; i++) {
		if (muon_group(optim, &optim->entries[i]) != NULL)
			SRT_TRY(step_entry(optim, &optim->entries[i], stream));
	}
	return SRT_OK;
}
