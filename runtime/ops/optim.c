/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Launchers of the optimizer steps of step.h: kernels/optim.k. Values computed from
 * hyper-parameters are part of the result, so they are computed in the floating-point environment
 * of the kernels.
 */
#include "base/fpenv.h"
#include "runtime/ops/ops.h"

/* The fields that are made from the betas. */
static void split_betas(srt_k_step_t *args, double beta1, double beta2)
{
	srt_fpenv_t env = srt_fpenv_enter();

	srt_kernel_split(beta1, &args->beta1_hi, &args->beta1_lo);
	srt_kernel_split(beta2, &args->beta2_hi, &args->beta2_lo);
	srt_fpenv_leave(env);
}

static void sgd_weights(srt_k_sgd_t *args, const srt_sgd_t *sgd)
{
	srt_fpenv_t env = srt_fpenv_enter();

	args->undampened = 1.0f - sgd->dampening;
	srt_fpenv_leave(env);
}

static void adam_weights(srt_k_adam_t *args, const srt_adam_t *adam)
{
	srt_fpenv_t env = srt_fpenv_enter();

	args->beta2 = (float)adam->beta2;
	args->weight1 = (float)(1.0 - adam->beta1);
	args->weight2 = (float)(1.0 - adam->beta2);
	srt_fpenv_leave(env);
}

srt_status_t srt_op_step_advance(const srt_step_advance_t *a, srt_stream_t *stream)
{
	srt_k_step_t args = { .nparams = a->nparams, .max_norm = a->max_norm };
	const srt_op_tensor_t tensors[] = {
		{ "state", a->state, sizeof(srt_k_step_state_t), SRT_OP_DTYPE_BYTES },
		{ "params", a->params, srt_op_size(a->nparams, sizeof(srt_k_param_state_t)),
		  SRT_OP_DTYPE_BYTES },
		{ "norm", a->norm, 1, SRT_OP_DTYPE_F32 },
	};

	SRT_NOT_NULL(stream);
	if (a->nparams > 0 && a->params.buffer == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_op_step_advance: params is absent, but nparams is %lld",
				(long long)a->nparams);
	split_betas(&args, a->beta1, a->beta2);
	return srt_op_launch(__func__, SRT_K_STEP_ADVANCE, false, &args, tensors, stream);
}

srt_status_t srt_op_clip(srt_view_t g, srt_view_t state, srt_view_t norm, float max_norm,
			 int64_t nelem, srt_stream_t *stream)
{
	const srt_k_elem_t args = { .nelem = nelem, .value = max_norm };
	const srt_op_tensor_t tensors[] = {
		{ "g", g, srt_op_size(nelem, 1), 0 },
		{ "state", state, sizeof(srt_k_step_state_t), SRT_OP_DTYPE_BYTES },
		{ "norm", norm, 1, SRT_OP_DTYPE_F32 },
	};

	return srt_op_launch(__func__, SRT_K_CLIP, false, &args, tensors, stream);
}

/* The dtypes of a step: all the same; or with a copy f32, but for the copy and perhaps the
 * gradients. */
typedef struct optim_types {
	bool is_master;
	int state, grad;
} optim_types_t;

static optim_types_t types_of(const srt_optim_args_t *args)
{
	optim_types_t t = { .is_master = args->copy.buffer != NULL };

	if (t.is_master) {
		t.state = SRT_OP_DTYPE_F32;
		t.grad = args->grad.dtype == SRT_F32 ? SRT_OP_DTYPE_F32 : SRT_OP_DTYPE_SAME;
	}
	return t;
}

srt_status_t srt_op_sgd(const srt_optim_args_t *args, const srt_sgd_t *sgd, srt_stream_t *stream)
{
	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(args);
	SRT_NOT_NULL(sgd);
	const optim_types_t t = types_of(args);
	srt_k_sgd_t kargs = {
		.nelem = args->nelem,
		.nsegments = args->nsegments,
		.momentum = sgd->momentum,
		.nesterov = sgd->nesterov != 0,
		.maximize = sgd->maximize != 0,
		.grad_is_f32 = t.grad == SRT_OP_DTYPE_F32,
	};
	const int64_t nelem = srt_op_size(args->nelem, 1);
	const srt_op_tensor_t tensors[] = {
		{ "param", args->param, nelem, t.state },
		{ "grad", args->grad, nelem, t.grad },
		{ "m", args->m, nelem, t.state },
		{ "state", args->state, sizeof(srt_k_step_state_t), SRT_OP_DTYPE_BYTES },
		{ "params", args->params, sizeof(srt_k_param_state_t), SRT_OP_DTYPE_BYTES },
		{ "segments", args->segments, srt_op_size(args->nsegments, sizeof(srt_k_segment_t)),
		  SRT_OP_DTYPE_BYTES },
		{ "groups", args->groups, sizeof(srt_k_group_t), SRT_OP_DTYPE_BYTES },
		{ "copy", args->copy, nelem, 0 },
	};

	if (sgd->momentum != 0 && args->m.buffer == NULL && nelem)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_op_sgd: momentum is %g, but its buffer m is absent",
				(double)sgd->momentum);
	if (args->nsegments == 0)
		return SRT_OK;
	sgd_weights(&kargs, sgd);
	return srt_op_launch(__func__, t.is_master ? SRT_K_SGD_MASTER : SRT_K_SGD, false, &kargs,
			     tensors, stream);
}

