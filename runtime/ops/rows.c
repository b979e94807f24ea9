/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Launchers of the operations on rows of <shardrt/ops.h>: softmax, losses and the sums over rows
 * (kernels/rows.k, columns.k).
 */
#include "runtime/ops/ops.h"

srt_status_t srt_op_check_width(const char *name, int64_t rows, int64_t n)
{
	if (n != 0 || rows == 0)
		return SRT_OK;
	return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: n is 0: the %lld rows have no elements",
			name, (long long)rows);
}

/* y from x of the same shape, in place allowed. */
static srt_status_t softmax(const char *name, srt_kernel_id_t kernel, srt_view_t y, srt_view_t x,
			    int64_t rows, int64_t n, srt_stream_t *stream)
{
	const srt_k_rows_t args = { .rows = rows, .n = n };
	const srt_op_tensor_t tensors[] = {
		{ "y", y, srt_op_size(rows, n), 0 },
		{ "x", x, srt_op_size(rows, n), 0 },
	};

	return srt_op_launch(name, kernel, true, &args, tensors, stream);
}

/* dx from dy and y, all of one shape, in place allowed. */
static srt_status_t softmax_gradient(const char *name, srt_kernel_id_t kernel, srt_view_t dx,
				     srt_view_t dy, srt_view_t y, int64_t rows, int64_t n,
				     srt_stream_t *stream)
{
	const srt_k_rows_t args = { .rows = rows, .n = n };
	const srt_op_tensor_t tensors[] = {
		{ "dx", dx, srt_op_size(rows, n), 0 },
		{ "dy", dy, srt_op_size(rows, n), 0 },
		{ "y", y, srt_op_size(rows, n), 0 },
	};

	return srt_op_launch(name, kernel, true, &args, tensors, stream);
}

srt_status_t srt_op_softmax(srt_view_t y, srt_view_t x, int64_t rows, int64_t n,
			    srt_stream_t *stream)
{
	return softmax(__func__, SRT_K_SOFTMAX, y, x, rows, n, stream);
}

srt_status_t srt_op_softmax_backward(srt_view_t dx, srt_view_t dy, srt_view_t y, int64_t rows,
				     int64_t n, srt_stream_t *stream)
{
	return softmax_gradient(__func__, SRT_K_SOFTMAX_BACKWARD, dx, dy, y, rows, n, stream);
}

srt_status_t srt_op_log_softmax(srt_view_t y, srt_view_t x, int64_t rows, int64_t n,
				srt_stream_t *stream)
{
	return softmax(__func__, SRT_K_LOG_SOFTMAX, y, x, rows, n, stream);
}

srt_status_t srt_op_log_softmax_backward(srt_view_t dx, srt_view_t dy, srt_view_t y, int64_t rows,
					 int64_t n, srt_stream_t *stream)
{
	return softmax_gradient(__func__, SRT_K_LOG_SOFTMAX_BACKWARD, dx, dy, y, rows, n, stream);
}

int64_t srt_op_pitched_size(int64_t rows, int64_t n, int64_t ld)
{
	int64_t nelem;

	if (rows < 1 || n < 0 || ld < 1)
		return srt_op_size(rows, n);
	nelem = srt_op_size(rows - 1, ld);
	return nelem < 0 || __builtin_add_overflow(nelem, n, &nelem) ? -1 : nelem;
}

srt_status_t srt_op_check_pitch(const char *name, int64_t n, int64_t ld)
{
	if (!ld || (ld >= n && ld <= INT32_MAX))
		return SRT_OK;
	return srt_fail(SRT_ERR_INVALID_ARGUMENT,
			"%s: rows of %lld elements are %lld elements apart; needs at least their "
			"length, and less than 2^31",
			name, (long long)n, (long long)ld);
}

srt_status_t srt_op_cross_entropy(const srt_loss_t *args, srt_stream_t *stream)
{
	srt_loss_t a = SRT_LOSS_INIT;

	SRT_OP_READ(srt_loss_t, a, args, stream);
	const int64_t nelem = srt_op_pitched_size(a.rows, a.n, a.ld);
	const srt_k_rows_t kernel = {
		.rows = a.rows, .n = a.n, .value = a.grad_scale, .ld = (int32_t)a.ld
	};
	const srt_op_tensor_t tensors[] = {
		{ "loss", a.loss, srt_op_size(a.rows, 1), SRT_OP_DTYPE_F32 },
		{ "dx", a.dx, nelem, 0 },
		{ "x", a.x, nelem, 0 },
		{ "target", a.target, srt_op_size(a.rows, 1), SRT_OP_DTYPE_I32 },
		{ "scale", a.scale, 1, SRT_OP_DTYPE_F32 },
	};

	SRT_TRY(srt_op_check_width(__func__, a.rows, a.n));
	SRT_TRY(srt_op_check_pitch(__func__, a.n, a.ld));
	return srt_op_launch(__func__, SRT_K_CROSS_ENTROPY, true, &kernel, tensors, stream);
}

srt_status_t srt_op_check_part(const char *name, const srt_vocab_part_t *part)
{
	SRT_TRY(srt_check_not_null(part, name, "part"));
	if (part->first >= 0 && part->n >= 0 && part->vocab <= INT32_MAX &&
	    part->first <= part->vocab && part->n <= part->vocab - part->first)
		return SRT_OK;
	return srt_fail(SRT_ERR_INVALID_ARGUMENT,
			"%s: %lld elements from element %lld on are not a part of a vocabulary of "
			"%lld",
			name, (long long)part->n, (long long)part->first, (long long)part->vocab);
}

