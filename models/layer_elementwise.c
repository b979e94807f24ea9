/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * relu, gelu (tanh form) and addition, element by element.
 * The gradients of relu and gelu are made in place where the plan lets them lie; an addition
 * passes its gradient on to both inputs, without a copy unless they need places of their own.
 */
#include "models/layers.h"
#include "models/tape_impl.h"

static int64_t nelem(const srt_node_t *node)
{
	return node->out->rows * node->out->n;
}

static srt_tensor_t *record_unary(srt_tape_t *tape, const srt_layer_t *layer, srt_tensor_t *x)
{
	srt_node_desc_t desc = { .layer = layer, .in = { x } };

	if (!srt_tape_usable(tape, x))
		return NULL;
	desc.rows = x->rows;
	desc.n = x->n;
	return srt_tape_record(tape, &desc);
}

/* ---- relu: reads its output again ------------------------------------------------------- */

static srt_status_t relu_forward(const srt_run_t *run, const srt_node_t *node)
{
	return srt_op_relu(run->stream, srt_run_value(run, node->out),
			   srt_run_value(run, node->in[0]), nelem(node));
}

static srt_status_t relu_backward(const srt_run_t *run, const srt_node_t *node)
{
	srt_view_t dx;
	int accumulate;

	srt_run_grad_in(run, node, 0, &dx, &accumulate);
	return srt_op_relu_backward(run->stream, dx, srt_run_grad_out(run, node),
				    srt_run_value(run, node->out), nelem(node));
}

static const srt_layer_t relu_layer = {
	.name = "relu",
	.keeps_out = 1,
	.passes_on = 1u << 0,
	.forward = relu_forward,
	.backward = relu_backward,
};

srt_tensor_t *srt_layer_relu(srt_tape_t *tape, srt_tensor_t *x)
{
	return record_unary(tape, &relu_layer, x);
}

/* ---- gelu: reads its input again -------------------------------------------------------- */

static srt_status_t gelu_forward(const srt_run_t *run, const srt_node_t *node)
{
	return srt_op_gelu_tanh(run->stream, srt_run_value(run, node->out),
				srt_run_value(run, node->in[0]), nelem(node));
}

static srt_status_t gelu_backward(const srt_run_t *run, const srt_node_t *node)
{
	srt_view_t dx;
	int accumulate;

	srt_run_grad_in(run, node, 0, &dx, &accumulate);
	return srt_op_gelu_tanh_backward(run->stream, dx, srt_run_grad_out(run, node),
					 srt_run_value(run, node->in[0]), nelem(node));
}

static const srt_layer_t gelu_layer = {
	.name = "gelu",
	.keeps_in = 1u << 0,
	.passes_on = 1u << 0,
	.forward = gelu_forward,
	.backward = gelu_backward,
};

srt_tensor_t *srt_layer_gelu(srt_tape_t *tape, srt_tensor_t *x)
{
	return record_unary(tape, &gelu_layer, x);
}

/* ---- addition --------------------------------------------------------------------------- */

static srt_status_t add_forward(const srt_run_t *run, const srt_node_t *node)
{
	return srt_op_add(run->stream, srt_run_value(run, node->out),
			  srt_run_value(run, node->in[0]), srt_run_value(run, node->in[1]),
			  nelem(node));
}

static srt_status_t add_backward(const srt_run_t *run, const srt_node_t *node)
{
	srt_view_t dy = srt_run_grad_out(run, node), dx;
	int accumulate;

	for (int j = 0; j < 2; j++) {
		if (!srt_run_grad_in(run, node, j, &dx, &accumulate) ||
		    node->to[j].how == SRT_TO_SHARE)
			continue;
		SRT_TRY(srt_copy(run->stream, dx.buffer, dx.offset, dy.buffer, dy.offset,
				 (size_t)nelem(node) * sizeof(float)));
	}
	return SRT_OK;
}

static const srt_layer_t add_layer = {
	.name = "add",
	.passes_on = 1u << 0 | 1u << 1,
	.forward = add_forward,
	.backward = add_backward,
};

srt_tensor_t *srt_layer_add(srt_tape_t *tape, srt_tensor_t *a, srt_tensor_t *b)
{
	srt_node_desc_t desc = { .layer = &add_layer, .in = { a, b } };

	if (!srt_tape_usable(tape, a) || !srt_tape_usable(tape, b))
		return NULL;
	if (a->rows != b->rows || a->n != b->n) {
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
			      "add: shapes differ, (%lld,%lld) and (%lld,%lld)", (long long)a->rows,
			      (long long)a->n, (long long)b->rows, (long long)b->n);
		return NULL;
	}
	desc.rows = a->rows;
	desc.n = a->n;
	return srt_tape_record(tape, &desc);
}
