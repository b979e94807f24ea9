/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * y (rows,out) = x (rows,in) W^T (out,in) + b (out).
 * Backward: dx = dy W;  dW = dy^T x;  db = sum of the rows of dy.
 * W and b may be a range of rows of larger parameters. Then the first gradient that the backward
 * pass stores zeroes the other rows, and those of other ranges are added.
 * With tensor parts y of a rowwise layer and dx of a colwise one are made in parts (layer_parts.c).
 */
#include <shardrt/models/layers.h>
#include "models/tape_impl.h"

/* y = x W^T */
static srt_matmul_t make_y_product(const srt_node_t *node)
{
	const srt_tensor_t *x = node->in[0], *y = node->out;

	return srt_dense_product(x->rows, y->n, x->n, 0, 1);
}

static srt_matmul_t make_dx_product(const srt_node_t *node)
{
	const srt_tensor_t *x = node->in[0], *y = node->out;

	return srt_dense_product(x->rows, x->n, y->n, 0, 0);
}

static srt_matmul_t make_dw_product(const srt_node_t *node)
{
	const srt_tensor_t *x = node->in[0], *y = node->out;

	return srt_dense_product(y->n, x->n, x->rows, 1, 0);
}

/* Whether y is made in parts. */
static int is_in_parts(const srt_node_t *node)
{
	return node->layer->sums == SRT_SUM_OUTPUT_PARTS ||
	       node->layer->sums == SRT_SUM_OUTPUT_ROWS;
}

static srt_status_t measure_linear(srt_tape_t *tape, const srt_node_t *node)
{
	const srt_matmul_t y = make_y_product(node);
	const srt_dtype_t dtype = node->out->dtype;
	srt_matmul_t dx = make_dx_product(node), dw = make_dw_product(node);

	SRT_TRY(is_in_parts(node) ?
			srt_tape_measure_parts(tape, &y, &node->args.parts, dtype) :
			srt_op_matmul_memory(tape->device, &y, dtype, &tape->scratch_nbytes));
	if (!node->has_backward)
		return SRT_OK;
	dx.accumulate = node->to[0].how == SRT_TO_ADD;
	if (node->in[0]->grad_parts)
		SRT_TRY(srt_tape_measure_parts(tape, &dx, &node->args.parts, dtype));
	else if (node->to[0].how != SRT_TO_NONE)
		SRT_TRY(srt_op_matmul_memory(tape->device, &dx, dtype, &tape->scratch_nbytes));
	if (!srt_param_requires_grad(node->param[0]))
		return SRT_OK;
	/* Another micro-batch, or another use of the weight, adds. */
	for (; dw.accumulate <= 1; dw.accumulate++)
		SRT_TRY(srt_op_matmul_memory(tape->device, &dw, dtype, &tape->scratch_nbytes));
	return SRT_OK;
}

/* The rows of a parameter that the node uses, `width` elements each. */
static srt_view_t get_rows(const srt_node_t *node, srt_view_t view, int64_t width)
{
	if (view.buffer != NULL)
		view.offset +=
			(size_t)(node->args.first_row * width) * (srt_dtype_bits(view.dtype) / 8);
	return view;
}

/* Elements of what this rank has of a parameter; 0 without one. */
static int64_t count_elements(const srt_param_t *param)
{
	int64_t shape[SRT_MAX_DIMS], nelem = param != NULL ? 1 : 0;
	const int ndim = param != NULL ? srt_param_partition(param, shape) : 0;

	for (int i = 0; i < ndim; i++)
		nelem *= shape[i];
	return nelem;
}

/* Gradient of these rows of parameter k. */
static srt_status_t get_grad_rows(const srt_run_t *run, const srt_node_t *node, int k,
				  int64_t width, srt_view_t *rows, int *accumulate)
{
	const int64_t total = count_elements(node->param[k]);
	const size_t size = srt_dtype_bits(srt_node_dtype(node)) / 8;
	const size_t first = (size_t)(node->args.first_row * width) * size;
	const size_t end = first + (size_t)(node->out->n * width) * size;
	srt_view_t view;

	SRT_TRY(srt_run_param_grad(run, node, k, &view, accumulate));
	*rows = get_rows(node, view, width);
	if (view.buffer == NULL || *accumulate || node->out->n * width == total)
		return SRT_OK;
	SRT_TRY(srt_buffer_zero(view.buffer, view.offset, first, run->stream));
	return srt_buffer_zero(view.buffer, view.offset + end, (size_t)total * size - end,
			       run->stream);
}

