/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Launchers of LayerNorm, RMSNorm and BatchNorm of <shardrt/ops.h>: kernels/layernorm.k, rmsnorm.k,
 * batchnorm.k.
 */
#include "runtime/ops/ops.h"

static srt_status_t launch_kernel(const char *name, srt_kernel_id_t kernel, const void *args,
				  const srt_op_tensor_t *tensors, srt_stream_t *stream)
{
	return srt_op_launch(&(srt_op_call_t){ name, stream, kernel, false, args }, tensors);
}

/* ---- LayerNorm -------------------------------------------------------------------------- */

static srt_status_t read_layernorm(const srt_layernorm_t *given, srt_layernorm_t *a)
{
	*a = (srt_layernorm_t)SRT_LAYERNORM_INIT;
	return srt_struct_read(a, sizeof(*a), given, "srt_layernorm_t");
}

srt_status_t srt_op_layernorm(const srt_layernorm_t *args, srt_stream_t *stream)
{
	static const char name[] = "srt_op_layernorm";
	srt_layernorm_t a;

	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(args);
	SRT_TRY(read_layernorm(args, &a));
	SRT_TRY(srt_op_check_width(name, a.rows, a.n));
	const srt_k_rows_t kernel = { .rows = a.rows, .n = a.n, .value = a.eps };
	const srt_op_tensor_t tensors[] = {
		{ "y", a.y, srt_op_size(a.rows, a.n), 0 },
		{ "mean", a.mean, srt_op_size(a.rows, 1), SRT_OP_DTYPE_F32 },
		{ "rstd", a.rstd, srt_op_size(a.rows, 1), SRT_OP_DTYPE_F32 },
		{ "x", a.x, srt_op_size(a.rows, a.n), 0 },
		{ "gamma", a.gamma, srt_op_size(a.n, 1), 0 },
		{ "beta", a.beta, srt_op_size(a.n, 1), 0 },
	};

	return launch_kernel(name, SRT_K_LAYERNORM, &kernel, tensors, stream);
}

srt_status_t srt_op_layernorm_backward(const srt_layernorm_t *args, srt_stream_t *stream)
{
	static const char name[] = "srt_op_layernorm_backward";
	srt_layernorm_t a;

	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(args);
	SRT_TRY(read_layernorm(args, &a));
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

	return launch_kernel(name, SRT_K_LAYERNORM_BACKWARD, &kernel, tensors, stream);
}

srt_status_t srt_op_layernorm_backward_params(const srt_layernorm_t *args, srt_stream_t *stream)
{
	static const char name[] = "srt_op_layernorm_backward_params";
	srt_layernorm_t a;

	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(args);
	SRT_TRY(read_layernorm(args, &a));
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

	return launch_kernel(name, SRT_K_LAYERNORM_BACKWARD_PARAMS, &kernel, tensors, stream);
}

/* ---- RMSNorm ---------------------------------------------------------------------------- */

static srt_status_t read_rmsnorm(const srt_rmsnorm_t *given, srt_rmsnorm_t *a)
{
	*a = (srt_rmsnorm_t)SRT_RMSNORM_INIT;
	return srt_struct_read(a, sizeof(*a), given, "srt_rmsnorm_t");
}

srt_status_t srt_op_rmsnorm(const srt_rmsnorm_t *args, srt_stream_t *stream)
{
	static const char name[] = "srt_op_rmsnorm";
	srt_rmsnorm_t a;

	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(args);
	SRT_TRY(read_rmsnorm(args, &a));
	SRT_TRY(srt_op_check_width(name, a.rows, a.n));
	const srt_k_rows_t kernel = { .rows = a.rows, .n = a.n, .value = a.eps };
	const srt_op_tensor_t tensors[] = {
		{ "y", a.y, srt_op_size(a.rows, a.n), 0 },
		{ "rstd", a.rstd, srt_op_size(a.rows, 1), SRT_OP_DTYPE_F32 },
		{ "x", a.x, srt_op_size(a.rows, a.n), 0 },
		{ "gamma", a.gamma, srt_op_size(a.n, 1), 0 },
	};

	return launch_kernel(name, SRT_K_RMSNORM, &kernel, tensors, stream);
}

