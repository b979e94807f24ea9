/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * y = x / sqrt(mean(x^2) + eps) * weight (n) for each run of n values of a row; rstd of each is
 * saved. Runs are rows to the operations. Backward: dx by run; dweight over the runs. Where the
 * runs are cut over tensor-parallel ranks, dweight of this rank's runs is made apart, summed over
 * the ranks, and then stored or added like that of a whole layer. With tensor parts it is made in
 * parts (layer_parts.c), each over its runs of all rows.
 * Gathered: a row is one run, cut over the ranks. Each rank gathers the whole rows in scratch,
 * computes all of them, so that the bits are those of one rank, and keeps its columns. The backward
 * pass gathers x again instead of keeping it whole.
 */
#include <shardrt/models/layers.h>
#include "models/tape_impl.h"

static srt_rmsnorm_t get_args(const srt_run_t *run, const srt_node_t *node)
{
	const srt_tensor_t *x = node->in[0];
	srt_rmsnorm_t args = SRT_RMSNORM_INIT;

	args.n = node->args.norm_n;
	args.rows = x->rows * (x->n / args.n);
	args.one_plus = node->args.one_plus;
	args.eps = node->args.eps;
	args.x = srt_run_value(run, x);
	args.rstd = srt_run_saved(run, node, 0);
	return args;
}

static srt_status_t forward_rmsnorm(const srt_run_t *run, const srt_node_t *node)
{
	srt_rmsnorm_t args = get_args(run, node);

	SRT_TRY(srt_run_param(run, node, 0, &args.gamma));
	args.y = srt_run_value(run, node->out);
	return srt_op_rmsnorm(&args, run->stream);
}

/* The weight's gradient from that of the runs of all ranks. */
static srt_status_t backward_cut_weight(const srt_run_t *run, const srt_node_t *node,
					srt_rmsnorm_t *args)
{
	const srt_view_t sum = args->dgamma;
	const int accumulate = args->accumulate_dgamma;

	args->dgamma = srt_run_block(run, node->scratch_backward, sum.dtype);
	args->accumulate_dgamma = 0;
	SRT_TRY(srt_op_rmsnorm_backward_params(args, run->stream));
	SRT_TRY(srt_run_sum_param(run, node));
	return accumulate ? srt_op_add(sum, sum, args->dgamma, args->n, run->stream) :
			    srt_op_cast(sum, args->dgamma, args->n, run->stream);
}

/* Where the backward scratch has the runs of a part: as they are, in 16 bits, and as floats. The
 * parts of the gradient are before them. */
typedef struct part_runs {
	int64_t rows, n; /* n: values of a row of the part */
	srt_view_t narrow, x, dy, rstd;
} part_runs_t;

/* Bytes of the backward scratch; sets the offsets of `runs`. */
static size_t place_runs(int nparts, int64_t norm_n, part_runs_t *runs)
{
	const size_t nelem = (size_t)(runs->rows * runs->n);
	size_t end = srt_align_block((size_t)nparts * (size_t)norm_n * sizeof(float));

	runs->x = srt_view(NULL, end, SRT_F32);
	end = srt_align_block(end + nelem * sizeof(float));
	runs->dy = srt_view(NULL, end, SRT_F32);
	end = srt_align_block(end + nelem * sizeof(float));
	runs->rstd = srt_view(NULL, end, SRT_F32);
	end = srt_align_block(end + nelem / (size_t)norm_n * sizeof(float));
	runs->narrow.offset = end;
	return end + nelem * 2;
}

/* y (rows,n), dense = n columns of x from `first` on. */
static srt_status_t copy_columns(const srt_run_t *run, srt_view_t y, srt_view_t x, int64_t rows,
				 int64_t n, int64_t first, int64_t ld)
{
	const srt_strided_t shape = { 2, { rows, n }, { n, 1 }, { ld, 1 } };

	x.offset += (size_t)first * (srt_dtype_bits(x.dtype) / 8);
	return srt_op_copy_strided(y, x, &shape, run->stream);
}

/* y = the columns of a part of x, widened. */
static srt_status_t widen_columns(const srt_run_t *run, srt_view_t y, srt_view_t x,
				  const part_runs_t *runs, int part, int64_t ld)
{
	const srt_view_t to = x.dtype == SRT_F32 ? y : runs->narrow;

	SRT_TRY(copy_columns(run, to, x, runs->rows, runs->n, part * runs->n, ld));
	return x.dtype == SRT_F32 ? SRT_OK : srt_op_cast(y, to, runs->rows * runs->n, run->stream);
}

