/* SPDX-License-Identifier: BSD-3-Clause */
/* Launchers of the embedding operations of <shardrt/ops.h>: kernels/embedding.k. */
#include "runtime/ops/ops.h"

/* *a: a copy of a program's struct; *kernel: its sizes, and how the kernels count the rows of the
 * other parts of the vocabulary. */
static srt_status_t read_embedding(const char *name, srt_stream_t *stream,
				   const srt_embedding_t *given, srt_embedding_t *a,
				   srt_k_embedding_t *kernel)
{
	*a = (srt_embedding_t)SRT_EMBEDDING_INIT;
	SRT_TRY(srt_op_read(name, stream, given, "srt_embedding_t", a, sizeof(*a)));
	*kernel = (srt_k_embedding_t){
		.rows = a->rows, .n = a->n, .vocab = a->vocab, .context = a->context
	};
	if (a->part == NULL)
		return SRT_OK;
	SRT_TRY(srt_op_check_part(name, a->part));
	a->vocab = a->part->vocab;
	kernel->vocab = a->part->n;
	kernel->before = a->part->first;
	kernel->after = a->part->vocab - a->part->first - a->part->n;
	return SRT_OK;
}

/* r % context is computed for every row. */
static srt_status_t check_context(const char *name, int64_t context)
{
	if (context > 0)
		return SRT_OK;
	return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: context is %lld, must be at least 1", name,
			(long long)context);
}

srt_status_t srt_op_embedding(const srt_embedding_t *args, srt_stream_t *stream)
{
	srt_k_embedding_t kernel;
	srt_embedding_t a;

	SRT_TRY(read_embedding(__func__, stream, args, &a, &kernel));
	const srt_op_tensor_t tensors[] = {
		{ "y", a.y, srt_op_size(kernel.rows, kernel.n), 0 },
		{ "table", a.table, srt_op_size(kernel.vocab, kernel.n), 0 },
		{ "position", a.position, srt_op_size(kernel.context, kernel.n), 0 },
		{ "ids", a.ids, srt_op_size(kernel.rows, 1), SRT_OP_DTYPE_I32 },
	};

	if (a.position.buffer != NULL)
		SRT_TRY(check_context(__func__, a.context));
	return srt_op_launch(__func__, SRT_K_EMBEDDING, false, &kernel, tensors, stream);
}

srt_status_t srt_op_embedding_backward(const srt_embedding_t *args, srt_stream_t *stream)
{
	srt_k_embedding_t kernel;
	srt_embedding_t a;

	SRT_TRY(read_embedding(__func__, stream, args, &a, &kernel));
	const srt_op_tensor_t tensors[] = {
		{ "dtable", a.dtable, srt_op_size(kernel.vocab, kernel.n), 0 },
		{ "dy", a.dy, srt_op_size(kernel.rows, kernel.n), 0 },
		{ "ids", a.ids, srt_op_size(kernel.rows, 1), SRT_OP_DTYPE_I32 },
	};

	if (a.padding < -1 || a.padding >= a.vocab || a.padding >= INT32_MAX)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: padding is %lld, must be a row of the table, or -1 for none",
				__func__, (long long)a.padding);
	kernel.context = 0;
	kernel.padding = (int32_t)(a.padding + 1);
	kernel.accumulate = a.accumulate_dtable != 0;
	return srt_op_launch(__func__, SRT_K_EMBEDDING_BACKWARD, false, &kernel, tensors, stream);
}

srt_status_t srt_op_position_backward(const srt_embedding_t *args, srt_stream_t *stream)
{
	srt_embedding_t a = SRT_EMBEDDING_INIT;

	SRT_OP_READ(srt_embedding_t, a, args, stream);
	const srt_k_embedding_t kernel = { .rows = a.rows,
					   .n = a.n,
					   .context = a.context,
					   .accumulate = a.accumulate_dposition != 0 };
	const srt_op_tensor_t tensors[] = {
		{ "dposition", a.dposition, srt_op_size(a.context, a.n), 0 },
		{ "dy", a.dy, srt_op_size(a.rows, a.n), 0 },
	};

	SRT_TRY(check_context(__func__, a.context));
	return srt_op_launch(__func__, SRT_K_POSITION_BACKWARD, false, &kernel, tensors, stream);
}

srt_status_t srt_op_index_copy(const srt_index_copy_t *args, srt_stream_t *stream)
{
	srt_index_copy_t a = SRT_INDEX_COPY_INIT;

	SRT_OP_READ(srt_index_copy_t, a, args, stream);
	const srt_k_index_copy_t kernel = { .rows = a.rows,
					    .n = a.n,
					    .yrows = a.yrows,
					    .ldx = a.ldx ? a.ldx : a.n,
					    .ldy = a.ldy ? a.ldy : a.n };
	const srt_op_tensor_t tensors[] = {
		{ "y", a.y, srt_op_pitched_size(a.yrows, a.n, a.ldy), 0 },
		{ "x", a.x, srt_op_pitched_size(a.rows, a.n, a.ldx), 0 },
		{ "index", a.index, srt_op_size(a.rows, 1), SRT_OP_DTYPE_I32 },
	};

	SRT_TRY(srt_op_check_pitch(__func__, a.n, a.ldx));
	SRT_TRY(srt_op_check_pitch(__func__, a.n, a.ldy));
	return srt_op_launch(__func__, SRT_K_INDEX_COPY, false, &kernel, tensors, stream);
}
