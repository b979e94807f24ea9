/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * y = x / sqrt(mean(x^2) + eps) * weight (n) for each run of n values of a row; rstd of each is
 * saved. Runs are rows to the operations. Backward: dx by run; dweight over the runs. Where the
 * runs are cut over tensor-parallel ranks, dweight of this rank's runs is made apart, summed over
 * the ranks, and then stored or added like that of a whole layer.
 */
#include <shardrt/models/layers.h>
#include "models/tape_impl.h"

static srt_rmsnorm_t get_args(const srt_run_t *run, const srt_node_t *node)
{
	const srt_tensor_t *x = node->in[0];
	srt_rmsnorm_t args = SRT_RMSNORM_INIT;

	args.n = node->args.norm_n;
	args.rows = x->rows * (x->n / args.n);
	args.one_plus = node->args.one_plus;
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

/* The weight's gradient from that of the runs of all ranks. */
static srt_status_t backward_cut_weight(const srt_run_t *run, const srt_node_t *node,
					srt_rmsnorm_t *args)
{
	const srt_view_t sum = args->dgamma;
	const int accumulate = args->accumulate_dgamma;

	args->dgamma = srt_run_block(run, node->scratch_backward, sum.dtype);
	args->accumulate_dgamma = 0;
	SRT_TRY(srt_op_rmsnorm_backward_params(args, run->stream));
	SRT_TRY(srt_run_sum_param(run, node));
	return accumulate ? srt_op_add(sum, sum, args->dgamma, args->n, run->stream) :
			    srt_op_cast(sum, args->dgamma, args->n, run->stream);
}

static srt_status_t backward_rmsnorm(const srt_run_t *run, const srt_node_t *node)
{
	const int is_cut = node->layer->sums == SRT_SUM_PARAM;
	srt_rmsnorm_t args = get_args(run, node);

	args.dy = srt_run_grad_out(run, node);
	SRT_TRY(srt_run_param_grad(run, node, 0, &args.dgamma, &args.accumulate_dgamma));
	if (args.dgamma.buffer != NULL) {
		SRT_TRY(is_cut ? backward_cut_weight(run, node, &args) :
				 srt_op_rmsnorm_backward_params(&args, run->stream));
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

static const srt_layer_t colwise_layer = {
	.name = "rmsnorm_colwise",
	.keeps_in = 1u << 0,
	.adds = 1,
	.sums = SRT_SUM_PARAM,
	.forward = forward_rmsnorm,
	.backward = backward_rmsnorm,
};

static srt_tensor_t *record_rmsnorm(srt_tape_t *tape, const srt_layer_t *layer, srt_tensor_t *x,
				    srt_param_t *weight, const srt_rmsnorm_in_t *in)
{
	srt_node_desc_t desc = { .layer = layer,
				 .param = { weight },
				 .args = { .eps = in->eps, .one_plus = in->one_plus } };
	int64_t shape[SRT_MAX_DIMS];

	desc.in[0] = x = srt_tape_enter(tape, layer->name, x);
	if (x == NULL || !srt_tape_param_is(tape, layer->name, weight, 1, -1, 0))
		return NULL;
	srt_param_partition(weight, shape);
	if (shape[0] < 1 || x->n % shape[0] != 0) {
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
			      "%s: rows of %lld values are not runs of %lld, the length of %s",
			      layer->name, (long long)x->n, (long long)shape[0],
			      srt_param_name(weight));
		return NULL;
	}
	desc.args.norm_n = shape[0];
	desc.dtype = x->dtype;
	desc.rows = x->rows;
	desc.n = x->n;
	desc.saved_nbytes[0] = srt_tape_f32_nbytes(tape, x->rows, x->n / shape[0]);
	if (layer->sums == SRT_SUM_PARAM && srt_param_requires_grad(weight))
		desc.backward_scratch = srt_tape_f32_nbytes(tape, 1, shape[0]);
	return srt_tape_record(tape, &desc);
}

srt_tensor_t *srt_layer_rmsnorm_of(srt_tape_t *tape, srt_tensor_t *x, srt_param_t *weight,
				   const srt_rmsnorm_in_t *in)
{
	return record_rmsnorm(tape, &rmsnorm_layer, x, weight, in);
}

srt_tensor_t *srt_layer_rmsnorm_colwise(srt_tape_t *tape, srt_tensor_t *x, srt_param_t *weight,
					const srt_rmsnorm_in_t *in)
{
	return record_rmsnorm(tape, tape->nranks > 1 ? &colwise_layer : &rmsnorm_layer, x, weight,
			      in);
}

srt_tensor_t *srt_layer_rmsnorm(srt_tape_t *tape, srt_tensor_t *x, srt_param_t *weight, float eps)
{
	const srt_rmsnorm_in_t in = { .eps = eps };

	if (!srt_tape_usable(tape, x) || !srt_tape_param_is(tape, "rmsnorm", weight, 1, x->n, 0))
		return NULL;
	return srt_layer_rmsnorm_of(tape, x, weight, &in);
}
