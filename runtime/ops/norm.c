/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Launchers of RMSNorm and BatchNorm of <shardrt/ops.h>: kernels/rmsnorm.k, batchnorm.k.
 * (LayerNorm: rows.c.)
 */
#include "runtime/ops/ops.h"

static srt_status_t launch_kernel(const char *name, srt_stream_t *stream, srt_kernel_id_t kernel,
				  const void *args, const srt_op_tensor_t *tensors)
{
	return srt_op_launch(&(srt_op_call_t){ name, stream, kernel, false, args }, tensors);
}

/* ---- RMSNorm ---------------------------------------------------------------------------- */

srt_status_t srt_op_rmsnorm(srt_stream_t *stream, srt_view_t y, srt_view_t rstd, srt_view_t x,
			    srt_view_t gamma, int64_t rows, int64_t n, float eps)
{
	const srt_k_rows_t args = { .rows = rows, .n = n, .value = eps };
	const srt_op_tensor_t tensors[] = {
		{ "y", y, srt_op_size(rows, n), 0 },
		{ "rstd", rstd, srt_op_size(rows, 1), SRT_OP_DTYPE_F32 },
		{ "x", x, srt_op_size(rows, n), 0 },
		{ "gamma", gamma, srt_op_size(n, 1), 0 },
	};

	if (n == 0 && rows != 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_op_rmsnorm: n is 0: the %lld rows have no elements",
				(long long)rows);
	return launch_kernel("srt_op_rmsnorm", stream, SRT_K_RMSNORM, &args, tensors);
}

srt_status_t srt_op_rmsnorm_backward(srt_stream_t *stream, srt_view_t dx, srt_view_t dy,
				     srt_view_t x, srt_view_t rstd, srt_view_t gamma, int64_t rows,
				     int64_t n, int accumulate)
{
	const srt_k_rows_t args = { .rows = rows, .n = n, .accumulate = accumulate != 0 };
	const srt_op_tensor_t tensors[] = {
		{ "dx", dx, srt_op_size(rows, n), 0 },
		{ "dy", dy, srt_op_size(rows, n), 0 },
		{ "x", x, srt_op_size(rows, n), 0 },
		{ "rstd", rstd, srt_op_size(rows, 1), SRT_OP_DTYPE_F32 },
		{ "gamma", gamma, srt_op_size(n, 1), 0 },
	};

	return launch_kernel("srt_op_rmsnorm_backward", stream, SRT_K_RMSNORM_BACKWARD, &args,
			     tensors);
}

srt_status_t srt_op_rmsnorm_backward_params(srt_stream_t *stream, srt_view_t dgamma, srt_view_t dy,
					    srt_view_t x, srt_view_t rstd, int64_t rows, int64_t n,
					    int accumulate)
{
	const srt_k_rows_t args = { .rows = rows, .n = n, .accumulate = accumulate != 0 };
	const srt_op_tensor_t tensors[] = {
		{ "dgamma", dgamma, srt_op_size(n, 1), 0 },
		{ "dy", dy, srt_op_size(rows, n), 0 },
		{ "x", x, srt_op_size(rows, n), 0 },
		{ "rstd", rstd, srt_op_size(rows, 1), SRT_OP_DTYPE_F32 },
	};

	return launch_kernel("srt_op_rmsnorm_backward_params", stream,
			     SRT_K_RMSNORM_BACKWARD_PARAMS, &args, tensors);
}

/* ---- BatchNorm -------------------------------------------------------------------------- */

/* y from mean and rstd. */
static srt_status_t launch_normalize(const char *name, srt_stream_t *stream, srt_view_t y,
				     srt_view_t mean, srt_view_t rstd, srt_view_t x,
				     srt_view_t gamma, srt_view_t beta, int64_t rows, int64_t n,
				     bool only_check)
{
	const srt_k_rows_t args = { .rows = rows, .n = n };
	const srt_op_tensor_t tensors[] = {
		{ "y", y, srt_op_size(rows, n), 0 },
		{ "x", x, srt_op_size(rows, n), 0 },
		{ "mean", mean, srt_op_size(n, 1), SRT_OP_DTYPE_F32 },
		{ "rstd", rstd, srt_op_size(n, 1), SRT_OP_DTYPE_F32 },
		{ "gamma", gamma, srt_op_size(n, 1), 0 },
		{ "beta", beta, srt_op_size(n, 1), 0 },
	};
	const srt_op_call_t call = { name, stream, SRT_K_BATCHNORM, false, &args };
	srt_dtype_t dtype;

	return only_check ? srt_op_check(&call, tensors, &dtype) : srt_op_launch(&call, tensors);
}

