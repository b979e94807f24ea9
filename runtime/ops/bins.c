/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Launchers of the reproducible sums of step.h: kernels/bins.k. The kernels absmax and bin_sum
 * always add to their result, so the result is zeroed first unless the caller accumulates.
 */
#include "runtime/ops/ops.h"

#define BINS 2 /* doubles of one sum */

static srt_status_t check_power(const char *name, int power)
{
	if (power >= 1 && power <= 3)
		return SRT_OK;
	return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: power is %d, must be 1, 2 or 3", name,
			power);
}

/* Launches a kernel that adds onto its first tensor. */
static srt_status_t launch_onto(const srt_op_call_t *call, const srt_op_tensor_t *tensors,
				size_t result_nbytes, int accumulate)
{
	srt_view_t result = tensors[0].view;
	srt_dtype_t dtype;

	SRT_TRY(srt_op_check(call, tensors, &dtype));
	if (!accumulate)
		SRT_TRY(srt_buffer_zero(result.buffer, result.offset, result_nbytes, call->stream));
	return srt_op_put(call, SRT_COMMAND_KERNEL, tensors, srt_kernel_info(call->kernel)->nplaces,
			  dtype);
}

srt_status_t srt_op_absmax(srt_view_t max, srt_view_t x, int64_t nelem, int accumulate,
			   srt_stream_t *stream)
{
	const srt_k_bins_t args = { .nelem = nelem };
	const srt_op_tensor_t tensors[] = {
		{ "max", max, 1, SRT_OP_DTYPE_F32 },
		{ "x", x, srt_op_size(nelem, 1), 0 },
	};

	return launch_onto(&(srt_op_call_t){ __func__, stream, SRT_K_ABSMAX, false, &args },
			   tensors, sizeof(float), accumulate);
}

srt_status_t srt_op_bin_sum(const srt_bin_sum_t *a, srt_stream_t *stream)
{
	const srt_k_bins_t args = {
		.nelem = a->nelem,
		.total_nelem = a->total_nelem,
		.power = a->power,
		.flag = a->is_signed != 0,
	};
	const srt_op_tensor_t tensors[] = {
		{ "bins", a->bins, BINS, SRT_OP_DTYPE_F64 },
		{ "max", a->max, 1, SRT_OP_DTYPE_F32 },
		{ "x", a->x, srt_op_size(a->nelem, 1), 0 },
	};

	SRT_NOT_NULL(stream);
	SRT_TRY(check_power(__func__, a->power));
	if (a->is_signed && a->power != 1)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_op_bin_sum: a signed sum has power 1, not %d", a->power);
	/* Not compared with nelem: padding, which is zero, need not be counted. */
	if (a->total_nelem < 1 && a->nelem > 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_op_bin_sum: total_nelem is %lld, must be at least 1",
				(long long)a->total_nelem);
	return launch_onto(&(srt_op_call_t){ __func__, stream, SRT_K_BIN_SUM, false, &args },
			   tensors, BINS * sizeof(double), a->accumulate);
}

srt_status_t srt_op_bin_total(const srt_bin_total_t *a, srt_stream_t *stream)
{
	const srt_k_bins_t args = { .nelem = a->nbins, .power = a->power, .flag = a->root != 0 };
	const srt_op_tensor_t tensors[] = {
		{ "out", a->out, 1, SRT_OP_DTYPE_F32 },
		{ "bins", a->bins, srt_op_size(a->nbins, BINS), SRT_OP_DTYPE_F64 },
		{ "max", a->max, 1, SRT_OP_DTYPE_F32 },
	};

	SRT_NOT_NULL(stream);
	SRT_TRY(check_power(__func__, a->power));
	return srt_op_launch(__func__, SRT_K_BIN_TOTAL, false, &args, tensors, stream);
}
