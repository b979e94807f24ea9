/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * y (rows,out) = x (rows,in) W^T (out,in) + b (out).
 * Backward: dx = dy W;  dW = dy^T x;  db = sum of the rows of dy.
 */
#include "models/layers.h"
#include "models/tape_impl.h"

/* y = x W^T, without its tensors. */
static srt_matmul_t make_y_product(const srt_node_t *node)
{
	const srt_tensor_t *x = node->in[0], *y = node->out;

	return (srt_matmul_t){
		.m = x->rows,
		.n = y->n,
		.k = x->n,
		.trans_b = 1,
		.lda = x->n,
		.ldb = x->n,
		.ldc = y->n,
	};
}

static srt_matmul_t make_dx_product(const srt_node_t *node)
{
	const srt_tensor_t *x = node->in[0], *y = node->out;

	return (srt_matmul_t){
		.m = x->rows,
		.n = x->n,
		.k = y->n,
		.lda = y->n,
		.ldb = x->n,
		.ldc = x->n,
	};
}

static srt_matmul_t make_dw_product(const srt_node_t *node)
{
	const srt_tensor_t *x = node->in[0], *y = node->out;

	return (srt_matmul_t){
		.m = y->n,
		.n = x->n,
		.k = x->rows,
		.trans_a = 1,
		.lda = y->n,
		.ldb = x->n,
		.ldc = x->n,
	};
}

static srt_status_t measure_linear(srt_tape_t *tape, const srt_node_t *node)
{
	const srt_matmul_t y = make_y_product(node);
	srt_matmul_t dx = make_dx_product(node), dw = make_dw_product(node);

	SRT_TRY(srt_op_matmul_memory(tape->device, &y, SRT_F32, &tape->scratch_nbytes));
	if (!node->has_backward)
		return SRT_OK;
	dx.accumulate = node->to[0].how == SRT_TO_ADD;
	if (node->to[0].how != SRT_TO_NONE)
		SRT_TRY(srt_op_matmul_memory(tape->device, &dx, SRT_F32, &tape->scratch_nbytes));
	/* Another micro-batch, or another use of the weight, adds. */
	for (; dw.accumulate <= 1; dw.accumulate++)
		SRT_TRY(srt_op_matmul_memory(tape->device, &dw, SRT_F32, &tape->scratch_nbytes));
	return SRT_OK;
}

static srt_status_t forward_linear(const srt_run_t *run, const srt_node_t *node)
{
	srt_matmul_t mm = make_y_product(node);

	mm.a = srt_run_value(run, node->in[0]);
	mm.c = srt_run_value(run, node->out);
	SRT_TRY(srt_run_param(run, node, 0, &mm.b));
	SRT_TRY(srt_run_param(run, node, 1, &mm.bias));
	return srt_op_matmul(run->stream, &mm);
}

static srt_status_t backward_linear(const srt_run_t *run, const srt_node_t *node)
{
	const srt_tensor_t *x = node->in[0], *y = node->out;
	srt_matmul_t dx = make_dx_product(node), dw = make_dw_product(node);
	srt_view_t dy = srt_run_grad_out(run, node), db;
	int accumulate;

	if (srt_run_grad_in(run, node, 0, &dx.c, &dx.accumulate)) {
		dx.a = dy;
		SRT_TRY(srt_run_param(run, node, 0, &dx.b));
		SRT_TRY(srt_op_matmul(run->stream, &dx));
	}
	SRT_TRY(srt_run_param_grad(run, node, 0, &dw.c, &dw.accumulate));
	if (dw.c.buffer) {
		dw.a = dy;
		dw.b = srt_run_value(run, x);
		SRT_TRY(srt_op_matmul(run->stream, &dw));
		SRT_TRY(srt_run_param_ready(node, 0));
	}
	SRT_TRY(srt_run_param_grad(run, node, 1, &db, &accumulate));
	if (db.buffer) {
		SRT_TRY(srt_op_bias_backward(run->stream, db, dy, y->rows, y->n, accumulate));
		SRT_TRY(srt_run_param_ready(node, 1));
	}
	return SRT_OK;
}

static const srt_layer_t linear_layer = {
	.name = "linear",
	.keeps_in = 1u << 0,
	.adds = 1,
	.forward = forward_linear,
	.backward = backward_linear,
	.measure = measure_linear,
};

srt_tensor_t *srt_layer_linear(srt_tape_t *tape, srt_tensor_t *x, srt_param_t *weight,
			       srt_param_t *bias)
{
	srt_node_desc_t desc = { .layer = &linear_layer, .in = { x }, .param = { weight, bias } };
	int64_t shape[SRT_MAX_DIMS];

	if (!srt_tape_usable(tape, x) || !srt_tape_param_is(tape, "linear", weight, 2, -1, x->n))
		return NULL;
	srt_param_shape(weight, shape);
	if (bias && !srt_tape_param_is(tape, "linear", bias, 1, shape[0], 0))
		return NULL;
	desc.rows = x->rows;
	desc.n = shape[0];
	return srt_tape_record(tape, &desc);
}
