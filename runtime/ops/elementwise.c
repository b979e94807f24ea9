/* SPDX-License-Identifier: BSD-3-Clause */
/* Launchers of the elementwise operations of <shardrt/ops.h>: kernels/elementwise.k and
 * activation.k. */
#include "runtime/ops/ops.h"

srt_status_t srt_op_fill(srt_view_t y, float value, int64_t nelem, srt_stream_t *stream)
{
	const srt_k_elem_t args = { .nelem = nelem, .value = value };
	const srt_op_tensor_t tensors[] = { { "y", y, srt_op_size(nelem, 1), 0 } };

	return srt_op_launch(&(srt_op_call_t){ "srt_op_fill", stream, SRT_K_FILL, false, &args },
			     tensors);
}

/* y[i] = f(x[i], value), in place allowed. */
static srt_status_t launch_unary(const char *name, srt_kernel_id_t kernel, srt_view_t y,
				 srt_view_t x, float value, int64_t nelem, srt_stream_t *stream)
{
	const srt_k_elem_t args = { .nelem = nelem, .value = value };
	const srt_op_tensor_t tensors[] = {
		{ "y", y, srt_op_size(nelem, 1), 0 },
		{ "x", x, srt_op_size(nelem, 1), 0 },
	};

	return srt_op_launch(&(srt_op_call_t){ name, stream, kernel, true, &args }, tensors);
}

/* y[i] = f(a[i], b[i]), in place allowed; the tensors' names are those of the header. */
static srt_status_t launch_binary(const char *name, srt_kernel_id_t kernel,
				  const char *const names[3], srt_view_t y, srt_view_t a,
				  srt_view_t b, int64_t nelem, srt_stream_t *stream)
{
	const srt_k_elem_t args = { .nelem = nelem };
	const srt_op_tensor_t tensors[] = {
		{ names[0], y, srt_op_size(nelem, 1), 0 },
		{ names[1], a, srt_op_size(nelem, 1), 0 },
		{ names[2], b, srt_op_size(nelem, 1), 0 },
	};

	return srt_op_launch(&(srt_op_call_t){ name, stream, kernel, true, &args }, tensors);
}

/* Gradients, made from the function's input or from its output. */
static const char *const by_input[] = { "dx", "dy", "x" };
static const char *const by_output[] = { "dx", "dy", "y" };

srt_status_t srt_op_scale(srt_view_t y, srt_view_t x, float a, int64_t nelem, srt_stream_t *stream)
{
	return launch_unary("srt_op_scale", SRT_K_SCALE, y, x, a, nelem, stream);
}

srt_status_t srt_op_divide(srt_view_t y, srt_view_t x, float a, int64_t nelem, srt_stream_t *stream)
{
	return launch_unary("srt_op_divide", SRT_K_DIVIDE, y, x, a, nelem, stream);
}

srt_status_t srt_op_axpy(srt_view_t y, srt_view_t x, float a, int64_t nelem, srt_stream_t *stream)
{
	return launch_unary("srt_op_axpy", SRT_K_AXPY, y, x, a, nelem, stream);
}

/* y[i] = f(x[i]), x of any float type: by_type has the kernels for f32, f16 and bf16. */
static srt_status_t launch_from(const char *name, const srt_kernel_id_t by_type[3], srt_view_t y,
				srt_view_t x, int64_t nelem, srt_stream_t *stream)
{
	const srt_k_elem_t args = { .nelem = nelem };
	srt_op_tensor_t tensors[] = {
		{ "y", y, srt_op_size(nelem, 1), 0 },
		{ "x", x, srt_op_size(nelem, 1), SRT_OP_DTYPE_F32 },
	};
	srt_kernel_id_t kernel = by_type[0];

	if (x.dtype == SRT_F16) {
		kernel = by_type[1];
		tensors[1].dtype = SRT_OP_DTYPE_F16;
	} else if (x.dtype == SRT_BF16) {
		kernel = by_type[2];
		tensors[1].dtype = SRT_OP_DTYPE_BF16;
	} else if (x.buffer != NULL && x.dtype != SRT_F32) {
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: x is %s, must be f32, f16 or bf16",
				name, srt_dtype_name(x.dtype));
	}
	return srt_op_launch(&(srt_op_call_t){ name, stream, kernel, false, &args }, tensors);
}

srt_status_t srt_op_cast(srt_view_t y, srt_view_t x, int64_t nelem, srt_stream_t *stream)
{
	static const srt_kernel_id_t kernels[] = { SRT_K_CAST_FROM_F32, SRT_K_CAST_FROM_F16,
						   SRT_K_CAST_FROM_BF16 };

	return launch_from("srt_op_cast", kernels, y, x, nelem, stream);
}

