/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * y = act(gate) * up, in one pass; backward makes both gradients in one pass from both inputs. The
 * gradient of an input that takes none goes to scratch.
 */
#include <shardrt/models/layers.h>
#include "models/tape_impl.h"

enum { GATE, UP };

static srt_gated_t get_args(const srt_run_t *run, const srt_node_t *node)
{
	srt_gated_t args = SRT_GATED_INIT;

	args.act = node->args.act;
	args.rows = node->out->rows;
	args.n = node->out->n;
	args.g = srt_run_value(run, node->in[GATE]);
	args.u = srt_run_value(run, node->in[UP]);
	return args;
}

static srt_status_t forward_glu(const srt_run_t *run, const srt_node_t *node)
{
	srt_gated_t args = get_args(run, node);

	args.y = srt_run_value(run, node->out);
	return srt_op_glu(&args, run->stream);
}

static srt_status_t backward_glu(const srt_run_t *run, const srt_node_t *node)
{
	const srt_view_t scratch = srt_run_block(run, node->scratch_backward, node->out->dtype);
	srt_gated_t args = get_args(run, node);

	args.dy = srt_run_grad_out(run, node);
	if (!srt_run_grad_in(run, node, GATE, &args.dg, &args.accumulate_dg))
		args.dg = scratch;
	if (!srt_run_grad_in(run, node, UP, &args.du, &args.accumulate_du))
		args.du = scratch;
	return srt_op_glu_backward(&args, run->stream);
}

static const srt_layer_t glu_layer = {
	.name = "glu",
	.keeps_in = 1u << GATE | 1u << UP,
	.adds = 1,
	.passes_on = 1u << GATE,
	.forward = forward_glu,
	.backward = backward_glu,
};

srt_tensor_t *srt_layer_glu(srt_tape_t *tape, srt_tensor_t *gate, srt_tensor_t *up, srt_glu_t act)
{
	srt_node_desc_t desc = { .layer = &glu_layer, .args = { .act = act } };

	desc.in[GATE] = gate = srt_tape_enter(tape, glu_layer.name, gate);
	desc.in[UP] = up = srt_tape_enter(tape, glu_layer.name, up);
	if (gate == NULL || up == NULL || !srt_tape_same_dtype(tape, glu_layer.name, gate, up))
		return NULL;
	if (gate->rows != up->rows || gate->n != up->n) {
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
			      "glu: shapes differ, gate (%lld,%lld) and up (%lld,%lld)",
			      (long long)gate->rows, (long long)gate->n, (long long)up->rows,
			      (long long)up->n);
		return NULL;
	}
	desc.dtype = gate->dtype;
	desc.rows = gate->rows;
	desc.n = gate->n;
	if (gate->needs_grad != up->needs_grad)
		desc.backward_scratch = srt_tape_f32_nbytes(tape, desc.rows, desc.n) /
					sizeof(float) * (srt_dtype_bits(desc.dtype) / 8);
	return srt_tape_record(tape, &desc);
}