srt_status_t srt_op_batchnorm(srt_stream_t *stream, srt_view_t y, srt_view_t mean, srt_view_t rstd,
			      srt_view_t running_mean, srt_view_t running_var, srt_view_t x,
			      srt_view_t gamma, srt_view_t beta, int64_t rows, int64_t n, float eps,
			      float momentum)
{
	static const char name[] = "srt_op_batchnorm";
	const srt_k_batchnorm_t args = { .rows = rows, .n = n, .eps = eps, .momentum = momentum };
	const srt_op_tensor_t tensors[] = {
		{ "mean", mean, srt_op_size(n, 1), SRT_OP_DTYPE_F32 },
		{ "rstd", rstd, srt_op_size(n, 1), SRT_OP_DTYPE_F32 },
		{ "running_mean", running_mean, srt_op_size(n, 1), SRT_OP_DTYPE_F32 },
		{ "running_var", running_var, srt_op_size(n, 1), SRT_OP_DTYPE_F32 },
		{ "x", x, srt_op_size(rows, n), 0 },
	};

	SRT_NOT_NULL(stream);
	if (rows < 2 && n != 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: rows is %lld; a batch must have at least 2 for its variance",
				name, (long long)rows);
	/* A refused call queues nothing: the second launch is checked before the first. */
	SRT_TRY(launch_normalize(name, stream, y, mean, rstd, x, gamma, beta, rows, n, true));
	SRT_TRY(launch_kernel(name, stream, SRT_K_BATCHNORM_STATS, &args, tensors));
	return launch_normalize(name, stream, y, mean, rstd, x, gamma, beta, rows, n, false);
}

srt_status_t srt_op_batchnorm_evaluation(srt_stream_t *stream, srt_view_t y, srt_view_t rstd,
					 srt_view_t running_mean, srt_view_t running_var,
					 srt_view_t x, srt_view_t gamma, srt_view_t beta,
					 int64_t rows, int64_t n, float eps)
{
	static const char name[] = "srt_op_batchnorm_evaluation";
	const srt_k_elem_t args = { .nelem = n, .value = eps };
	const srt_op_tensor_t tensors[] = {
		{ "rstd", rstd, srt_op_size(n, 1), SRT_OP_DTYPE_F32 },
		{ "running_var", running_var, srt_op_size(n, 1), SRT_OP_DTYPE_F32 },
	};

	SRT_TRY(launch_normalize(name, stream, y, running_mean, rstd, x, gamma, beta, rows, n,
				 true));
	SRT_TRY(launch_kernel(name, stream, SRT_K_BATCHNORM_RSTD, &args, tensors));
	return launch_normalize(name, stream, y, running_mean, rstd, x, gamma, beta, rows, n,
				false);
}

srt_status_t srt_op_batchnorm_backward_params(srt_stream_t *stream, srt_view_t dgamma,
					      srt_view_t dbeta, srt_view_t averages, srt_view_t dy,
					      srt_view_t x, srt_view_t mean, srt_view_t rstd,
					      int64_t rows, int64_t n, int accumulate_gamma,
					      int accumulate_beta)
{
	const srt_k_rows_t args = {
		.rows = rows,
		.n = n,
		.accumulate = accumulate_gamma != 0,
		.accumulate2 = accumulate_beta != 0,
	};
	const srt_op_tensor_t tensors[] = {
		{ "dgamma", dgamma, srt_op_size(n, 1), 0 },
		{ "dbeta", dbeta, srt_op_size(n, 1), 0 },
		{ "averages", averages, srt_op_size(n, 2), SRT_OP_DTYPE_F32 },
		{ "dy", dy, srt_op_size(rows, n), 0 },
		{ "x", x, srt_op_size(rows, n), 0 },
		{ "mean", mean, srt_op_size(n, 1), SRT_OP_DTYPE_F32 },
		{ "rstd", rstd, srt_op_size(n, 1), SRT_OP_DTYPE_F32 },
	};

	return launch_kernel("srt_op_batchnorm_backward_params", stream,
			     SRT_K_BATCHNORM_BACKWARD_PARAMS, &args, tensors);
}

srt_status_t srt_op_batchnorm_backward(srt_stream_t *stream, srt_view_t dx, srt_view_t dy,
				       srt_view_t x, srt_view_t mean, srt_view_t rstd,
				       srt_view_t gamma, srt_view_t averages, int64_t rows,
				       int64_t n)
{
	const srt_k_rows_t args = { .rows = rows, .n = n };
	const srt_op_tensor_t tensors[] = {
		{ "dx", dx, srt_op_size(rows, n), 0 },
		{ "dy", dy, srt_op_size(rows, n), 0 },
		{ "x", x, srt_op_size(rows, n), 0 },
		{ "mean", mean, srt_op_size(n, 1), SRT_OP_DTYPE_F32 },
		{ "rstd", rstd, srt_op_size(n, 1), SRT_OP_DTYPE_F32 },
		{ "gamma", gamma, srt_op_size(n, 1), 0 },
		{ "averages", averages, srt_op_size(n, 2), SRT_OP_DTYPE_F32 },
	};

	/* Element by element in dx, dy and x: dx may be dy. */
	return srt_op_launch(&(srt_op_call_t){ "srt_op_batchnorm_backward", stream,
					       SRT_K_BATCHNORM_BACKWARD, true, &args },
			     tensors);
}
