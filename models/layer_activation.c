/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Activations, element by element; a table has their differences. Backward reads the input again,
 * or the output if that is enough. The gradient is computed in place if the plan allows it.
 */
#include <shardrt/models/layers.h>
#include "models/tape_impl.h"

typedef srt_status_t forward_fn(srt_view_t y, srt_view_t x, int64_t nelem, srt_stream_t *stream);
typedef srt_status_t backward_fn(srt_view_t dx, srt_view_t dy, srt_view_t again, int64_t nelem,
				 srt_stream_t *stream);

typedef struct activation {
	srt_layer_t layer; /* first: a node's layer is its activation */
	forward_fn *forward;
	backward_fn *backward;
} activation_t;

static int64_t count_elements(const srt_node_t *node)
{
	return node->out->rows * node->out->n;
}

static srt_status_t forward_activation(const srt_run_t *run, const srt_node_t *node)
{
	const activation_t *activation = (const activation_t *)node->layer;

	return activation->forward(srt_run_value(run, node->out), srt_run_value(run, node->in[0]),
				   count_elements(node), run->stream);
}

static srt_status_t backward_activation(const srt_run_t *run, const srt_node_t *node)
{
	const activation_t *activation = (const activation_t *)node->layer;
	const srt_tensor_t *again = node->layer->keeps_out ? node->out : node->in[0];
	srt_view_t dx;
	int accumulate;

	srt_run_grad_in(run, node, 0, &dx, &accumulate);
	return activation->backward(dx, srt_run_grad_out(run, node), srt_run_value(run, again),
				    count_elements(node), run->stream);
}

static srt_tensor_t *record_activation(srt_tape_t *tape, const activation_t *activation,
				       srt_tensor_t *x)
{
	srt_node_desc_t desc = { .layer = &activation->layer };

	desc.in[0] = x = srt_tape_enter(tape, activation->layer.name, x);
	if (x == NULL)
		return NULL;
	desc.dtype = x->dtype;
	desc.rows = x->rows;
	desc.n = x->n;
	return srt_tape_record(tape, &desc);
}

#define READS_INPUT .keeps_in = 1u << 0
#define READS_OUTPUT .keeps_out = 1
/* srt_layer_ID(): what its backward pass reads again, the two operations. */
#define ACTIVATION(id, reads, op, op_backward)                                                     \
	static const activation_t id##_activation = {                                              \
		.layer = { .name = #id,                                                            \
			   reads,                                                                  \
			   .passes_on = 1u << 0,                                                   \
			   .forward = forward_activation,                                          \
			   .backward = backward_activation },                                      \
		.forward = op,                                                                     \
		.backward = op_backward,                                                           \
	};                                                                                         \
	srt_tensor_t *srt_layer_##id(srt_tape_t *tape, srt_tensor_t *x)                            \
	{                                                                                          \
		return record_activation(tape, &id##_activation, x);                               \
	}

ACTIVATION(relu, READS_OUTPUT, srt_op_relu, srt_op_relu_backward)
ACTIVATION(gelu, READS_INPUT, srt_op_gelu_tanh, srt_op_gelu_tanh_backward)
ACTIVATION(gelu_erf, READS_INPUT, srt_op_gelu_erf, srt_op_gelu_erf_backward)
ACTIVATION(silu, READS_INPUT, srt_op_silu, srt_op_silu_backward)
ACTIVATION(tanh, READS_OUTPUT, srt_op_tanh, srt_op_tanh_backward)
ACTIVATION(sigmoid, READS_OUTPUT, srt_op_sigmoid, srt_op_sigmoid_backward)
