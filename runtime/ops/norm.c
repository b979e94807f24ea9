/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Launchers of LayerNorm, RMSNorm and BatchNorm of <shardrt/ops.h>: kernels/layernorm.k, rmsnorm.k,
 * batchnorm.k.
 */
#include "runtime/ops/ops.h"

/* ---- LayerNorm -------------------------------------------------------------------------- */

srt_status_t srt_op_layernorm(const srt_layernorm_t *args, srt_stream_t *stream)
{
	srt_layernorm_t a = SRT_LAYERNORM_INIT;

	SRT_OP_READ(srt_layernorm_t, a, args, stream);
	SRT_TRY(srt_op_check_width(__func__, a.rows, a.n));
	const srt_k_rows_t kernel = { .rows = a.rows, .n = a.n, .value = a.eps };
	const srt_op_tensor_t tensors[] = {
		{ "y", a.y, srt_op_size(a.rows, a.n), 0 },
		{ "mean", a.mean, srt_op_size(a.rows, 1), SRT_OP_DTYPE_F32 },
		{ "rstd", a.rstd, srt_op_size(a.rows, 1), SRT_OP_DTYPE_F32 },
		{ "x", a.x, srt_op_size(a.rows, a.n), 0 },
		{ "gamma", a.gamma, srt_op_size(a.n, 1), 0 },
		{ "beta", a.beta, srt_op_size(a.n, 1), 0 },
	};

	return srt_op_launch(__func__, SRT_K_LAYERNORM, false, &kernel, tensors, stream);
}

srt_status_t srt_op_layernorm_backward(const srt_layernorm_t *args, srt_stream_t *stream)
{
	srt_layernorm_t a = SRT_LAYERNORM_INIT;

	SRT_OP_READ(srt_layernorm_t, a, args, stream);
	const srt_k_rows_t kernel = { .rows = a.rows,
				      .n = a.n,
				      .accumulate = a.accumulate_dx != 0 };
	const srt_op_tensor_t tensors[] = {
		{ "dx", a.dx, srt_op_size(a.rows, a.n), 0 },
		{ "dy", a.dy, srt_op_size(a.rows, a.n), 0 },
		{ "x", a.x, srt_op_size(a.rows, a.n), 0 },
		{ "mean", a.mean, srt_op_size(a.rows, 1), SRT_OP_DTYPE_F32 },
		{ "rstd", a.rstd, srt_op_size(a.rows, 1), SRT_OP_DTYPE_F32 },
		{ "gamma", a.gamma, srt_op_size(a.n, 1), 0 },
	};

	return srt_op_launch(__func__, SRT_K_LAYERNORM_BACKWARD, false, &kernel, tensors, stream);
}

srt_status_t srt_op_layernorm_backward_params(const srt_layernorm_t *args, srt_stream_t *stream)
{
	srt_layernorm_t a = SRT_LAYERNORM_INIT;

	SRT_OP_READ(srt_layernorm_t, a, args, stream);
	const srt_k_rows_t kernel = { .rows = a.rows,
				      .n = a.n,
				      .accumulate = a.accumulate_dgamma != 0,
				      .accumulate2 = a.accumulate_dbeta != 0 };
	const srt_op_tensor_t tensors[] = {
		{ "dgamma", a.dgamma, srt_op_size(a.n, 1), 0 },
		{ "dbeta", a.dbeta, srt_op_size(a.n, 1), 0 },
		{ "dy", a.dy, srt_op_size(a.rows, a.n), 0 },
		{ "x", a.x, srt_op_size(a.rows, a.n), 0 },
		{ "mean", a.mean, srt_op_size(a.rows, 1), SRT_OP_DTYPE_F32 },
		{ "rstd", a.rstd, srt_op_size(a.rows, 1), SRT_OP_DTYPE_F32 },
	};

	return srt_op_launch(__func__, SRT_K_LAYERNORM_BACKWARD_PARAMS, false, &kernel, tensors,
			     stream);
}

/* ---- RMSNorm ---------------------------------------------------------------------------- */

