/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Addition and multiplication, element by element. Both inputs of an addition get the gradient of
 * the output, without a copy unless they need separate memory.
 */
#include <shardrt/models/layers.h>
#include "models/tape_impl.h"

static int64_t count_elements(const srt_node_t *node)
{
	return node->out->rows * node->out->n;
}

static srt_status_t forward_add(const srt_run_t *run, const srt_node_t *node)
{
	return srt_op_add(srt_run_value(run, node->out), srt_run_value(run, node->in[0]),
			  srt_run_value(run, node->in[1]), count_elements(node), run->stream);
}

static srt_status_t backward_add(const srt_run_t *run, const srt_node_t *node)
{
	srt_view_t dy = srt_run_grad_out(run, node), dx;
	int accumulate;

	for (int j = 0; j < 2; j++) {
		if (!srt_run_grad_in(run, node, j, &dx, &accumulate) ||
		    node->to[j].how == SRT_TO_SHARE)
			continue;
		SRT_TRY(srt_buffer_copy(dx.buffer, dx.offset, dy.buffer, dy.offset,
					(size_t)count_elements(node) *
						(srt_dtype_bits(dy.dtype) / 8),
					run->stream));
	}
	return SRT_OK;
}

static const srt_layer_t add_layer = {
	.name = "add",
	.by_row = 1,
	.passes_on = 1u << 0 | 1u << 1,
	.forward = forward_add,
	.backward = backward_add,
};

static srt_status_t forward_mul(const srt_run_t *run, const srt_node_t *node)
{
	return srt_op_mul(srt_run_value(run, node->out), srt_run_value(run, node->in[0]),
			  srt_run_value(run, node->in[1]), count_elements(node), run->stream);
}

/* The gradient of input 0 comes last: it may have the memory of the output's. */
static srt_status_t backward_mul(const srt_run_t *run, const srt_node_t *node)
{
	srt_view_t dy = srt_run_grad_out(run, node), dx;
	int accumulate;

	for (int j = 1; j >= 0; j--) {
		if (srt_run_grad_in(run, node, j, &dx, &accumulate))
			SRT_TRY(srt_op_mul(dx, dy, srt_run_value(run, node->in[1 - j]),
					   count_elements(node), run->stream));
	}
	return SRT_OK;
}

static const srt_layer_t mul_layer = {
	.name = "mul",
	.keeps_in = 1u << 0 | 1u << 1,
	.passes_on = 1u << 0,
	.forward = forward_mul,
	.backward = backward_mul,
};

static srt_tensor_t *record_binary(srt_tape_t *tape, const srt_layer_t *layer, srt_tensor_t *a,
				   srt_tensor_t *b)
{
	srt_node_desc_t desc = { .layer = layer };

	desc.in[0] = a = srt_tape_enter(tape, layer->name, a);
	desc.in[1] = b = srt_tape_enter(tape, layer->name, b);
	if (a == NULL || b == NULL || !srt_tape_same_dtype(tape, layer->name, a, b))
		return NULL;
	if (a->rows != b->rows || a->n != b->n) {
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
			      "%s: shapes differ, (%lld,%lld) and (%lld,%lld)", layer->name,
			      (long long)a->rows, (long long)a->n, (long long)b->rows,
			      (long long)b->n);
		return NULL;
	}
	desc.dtype = a->dtype;
	desc.rows = a->rows;
	desc.n = a->n;
	return srt_tape_record(tape, &desc);
}

srt_tensor_t *srt_layer_add(srt_tape_t *tape, srt_tensor_t *a, srt_tensor_t *b)
{
	return record_binary(tape, &add_layer, a, b);
}

srt_tensor_t *srt_layer_mul(srt_tape_t *tape, srt_tensor_t *a, srt_tensor_t *b)
{
	return record_binary(tape, &mul_layer, a, b);
}