/* The parts of the weight's gradient, added over all ranks. */
static srt_status_t backward_weight_in_parts(const srt_run_t *run, const srt_node_t *node,
					     const srt_rmsnorm_t *args)
{
	const srt_tensor_t *x = node->in[0];
	const int own = srt_tape_own_parts(run->tape);
	const srt_view_t scratch = srt_run_block(run, node->scratch_backward, SRT_F32);
	const int64_t part_n = x->n / own, norm_n = args->n;
	part_runs_t runs = { .rows = x->rows, .n = part_n };
	srt_rmsnorm_t part = *args;
	srt_sum_parts_t sum = SRT_SUM_PARTS_INIT;

	place_runs(own, norm_n, &runs);
	part.rows = x->rows * (part_n / norm_n);
	part.accumulate_dgamma = 0;
	part.x = srt_view(scratch.buffer, scratch.offset + runs.x.offset, SRT_F32);
	part.dy = srt_view(scratch.buffer, scratch.offset + runs.dy.offset, SRT_F32);
	part.rstd = srt_view(scratch.buffer, scratch.offset + runs.rstd.offset, SRT_F32);
	runs.narrow = srt_view(scratch.buffer, scratch.offset + runs.narrow.offset, x->dtype);
	part.dgamma = scratch;
	for (int p = 0; p < own; p++) {
		SRT_TRY(widen_columns(run, part.x, args->x, &runs, p, x->n));
		SRT_TRY(widen_columns(run, part.dy, args->dy, &runs, p, x->n));
		SRT_TRY(copy_columns(run, part.rstd, args->rstd, x->rows, part_n / norm_n,
				     p * (part_n / norm_n), x->n / norm_n));
		SRT_TRY(srt_op_rmsnorm_backward_params(&part, run->stream));
		part.dgamma.offset += (size_t)norm_n * sizeof(float);
	}
	sum.rows = 1;
	sum.n = norm_n;
	sum.parts = scratch;
	sum.out = args->dgamma;
	sum.accumulate = args->accumulate_dgamma;
	return srt_run_add_parts(run, node, &sum);
}

/* The sum over this rank's rows, added over the ranks. */
static srt_status_t backward_own_rows(const srt_run_t *run, const srt_node_t *node,
				      const srt_rmsnorm_t *args)
{
	srt_rmsnorm_t own = *args;

	own.dgamma = srt_run_block(run, node->scratch_backward, SRT_F32);
	own.accumulate_dgamma = 0;
	SRT_TRY(srt_run_widen_rows(run, node, 1, &own.x, &own.dy));
	SRT_TRY(srt_op_rmsnorm_backward_params(&own, run->stream));
	return srt_run_add_row_params(run, node, 1, &args->dgamma, &args->accumulate_dgamma);
}

static srt_status_t backward_weight(const srt_run_t *run, const srt_node_t *node,
				    srt_rmsnorm_t *args)
{
	if (node->layer->sums != SRT_SUM_PARAM)
		return srt_op_rmsnorm_backward_params(args, run->stream);
	if (node->in[0]->has_own_rows)
		return backward_own_rows(run, node, args);
	return run->tape->nparts > 1 ? backward_weight_in_parts(run, node, args) :
				       backward_cut_weight(run, node, args);
}

static srt_status_t backward_rmsnorm(const srt_run_t *run, const srt_node_t *node)
{
	srt_rmsnorm_t args = get_args(run, node);

	args.dy = srt_run_grad_out(run, node);
	SRT_TRY(srt_run_param_grad(run, node, 0, &args.dgamma, &args.accumulate_dgamma));
	if (args.dgamma.buffer != NULL) {
		SRT_TRY(backward_weight(run, node, &args));
		SRT_TRY(srt_run_param_ready(node, 0));
	}
	if (!srt_run_grad_in(run, node, 0, &args.dx, &args.accumulate_dx))
		return SRT_OK;
	SRT_TRY(srt_run_param(run, node, 0, &args.gamma));
	return srt_op_rmsnorm_backward(&args, run->stream);
}

static const srt_layer_t rmsnorm_layer = {
	.name = "rmsnorm",
	.keeps_in = 1u << 0,
	.adds = 1,
	.forward = forward_rmsnorm,
	.backward = backward_rmsnorm,
};

static const srt_layer_t own_rows_layer = {
	.name = "rmsnorm_rows",
	.keeps_in = 1u << 0,
	.adds = 1,
	.by_row = 1,
	.sums = SRT_SUM_PARAM,
	.forward = forward_rmsnorm,
	.backward = backward_rmsnorm,
};

static const srt_layer_t colwise_layer = {
	.name = "rmsnorm_colwise",
	.keeps_in = 1u << 0,
	.adds = 1,
	.sums = SRT_SUM_PARAM,
	.forward = forward_rmsnorm,
	.backward = backward_rmsnorm,
};