static srt_status_t adam8(const srt_optim_args_t *args, const srt_adam_t *adam,
			  srt_stream_t *stream)
{
	const bool param_is_f32 = args->param.dtype == SRT_F32;
	const bool grad_is_f32 = args->grad.dtype == SRT_F32;
	const int64_t nelem = srt_op_size(args->nelem, 1), some = nelem > 0;
	srt_k_adam_t kargs = {
		.nelem = args->nblocks,
		.nsegments = args->nsegments,
		.eps = adam->eps,
		.decoupled = adam->decoupled != 0,
		.maximize = adam->maximize != 0,
		.grad_is_f32 = grad_is_f32,
		.param_is_f32 = param_is_f32,
	};
	const srt_op_tensor_t tensors[] = {
		{ "param", args->param, nelem, param_is_f32 ? SRT_OP_DTYPE_F32 : 0 },
		{ "grad", args->grad, nelem, grad_is_f32 ? SRT_OP_DTYPE_F32 : SRT_OP_DTYPE_SAME },
		{ "m", args->m, some, SRT_OP_DTYPE_U8 },
		{ "v", args->v, some, SRT_OP_DTYPE_U8 },
		{ "absmax", args->vmax, some, SRT_OP_DTYPE_F32 },
		{ "state", args->state, sizeof(srt_k_step_state_t), SRT_OP_DTYPE_BYTES },
		{ "params", args->params, sizeof(srt_k_param_state_t), SRT_OP_DTYPE_BYTES },
		{ "segments", args->segments,
		  srt_op_size(args->nsegments, sizeof(srt_k_segment8_t)), SRT_OP_DTYPE_BYTES },
		{ "groups", args->groups, sizeof(srt_k_group_t), SRT_OP_DTYPE_BYTES },
		{ "copy", args->copy, nelem, 0 },
	};

	if (args->nsegments == 0)
		return SRT_OK;
	adam_weights(&kargs, adam);
	return srt_op_launch("srt_op_adam", SRT_K_ADAM8, false, &kargs, tensors, stream);
}

srt_status_t srt_op_adam(const srt_optim_args_t *args, const srt_adam_t *adam, srt_stream_t *stream)
{
	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(args);
	SRT_NOT_NULL(adam);
	if (adam->in_8_bits)
		return adam8(args, adam, stream);
	const optim_types_t t = types_of(args);
	srt_k_adam_t kargs = {
		.nelem = args->nelem,
		.nsegments = args->nsegments,
		.eps = adam->eps,
		.decoupled = adam->decoupled != 0,
		.maximize = adam->maximize != 0,
		.grad_is_f32 = t.grad == SRT_OP_DTYPE_F32,
	};
	const int64_t nelem = srt_op_size(args->nelem, 1);
	const srt_view_t absent = { 0 };
	const srt_op_tensor_t tensors[] = {
		{ "param", args->param, nelem, t.state },
		{ "grad", args->grad, nelem, t.grad },
		{ "m", args->m, nelem, t.state },
		{ "v", args->v, nelem, t.state },
		{ "state", args->state, sizeof(srt_k_step_state_t), SRT_OP_DTYPE_BYTES },
		{ "params", args->params, sizeof(srt_k_param_state_t), SRT_OP_DTYPE_BYTES },
		{ "segments", args->segments, srt_op_size(args->nsegments, sizeof(srt_k_segment_t)),
		  SRT_OP_DTYPE_BYTES },
		{ "groups", args->groups, sizeof(srt_k_group_t), SRT_OP_DTYPE_BYTES },
		{ "vmax", adam->amsgrad ? args->vmax : absent, nelem, t.state },
		{ "copy", args->copy, nelem, 0 },
	};

	if (adam->amsgrad && args->vmax.buffer == NULL && nelem)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_op_adam: amsgrad is set, but its buffer vmax is absent");
	if (args->nsegments == 0)
		return SRT_OK;
	adam_weights(&kargs, adam);
	return srt_op_launch(__func__, t.is_master ? SRT_K_ADAM_MASTER : SRT_K_ADAM, false, &kargs,
			     tensors, stream);
}

