/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Layers of one number: y = factor * x, and a soft cap, y = cap * tanh(x / cap), whose backward
 * pass reads the output again. The gradient is computed in place if the plan allows it.
 */
#include <shardrt/models/layers.h>
#include "models/tape_impl.h"

static int64_t count_elements(const srt_node_t *node)
{
	return node->out->rows * node->out->n;
}

static srt_status_t forward_scale(const srt_run_t *run, const srt_node_t *node)
{
	return srt_op_scale(srt_run_value(run, node->out), srt_run_value(run, node->in[0]),
			    node->args.factor, count_elements(node), run->stream);
}

static srt_status_t backward_scale(const srt_run_t *run, const srt_node_t *node)
{
	srt_view_t dx;
	int accumulate;

	srt_run_grad_in(run, node, 0, &dx, &accumulate);
	return srt_op_scale(dx, srt_run_grad_out(run, node), node->args.factor,
			    count_elements(node), run->stream);
}

static const srt_layer_t scale_layer = {
	.name = "scale",
	.by_row = 1,
	.passes_on = 1u << 0,
	.forward = forward_scale,
	.backward = backward_scale,
};

static srt_status_t forward_softcap(const srt_run_t *run, const srt_node_t *node)
{
	return srt_op_softcap(srt_run_value(run, node->out), srt_run_value(run, node->in[0]),
			      node->args.factor, count_elements(node), run->stream);
}

static srt_status_t backward_softcap(const srt_run_t *run, const srt_node_t *node)
{
	srt_view_t dx;
	int accumulate;

	srt_run_grad_in(run, node, 0, &dx, &accumulate);
	return srt_op_softcap_backward(dx, srt_run_grad_out(run, node),
				       srt_run_value(run, node->out), node->args.factor,
				       count_elements(node), run->stream);
}

static const srt_layer_t softcap_layer = {
	.name = "softcap",
	.keeps_out = 1,
	.passes_on = 1u << 0,
	.forward = forward_softcap,
	.backward = backward_softcap,
};

static srt_tensor_t *record_factor(srt_tape_t *tape, const srt_layer_t *layer, srt_tensor_t *x,
				   float factor)
{
	srt_node_desc_t desc = { .layer = layer, .args = { .factor = factor } };

	desc.in[0] = x = srt_tape_enter(tape, layer->name, x);
	if (x == NULL)
		return NULL;
	desc.dtype = x->dtype;
	desc.rows = x->rows;
	desc.n = x->n;
	return srt_tape_record(tape, &desc);
}

srt_tensor_t *srt_layer_scale(srt_tape_t *tape, srt_tensor_t *x, float factor)
{
	return record_factor(tape, &scale_layer, x, factor);
}

srt_tensor_t *srt_layer_softcap(srt_tape_t *tape, srt_tensor_t *x, float cap)
{
	if (srt_tape_usable(tape, x) && !(cap > 0.0f)) {
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
			      "softcap: the cap is %g, must be above 0", (double)cap);
		return NULL;
	}
	return record_factor(tape, &softcap_layer, x, cap);
}