/* Bytes to make the weight's gradient of these runs in; 0 after a failure. */
static size_t measure_cut_weight(srt_tape_t *tape, const srt_tensor_t *x, int64_t norm_n)
{
	const int own = srt_tape_own_parts(tape);
	part_runs_t runs = { .rows = x->rows, .n = x->n / own };

	if (tape->nparts == 1)
		return srt_tape_f32_nbytes(tape, 1, norm_n);
	if (x->n % (own * norm_n) != 0) {
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
			      "rmsnorm_colwise: %lld runs of a row cannot be divided among this "
			      "rank's %d tensor parts",
			      (long long)(x->n / norm_n), own);
		return 0;
	}
	return place_runs(own, norm_n, &runs);
}

static srt_tensor_t *record_rmsnorm(srt_tape_t *tape, const srt_layer_t *layer, srt_tensor_t *x,
				    srt_param_t *weight, const srt_rmsnorm_in_t *in)
{
	srt_node_desc_t desc = { .layer = layer,
				 .param = { weight },
				 .args = { .eps = in->eps, .one_plus = in->one_plus } };
	int64_t shape[SRT_MAX_DIMS];

	desc.in[0] = x = srt_tape_enter(tape, layer->name, x);
	if (x == NULL || !srt_tape_param_is(tape, layer->name, weight, 1, -1, 0))
		return NULL;
	srt_param_partition(weight, shape);
	if (shape[0] < 1 || x->n % shape[0] != 0) {
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
			      "%s: rows of %lld values are not runs of %lld, the length of %s",
			      layer->name, (long long)x->n, (long long)shape[0],
			      srt_param_name(weight));
		return NULL;
	}
	desc.args.norm_n = shape[0];
	desc.dtype = x->dtype;
	desc.rows = x->rows;
	desc.n = x->n;
	desc.saved_nbytes[0] = srt_tape_f32_nbytes(tape, x->rows, x->n / shape[0]);
	if (layer->sums == SRT_SUM_PARAM && srt_param_requires_grad(weight))
		desc.backward_scratch = x->has_own_rows ? srt_tape_row_params_nbytes(tape, x, 1) :
							  measure_cut_weight(tape, x, shape[0]);
	return srt_tape_record(tape, &desc);
}

srt_tensor_t *srt_layer_rmsnorm_of(srt_tape_t *tape, srt_tensor_t *x, srt_param_t *weight,
				   const srt_rmsnorm_in_t *in)
{
	return record_rmsnorm(tape, x != NULL && x->has_own_rows ? &own_rows_layer : &rmsnorm_layer,
			      x, weight, in);
}

srt_tensor_t *srt_layer_rmsnorm_colwise(srt_tape_t *tape, srt_tensor_t *x, srt_param_t *weight,
					const srt_rmsnorm_in_t *in)
{
	return record_rmsnorm(tape, srt_tape_is_cut(tape) ? &colwise_layer : &rmsnorm_layer, x,
			      weight, in);
}

/* ---- rows that are cut over the ranks ----------------------------------------------------- */

/* Tensors of whole rows that a pass has in scratch. */
enum { FORWARD_ROWS = 2, BACKWARD_ROWS = 3 };

/* Bytes from one of these tensors to the next. */
static size_t measure_rows(int64_t rows, int64_t n, srt_dtype_t dtype)
{
	const size_t nbytes = (size_t)(rows * n) * (srt_dtype_bits(dtype) / 8);

	return srt_align_block(nbytes);
}

static srt_view_t get_rows(const srt_node_t *node, srt_view_t scratch, int i)
{
	scratch.offset +=
		(size_t)i * measure_rows(node->out->rows, node->args.norm_n, scratch.dtype);
	return scratch;
}

/* y (rows, ranks * n) = the columns x (ranks, rows, n) of all ranks. */
static srt_status_t join_columns(const srt_run_t *run, const srt_node_t *node, srt_view_t y,
				 srt_view_t x)
{
	const int64_t rows = node->out->rows, n = node->out->n, nranks = run->tape->nranks;
	const srt_strided_t shape = { .ndim = 3,
				      .size = { nranks, rows, n },
				      .stride_y = { n, nranks * n, 1 },
				      .stride_x = { rows * n, n, 1 } };

	return srt_op_copy_strided(y, x, &shape, run->stream);
}

/* y (rows, n) = this rank's columns of x (rows, ranks * n). */
static srt_status_t take_columns(const srt_run_t *run, const srt_node_t *node, srt_view_t y,
				 srt_view_t x)
{
	const int64_t rows = node->out->rows, n = node->out->n;
	const srt_strided_t shape = { .ndim = 2,
				      .size = { rows, n },
				      .stride_y = { n, 1 },
				      .stride_x = { run->tape->nranks * n, 1 } };

	x.offset += (size_t)(run->tape->rank * n) * (srt_dtype_bits(x.dtype) / 8);
	return srt_op_copy_strided(y, x, &shape, run->stream);
}