/* ---- Muon -------------------------------------------------------------------------------- */

static srt_k_muon_t muon_args(const srt_optim_args_t *args, const srt_muon_t *muon)
{
	const srt_fpenv_t env = srt_fpenv_enter();
	const srt_k_muon_t k = {
		.nelem = args->nelem,
		.nsegments = args->nsegments,
		.momentum = (float)muon->momentum,
		.weight = (float)(1.0 - muon->momentum),
		.ratio = muon->ratio,
		.nesterov = muon->nesterov != 0,
	};

	srt_fpenv_leave(env);
	return k;
}

/* The last four places of both kernels. */
static void list_tables(const srt_optim_args_t *args, srt_op_tensor_t tensors[4])
{
	const int64_t segments = srt_op_size(args->nsegments, sizeof(srt_k_segment_t));

	tensors[0] = (srt_op_tensor_t){ "state", args->state, sizeof(srt_k_step_state_t),
					SRT_OP_DTYPE_BYTES };
	tensors[1] = (srt_op_tensor_t){ "params", args->params, sizeof(srt_k_param_state_t),
					SRT_OP_DTYPE_BYTES };
	tensors[2] = (srt_op_tensor_t){ "segments", args->segments, segments, SRT_OP_DTYPE_BYTES };
	tensors[3] = (srt_op_tensor_t){ "groups", args->groups, sizeof(srt_k_group_t),
					SRT_OP_DTYPE_BYTES };
}

srt_status_t srt_op_muon_update(const srt_optim_args_t *args, const srt_muon_t *muon,
				srt_stream_t *stream)
{
	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(args);
	SRT_NOT_NULL(muon);
	const srt_k_muon_t kargs = muon_args(args, muon);
	const int64_t nelem = srt_op_size(args->nelem, 1);
	srt_op_tensor_t tensors[7] = {
		{ "update", args->update, nelem, 0 },
		{ "grad", args->grad, nelem, SRT_OP_DTYPE_F32 },
		{ "m", args->m, nelem, SRT_OP_DTYPE_F32 },
	};

	if (args->nsegments == 0)
		return SRT_OK;
	list_tables(args, tensors + 3);
	return srt_op_launch(__func__, SRT_K_MUON_UPDATE, false, &kargs, tensors, stream);
}

srt_status_t srt_op_muon_step(const srt_optim_args_t *args, const srt_muon_t *muon,
			      srt_stream_t *stream)
{
	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(args);
	SRT_NOT_NULL(muon);
	const srt_k_muon_t kargs = muon_args(args, muon);
	const int64_t nelem = srt_op_size(args->nelem, 1);
	srt_op_tensor_t tensors[6] = {
		{ "param", args->param, nelem, SRT_OP_DTYPE_F32 },
		{ "update", args->update, nelem, 0 },
	};

	if (args->nsegments == 0)
		return SRT_OK;
	list_tables(args, tensors + 2);
	return srt_op_launch(__func__, SRT_K_MUON_STEP, false, &kargs, tensors, stream);
}

srt_status_t srt_op_muon_scale(srt_view_t y, srt_view_t x, srt_view_t norm, float eps,
			       int64_t nelem, srt_stream_t *stream)
{
	const srt_k_elem_t args = { .nelem = nelem, .value = eps };
	const srt_op_tensor_t tensors[] = {
		{ "y", y, srt_op_size(nelem, 1), SRT_OP_DTYPE_F32 },
		{ "x", x, srt_op_size(nelem, 1), 0 },
		{ "norm", norm, 1, SRT_OP_DTYPE_F32 },
	};

	return srt_op_launch(__func__, SRT_K_MUON_SCALE, false, &args, tensors, stream);
}

srt_status_t srt_op_muon_combine(srt_view_t y, srt_view_t s, float value, int64_t nelem,
				 srt_stream_t *stream)
{
	const srt_k_elem_t args = { .nelem = nelem, .value = value };
	const srt_op_tensor_t tensors[] = {
		{ "y", y, srt_op_size(nelem, 1), SRT_OP_DTYPE_F32 },
		{ "s", s, srt_op_size(nelem, 1), SRT_OP_DTYPE_F32 },
	};

	return srt_op_launch(__func__, SRT_K_MUON_COMBINE, false, &args, tensors, stream);
}
