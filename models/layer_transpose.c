/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The elements of x as a matrix (a,b), transposed to (b,a), bit for bit, for layers along another
 * dimension than the last one. Backward: the other way.
 */
#include <shardrt/models/layers.h>
#include "models/tape_impl.h"

/* y (b,a) = x (a,b) transposed. */
static srt_status_t transpose(const srt_run_t *run, srt_view_t y, srt_view_t x, int64_t a,
			      int64_t b)
{
	const srt_strided_t shape = {
		.ndim = 2, .size = { a, b }, .stride_y = { 1, a }, .stride_x = { b, 1 }
	};

	return srt_op_copy_strided(y, x, &shape, run->stream);
}

static int64_t count_columns(const srt_node_t *node)
{
	return node->out->rows * node->out->n / node->args.nrows;
}

static srt_status_t forward_transpose(const srt_run_t *run, const srt_node_t *node)
{
	return transpose(run, srt_run_value(run, node->out), srt_run_value(run, node->in[0]),
			 node->args.nrows, count_columns(node));
}

static srt_status_t backward_transpose(const srt_run_t *run, const srt_node_t *node)
{
	srt_view_t dx;
	int accumulate;

	srt_run_grad_in(run, node, 0, &dx, &accumulate);
	return transpose(run, dx, srt_run_grad_out(run, node), count_columns(node),
			 node->args.nrows);
}

static const srt_layer_t transpose_layer = {
	.name = "transpose",
	.forward = forward_transpose,
	.backward = backward_transpose,
};

srt_tensor_t *srt_layer_transpose(srt_tape_t *tape, srt_tensor_t *x, int64_t nrows, int64_t n)
{
	srt_node_desc_t desc = { .layer = &transpose_layer, .n = n, .args = { .nrows = nrows } };

	if (!srt_tape_usable(tape, x))
		return NULL;
	if (srt_is_float(x->dtype))
		x = srt_tape_enter(tape, "transpose", x);
	if (x == NULL)
		return NULL;
	if (nrows < 1 || n < 1 || x->rows * x->n % nrows != 0 || x->rows * x->n % n != 0) {
		srt_tape_fail(
			tape, SRT_ERR_INVALID_ARGUMENT,
			"transpose: (%lld,%lld) is not a matrix of %lld rows, or its elements "
			"not rows of %lld",
			(long long)x->rows, (long long)x->n, (long long)nrows, (long long)n);
		return NULL;
	}
	desc.in[0] = x;
	desc.dtype = x->dtype;
	desc.rows = x->rows * x->n / n;
	return srt_tape_record(tape, &desc);
}
