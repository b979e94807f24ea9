/* SPDX-License-Identifier: BSD-3-Clause */
/* Launcher of the rotary position embedding of <shardrt/ops.h>: kernels/rotary.k. */
#include "runtime/ops/ops.h"

static srt_status_t check_shape(const char *name, const srt_rotary_t *a)
{
	const int64_t width = srt_op_size(a->heads, a->head_dim);

	if (a->dim < 0 || a->dim % 2 != 0 || a->dim > a->head_dim)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: dim is %lld, must be even and at most the head_dim of %lld",
				name, (long long)a->dim, (long long)a->head_dim);
	/* A row of the tables is read for every row of x. */
	if (a->npositions < 1 && a->rows != 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: npositions is %lld, must be at least 1", name,
				(long long)a->npositions);
	if (a->copied < 0 || (a->heads >= 0 && a->copied > a->heads))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: copied is %lld, of %lld heads", name,
				(long long)a->copied, (long long)a->heads);
	SRT_TRY(srt_op_check_pitch(name, width, a->ldx));
	return srt_op_check_pitch(name, width, a->ldy);
}

srt_status_t srt_op_rotary(const srt_rotary_t *args, srt_stream_t *stream)
{
	srt_rotary_t a = SRT_ROTARY_INIT;

	SRT_OP_READ(srt_rotary_t, a, args, stream);
	const int64_t width = srt_op_size(a.heads, a.head_dim);
	const int64_t ntable = srt_op_size(a.npositions, a.dim / 2);
	const srt_k_rotary_t kernel = { .rows = a.rows,
					.heads = a.heads,
					.head_dim = a.head_dim,
					.dim = a.dim,
					.ldx = a.ldx ? a.ldx : width,
					.ldy = a.ldy ? a.ldy : width,
					.npositions = a.npositions,
					.copied = a.copied,
					.backward = a.backward != 0,
					.accumulate = a.accumulate != 0 };
	const srt_op_tensor_t tensors[] = {
		{ "y", a.y, srt_op_pitched_size(a.rows, width, a.ldy), 0 },
		{ "x", a.x, srt_op_pitched_size(a.rows, width, a.ldx), 0 },
		{ "positions", a.positions, srt_op_size(a.rows, 1), SRT_OP_DTYPE_I32 },
		{ "cos", a.cos, ntable, SRT_OP_DTYPE_F32 },
		{ "sin", a.sin, ntable, SRT_OP_DTYPE_F32 },
	};

	SRT_TRY(check_shape(__func__, &a));
	return srt_op_launch(__func__, SRT_K_ROTARY, true, &kernel, tensors, stream);
}