srt_status_t srt_op_rmsnorm_backward(const srt_rmsnorm_t *args, srt_stream_t *stream)
{
	static const char name[] = "srt_op_rmsnorm_backward";
	srt_rmsnorm_t a;

	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(args);
	SRT_TRY(read_rmsnorm(args, &a));
	const srt_k_rows_t kernel = { .rows = a.rows,
				      .n = a.n,
				      .accumulate = a.accumulate_dx != 0 };
	const srt_op_tensor_t tensors[] = {
		{ "dx", a.dx, srt_op_size(a.rows, a.n), 0 },
		{ "dy", a.dy, srt_op_size(a.rows, a.n), 0 },
		{ "x", a.x, srt_op_size(a.rows, a.n), 0 },
		{ "rstd", a.rstd, srt_op_size(a.rows, 1), SRT_OP_DTYPE_F32 },
		{ "gamma", a.gamma, srt_op_size(a.n, 1), 0 },
	};

	return launch_kernel(name, SRT_K_RMSNORM_BACKWARD, &kernel, tensors, stream);
}

srt_status_t srt_op_rmsnorm_backward_params(const srt_rmsnorm_t *args, srt_stream_t *stream)
{
	static const char name[] = "srt_op_rmsnorm_backward_params";
	srt_rmsnorm_t a;

	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(args);
	SRT_TRY(read_rmsnorm(args, &a));
	const srt_k_rows_t kernel = { .rows = a.rows,
				      .n = a.n,
				      .accumulate = a.accumulate_dgamma != 0 };
	const srt_op_tensor_t tensors[] = {
		{ "dgamma", a.dgamma, srt_op_size(a.n, 1), 0 },
		{ "dy", a.dy, srt_op_size(a.rows, a.n), 0 },
		{ "x", a.x, srt_op_size(a.rows, a.n), 0 },
		{ "rstd", a.rstd, srt_op_size(a.rows, 1), SRT_OP_DTYPE_F32 },
	};

	return launch_kernel(name, SRT_K_RMSNORM_BACKWARD_PARAMS, &kernel, tensors, stream);
}

/* ---- BatchNorm -------------------------------------------------------------------------- */

static srt_status_t read_batchnorm(const srt_batchnorm_t *given, srt_batchnorm_t *a)
{
	*a = (srt_batchnorm_t)SRT_BATCHNORM_INIT;
	return srt_struct_read(a, sizeof(*a), given, "srt_batchnorm_t");
}

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

	return only_check ? srt_op_check(&call, tensors, &dtype) : srt_op_launch(&call, tensors);
}

srt_status_t srt_op_batchnorm(const srt_batchnorm_t *args, srt_stream_t *stream)
{
	static const char name[] = "srt_op_batchnorm";
	srt_batchnorm_t a;

	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(args);
	SRT_TRY(read_batchnorm(args, &a));
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
				name, (long long)a.rows);
	/* A refused call queues nothing: the second launch is checked before the first. */
	SRT_TRY(launch_normalize(name, &a, a.mean, true, stream));
	SRT_TRY(launch_kernel(name, SRT_K_BATCHNORM_STATS, &kernel, tensors, stream));
	return launch_normalize(name, &a, a.mean, false, stream);
}

srt_status_t srt_op_batchnorm_evaluation(const srt_batchnorm_t *args, srt_stream_t *stream)
{
	static const char name[] = "srt_op_batchnorm_evaluation";
	srt_batchnorm_t a;

	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(args);
	SRT_TRY(read_batchnorm(args, &a));
	const srt_k_elem_t kernel = { .nelem = a.n, .value = a.eps };
	const srt_op_tensor_t tensors[] = {
		{ "rstd", a.rstd, srt_op_size(a.n, 1), SRT_OP_DTYPE_F32 },
		{ "running_var", a.running_var, srt_op_size(a.n, 1), SRT_OP_DTYPE_F32 },
	};

	SRT_TRY(launch_normalize(name, &a, a.running_mean, true, stream));
	SRT_TRY(launch_kernel(name, SRT_K_BATCHNORM_RSTD, &kernel, tensors, stream));
	return launch_normalize(name, &a, a.running_mean, false, stream);
}

srt_status_t srt_op_batchnorm_backward_params(const srt_batchnorm_t *args, srt_stream_t *stream)
{
	static const char name[] = "srt_op_batchnorm_backward_params";
	srt_batchnorm_t a;

	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(args);
	SRT_TRY(read_batchnorm(args, &a));
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

	return launch_kernel(name, SRT_K_BATCHNORM_BACKWARD_PARAMS, &kernel, tensors, stream);
}

srt_status_t srt_op_batchnorm_backward(const srt_batchnorm_t *args, srt_stream_t *stream)
{
	static const char name[] = "srt_op_batchnorm_backward";
	srt_batchnorm_t a;

	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(args);
	SRT_TRY(read_batchnorm(args, &a));
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
	return srt_op_launch(&(srt_op_call_t){ name, stream, SRT_K_BATCHNORM_BACKWARD, true,
					       &kernel },
			     tensors);
}