static srt_status_t forward_linear(const srt_run_t *run, const srt_node_t *node)
{
	srt_matmul_t mm = make_y_product(node);

	mm.a = srt_run_value(run, node->in[0]);
	mm.c = srt_run_value(run, node->out);
	SRT_TRY(srt_run_param(run, node, 0, &mm.b));
	SRT_TRY(srt_run_param(run, node, 1, &mm.bias));
	mm.b = get_rows(node, mm.b, node->in[0]->n);
	mm.bias = get_rows(node, mm.bias, 1);
	return srt_op_matmul(&mm, run->stream);
}

/* The parts of y, added over all ranks; then the bias. */
static srt_status_t forward_in_parts(const srt_run_t *run, const srt_node_t *node)
{
	srt_matmul_t mm = make_y_product(node);
	srt_sum_parts_t sum = SRT_SUM_PARTS_INIT;

	mm.a = srt_run_value(run, node->in[0]);
	mm.c = srt_run_scratch(run, node, SRT_F32);
	SRT_TRY(srt_run_param(run, node, 0, &mm.b));
	SRT_TRY(srt_run_part_products(run, &mm, &node->args.parts, mm.m * mm.n));
	sum.rows = mm.m;
	sum.n = mm.n;
	sum.parts = mm.c;
	SRT_TRY(srt_run_param(run, node, 1, &sum.bias));
	sum.out = srt_run_value(run, node->out);
	return srt_run_add_parts(run, node, &sum);
}

static srt_status_t backward_linear(const srt_run_t *run, const srt_node_t *node)
{
	const srt_tensor_t *x = node->in[0], *y = node->out;
	srt_matmul_t dx = make_dx_product(node), dw = make_dw_product(node);
	srt_view_t dy, db;
	int accumulate;

	SRT_TRY(srt_run_whole_grad_out(run, node, &dy));
	if (srt_run_grad_in(run, node, 0, &dx.c, &dx.accumulate)) {
		dx.a = dy;
		SRT_TRY(srt_run_param(run, node, 0, &dx.b));
		dx.b = get_rows(node, dx.b, x->n);
		SRT_TRY(x->grad_parts ?
				srt_run_part_products(run, &dx, &node->args.parts, x->rows * x->n) :
				srt_op_matmul(&dx, run->stream));
	}
	SRT_TRY(get_grad_rows(run, node, 0, x->n, &dw.c, &dw.accumulate));
	if (dw.c.buffer != NULL) {
		dw.a = dy;
		dw.b = srt_run_value(run, x);
		SRT_TRY(srt_op_matmul(&dw, run->stream));
		SRT_TRY(srt_run_param_ready(node, 0));
	}
	SRT_TRY(get_grad_rows(run, node, 1, 1, &db, &accumulate));
	if (db.buffer != NULL) {
		SRT_TRY(srt_op_bias_backward(db, dy, x->rows, y->n, accumulate, run->stream));
		SRT_TRY(srt_run_param_ready(node, 1));
	}
	return SRT_OK;
}

#define LINEAR(id, label, ...)                                                                     \
	static const srt_layer_t id##_layer = { .name = label,                                     \
						.keeps_in = 1u << 0,                               \
						.in_for_param = 1,                                 \
						.backward = backward_linear,                       \
						.measure = measure_linear,                         \
						__VA_ARGS__ }

LINEAR(linear, "linear", .forward = forward_linear, .adds = 1);
LINEAR(colwise, "linear_colwise", .forward = forward_linear, .sums = SRT_SUM_GRADIENT);
LINEAR(rowwise, "linear_rowwise", .forward = forward_linear, .adds = 1, .sums = SRT_SUM_OUTPUT);
/* The input has a gradient in parts. */
LINEAR(colwise_parts, "linear_colwise", .forward = forward_linear, .adds = 1);
LINEAR(rowwise_parts, "linear_rowwise", .forward = forward_in_parts, .adds = 1,
       .sums = SRT_SUM_OUTPUT_PARTS);
/* The output has this rank's rows. */
LINEAR(rowwise_rows, "linear_rowwise", .forward = forward_in_parts, .adds = 1,
       .sums = SRT_SUM_OUTPUT_ROWS, .gathers = SRT_GATHER_GRAD_OUT);

/* Sets what the node needs to make y in parts. @return whether it can. */
static int describe_in_parts(srt_tape_t *tape, srt_node_desc_t *desc, const srt_tensor_t *x,
			     int64_t n)
{
	const size_t nbytes = srt_tape_parts_nbytes(tape, x->rows, n);

	if (!srt_tape_parts_of(tape, desc->layer->name, desc->param[0], 1, 1, &desc->args.parts))
		return 0;
	desc->forward_scratch = nbytes;
	if (desc->layer->sums == SRT_SUM_OUTPUT_PARTS)
		return 1;
	if (!srt_tape_can_cut_rows(tape, desc->layer->name, x->rows))
		return 0;
	desc->rows = x->rows / tape->nranks;
	desc->args.own_offset = srt_align_block(nbytes);
	desc->forward_scratch = desc->args.own_offset + srt_tape_f32_nbytes(tape, desc->rows, n);
	desc->backward_scratch = (size_t)(x->rows * n) * (srt_dtype_bits(x->dtype) / 8);
	return 1;
}