srt_status_t srt_op_accumulate(srt_view_t y, srt_view_t x, int64_t nelem, srt_stream_t *stream)
{
	static const srt_kernel_id_t kernels[] = { SRT_K_ACCUMULATE_F32, SRT_K_ACCUMULATE_F16,
						   SRT_K_ACCUMULATE_BF16 };

	return launch_from("srt_op_accumulate", kernels, y, x, nelem, stream);
}

srt_status_t srt_op_add(srt_view_t y, srt_view_t a, srt_view_t b, int64_t nelem,
			srt_stream_t *stream)
{
	static const char *const names[] = { "y", "a", "b" };

	return launch_binary("srt_op_add", SRT_K_ADD, names, y, a, b, nelem, stream);
}

srt_status_t srt_op_relu(srt_view_t y, srt_view_t x, int64_t nelem, srt_stream_t *stream)
{
	return launch_unary("srt_op_relu", SRT_K_RELU, y, x, 0, nelem, stream);
}

srt_status_t srt_op_relu_backward(srt_view_t dx, srt_view_t dy, srt_view_t y, int64_t nelem,
				  srt_stream_t *stream)
{
	return launch_binary("srt_op_relu_backward", SRT_K_RELU_BACKWARD, by_output, dx, dy, y,
			     nelem, stream);
}

srt_status_t srt_op_gelu_tanh(srt_view_t y, srt_view_t x, int64_t nelem, srt_stream_t *stream)
{
	return launch_unary("srt_op_gelu_tanh", SRT_K_GELU_TANH, y, x, 0, nelem, stream);
}

srt_status_t srt_op_gelu_tanh_backward(srt_view_t dx, srt_view_t dy, srt_view_t x, int64_t nelem,
				       srt_stream_t *stream)
{
	return launch_binary("srt_op_gelu_tanh_backward", SRT_K_GELU_TANH_BACKWARD, by_input, dx,
			     dy, x, nelem, stream);
}

srt_status_t srt_op_tanh(srt_view_t y, srt_view_t x, int64_t nelem, srt_stream_t *stream)
{
	return launch_unary("srt_op_tanh", SRT_K_TANH, y, x, 0, nelem, stream);
}

srt_status_t srt_op_tanh_backward(srt_view_t dx, srt_view_t dy, srt_view_t y, int64_t nelem,
				  srt_stream_t *stream)
{
	return launch_binary("srt_op_tanh_backward", SRT_K_TANH_BACKWARD, by_output, dx, dy, y,
			     nelem, stream);
}

srt_status_t srt_op_sigmoid(srt_view_t y, srt_view_t x, int64_t nelem, srt_stream_t *stream)
{
	return launch_unary("srt_op_sigmoid", SRT_K_SIGMOID, y, x, 0, nelem, stream);
}

srt_status_t srt_op_sigmoid_backward(srt_view_t dx, srt_view_t dy, srt_view_t y, int64_t nelem,
				     srt_stream_t *stream)
{
	return launch_binary("srt_op_sigmoid_backward", SRT_K_SIGMOID_BACKWARD, by_output, dx, dy,
			     y, nelem, stream);
}

srt_status_t srt_op_silu(srt_view_t y, srt_view_t x, int64_t nelem, srt_stream_t *stream)
{
	return launch_unary("srt_op_silu", SRT_K_SILU, y, x, 0, nelem, stream);
}

srt_status_t srt_op_silu_backward(srt_view_t dx, srt_view_t dy, srt_view_t x, int64_t nelem,
				  srt_stream_t *stream)
{
	return launch_binary("srt_op_silu_backward", SRT_K_SILU_BACKWARD, by_input, dx, dy, x,
			     nelem, stream);
}

srt_status_t srt_op_gelu_erf(srt_view_t y, srt_view_t x, int64_t nelem, srt_stream_t *stream)
{
	return launch_unary("srt_op_gelu_erf", SRT_K_GELU_ERF, y, x, 0, nelem, stream);
}

srt_status_t srt_op_gelu_erf_backward(srt_view_t dx, srt_view_t dy, srt_view_t x, int64_t nelem,
				      srt_stream_t *stream)
{
	return launch_binary("srt_op_gelu_erf_backward", SRT_K_GELU_ERF_BACKWARD, by_input, dx, dy,
			     x, nelem, stream);
}
