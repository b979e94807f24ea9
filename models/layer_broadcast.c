/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * y (rows,n) = x + v, v a vector (n) that is added to each row: a tensor (1,n) or a parameter.
 * Backward: dx = dy without a copy; dv = sum of the rows of dy.
 */
#include <shardrt/models/layers.h>
#include "models/tape_impl.h"

/* y = x + v; v is repeated in y first. */
static srt_status_t add_to_rows(const srt_run_t *run, const srt_node_t *node, srt_view_t v)
{
	const srt_tensor_t *y = node->out;
	const srt_strided_t repeat = {
		.ndim = 2, .size = { y->rows, y->n }, .stride_y = { y->n, 1 }, .stride_x = { 0, 1 }
	};
	srt_view_t to = srt_run_value(run, y);

	SRT_TRY(srt_op_copy_strided(to, v, &repeat, run->stream));
	return srt_op_add(to, srt_run_value(run, node->in[0]), to, y->rows * y->n, run->stream);
}

static srt_status_t pass_gradient(const srt_run_t *run, const srt_node_t *node)
{
	const srt_tensor_t *y = node->out;
	srt_view_t dy = srt_run_grad_out(run, node), dx;
	int accumulate;

	if (!srt_run_grad_in(run, node, 0, &dx, &accumulate) || node->to[0].how == SRT_TO_SHARE)
		return SRT_OK;
	return srt_buffer_copy(dx.buffer, dx.offset, dy.buffer, dy.offset,
			       (size_t)(y->rows * y->n) * (srt_dtype_bits(dy.dtype) / 8),
			       run->stream);
}

/* ---- a tensor --------------------------------------------------------------------------- */

static srt_status_t forward_add_row(const srt_run_t *run, const srt_node_t *node)
{
	return add_to_rows(run, node, srt_run_value(run, node->in[1]));
}

static srt_status_t backward_add_row(const srt_run_t *run, const srt_node_t *node)
{
	const srt_tensor_t *y = node->out;
	srt_view_t dv;
	int accumulate;

	if (srt_run_grad_in(run, node, 1, &dv, &accumulate))
		SRT_TRY(srt_op_bias_backward(dv, srt_run_grad_out(run, node), y->rows, y->n,
					     accumulate, run->stream));
	return pass_gradient(run, node);
}

static const srt_layer_t add_row_layer = {
	.name = "add_row",
	.passes_on = 1u << 0,
	.forward = forward_add_row,
	.backward = backward_add_row,
};

srt_tensor_t *srt_layer_add_row(srt_tape_t *tape, srt_tensor_t *x, srt_tensor_t *row)
{
	srt_node_desc_t desc = { .layer = &add_row_layer };

	desc.in[0] = x = srt_tape_enter(tape, "add_row", x);
	desc.in[1] = row = srt_tape_enter(tape, "add_row", row);
	if (x == NULL || row == NULL || !srt_tape_same_dtype(tape, "add_row", x, row))
		return NULL;
	if (row->rows != 1 || row->n != x->n) {
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
			      "add_row: (%lld,%lld) cannot be added to each row of (%lld,%lld)",
			      (long long)row->rows, (long long)row->n, (long long)x->rows,
			      (long long)x->n);
		return NULL;
	}
	desc.dtype = x->dtype;
	desc.rows = x->rows;
	desc.n = x->n;
	return srt_tape_record(tape, &desc);
}

/* ---- a parameter ------------------------------------------------------------------------ */

static srt_status_t forward_add_param(const srt_run_t *run, const srt_node_t *node)
{
	srt_view_t v;

	SRT_TRY(srt_run_param(run, node, 0, &v));
	return add_to_rows(run, node, v);
}

static srt_status_t backward_add_param(const srt_run_t *run, const srt_node_t *node)
{
	const srt_tensor_t *y = node->out;
	srt_view_t dv;
	int accumulate;

	SRT_TRY(srt_run_param_grad(run, node, 0, &dv, &accumulate));
	if (dv.buffer != NULL)
		SRT_TRY(srt_op_bias_backward(dv, srt_run_grad_out(run, node), y->rows, y->n,
					     accumulate, run->stream));
	SRT_TRY(srt_run_param_ready(node, 0));
	return pass_gradient(run, node);
}

static const srt_layer_t add_param_layer = {
	.name = "add_param",
	.passes_on = 1u << 0,
	.forward = forward_add_param,
	.backward = backward_add_param,
};

srt_tensor_t *srt_layer_add_param(srt_tape_t *tape, srt_tensor_t *x, srt_param_t *vector)
{
	srt_node_desc_t desc = { .layer = &add_param_layer, .param = { vector } };

	desc.in[0] = x = srt_tape_enter(tape, "add_param", x);
	if (x == NULL || !srt_tape_param_is(tape, "add_param", vector, 1, x->n, 0))
		return NULL;
	desc.dtype = x->dtype;
	desc.rows = x->rows;
	desc.n = x->n;
	return srt_tape_record(tape, &desc);
}
