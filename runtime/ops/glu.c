/* SPDX-License-Identifier: BSD-3-Clause */
/* Launchers of the gated activations of <shardrt/ops.h>: kernels/glu.k. */
#include "runtime/ops/ops.h"

/* *a: a copy of a program's struct, with its distances of rows; *kernel: the same. */
static srt_status_t read_gated(const char *name, srt_stream_t *stream, const srt_gated_t *given,
			       srt_gated_t *a, srt_k_glu_t *kernel)
{
	*a = (srt_gated_t)SRT_GATED_INIT;
	SRT_TRY(srt_op_read(name, stream, given, "srt_gated_t", a, sizeof(*a)));
	int64_t *const ld[] = { &a->ldg, &a->ldu, &a->lddg, &a->lddu };

	if ((unsigned)a->act > SRT_GLU_GELU_ERF)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: act is %d, must be a srt_glu_t",
				name, (int)a->act);
	for (size_t i = 0; i < SRT_ARRAY_LEN(ld); i++) {
		SRT_TRY(srt_op_check_pitch(name, a->n, *ld[i]));
		*ld[i] = *ld[i] ? *ld[i] : a->n;
	}
	*kernel = (srt_k_glu_t){ .rows = a->rows,
				 .n = a->n,
				 .ldg = a->ldg,
				 .ldu = a->ldu,
				 .lddg = a->lddg,
				 .lddu = a->lddu,
				 .add_dg = a->accumulate_dg != 0,
				 .add_du = a->accumulate_du != 0 };
	return SRT_OK;
}

srt_status_t srt_op_glu(const srt_gated_t *args, srt_stream_t *stream)
{
	static const srt_kernel_id_t kernels[] = { [SRT_GLU_SILU] = SRT_K_GLU_SILU,
						   [SRT_GLU_GELU_TANH] = SRT_K_GLU_GELU_TANH,
						   [SRT_GLU_GELU_ERF] = SRT_K_GLU_GELU_ERF };
	srt_k_glu_t kernel;
	srt_gated_t a;

	SRT_TRY(read_gated(__func__, stream, args, &a, &kernel));
	const srt_op_tensor_t tensors[] = {
		{ "y", a.y, srt_op_size(a.rows, a.n), 0 },
		{ "g", a.g, srt_op_pitched_size(a.rows, a.n, a.ldg), 0 },
		{ "u", a.u, srt_op_pitched_size(a.rows, a.n, a.ldu), 0 },
	};

	return srt_op_launch(__func__, kernels[a.act], true, &kernel, tensors, stream);
}

/* dg and du may lie in one packed row, so their rows may alternate. */
srt_status_t srt_op_glu_backward(const srt_gated_t *args, srt_stream_t *stream)
{
	static const srt_kernel_id_t kernels[] = {
		[SRT_GLU_SILU] = SRT_K_GLU_SILU_BACKWARD,
		[SRT_GLU_GELU_TANH] = SRT_K_GLU_GELU_TANH_BACKWARD,
		[SRT_GLU_GELU_ERF] = SRT_K_GLU_GELU_ERF_BACKWARD,
	};
	srt_k_glu_t kernel;
	srt_gated_t a;

	SRT_TRY(read_gated(__func__, stream, args, &a, &kernel));
	const srt_op_tensor_t tensors[] = {
		{ "dg", a.dg, srt_op_pitched_size(a.rows, a.n, a.lddg), 0 },
		{ "du", a.du, srt_op_pitched_size(a.rows, a.n, a.lddu), 0 },
		{ "dy", a.dy, srt_op_size(a.rows, a.n), 0 },
		{ "g", a.g, srt_op_pitched_size(a.rows, a.n, a.ldg), 0 },
		{ "u", a.u, srt_op_pitched_size(a.rows, a.n, a.ldu), 0 },
	};
	const srt_op_rows_t rows[] = {
		{ a.n, a.lddg }, { a.n, a.lddu }, { 0, 0 }, { a.n, a.ldg }, { a.n, a.ldu }
	};
	const srt_op_call_t call = { __func__, stream, kernels[a.act], true, &kernel };

	return srt_op_launch_rows(&call, tensors, rows);
}
