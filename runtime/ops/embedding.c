/* SPDX-License-Identifier: BSD-3-Clause */
/* Launchers of the embedding operations of <shardrt/ops.h>: kernels/embedding.k. */
#include "runtime/ops/ops.h"

/* r % context is computed for every row. */
static srt_status_t check_context(const char *name, int64_t context)
{
	if (context > 0)
		return SRT_OK;
	return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: context is %lld, must be at least 1", name,
			(long long)context);
}

srt_status_t srt_op_embedding(srt_stream_t *stream, srt_view_t y, srt_view_t table,
			      srt_view_t position, srt_view_t ids, int64_t rows, int64_t n,
			      int64_t vocab, int64_t context)
{
	const srt_k_embedding_t args = { .rows = rows, .n = n, .vocab = vocab, .context = context };
	const srt_op_tensor_t tensors[] = {
		{ "y", y, srt_op_size(rows, n), 0 },
		{ "table", table, srt_op_size(vocab, n), 0 },
		{ "position", position, srt_op_size(context, n), 0 },
		{ "ids", ids, srt_op_size(rows, 1), SRT_OP_DTYPE_I32 },
	};

	if (position.buffer)
		SRT_TRY(check_context("srt_op_embedding", context));
	return srt_op_launch(&(srt_op_call_t){ "srt_op_embedding", stream, SRT_K_EMBEDDING, false,
					       &args },
			     tensors);
}

srt_status_t srt_op_embedding_backward(srt_stream_t *stream, srt_view_t dtable, srt_view_t dy,
				       srt_view_t ids, int64_t rows, int64_t n, int64_t vocab,
				       int64_t padding, int accumulate)
{
	const srt_k_embedding_t args = { .rows = rows,
					 .n = n,
					 .vocab = vocab,
					 .padding = (int32_t)(padding + 1),
					 .accumulate = accumulate != 0 };
	const srt_op_tensor_t tensors[] = {
		{ "dtable", dtable, srt_op_size(vocab, n), 0 },
		{ "dy", dy, srt_op_size(rows, n), 0 },
		{ "ids", ids, srt_op_size(rows, 1), SRT_OP_DTYPE_I32 },
	};

	SRT_NOT_NULL(stream);
	if (padding < -1 || padding >= vocab || padding >= INT32_MAX)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_op_embedding_backward: padding is %lld, must be a row of the "
				"table, or -1 for none",
				(long long)padding);
	return srt_op_launch(&(srt_op_call_t){ "srt_op_embedding_backward", stream,
					       SRT_K_EMBEDDING_BACKWARD, false, &args },
			     tensors);
}

srt_status_t srt_op_position_backward(srt_stream_t *stream, srt_view_t dposition, srt_view_t dy,
				      int64_t rows, int64_t n, int64_t context, int accumulate)
{
	const srt_k_embedding_t args = {
		.rows = rows, .n = n, .context = context, .accumulate = accumulate != 0
	};
	const srt_op_tensor_t tensors[] = {
		{ "dposition", dposition, srt_op_size(context, n), 0 },
		{ "dy", dy, srt_op_size(rows, n), 0 },
	};

	SRT_TRY(check_context("srt_op_position_backward", context));
	return srt_op_launch(&(srt_op_call_t){ "srt_op_position_backward", stream,
					       SRT_K_POSITION_BACKWARD, false, &args },
			     tensors);
}