static srt_tensor_t *record_rows(srt_tape_t *tape, const srt_layer_t *layer, srt_tensor_t *x,
				 srt_param_t *weight, srt_param_t *bias, int64_t first,
				 int64_t nrows, int nblocks)
{
	srt_node_desc_t desc = { .layer = layer,
				 .param = { weight, bias },
				 .args = { .first_row = first } };
	int64_t shape[SRT_MAX_DIMS];

	desc.in[0] = x = srt_tape_enter(tape, layer->name, x);
	if (x == NULL || !srt_tape_param_is(tape, layer->name, weight, 2, -1, x->n))
		return NULL;
	srt_param_partition(weight, shape);
	if (bias != NULL && !srt_tape_param_is(tape, layer->name, bias, 1, shape[0], 0))
		return NULL;
	if (first < 0 || nrows < 1 || first > shape[0] || nrows > shape[0] - first) {
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
			      "%s: rows %lld to %lld of parameter %s, which has %lld rows",
			      layer->name, (long long)first,
			      (long long)first + (long long)nrows - 1, srt_param_name(weight),
			      (long long)shape[0]);
		return NULL;
	}
	if (layer == &colwise_parts_layer) {
		if (!srt_tape_parts_of(tape, layer->name, weight, 0, nblocks, &desc.args.parts))
			return NULL;
		desc.in[0] = x = srt_tape_to_parts(tape, x);
		if (x == NULL)
			return NULL;
	}
	desc.rows = x->rows;
	if ((layer == &rowwise_parts_layer || layer == &rowwise_rows_layer) &&
	    !describe_in_parts(tape, &desc, x, nrows))
		return NULL;
	desc.dtype = x->dtype;
	desc.n = nrows;
	return srt_tape_record(tape, &desc);
}

srt_tensor_t *srt_layer_linear_rows(srt_tape_t *tape, srt_tensor_t *x, srt_param_t *weight,
				    srt_param_t *bias, int64_t first, int64_t nrows)
{
	return record_rows(tape, &linear_layer, x, weight, bias, first, nrows, 1);
}

static srt_tensor_t *record_linear(srt_tape_t *tape, const srt_layer_t *layer, srt_tensor_t *x,
				   srt_param_t *weight, srt_param_t *bias, int nblocks)
{
	int64_t shape[SRT_MAX_DIMS];

	if (!srt_tape_usable(tape, x) || !srt_tape_param_is(tape, layer->name, weight, 2, -1, x->n))
		return NULL;
	srt_param_partition(weight, shape);
	if (shape[0] < 1) {
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
			      "%s: parameter %s has no rows for tensor-parallel rank %d of %d",
			      layer->name, srt_param_name(weight), tape->rank, tape->nranks);
		return NULL;
	}
	return record_rows(tape, layer, x, weight, bias, 0, shape[0], nblocks);
}

srt_tensor_t *srt_layer_linear(srt_tape_t *tape, srt_tensor_t *x, srt_param_t *weight,
			       srt_param_t *bias)
{
	return record_linear(tape, &linear_layer, x, weight, bias, 1);
}

srt_tensor_t *srt_layer_linear_colwise_blocks(srt_tape_t *tape, srt_tensor_t *x,
					      srt_param_t *weight, srt_param_t *bias, int nblocks)
{
	const srt_layer_t *layer = tape->nparts > 1 ? &colwise_parts_layer :
				   tape->nranks > 1 ? &colwise_layer :
						      &linear_layer;

	return record_linear(tape, layer, x, weight, bias, nblocks);
}

srt_tensor_t *srt_layer_linear_colwise(srt_tape_t *tape, srt_tensor_t *x, srt_param_t *weight,
				       srt_param_t *bias)
{
	return srt_layer_linear_colwise_blocks(tape, x, weight, bias, 1);
}

srt_tensor_t *srt_layer_linear_rowwise(srt_tape_t *tape, srt_tensor_t *x, srt_param_t *weight,
				       srt_param_t *bias)
{
	srt_tensor_t *y;

	if (tape->nparts > 1)
		return record_linear(tape,
				     tape->cuts_rows ? &rowwise_rows_layer : &rowwise_parts_layer,
				     x, weight, bias, 1);
	if (tape->nranks == 1)
		return record_linear(tape, &linear_layer, x, weight, bias, 1);
	y = record_linear(tape, &rowwise_layer, x, weight, NULL, 1);
	return bias != NULL ? srt_layer_add_param(tape, y, bias) : y;
}
