/* SPDX-License-Identifier: BSD-3-Clause */
/* Launchers of the random numbers of <shardrt/ops.h>: kernels/random.k. */
#include "base/fpenv.h"
#include "runtime/ops/ops.h"

/* Checks the range of elements that get random numbers. */
static srt_status_t check_elements(const char *op, const char *name, int64_t first, int64_t nelem)
{
	int64_t end;

	if (first < 0 || __builtin_add_overflow(first, nelem, &end))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: element range of \"%s\" from %lld is invalid", op, name,
				(long long)first);
	return SRT_OK;
}

/* The scale is part of the result, so it is computed in the environment of the kernels. */
static void scale_kept(srt_k_dropout_t *args)
{
	srt_fpenv_t env = srt_fpenv_enter();

	args->scale = args->rate < 1.0f ? 1.0f / (1.0f - args->rate) : 0.0f;
	srt_fpenv_leave(env);
}

srt_status_t srt_op_normal(srt_stream_t *stream, srt_view_t y, uint64_t seed, const char *name,
			   int64_t first, int64_t nelem, float mean, float std)
{
	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(name);

	const srt_k_normal_t args = {
		.seed = seed,
		.name = srt_kernel_name_hash(name),
		.first = first,
		.nelem = nelem,
		.mean = mean,
		.std = std,
	};
	const srt_op_tensor_t tensors[] = { { "y", y, srt_op_size(nelem, 1), 0 } };

	SRT_TRY(check_elements("srt_op_normal", name, first, nelem));
	return srt_op_launch(&(srt_op_call_t){ "srt_op_normal", stream, SRT_K_NORMAL, false,
					       &args },
			     tensors);
}

srt_status_t srt_op_dropout(srt_stream_t *stream, srt_view_t y, srt_view_t x, uint64_t seed,
			    const char *name, int64_t first, int64_t nelem, float rate)
{
	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(name);

	srt_k_dropout_t args = {
		.seed = seed,
		.name = srt_kernel_name_hash(name),
		.first = first,
		.nelem = nelem,
		.rate = rate,
	};
	const srt_op_tensor_t tensors[] = {
		{ "y", y, srt_op_size(nelem, 1), 0 },
		{ "x", x, srt_op_size(nelem, 1), 0 },
	};

	SRT_TRY(check_elements("srt_op_dropout", name, first, nelem));
	if (!(rate >= 0.0f && rate <= 1.0f))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_op_dropout: rate is %g, must be from 0 to 1", (double)rate);
	scale_kept(&args);
	return srt_op_launch(&(srt_op_call_t){ "srt_op_dropout", stream, SRT_K_DROPOUT, true,
					       &args },
			     tensors);
}
