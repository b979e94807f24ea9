/* SPDX-License-Identifier: BSD-3-Clause */
/* Launchers of the random numbers of <shardrt/ops.h>: kernels/random.k. */
#include <math.h>
#include <string.h>

#include "base/fpenv.h"
#include "runtime/ops/ops.h"

/* Checks the name of a tensor and the range of its elements that get random numbers. */
static srt_status_t check_elements(const char *op, const char *name, int64_t first, int64_t nelem)
{
	int64_t end;

	if (name == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: name is NULL", op);
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

srt_status_t srt_op_normal(const srt_normal_t *args, srt_stream_t *stream)
{
	srt_normal_t a = SRT_NORMAL_INIT;

	SRT_OP_READ(srt_normal_t, a, args, stream);
	SRT_TRY(check_elements(__func__, a.name, a.first, a.nelem));
	const srt_k_normal_t kernel = {
		.seed = a.seed,
		.name = srt_kernel_name_hash(a.name),
		.first = a.first,
		.nelem = a.nelem,
		.mean = a.mean,
		.std = a.std,
	};
	const srt_op_tensor_t tensors[] = { { "y", a.y, srt_op_size(a.nelem, 1), 0 } };

	return srt_op_launch(__func__, SRT_K_NORMAL, false, &kernel, tensors, stream);
}

/* The finite values of a dtype in rising order are the codes from -last to last: the bits of a
 * value that is not negative, else minus the bits of its magnitude. */
static int64_t last_code(srt_dtype_t dtype)
{
	return dtype == SRT_F16 ? 0x7bff : dtype == SRT_BF16 ? 0x7f7f : 0x7f7fffff;
}

static float value_of(srt_dtype_t dtype, int64_t code)
{
	const uint32_t magnitude = (uint32_t)(code < 0 ? -code : code);
	uint32_t bits = dtype == SRT_BF16 ? magnitude << 16 : magnitude;
	float value;

	if (dtype == SRT_F16 && magnitude < 0x400) { /* subnormal */
		value = (float)magnitude * 0x1p-24f;
	} else {
		if (dtype == SRT_F16)
			bits = (magnitude << 13) + 0x38000000u;
		memcpy(&value, &bits, sizeof(value));
	}
	return code < 0 ? -value : value;
}

/* The code of the smallest value of a dtype that is not below x; last_code() + 1 if all are. */
static int64_t first_code(srt_dtype_t dtype, float x)
{
	int64_t begin = -last_code(dtype), end = last_code(dtype) + 1;

	while (begin < end) {
		const int64_t middle = begin + (end - begin) / 2;

		if (value_of(dtype, middle) < x)
			begin = middle + 1;
		else
			end = middle;
	}
	return begin;
}

/* The first and the last value of the dtype in [low, high) limit the results, so that no rounding
 * leaves the range. */
srt_status_t srt_op_uniform_range(const char *call, srt_dtype_t dtype, float low, float high,
				  srt_k_uniform_t *args)
{
	srt_fpenv_t env = srt_fpenv_enter();
	int64_t first = first_code(dtype, low), last = first_code(dtype, high) - 1;

	args->low = args->least = args->most = low;
	args->range = high - low;
	if (low < high && first <= last) {
		args->least = value_of(dtype, first);
		args->most = value_of(dtype, last);
	}
	srt_fpenv_leave(env);
	if (!(low <= high) || !isfinite(low) || !isfinite(high) || !isfinite(args->range))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: the range is from %g to %g; both must be finite, in rising "
				"order, and their difference a finite fp32 value",
				call, (double)low, (double)high);
	if (low < high && first > last)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: %s has no value from %.9g to below %.9g", call,
				srt_dtype_name(dtype), (double)low, (double)high);
	return SRT_OK;
}

srt_status_t srt_op_uniform(const srt_uniform_t *args, srt_stream_t *stream)
{
	srt_uniform_t a = SRT_UNIFORM_INIT;

	SRT_OP_READ(srt_uniform_t, a, args, stream);
	SRT_TRY(check_elements(__func__, a.name, a.first, a.nelem));
	srt_k_uniform_t kernel = {
		.seed = a.seed,
		.name = srt_kernel_name_hash(a.name),
		.first = a.first,
		.nelem = a.nelem,
	};
	const srt_op_tensor_t tensors[] = { { "y", a.y, srt_op_size(a.nelem, 1), 0 } };
	const srt_op_call_t call = { __func__, stream, SRT_K_UNIFORM, false, &kernel };
	srt_dtype_t dtype;

	SRT_TRY(srt_op_check(&call, tensors, &dtype));
	SRT_TRY(srt_op_uniform_range(call.name, dtype, a.low, a.high, &kernel));
	return srt_op_put(&call, SRT_COMMAND_KERNEL, tensors, 1, dtype);
}

srt_status_t srt_op_dropout(const srt_dropout_t *args, srt_stream_t *stream)
{
	srt_dropout_t a = SRT_DROPOUT_INIT;

	SRT_OP_READ(srt_dropout_t, a, args, stream);
	SRT_TRY(check_elements(__func__, a.name, a.first, a.nelem));
	if (!(a.rate >= 0.0f && a.rate <= 1.0f))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_op_dropout: rate is %g, must be from 0 to 1", (double)a.rate);
	srt_k_dropout_t kernel = {
		.seed = a.seed,
		.name = srt_kernel_name_hash(a.name),
		.first = a.first,
		.nelem = a.nelem,
		.rate = a.rate,
	};
	const srt_op_tensor_t tensors[] = {
		{ "y", a.y, srt_op_size(a.nelem, 1), 0 },
		{ "x", a.x, srt_op_size(a.nelem, 1), 0 },
	};

	scale_kept(&kernel);
	return srt_op_launch(__func__, SRT_K_DROPOUT, true, &kernel, tensors, stream);
}