srt_status_t srt_op_rmsnorm(const srt_rmsnorm_t *args, srt_stream_t *stream)
{
	srt_rmsnorm_t a = SRT_RMSNORM_INIT;

	SRT_OP_READ(srt_rmsnorm_t, a, args, stream);
	SRT_TRY(srt_op_check_width(__func__, a.rows, a.n));
	const srt_k_rows_t kernel = {
		.rows = a.rows, .n = a.n, .value = a.eps, .one_plus = a.one_plus != 0
	};
	const srt_op_tensor_t tensors[] = {
		{ "y", a.y, srt_op_size(a.rows, a.n), 0 },
		{ "rstd", a.rstd, srt_op_size(a.rows, 1), SRT_OP_DTYPE_F32 },
		{ "x", a.x, srt_op_size(a.rows, a.n), 0 },
		{ "gamma", a.gamma, srt_op_size(a.n, 1), 0 },
	};

	return srt_op_launch(__func__, SRT_K_RMSNORM, false, &kernel, tensors, stream);
}

srt_status_t srt_op_rmsnorm_backward(const srt_rmsnorm_t *args, srt_stream_t *stream)
{
	srt_rmsnorm_t a = SRT_RMSNORM_INIT;

	SRT_OP_READ(srt_rmsnorm_t, a, args, stream);
	const srt_k_rows_t kernel = { .rows = a.rows,
				      .n = a.n,
				      .accumulate = a.accumulate_dx != 0,
				      .one_plus = a.one_plus != 0 };
	const srt_op_tensor_t tensors[] = {
		{ "dx", a.dx, srt_op_size(a.rows, a.n), 0 },
		{ "dy", a.dy, srt_op_size(a.rows, a.n), 0 },
		{ "x", a.x, srt_op_size(a.rows, a.n), 0 },
		{ "rstd", a.rstd, srt_op_size(a.rows, 1), SRT_OP_DTYPE_F32 },
		{ "gamma", a.gamma, srt_op_size(a.n, 1), 0 },
	};

	return srt_op_launch(__func__, SRT_K_RMSNORM_BACKWARD, false, &kernel, tensors, stream);
}

srt_status_t srt_op_rmsnorm_backward_params(const srt_rmsnorm_t *args, srt_stream_t *stream)
{
	srt_rmsnorm_t a = SRT_RMSNORM_INIT;

	SRT_OP_READ(srt_rmsnorm_t, a, args, stream);
	const srt_k_rows_t kernel = { .rows = a.rows,
				      .n = a.n,
				      .accumulate = a.accumulate_dgamma != 0 };
	const srt_op_tensor_t tensors[] = {
		{ "dgamma", a.dgamma, srt_op_size(a.n, 1), 0 },
		{ "dy", a.dy, srt_op_size(a.rows, a.n), 0 },
		{ "x", a.x, srt_op_size(a.rows, a.n), 0 },
		{ "rstd", a.rstd, srt_op_size(a.rows, 1), SRT_OP_DTYPE_F32 },
	};

	return srt_op_launch(__func__, SRT_K_RMSNORM_BACKWARD_PARAMS, false, &kernel, tensors,
			     stream);
}

/* ---- BatchNorm -------------------------------------------------------------------------- */

/* y from mean and rstd. */
static srt_status_t launch_normalize(const char *name, const srt_batchnorm_t *a, srt_view_t mean,
				     bool only_check, srt_stream_t *stream)
{
	const srt_k_rows_t kernel = { .rows = a->rows, .n = a->n };
	const srt_op_tensor_t tensors[] = {
		{ "y", a->y, srt_op_size(a->rows, a->n), 0 },
		{ "x", a->x, srt_op_size(a->rows, a->n), 0 },
		{ "mean", mean, srt_op_size(a->n, 1), SRT_OP_DTYPE_F32 },
		{ "rstd", a->rstd, srt_op_size(a->n, 1), SRT_OP_DTYPE_F32 },
		{ "gamma", a->gamma, srt_op_size(a->n, 1), 0 },
		{ "beta", a->beta, srt_op_size(a->n, 1), 0 },
	};
	const srt_op_call_t call = { name, stream, SRT_K_BATCHNORM, false, &kernel };
	srt_dtype_t dtype;

	SRT_TRY(srt_op_check(&call, tensors, &dtype));
	return only_check ? SRT_OK : srt_op_put(&call, SRT_COMMAND_KERNEL, tensors, 6, dtype);
}

