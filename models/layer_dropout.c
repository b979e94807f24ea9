/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * y (rows,n) = x with some elements set to 0 and the others scaled up; on a training tape only.
 * Nothing is saved: the backward pass computes the same mask again, in place if the plan allows it.
 */
#include "models/hash.h"
#include <shardrt/models/layers.h>
#include "models/tape_impl.h"

/* Applies the mask. Its seed is of the step, its counter of the layer and the global element. */
static srt_status_t apply_mask(const srt_run_t *run, const srt_node_t *node, srt_view_t to,
			       srt_view_t from)
{
	const srt_dropout_at_t *at = node->args.dropout_at;
	const srt_tensor_t *y = node->out;
	uint64_t seed = srt_counter_hash(at->seed, (uint64_t)at->step, 0);

	return srt_op_dropout(&(srt_dropout_t){ .size = sizeof(srt_dropout_t),
						.y = to,
						.x = from,
						.seed = seed,
						.name = node->args.dropout_name,
						.first = at->first_row * y->n,
						.nelem = y->rows * y->n,
						.rate = node->args.dropout_rate },
			      run->stream);
}

static srt_status_t forward_dropout(const srt_run_t *run, const srt_node_t *node)
{
	return apply_mask(run, node, srt_run_value(run, node->out),
			  srt_run_value(run, node->in[0]));
}

static srt_status_t backward_dropout(const srt_run_t *run, const srt_node_t *node)
{
	srt_view_t dx;
	int accumulate;

	srt_run_grad_in(run, node, 0, &dx, &accumulate);
	return apply_mask(run, node, dx, srt_run_grad_out(run, node));
}

static const srt_layer_t dropout_layer = {
	.name = "dropout",
	.passes_on = 1u << 0,
	.forward = forward_dropout,
	.backward = backward_dropout,
};

srt_tensor_t *srt_layer_dropout(srt_tape_t *tape, srt_tensor_t *x, const char *name, float rate,
				const srt_dropout_at_t *at)
{
	srt_node_desc_t desc = {
		.layer = &dropout_layer,
		.args = { .dropout_at = at, .dropout_name = name, .dropout_rate = rate }
	};

	desc.in[0] = x = srt_tape_enter(tape, "dropout", x);
	if (x == NULL)
		return NULL;
	if (!(rate >= 0.0f && rate <= 1.0f)) {
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
			      "dropout: the rate %g is not from 0 to 1", (double)rate);
		return NULL;
	}
	if (tape->mode == SRT_TAPE_FORWARD)
		return x;
	desc.dtype = x->dtype;
	desc.rows = x->rows;
	desc.n = x->n;
	return srt_tape_record(tape, &desc);
}
