/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * y (rows,n) = (x - mean) * rstd * weight (n) + bias (n) by row; mean, rstd (rows) are saved.
 * Backward: dx by row; dweight and dbias over the rows, also those of other ranks (layer_rows.c).
 */
#include <shardrt/models/layers.h>
#include "models/tape_impl.h"

static srt_layernorm_t get_args(const srt_run_t *run, const srt_node_t *node)
{
	const srt_tensor_t *x = node->in[0];
	srt_layernorm_t args = SRT_LAYERNORM_INIT;

	args.rows = x->rows;
	args.n = x->n;
	args.eps = node->args.eps;
	args.x = srt_run_value(run, x);
	args.mean = srt_run_saved(run, node, 0);
	args.rstd = srt_run_saved(run, node, 1);
	return args;
}

static srt_status_t forward_layernorm(const srt_run_t *run, const srt_node_t *node)
{
	srt_layernorm_t args = get_args(run, node);

	SRT_TRY(srt_run_param(run, node, 0, &args.gamma));
	SRT_TRY(srt_run_param(run, node, 1, &args.beta));
	args.y = srt_run_value(run, node->out);
	return srt_op_layernorm(&args, run->stream);
}

/* dgamma and dbeta of this rank's rows, added over the ranks. */
static srt_status_t backward_own_rows(const srt_run_t *run, const srt_node_t *node,
				      const srt_layernorm_t *args)
{
	const int nvectors = 1 + (node->param[1] != NULL);
	const srt_view_t grads[] = { args->dgamma, args->dbeta };
	const int accumulate[] = { args->accumulate_dgamma, args->accumulate_dbeta };
	srt_layernorm_t own = *args;

	own.dgamma = srt_run_block(run, node->scratch_backward, SRT_F32);
	own.dbeta = srt_view(NULL, 0, SRT_F32);
	if (nvectors > 1) {
		own.dbeta = own.dgamma;
		own.dbeta.offset += (size_t)own.n * sizeof(float);
	}
	own.accumulate_dgamma = own.accumulate_dbeta = 0;
	SRT_TRY(srt_run_widen_rows(run, node, nvectors, &own.x, &own.dy));
	SRT_TRY(srt_op_layernorm_backward_params(&own, run->stream));
	return srt_run_add_row_params(run, node, nvectors, grads, accumulate);
}

static srt_status_t backward_layernorm(const srt_run_t *run, const srt_node_t *node)
{
	srt_layernorm_t args = get_args(run, node);

	args.dy = srt_run_grad_out(run, node);
	/* The parameters first: dx may be added where nothing else reads, never over dy. */
	SRT_TRY(srt_run_param_grad(run, node, 0, &args.dgamma, &args.accumulate_dgamma));
	SRT_TRY(srt_run_param_grad(run, node, 1, &args.dbeta, &args.accumulate_dbeta));
	if (args.dgamma.buffer != NULL || args.dbeta.buffer != NULL)
		SRT_TRY(node->layer->sums == SRT_SUM_PARAM ?
				backward_own_rows(run, node, &args) :
				srt_op_layernorm_backward_params(&args, run->stream));
	SRT_TRY(srt_run_param_ready(node, 0));
	SRT_TRY(srt_run_param_ready(node, 1));
	if (!srt_run_grad_in(run, node, 0, &args.dx, &args.accumulate_dx))
		return SRT_OK;
	SRT_TRY(srt_run_param(run, node, 0, &args.gamma));
	return srt_op_layernorm_backward(&args, run->stream);
}

static const srt_layer_t layernorm_layer = {
	.name = "layernorm",
	.keeps_in = 1u << 0,
	.adds = 1,
	.forward = forward_layernorm,
	.backward = backward_layernorm,
};

static const srt_layer_t own_rows_layer = {
	.name = "layernorm_rows",
	.keeps_in = 1u << 0,
	.adds = 1,
	.by_row = 1,
	.sums = SRT_SUM_PARAM,
	.forward = forward_layernorm,
	.backward = backward_layernorm,
};

srt_tensor_t *srt_layer_layernorm(srt_tape_t *tape, srt_tensor_t *x, srt_param_t *weight,
				  srt_param_t *bias, float eps)
{
	srt_node_desc_t desc = { .layer = &layernorm_layer,
				 .param = { weight, bias },
				 .args = { .eps = eps } };

	desc.in[0] = x = srt_tape_enter(tape, "layernorm", x);
	if (x == NULL || !srt_tape_param_is(tape, "layernorm", weight, 1, x->n, 0))
		return NULL;
	if (bias != NULL && !srt_tape_param_is(tape, "layernorm", bias, 1, x->n, 0))
		return NULL;
	desc.dtype = x->dtype;
	desc.rows = x->rows;
	desc.n = x->n;
	if (x->has_own_rows) {
		desc.layer = &own_rows_layer;
		desc.args.norm_n = x->n;
		if (srt_param_requires_grad(weight) ||
		    (bias != NULL && srt_param_requires_grad(bias)))
			desc.backward_scratch =
				srt_tape_row_params_nbytes(tape, x, 1 + (bias != NULL));
	}
	desc.saved_nbytes[0] = desc.saved_nbytes[1] = srt_tape_f32_nbytes(tape, x->rows, 1);
	return srt_tape_record(tape, &desc);
}
