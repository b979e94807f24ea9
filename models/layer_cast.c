/* SPDX-License-Identifier: BSD-3-Clause */
/* y = x in another float dtype, one rounding; backward: dx = dy in the dtype of x, one rounding. */
#include <shardrt/models/layers.h>
#include "models/tape_impl.h"

static srt_status_t forward_cast(const srt_run_t *run, const srt_node_t *node)
{
	return srt_op_cast(srt_run_value(run, node->out), srt_run_value(run, node->in[0]),
			   node->out->rows * node->out->n, run->stream);
}

static srt_status_t backward_cast(const srt_run_t *run, const srt_node_t *node)
{
	srt_view_t dx;
	int accumulate;

	srt_run_grad_in(run, node, 0, &dx, &accumulate);
	return srt_op_cast(dx, srt_run_grad_out(run, node), node->out->rows * node->out->n,
			   run->stream);
}

static const srt_layer_t cast_layer = {
	.name = "cast",
	.by_row = 1,
	.forward = forward_cast,
	.backward = backward_cast,
};

srt_tensor_t *srt_layer_cast(srt_tape_t *tape, srt_tensor_t *x, srt_dtype_t dtype)
{
	srt_node_desc_t desc = { .layer = &cast_layer, .in = { x }, .dtype = dtype };

	if (!srt_tape_usable(tape, x))
		return NULL;
	if (!srt_is_float(x->dtype) || !srt_is_float(dtype)) {
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
			      "cast from %s to %s: both must be f32, f16 or bf16",
			      srt_dtype_name(x->dtype), srt_dtype_name(dtype));
		return NULL;
	}
	if (x->dtype == dtype)
		return x;
	desc.rows = x->rows;
	desc.n = x->n;
	return srt_tape_record(tape, &desc);
}
