/* SPDX-License-Identifier: BSD-3-Clause */
/* Weights in 8 bits (<shardrt/ops.h>): made on the host, widened by kernels/quantize.k. */
#include <float.h>
#include <math.h>

#include "base/fpenv.h"
#include "runtime/ops/ops.h"

_Static_assert(SRT_QUANT_BLOCK == SRT_K_QUANT_BLOCK, "columns of a scale");

/* Codes and scale of up to SRT_QUANT_BLOCK values; false if one is not finite. */
static bool quantize_block(const float *x, int64_t n, int8_t *codes, float *scale)
{
	float most = 0.0f;

	for (int64_t i = 0; i < n; i++) {
		const float a = fabsf(x[i]);

		if (!(a <= FLT_MAX))
			return false;
		most = a > most ? a : most;
	}
	*scale = most / 127.0f;
	for (int64_t i = 0; i < n; i++) {
		const float code = *scale > 0.0f ? rintf(x[i] / *scale) : 0.0f;

		/* A scale that is rounded down, as subnormal ones are, would give more. */
		codes[i] = (int8_t)(code > 127.0f ? 127.0f : code < -127.0f ? -127.0f : code);
	}
	return true;
}

srt_status_t srt_quantize(const float *x, int64_t rows, int64_t n, int8_t *codes, float *scales)
{
	const int64_t nblocks = n > 0 ? (n - 1) / SRT_QUANT_BLOCK + 1 : 0;
	bool finite = true;
	int64_t r;

	if (rows < 0 || n < 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_quantize: %lld rows of %lld columns, must be at least 0",
				(long long)rows, (long long)n);
	if (rows == 0 || n == 0)
		return SRT_OK;
	SRT_NOT_NULL(x);
	SRT_NOT_NULL(codes);
	SRT_NOT_NULL(scales);
	const srt_fpenv_t env = srt_fpenv_enter();

	for (r = 0; r < rows && finite; r++)
		for (int64_t b = 0; b < nblocks && finite; b++) {
			const int64_t at = r * n + b * SRT_QUANT_BLOCK;
			const int64_t left = n - b * SRT_QUANT_BLOCK;

			finite = quantize_block(x + at,
						left < SRT_QUANT_BLOCK ? left : SRT_QUANT_BLOCK,
						codes + at, &scales[r * nblocks + b]);
		}
	srt_fpenv_leave(env);
	if (!finite)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_quantize: row %lld has a value that is not finite",
				(long long)r - 1);
	return SRT_OK;
}

srt_status_t srt_op_dequantize(srt_view_t y, srt_view_t codes, srt_view_t scales, int64_t rows,
			       int64_t n, srt_stream_t *stream)
{
	const srt_k_quantize_t kernel = { .rows = rows, .n = n };
	const int64_t nblocks = n > 0 ? (n - 1) / SRT_QUANT_BLOCK + 1 : n;
	const srt_op_tensor_t tensors[] = {
		{ "y", y, srt_op_size(rows, n), 0 },
		{ "codes", codes, srt_op_size(rows, n), SRT_OP_DTYPE_U8 },
		{ "scales", scales, srt_op_size(rows, nblocks), SRT_OP_DTYPE_F32 },
	};

	return srt_op_launch(__func__, SRT_K_DEQUANTIZE, false, &kernel, tensors, stream);
}