srt_status_t srt_op_batchnorm(const srt_batchnorm_t *args, srt_stream_t *stream)
{
	srt_batchnorm_t a = SRT_BATCHNORM_INIT;

	SRT_OP_READ(srt_batchnorm_t, a, args, stream);
	const srt_k_batchnorm_t kernel = {
		.rows = a.rows, .n = a.n, .eps = a.eps, .momentum = a.momentum
	};
	const srt_op_tensor_t tensors[] = {
		{ "mean", a.mean, srt_op_size(a.n, 1), SRT_OP_DTYPE_F32 },
		{ "rstd", a.rstd, srt_op_size(a.n, 1), SRT_OP_DTYPE_F32 },
		{ "running_mean", a.running_mean, srt_op_size(a.n, 1), SRT_OP_DTYPE_F32 },
		{ "running_var", a.running_var, srt_op_size(a.n, 1), SRT_OP_DTYPE_F32 },
		{ "x", a.x, srt_op_size(a.rows, a.n), 0 },
	};

	if (a.rows < 2 && a.n != 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: rows is %lld; a batch must have at least 2 for its variance",
				__func__, (long long)a.rows);
	/* A refused call queues nothing: the second launch is checked before the first. */
	SRT_TRY(launch_normalize(__func__, &a, a.mean, true, stream));
	SRT_TRY(srt_op_launch(__func__, SRT_K_BATCHNORM_STATS, false, &kernel, tensors, stream));
	return launch_normalize(__func__, &a, a.mean, false, stream);
}

srt_status_t srt_op_batchnorm_evaluation(const srt_batchnorm_t *args, srt_stream_t *stream)
{
	srt_batchnorm_t a = SRT_BATCHNORM_INIT;

	SRT_OP_READ(srt_batchnorm_t, a, args, stream);
	const srt_k_elem_t kernel = { .nelem = a.n, .value = a.eps };
	const srt_op_tensor_t tensors[] = {
		{ "rstd", a.rstd, srt_op_size(a.n, 1), SRT_OP_DTYPE_F32 },
		{ "running_var", a.running_var, srt_op_size(a.n, 1), SRT_OP_DTYPE_F32 },
	};

	SRT_TRY(launch_normalize(__func__, &a, a.running_mean, true, stream));
	SRT_TRY(srt_op_launch(__func__, SRT_K_BATCHNORM_RSTD, false, &kernel, tensors, stream));
	return launch_normalize(__func__, &a, a.running_mean, false, stream);
}

srt_status_t srt_op_batchnorm_backward_params(const srt_batchnorm_t *args, srt_stream_t *stream)
{
	srt_batchnorm_t a = SRT_BATCHNORM_INIT;

	SRT_OP_READ(srt_batchnorm_t, a, args, stream);
	const srt_k_rows_t kernel = { .rows = a.rows,
				      .n = a.n,
				      .accumulate = a.accumulate_dgamma != 0,
				      .accumulate2 = a.accumulate_dbeta != 0 };
	const srt_op_tensor_t tensors[] = {
		{ "dgamma", a.dgamma, srt_op_size(a.n, 1), 0 },
		{ "dbeta", a.dbeta, srt_op_size(a.n, 1), 0 },
		{ "averages", a.averages, srt_op_size(a.n, 2), SRT_OP_DTYPE_F32 },
		{ "dy", a.dy, srt_op_size(a.rows, a.n), 0 },
		{ "x", a.x, srt_op_size(a.rows, a.n), 0 },
		{ "mean", a.mean, srt_op_size(a.n, 1), SRT_OP_DTYPE_F32 },
		{ "rstd", a.rstd, srt_op_size(a.n, 1), SRT_OP_DTYPE_F32 },
	};

	return srt_op_launch(__func__, SRT_K_BATCHNORM_BACKWARD_PARAMS, false, &kernel, tensors,
			     stream);
}

srt_status_t srt_op_batchnorm_backward(const srt_batchnorm_t *args, srt_stream_t *stream)
{
	srt_batchnorm_t a = SRT_BATCHNORM_INIT;

	SRT_OP_READ(srt_batchnorm_t, a, args, stream);
	const srt_k_rows_t kernel = { .rows = a.rows, .n = a.n };
	const srt_op_tensor_t tensors[] = {
		{ "dx", a.dx, srt_op_size(a.rows, a.n), 0 },
		{ "dy", a.dy, srt_op_size(a.rows, a.n), 0 },
		{ "x", a.x, srt_op_size(a.rows, a.n), 0 },
		{ "mean", a.mean, srt_op_size(a.n, 1), SRT_OP_DTYPE_F32 },
		{ "rstd", a.rstd, srt_op_size(a.n, 1), SRT_OP_DTYPE_F32 },
		{ "gamma", a.gamma, srt_op_size(a.n, 1), 0 },
		{ "averages", a.averages, srt_op_size(a.n, 2), SRT_OP_DTYPE_F32 },
	};

	/* Element by element in dx, dy and x: dx may be dy. */
	return srt_op_launch(__func__, SRT_K_BATCHNORM_BACKWARD, true, &kernel, tensors, stream);
}