srt_status_t srt_op_cross_entropy_part(srt_view_t stats, srt_view_t x, srt_view_t targets,
				       int64_t rows, const srt_vocab_part_t *part,
				       srt_stream_t *stream)
{
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_op_check_part(__func__, part));
	SRT_TRY(srt_op_check_width(__func__, rows, part->n));
	SRT_TRY(srt_op_check_pitch(__func__, part->n, part->ld));
	const srt_k_vocab_t args = {
		.rows = rows,
		.n = part->n,
		.ld = part->ld,
		.first = part->first,
		.vocab = part->vocab,
	};
	const srt_op_tensor_t tensors[] = {
		{ "stats", stats, srt_op_size(rows, 3), SRT_OP_DTYPE_F32 },
		{ "x", x, srt_op_pitched_size(rows, part->n, part->ld), 0 },
		{ "targets", targets, srt_op_size(rows, 1), SRT_OP_DTYPE_I32 },
	};

	return srt_op_launch(__func__, SRT_K_CROSS_ENTROPY_PART, false, &args, tensors, stream);
}

srt_status_t srt_op_cross_entropy_merge(const srt_loss_t *args, srt_stream_t *stream)
{
	srt_loss_t a = SRT_LOSS_INIT;

	SRT_OP_READ(srt_loss_t, a, args, stream);
	SRT_TRY(srt_op_check_part(__func__, a.part));
	const int64_t nelem = srt_op_pitched_size(a.rows, a.part->n, a.part->ld);
	const srt_k_vocab_t kernel = {
		.rows = a.rows,
		.n = a.part->n,
		.ld = a.part->ld,
		.first = a.part->first,
		.vocab = a.part->vocab,
		.stride = a.stride,
		.nparts = a.nparts,
		.value = a.grad_scale,
	};
	const srt_op_tensor_t tensors[] = {
		{ "loss", a.loss, srt_op_size(a.rows, 1), SRT_OP_DTYPE_F32 },
		{ "dx", a.dx, nelem, 0 },
		{ "x", a.x, nelem, 0 },
		{ "stats", a.stats, srt_op_size(a.nparts, a.stride), SRT_OP_DTYPE_F32 },
		{ "target", a.target, srt_op_size(a.rows, 1), SRT_OP_DTYPE_I32 },
		{ "scale", a.scale, 1, SRT_OP_DTYPE_F32 },
	};

	SRT_TRY(srt_op_check_width(__func__, a.rows, a.part->n));
	SRT_TRY(srt_op_check_pitch(__func__, a.part->n, a.part->ld));
	if (a.nparts < 1 || a.rows < 0 || a.stride / 3 < a.rows)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: statistics of %d parts that are %lld elements apart; needs a "
				"part or more, and 3 elements for each of %lld rows",
				__func__, a.nparts, (long long)a.stride, (long long)a.rows);
	return srt_op_launch(__func__, SRT_K_CROSS_ENTROPY_MERGE, true, &kernel, tensors, stream);
}

srt_status_t srt_op_mse(const srt_loss_t *args, srt_stream_t *stream)
{
	srt_loss_t a = SRT_LOSS_INIT;

	SRT_OP_READ(srt_loss_t, a, args, stream);
	const srt_k_rows_t kernel = { .rows = a.rows, .n = a.n, .value = a.grad_scale };
	const srt_op_tensor_t tensors[] = {
		{ "loss", a.loss, srt_op_size(a.rows, 1), SRT_OP_DTYPE_F32 },
		{ "dx", a.dx, srt_op_size(a.rows, a.n), 0 },
		{ "x", a.x, srt_op_size(a.rows, a.n), 0 },
		{ "target", a.target, srt_op_size(a.rows, a.n), 0 },
		{ "scale", a.scale, 1, SRT_OP_DTYPE_F32 },
	};

	return srt_op_launch(__func__, SRT_K_MSE, false, &kernel, tensors, stream);
}

srt_status_t srt_op_sum_loss(const srt_loss_t *args, srt_stream_t *stream)
{
	srt_loss_t a = SRT_LOSS_INIT;

	SRT_OP_READ(srt_loss_t, a, args, stream);
	const srt_k_rows_t kernel = { .rows = a.rows, .n = a.n, .value = a.grad_scale };
	const srt_op_tensor_t tensors[] = {
		{ "loss", a.loss, srt_op_size(a.rows, 1), SRT_OP_DTYPE_F32 },
		{ "dx", a.dx, srt_op_size(a.rows, a.n), 0 },
		{ "x", a.x, srt_op_size(a.rows, a.n), 0 },
		{ "scale", a.scale, 1, SRT_OP_DTYPE_F32 },
	};

	return srt_op_launch(__func__, SRT_K_SUM_LOSS, false, &kernel, tensors, stream);
}

srt_status_t srt_op_bias_backward(srt_view_t db, srt_view_t dy, int64_t rows, int64_t n,
				  int accumulate, srt_stream_t *stream)
{
	const srt_k_rows_t args = { .rows = rows, .n = n, .accumulate = accumulate != 0 };
	const srt_op_tensor_t tensors[] = {
		{ "db", db, srt_op_size(n, 1), 0 },
		{ "dy", dy, srt_op_size(rows, n), 0 },
	};

	return srt_op_launch(__func__, SRT_K_BIAS_BACKWARD, false, &args, tensors, stream);
}
