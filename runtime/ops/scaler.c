/* SPDX-License-Identifier: BSD-3-Clause */
/* Launchers of the loss scaler's operations of step.h: kernels/scaler.k. */
#include "runtime/ops/ops.h"

#include <string.h>

srt_status_t srt_op_unscale(srt_view_t g, srt_view_t found_inf, srt_view_t state, float inv_scale,
			    int64_t nelem, srt_stream_t *stream)
{
	const srt_k_elem_t args = { .nelem = nelem, .value = inv_scale };
	const srt_op_tensor_t tensors[] = {
		{ "g", g, srt_op_size(nelem, 1), 0 },
		{ "state", state, sizeof(srt_k_step_state_t), SRT_OP_DTYPE_BYTES },
		{ "found_inf", found_inf, 1, SRT_OP_DTYPE_F32 },
	};

	SRT_NOT_NULL(stream);
	if (state.buffer == NULL && found_inf.buffer == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_op_unscale: state and found_inf are both absent");
	return srt_op_launch(__func__, SRT_K_UNSCALE, false, &args, tensors, stream);
}

static int64_t bits_of(double x)
{
	int64_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

srt_status_t srt_op_scaler_update(srt_view_t state, srt_scaler_rule_t rule, double growth,
				  double backoff, int interval, srt_stream_t *stream)
{
	const srt_k_scaler_t args = { .growth = bits_of(growth),
				      .backoff = bits_of(backoff),
				      .interval = interval,
				      .is_sharded = rule == SRT_SCALER_SHARDED };
	const srt_op_tensor_t tensors[] = {
		{ "state", state, sizeof(srt_k_step_state_t), SRT_OP_DTYPE_BYTES },
	};

	SRT_NOT_NULL(stream);
	if (rule != SRT_SCALER_PLAIN && rule != SRT_SCALER_SHARDED)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_op_scaler_update: there is no rule %d", (int)rule);
	return srt_op_launch(__func__, SRT_K_SCALER_UPDATE, false, &args, tensors, stream);
}

srt_status_t srt_op_scale_loss(srt_view_t y, srt_view_t x, srt_view_t state, float scale,
			       int64_t nelem, srt_stream_t *stream)
{
	const bool widens = x.buffer != NULL && y.dtype == SRT_F32 && x.dtype != SRT_F32;
	const srt_k_scale_loss_t args = { .nelem = nelem, .scale = scale, .is_f32 = widens };
	const srt_op_tensor_t tensors[] = {
		{ "y", y, srt_op_size(nelem, 1), widens ? SRT_OP_DTYPE_F32 : SRT_OP_DTYPE_SAME },
		{ "x", x, srt_op_size(nelem, 1), 0 },
		{ "state", state, sizeof(srt_k_step_state_t), SRT_OP_DTYPE_BYTES },
	};

	return srt_op_launch(__func__, SRT_K_SCALE_LOSS, !widens, &args, tensors, stream);
}
