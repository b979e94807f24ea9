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

static srt_status_t look_up(const char *name, srt_stream_t *stream, const srt_view_t views[4],
			    const srt_k_embedding_t *args)
{
	const srt_op_tensor_t tensors[] = {
		{ "y", views[0], srt_op_size(args->rows, args->n), 0 },
		{ "table", views[1], srt_op_size(args->vocab, args->n), 0 },
		{ "position", views[2], srt_op_size(args->context, args->n), 0 },
		{ "ids", views[3], srt_op_size(args->rows, 1), SRT_OP_DTYPE_I32 },
	};

	if (views[2].buffer)
		SRT_TRY(check_context(name, args->context));
	return srt_op_launch(&(srt_op_call_t){ name, stream, SRT_K_EMBEDDING, false, args },
			     tensors);
}

srt_status_t srt_op_embedding(srt_stream_t *stream, srt_view_t y, srt_view_t table,
			      srt_view_t position, srt_view_t ids, int64_t rows, int64_t n,
			      int64_t vocab, int64_t context)
{
	const srt_k_embedding_t args = { .rows = rows, .n = n, .vocab = vocab, .context = context };
	const srt_view_t views[] = { y, table, position, ids };

	return look_up("srt_op_embedding", stream, views, &args);
}

/* How the kernels count the rows of the other parts. */
static srt_k_embedding_t describe_part(const srt_vocab_part_t *part, int64_t rows, int64_t n)
{
	return (srt_k_embedding_t){ .rows = rows,
				    .n = n,
				    .vocab = part->n,
				    .before = part->first,
				    .after = part->vocab - part->first - part->n };
}

srt_status_t srt_op_embedding_part(srt_stream_t *stream, srt_view_t y, srt_view_t table,
				   srt_view_t position, srt_view_t ids, int64_t rows, int64_t n,
				   const srt_vocab_part_t *part, int64_t context)
{
	const srt_view_t views[] = { y, table, position, ids };
	srt_k_embedding_t args;

	SRT_NOT_NULL(stream);
	SRT_TRY(srt_op_check_part("srt_op_embedding_part", part));
	args = describe_part(part, rows, n);
	args.context = context;
	return look_up("srt_op_embedding_part", stream, views, &args);
}

static srt_status_t add_rows(const char *name, srt_stream_t *stream, const srt_view_t views[3],
			     srt_k_embedding_t *args, int64_t vocab, int64_t padding)
{
	const srt_op_tensor_t tensors[] = {
		{ "dtable", views[0], srt_op_size(args->vocab, args->n), 0 },
		{ "dy", views[1], srt_op_size(args->rows, args->n), 0 },
		{ "ids", views[2], srt_op_size(args->rows, 1), SRT_OP_DTYPE_I32 },
	};

	if (padding < -1 || padding >= vocab || padding >= INT32_MAX)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: padding is %lld, must be a row of the table, or -1 for none",
				name, (long long)padding);
	args->padding = (int32_t)(padding + 1);
	return srt_op_launch(&(srt_op_call_t){ name, stream, SRT_K_EMBEDDING_BACKWARD, false,
					       args },
			     tensors);
}

srt_status_t srt_op_embedding_backward(srt_stream_t *stream, srt_view_t dtable, srt_view_t dy,
				       srt_view_t ids, int64_t rows, int64_t n, int64_t vocab,
				       int64_t padding, int accumulate)
{
	srt_k_embedding_t args = {
		.rows = rows, .n = n, .vocab = vocab, .accumulate = accumulate != 0
	};
	const srt_view_t views[] = { dtable, dy, ids };

	SRT_NOT_NULL(stream);
	return add_rows("srt_op_embedding_backward", stream, views, &args, vocab, padding);
}

srt_status_t srt_op_embedding_part_backward(srt_stream_t *stream, srt_view_t dtable, srt_view_t dy,
					    srt_view_t ids, int64_t rows, int64_t n,
					    const srt_vocab_part_t *part, int64_t padding,
					    int accumulate)
{
	const srt_view_t views[] = { dtable, dy, ids };
	srt_k_embedding_t args;

	SRT_NOT_NULL(stream);
	SRT_TRY(srt_op_check_part("srt_op_embedding_part_backward", part));
	args = describe_part(part, rows, n);
	args.accumulate = accumulate != 0;
	return add_rows("srt_op_embedding_part_backward", stream, views, &args, part->vocab,
			padding);
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
