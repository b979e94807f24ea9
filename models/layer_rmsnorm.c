/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * y (rows,n) = x / sqrt(mean(x^2) + eps) * weight (n) by row; rstd (rows) is saved.
 * Backward: dx by row; dweight over the rows.
 */
#include <shardrt/models/layers.h>
#include "models/tape_impl.h"

static srt_rmsnorm_t get_args(const srt_run_t *run, const srt_node_t *node)
{
	const srt_tensor_t *x = node->in[0];
	srt_rmsnorm_t args = SRT_RMSNORM_INIT;

	args.rows = x->rows;
	args.n = x->n;
	args.eps = node->args.eps;
	args.x = srt_run_value(run, x);
	args.rstd = srt_run_saved(run, node, 0);
	return args;
}

static srt_status_t forward_rmsnorm(const srt_run_t *run, const srt_node_t *node)
{
	srt_rmsnorm_t args = get_args(run, node);

	SRT_TRY(srt_run_param(run, node, 0, &args.gamma));
	args.y = srt_run_value(run, node->out);
	return srt_op_rmsnorm(&args, run->stream);
}

static srt_status_t backward_rmsnorm(const srt_run_t *run, const srt_node_t *node)
{
	srt_rmsnorm_t args = get_args(run, node);

	args.dy = srt_run_grad_out(run, node);
	SRT_TRY(srt_run_param_grad(run, node, 0, &args.dgamma, &args.accumulate_dgamma));
	if (args.dgamma.buffer != NULL) {
		SRT_TRY(srt_op_rmsnorm_backward_params(&args, run->stream));
		SRT_TRY(srt_run_param_ready(node, 0));
	}
	if (!srt_run_grad_in(run, node, 0, &args.dx, &args.accumulate_dx))
		return SRT_OK;
	SRT_TRY(srt_run_param(run, node, 0, &args.gamma));
	return srt_op_rmsnorm_backward(&args, run->stream);
}

static const srt_layer_t rmsnorm_layer = {
	.name = "rmsnorm",
	.keeps_in = 1u << 0,
	.adds = 1,
	.forward = forward_rmsnorm,
	.backward = backward_rmsnorm,
};

srt_tensor_t *srt_layer_rmsnorm(srt_tape_t *tape, srt_tensor_t *x, srt_param_t *weight, float eps)
{
	srt_node_desc_t desc = { .layer = &rmsnorm_layer,
				 .param = { weight },
				 .args = { .eps = eps } };

	desc.in[0] = x = srt_tape_enter(tape, "rmsnorm", x);
	if (x == NULL || !srt_tape_param_is(tape, "rmsnorm", weight, 1, x->n, 0))
		return NULL;
	desc.dtype = x->dtype;
	desc.rows = x->rows;
	desc.n = x->n;
	desc.saved_nbytes[0] = srt_tape_f32_nbytes(tape, x->rows, 1);
	return srt_tape_record(tape, &desc);
}
