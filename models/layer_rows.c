/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sequence parallelism (srt_tape_set_sequence_parallel()), as Megatron-LM's: outputs of rowwise
 * layers and of embeddings, and what is computed of them by row, are this rank's rows. A colwise
 * layer gathers the rows of all ranks, and in the backward pass again instead of keeping them; the
 * gradient of that is made in parts (layer_parts.c), and each rank gets its rows of their sum. The
 * gradients of a norm's parameters are sums over own rows, then over the ranks.
 */
#include <shardrt/models/layers.h>
#include "models/tape_impl.h"

int srt_tape_can_cut_rows(srt_tape_t *tape, const char *layer, int64_t rows)
{
	if (rows % tape->nranks == 0)
		return 1;
	srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
		      "%s: %lld rows cannot be divided among %d tensor-parallel ranks (sequence "
		      "parallelism): use another batch or context",
		      layer, (long long)rows, tape->nranks);
	return 0;
}

/* ---- rows of all ranks ------------------------------------------------------------------ */

static srt_status_t forward_gather_rows(const srt_run_t *run, const srt_node_t *node)
{
	return srt_run_gather_input(run, node);
}

static const srt_layer_t gather_rows_layer = {
	.name = "gather_rows",
	.adds = 1,
	.by_row = 1,
	.sums = SRT_SUM_GRADIENT_ROWS,
	.gathers = SRT_GATHER_ROWS,
	.forward = forward_gather_rows,
	.backward = srt_run_backward_parts,
};

srt_tensor_t *srt_tape_gather_rows(srt_tape_t *tape, srt_tensor_t *x)
{
	const srt_node_desc_t desc = { .layer = &gather_rows_layer,
				       .in = { x },
				       .dtype = x->dtype,
				       .rows = x->rows * tape->nranks,
				       .n = x->n,
				       .backward_scratch =
					       srt_tape_f32_nbytes(tape, x->rows, x->n) };

	srt_tape_parts_nbytes(tape, desc.rows, x->n);
	return srt_tape_record(tape, &desc);
}

srt_status_t srt_run_whole_grad_out(const srt_run_t *run, const srt_node_t *node, srt_view_t *dy)
{
	*dy = srt_run_grad_out(run, node);
	if (!(node->layer->gathers & SRT_GATHER_GRAD_OUT))
		return SRT_OK;
	*dy = srt_run_block(run, node->scratch_backward, dy->dtype);
	return srt_run_gather_grad_out(run, node);
}

/* ---- parameters of norms ---------------------------------------------------------------- */

/* Offsets into the backward scratch, after the sums. */
static size_t get_x_offset(const srt_tensor_t *x, int nvectors)
{
	return srt_align_block((size_t)x->n * (size_t)nvectors * sizeof(float));
}

static size_t get_dy_offset(const srt_tensor_t *x, int nvectors)
{
	return get_x_offset(x, nvectors) +
	       (x->dtype == SRT_F32 ? 0 :
				      srt_align_block((size_t)(x->rows * x->n) * sizeof(float)));
}

size_t srt_tape_row_params_nbytes(srt_tape_t *tape, const srt_tensor_t *x, int nvectors)
{
	srt_tape_f32_nbytes(tape, x->rows + 1, 4 * x->n);
	return get_dy_offset(x, nvectors) +
	       (x->dtype == SRT_F32 ? 0 : (size_t)(x->rows * x->n) * sizeof(float));
}

srt_status_t srt_run_widen_rows(const srt_run_t *run, const srt_node_t *node, int nvectors,
				srt_view_t *x, srt_view_t *dy)
{
	const srt_tensor_t *in = node->in[0];
	srt_view_t wide = srt_run_block(run, node->scratch_backward, SRT_F32);
	const srt_view_t scratch = wide;

	if (in->dtype == SRT_F32)
		return SRT_OK;
	wide.offset = scratch.offset + get_x_offset(in, nvectors);
	SRT_TRY(srt_op_cast(wide, *x, in->rows * in->n, run->stream));
	*x = wide;
	wide.offset = scratch.offset + get_dy_offset(in, nvectors);
	SRT_TRY(srt_op_cast(wide, *dy, in->rows * in->n, run->stream));
	*dy = wide;
	return SRT_OK;
}

srt_status_t srt_run_add_row_params(const srt_run_t *run, const srt_node_t *node, int nvectors,
				    const srt_view_t *grads, const int *accumulate)
{
	srt_sum_parts_t sum = SRT_SUM_PARTS_INIT;

	SRT_TRY(srt_run_sum_param(run, node));
	sum.rows = 1;
	sum.n = node->args.norm_n;
	sum.parts = srt_run_block(run, node->scratch_backward, SRT_F32);
	for (int i = 0; i < nvectors; i++) {
		sum.out = grads[i];
		sum.accumulate = accumulate[i];
		if (sum.out.buffer != NULL)
			SRT_TRY(srt_op_sum_parts(&sum, run->stream));
		sum.parts.offset += (size_t)sum.n * sizeof(float);
	}
	return SRT_OK;
}
