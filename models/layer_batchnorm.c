/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * y (rows,n) = (x - mean) * rstd * weight (n) + bias (n) by column: with the statistics of the
 * batch, which update the running ones, or with the running ones, which then are constants. mean
 * and rstd (n) are saved. Backward: dx by element, from averages over the rows; dweight and dbias
 * over the rows.
 */
#include <shardrt/models/layers.h>
#include "models/tape_impl.h"

/* Running statistics in 16 bits are computed with, and updated, in floats. */
static int are_cast(const srt_batchnorm_in_t *in)
{
	return in->running_mean.buffer != NULL && in->running_mean.dtype != SRT_F32;
}

static srt_batchnorm_t get_args(const srt_run_t *run, const srt_node_t *node)
{
	const srt_batchnorm_in_t *in = &node->args.batchnorm;
	const srt_tensor_t *x = node->in[0];
	srt_batchnorm_t args = SRT_BATCHNORM_INIT;

	args.rows = x->rows;
	args.n = x->n;
	args.eps = in->eps;
	args.momentum = in->momentum;
	args.x = srt_run_value(run, x);
	args.running_mean = in->running_mean;
	args.running_var = in->running_var;
	args.mean = srt_run_saved(run, node, 0);
	args.rstd = srt_run_saved(run, node, 1);
	return args;
}

/* Evaluation: mean (n) is where a mean in 16 bits goes as floats, for the backward pass too. */
static srt_status_t evaluate_batchnorm(const srt_run_t *run, const srt_node_t *node,
				       srt_batchnorm_t *args)
{
	const srt_batchnorm_in_t *in = &node->args.batchnorm;

	if (are_cast(in)) {
		args->running_mean = srt_run_saved(run, node, 0);
		args->running_var = srt_run_scratch(run, node, SRT_F32);
		SRT_TRY(srt_op_cast(args->running_mean, in->running_mean, args->n, run->stream));
		SRT_TRY(srt_op_cast(args->running_var, in->running_var, args->n, run->stream));
	}
	return srt_op_batchnorm_evaluation(args, run->stream);
}

static srt_status_t forward_batchnorm(const srt_run_t *run, const srt_node_t *node)
{
	const srt_batchnorm_in_t *in = &node->args.batchnorm;
	const int casts = are_cast(in) && !run->recomputes;
	srt_batchnorm_t args = get_args(run, node);
	srt_view_t *mean = &args.running_mean, *var = &args.running_var;

	SRT_TRY(srt_run_param(run, node, 0, &args.gamma));
	SRT_TRY(srt_run_param(run, node, 1, &args.beta));
	args.y = srt_run_value(run, node->out);
	if (in->use_running)
		return evaluate_batchnorm(run, node, &args);
	if (run->recomputes) {
		*mean = *var = (srt_view_t){ 0 }; /* they were updated in the forward pass */
	} else if (casts) {
		*mean = *var = srt_run_scratch(run, node, SRT_F32);
		var->offset += (size_t)args.n * sizeof(float);
		SRT_TRY(srt_op_cast(*mean, in->running_mean, args.n, run->stream));
		SRT_TRY(srt_op_cast(*var, in->running_var, args.n, run->stream));
	}
	SRT_TRY(srt_op_batchnorm(&args, run->stream));
	if (!casts)
		return SRT_OK;
	SRT_TRY(srt_op_cast(in->running_mean, *mean, args.n, run->stream));
	return srt_op_cast(in->running_var, *var, args.n, run->stream);
}

static srt_status_t backward_batchnorm(const srt_run_t *run, const srt_node_t *node)
{
	const srt_batchnorm_in_t *in = &node->args.batchnorm;
	srt_batchnorm_t args = get_args(run, node);
	int add_x;

	if (in->use_running && !are_cast(in))
		args.mean = in->running_mean;
	args.averages = srt_run_block(run, node->scratch_backward, SRT_F32);
	args.dy = srt_run_grad_out(run, node);
	/* The parameters first: dx may have the memory of dy. */
	SRT_TRY(srt_run_param_grad(run, node, 0, &args.dgamma, &args.accumulate_dgamma));
	SRT_TRY(srt_run_param_grad(run, node, 1, &args.dbeta, &args.accumulate_dbeta));
	if (args.dgamma.buffer != NULL || args.dbeta.buffer != NULL || args.averages.buffer != NULL)
		SRT_TRY(srt_op_batchnorm_backward_params(&args, run->stream));
	SRT_TRY(srt_run_param_ready(node, 0));
	SRT_TRY(srt_run_param_ready(node, 1));
	if (!srt_run_grad_in(run, node, 0, &args.dx, &add_x))
		return SRT_OK;
	SRT_TRY(srt_run_param(run, node, 0, &args.gamma));
	return srt_op_batchnorm_backward(&args, run->stream);
}

static const srt_layer_t batchnorm_layer = {
	.name = "batchnorm",
	.keeps_in = 1u << 0,
	.passes_on = 1u << 0,
	.forward = forward_batchnorm,
	.backward = backward_batchnorm,
};

static int holds_floats(const srt_view_t *view, srt_dtype_t dtype, int64_t n)
{
	return view->buffer != NULL && srt_is_float(dtype) && view->dtype == dtype &&
	       view->offset <= srt_buffer_nbytes(view->buffer) &&
	       (uint64_t)n <= (srt_buffer_nbytes(view->buffer) - view->offset) /
				      (srt_dtype_bits(dtype) / 8);
}

srt_tensor_t *srt_layer_batchnorm(srt_tape_t *tape, srt_tensor_t *x, srt_param_t *weight,
				  srt_param_t *bias, const srt_batchnorm_in_t *in)
{
	srt_node_desc_t desc = { .layer = &batchnorm_layer,
				 .param = { weight, bias },
				 .args = { .batchnorm = *in } };
	srt_batchnorm_in_t *args = &desc.args.batchnorm;
	const srt_dtype_t stats = in->running_mean.dtype;

	desc.in[0] = x = srt_tape_enter(tape, "batchnorm", x);
	if (x == NULL || !srt_tape_param_is(tape, "batchnorm", weight, 1, x->n, 0))
		return NULL;
	if (bias != NULL && !srt_tape_param_is(tape, "batchnorm", bias, 1, x->n, 0))
		return NULL;
	if (tape->mode == SRT_TAPE_FORWARD)
		args->use_running = 1;
	if ((args->use_running || in->running_mean.buffer != NULL ||
	     in->running_var.buffer != NULL) &&
	    (!holds_floats(&in->running_mean, stats, x->n) ||
	     !holds_floats(&in->running_var, stats, x->n))) {
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
			      "batchnorm: needs a running mean and variance of %lld floats each, "
			      "of one float dtype",
			      (long long)x->n);
		return NULL;
	}
	if (!args->use_running && x->rows < 2) {
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
			      "batchnorm: one row has no statistics to train with");
		return NULL;
	}
	desc.dtype = x->dtype;
	desc.rows = x->rows;
	desc.n = x->n;
	if (!args->use_running || are_cast(args))
		desc.saved_nbytes[0] = srt_tape_f32_nbytes(tape, x->n, 1);
	if (are_cast(args))
		desc.forward_scratch = srt_tape_f32_nbytes(tape, x->n, 2);
	desc.saved_nbytes[1] = srt_tape_f32_nbytes(tape, x->n, 1);
	desc.backward_scratch = args->use_running ? 0 : srt_tape_f32_nbytes(tape, x->n, 2);
	return srt_tape_record(tape, &desc);
}
