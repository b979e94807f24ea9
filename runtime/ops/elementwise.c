/* SPDX-License-Identifier: BSD-3-Clause */
/* Launchers of the elementwise operations of <shardrt/ops.h>: kernels/elementwise.k and
 * activation.k. */
#include "runtime/ops/ops.h"

#include <math.h>

srt_status_t srt_op_fill(srt_view_t y, float value, int64_t nelem, srt_stream_t *stream)
{
	const srt_k_elem_t args = { .nelem = nelem, .value = value };
	const srt_op_tensor_t tensors[] = { { "y", y, srt_op_size(nelem, 1), 0 } };

	return srt_op_launch(__func__, SRT_K_FILL, false, &args, tensors, stream);
}

static srt_status_t launch_unary(const char *name, srt_kernel_id_t kernel, srt_view_t y,
				 srt_view_t x, float value, int64_t nelem, srt_stream_t *stream)
{
	const srt_k_elem_t args = { .nelem = nelem, .value = value };
	const srt_op_tensor_t tensors[] = {
		{ "y", y, srt_op_size(nelem, 1), 0 },
		{ "x", x, srt_op_size(nelem, 1), 0 },
	};

	return srt_op_launch(name, kernel, true, &args, tensors, stream);
}

/* Operations that may be in place, a row each: the end of the name, the kernel; of two inputs the
 * names of the tensors. UNARY_OF has a factor. */
#define UNARY(op, kernel)                                                                          \
	srt_status_t srt_op_##op(srt_view_t y, srt_view_t x, int64_t nelem, srt_stream_t *stream)  \
	{                                                                                          \
		return launch_unary(__func__, SRT_K_##kernel, y, x, 0, nelem, stream);             \
	}
#define UNARY_OF(op, kernel)                                                                       \
	srt_status_t srt_op_##op(srt_view_t y, srt_view_t x, float a, int64_t nelem,               \
				 srt_stream_t *stream)                                             \
	{                                                                                          \
		return launch_unary(__func__, SRT_K_##kernel, y, x, a, nelem, stream);             \
	}
#define BINARY(op, kernel, y, a, b)                                                                \
	srt_status_t srt_op_##op(srt_view_t y, srt_view_t a, srt_view_t b, int64_t nelem,          \
				 srt_stream_t *stream)                                             \
	{                                                                                          \
		const srt_k_elem_t args = { .nelem = nelem };                                      \
		const srt_op_tensor_t tensors[] = { { #y, y, srt_op_size(nelem, 1), 0 },           \
						    { #a, a, srt_op_size(nelem, 1), 0 },           \
						    { #b, b, srt_op_size(nelem, 1), 0 } };         \
                                                                                                   \
		return srt_op_launch(__func__, SRT_K_##kernel, true, &args, tensors, stream);      \
	}

UNARY_OF(scale, SCALE)
UNARY_OF(divide, DIVIDE)
UNARY_OF(axpy, AXPY)
BINARY(add, ADD, y, a, b)
BINARY(mul, MUL, y, a, b)
UNARY(relu, RELU)
BINARY(relu_backward, RELU_BACKWARD, dx, dy, y)
UNARY(gelu_tanh, GELU_TANH)
BINARY(gelu_tanh_backward, GELU_TANH_BACKWARD, dx, dy, x)
UNARY(tanh, TANH)
BINARY(tanh_backward, TANH_BACKWARD, dx, dy, y)
UNARY(sigmoid, SIGMOID)
BINARY(sigmoid_backward, SIGMOID_BACKWARD, dx, dy, y)
UNARY(silu, SILU)
BINARY(silu_backward, SILU_BACKWARD, dx, dy, x)
UNARY(gelu_erf, GELU_ERF)
BINARY(gelu_erf_backward, GELU_ERF_BACKWARD, dx, dy, x)

static srt_status_t check_cap(const char *name, float cap)
{
	if (cap > 0.0f && cap < INFINITY)
		return SRT_OK;
	return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: cap is %g, must be above 0 and finite", name,
			(double)cap);
}

srt_status_t srt_op_softcap(srt_view_t y, srt_view_t x, float cap, int64_t nelem,
			    srt_stream_t *stream)
{
	SRT_TRY(check_cap(__func__, cap));
	return launch_unary(__func__, SRT_K_SOFTCAP, y, x, cap, nelem, stream);
}

srt_status_t srt_op_softcap_backward(srt_view_t dx, srt_view_t dy, srt_view_t y, float cap,
				     int64_t nelem, srt_stream_t *stream)
{
	const srt_k_elem_t args = { .nelem = nelem, .value = cap };
	const srt_op_tensor_t tensors[] = { { "dx", dx, srt_op_size(nelem, 1), 0 },
					    { "dy", dy, srt_op_size(nelem, 1), 0 },
					    { "y", y, srt_op_size(nelem, 1), 0 } };

	SRT_TRY(check_cap(__func__, cap));
	return srt_op_launch(__func__, SRT_K_SOFTCAP_BACKWARD, true, &args, tensors, stream);
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
	return srt_op_launch(name, kernel, false, &args, tensors, stream);
}

srt_status_t srt_op_cast(srt_view_t y, srt_view_t x, int64_t nelem, srt_stream_t *stream)
{
	static const srt_kernel_id_t kernels[] = { SRT_K_CAST_FROM_F32, SRT_K_CAST_FROM_F16,
						   SRT_K_CAST_FROM_BF16 };

	return launch_from(__func__, kernels, y, x, nelem, stream);
}

srt_status_t srt_op_accumulate(srt_view_t y, srt_view_t x, int64_t nelem, srt_stream_t *stream)
{
	static const srt_kernel_id_t kernels[] = { SRT_K_ACCUMULATE_F32, SRT_K_ACCUMULATE_F16,
						   SRT_K_ACCUMULATE_BF16 };

	return launch_from(__func__, kernels, y, x, nelem, stream);
}
