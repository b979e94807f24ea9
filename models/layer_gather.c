/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * y (1,n) = the columns of all tensor-parallel ranks, in order, for sampling: each rank puts its
 * columns into a row of -0, and the rows are summed, which changes no bit.
 */
#include <shardrt/models/layers.h>
#include "models/tape_impl.h"

static srt_status_t forward_gather(const srt_run_t *run, const srt_node_t *node)
{
	const srt_tensor_t *x = node->in[0];
	const size_t size = srt_dtype_bits(x->dtype) / 8;
	const srt_view_t from = srt_run_value(run, x), y = srt_run_value(run, node->out);

	SRT_TRY(srt_op_fill(y, -0.0f, node->out->n, run->stream));
	return srt_buffer_copy(y.buffer, y.offset + (size_t)node->args.part.first * size,
			       from.buffer, from.offset, (size_t)x->n * size, run->stream);
}

static const srt_layer_t gather_layer = {
	.name = "gather_columns",
	.sums = SRT_SUM_OUTPUT,
	.forward = forward_gather,
};

srt_tensor_t *srt_layer_gather_columns(srt_tape_t *tape, srt_tensor_t *x, int64_t n)
{
	srt_node_desc_t desc = {
		.layer = &gather_layer, .rows = 1, .n = n, .args.part = srt_tape_vocab_part(tape, n)
	};

	if (tape->nranks == 1)
		return x;
	desc.in[0] = x = srt_tape_enter(tape, gather_layer.name, x);
	if (x == NULL)
		return NULL;
	if (x->rows != 1 || x->n != desc.args.part.n) {
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
			      "gather_columns: needs one row of the %lld columns of this rank, of "
			      "%lld, not (%lld,%lld)",
			      (long long)desc.args.part.n, (long long)n, (long long)x->rows,
			      (long long)x->n);
		return NULL;
	}
	desc.dtype = x->dtype;
	return srt_tape_record(tape, &desc);
}