static srt_status_t forward_gathered(const srt_run_t *run, const srt_node_t *node)
{
	const srt_view_t gathered = srt_run_scratch(run, node, node->out->dtype);
	srt_rmsnorm_t args = get_args(run, node);

	args.rows = node->out->rows;
	args.x = get_rows(node, gathered, 1);
	args.y = gathered; /* its columns are in x by then */
	SRT_TRY(srt_run_gather_input(run, node));
	SRT_TRY(join_columns(run, node, args.x, gathered));
	SRT_TRY(srt_run_param(run, node, 0, &args.gamma));
	SRT_TRY(srt_op_rmsnorm(&args, run->stream));
	return take_columns(run, node, srt_run_value(run, node->out), args.y);
}

/* All ranks compute the weight's gradient, of the same values. */
static srt_status_t backward_gathered(const srt_run_t *run, const srt_node_t *node)
{
	const srt_view_t gathered = srt_run_block(run, node->scratch_backward, node->out->dtype);
	srt_rmsnorm_t args = get_args(run, node);
	srt_view_t dx;
	int accumulate;

	args.rows = node->out->rows;
	args.x = get_rows(node, gathered, 1);
	args.dy = get_rows(node, gathered, 2);
	args.dx = gathered;
	SRT_TRY(srt_run_gather_input(run, node));
	SRT_TRY(join_columns(run, node, args.x, gathered));
	SRT_TRY(srt_run_gather_grad_out(run, node));
	SRT_TRY(join_columns(run, node, args.dy, gathered));
	SRT_TRY(srt_run_param_grad(run, node, 0, &args.dgamma, &args.accumulate_dgamma));
	if (args.dgamma.buffer != NULL) {
		SRT_TRY(srt_op_rmsnorm_backward_params(&args, run->stream));
		SRT_TRY(srt_run_param_ready(node, 0));
	}
	if (!srt_run_grad_in(run, node, 0, &dx, &accumulate))
		return SRT_OK;
	SRT_TRY(srt_run_param(run, node, 0, &args.gamma));
	SRT_TRY(srt_op_rmsnorm_backward(&args, run->stream));
	return take_columns(run, node, dx, args.dx);
}

/* It stores the gradient of x, so it does not add. */
static const srt_layer_t gathered_layer = {
	.name = "rmsnorm_gathered",
	.keeps_in = 1u << 0,
	.gathers = SRT_GATHER_COLUMNS | SRT_GATHER_GRAD_OUT,
	.forward = forward_gathered,
	.backward = backward_gathered,
};

srt_tensor_t *srt_layer_rmsnorm_gathered(srt_tape_t *tape, srt_tensor_t *x, srt_param_t *weight,
					 const srt_rmsnorm_in_t *in)
{
	srt_node_desc_t desc = { .layer = &gathered_layer,
				 .param = { weight },
				 .args = { .eps = in->eps, .one_plus = in->one_plus } };
	int64_t n;
	size_t nbytes;

	desc.in[0] = x = srt_tape_enter(tape, gathered_layer.name, x);
	if (x == NULL)
		return NULL;
	n = x->n * tape->nranks;
	if (!srt_tape_param_is(tape, gathered_layer.name, weight, 1, n, 0))
		return NULL;
	if (tape->nranks == 1)
		return srt_layer_rmsnorm_of(tape, x, weight, in);
	srt_tape_f32_nbytes(tape, x->rows, BACKWARD_ROWS * n);
	if (tape->status != SRT_OK)
		return NULL;
	nbytes = measure_rows(x->rows, n, x->dtype);
	desc.args.norm_n = n;
	desc.dtype = x->dtype;
	desc.rows = x->rows;
	desc.n = x->n;
	desc.saved_nbytes[0] = srt_tape_f32_nbytes(tape, x->rows, 1);
	desc.forward_scratch = FORWARD_ROWS * nbytes;
	desc.backward_scratch = BACKWARD_ROWS * nbytes;
	return srt_tape_record(tape, &desc);
}

srt_tensor_t *srt_layer_rmsnorm(srt_tape_t *tape, srt_tensor_t *x, srt_param_t *weight, float eps)
{
	const srt_rmsnorm_in_t in = { .eps = eps };

	if (!srt_tape_usable(tape, x) || !srt_tape_param_is(tape, "rmsnorm", weight, 1, x->n, 0))
		return NULL;
	return srt_layer_rmsnorm_of(tape, x, weight, &in);
}
