/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * y (rows,n) = table (vocab,n)[ids[r]] + position (>= context,n)[r % context], in the compute dtype
 * of the innermost open unit, which that of the parameters must be.
 * Backward: rows of dtable and dposition are sums of rows of dy; the ids take no gradient, and
 * the padding row of the table takes none.
 * Rowwise: each tensor-parallel rank has rows of the table, and the first one adds the position.
 * Also: one row of a matrix, selected at run time, for sampling.
 */
#include <shardrt/models/layers.h>
#include "models/tape_impl.h"

static int64_t count_param_rows(const srt_param_t *param)
{
	int64_t shape[SRT_MAX_DIMS];

	srt_param_partition(param, shape);
	return shape[0];
}

static srt_embedding_t get_args(const srt_run_t *run, const srt_node_t *node)
{
	srt_embedding_t args = SRT_EMBEDDING_INIT;

	args.rows = node->in[0]->rows;
	args.n = node->out->n;
	args.context = node->args.context;
	args.part = &node->args.part;
	args.padding = node->args.padding;
	args.ids = srt_run_value(run, node->in[0]);
	return args;
}

/* The sum over the ranks, of this rank's rows. */
static srt_status_t take_own_rows(const srt_run_t *run, const srt_node_t *node)
{
	const srt_tensor_t *y = node->out;
	const srt_view_t to = srt_run_value(run, y), from = srt_run_own_sum(run, node, y->dtype);

	SRT_TRY(srt_run_sum_parts(run, node));
	return srt_buffer_copy(to.buffer, to.offset, from.buffer, from.offset,
			       (size_t)(y->rows * y->n) * (srt_dtype_bits(y->dtype) / 8),
			       run->stream);
}

static srt_status_t forward_embedding(const srt_run_t *run, const srt_node_t *node)
{
	srt_embedding_t args = get_args(run, node);

	SRT_TRY(srt_run_param(run, node, 0, &args.table));
	SRT_TRY(srt_run_param(run, node, 1, &args.position));
	if (node->layer->sums != SRT_SUM_NONE && run->tape->rank > 0)
		args.position = (srt_view_t){ 0 };
	args.y = node->layer->sums == SRT_SUM_OUTPUT_ROWS ?
			 srt_run_scratch(run, node, node->out->dtype) :
			 srt_run_value(run, node->out);
	SRT_TRY(srt_op_embedding(&args, run->stream));
	return node->layer->sums == SRT_SUM_OUTPUT_ROWS ? take_own_rows(run, node) : SRT_OK;
}

/* Positions beyond the context of this tape get a gradient of zero. */
static srt_status_t zero_unused_positions(const srt_run_t *run, const srt_node_t *node,
					  srt_view_t dposition)
{
	int64_t unused = count_param_rows(node->param[1]) - node->args.context;
	size_t row = (size_t)node->out->n * (srt_dtype_bits(dposition.dtype) / 8);

	if (unused == 0)
		return SRT_OK;
	return srt_buffer_zero(dposition.buffer,
			       dposition.offset + (size_t)node->args.context * row,
			       (size_t)unused * row, run->stream);
}

static srt_status_t backward_embedding(const srt_run_t *run, const srt_node_t *node)
{
	srt_embedding_t args = get_args(run, node);

	SRT_TRY(srt_run_whole_grad_out(run, node, &args.dy));
	SRT_TRY(srt_run_param_grad(run, node, 1, &args.dposition, &args.accumulate_dposition));
	if (args.dposition.buffer != NULL) {
		if (!args.accumulate_dposition)
			SRT_TRY(zero_unused_positions(run, node, args.dposition));
		SRT_TRY(srt_op_position_backward(&args, run->stream));
		SRT_TRY(srt_run_param_ready(node, 1));
	}
	SRT_TRY(srt_run_param_grad(run, node, 0, &args.dtable, &args.accumulate_dtable));
	if (args.dtable.buffer != NULL) {
		SRT_TRY(srt_op_embedding_backward(&args, run->stream));
		SRT_TRY(srt_run_param_ready(node, 0));
	}
	return SRT_OK;
}

static const srt_layer_t embedding_layer = {
	.name = "embedding",
	.keeps_in = 1u << 0,
	.forward = forward_embedding,
	.backward = backward_embedding,
};

static const srt_layer_t rowwise_layer = {
	.name = "embedding_rowwise",
	.keeps_in = 1u << 0,
	.sums = SRT_SUM_OUTPUT,
	.forward = forward_embedding,
	.backward = backward_embedding,
};

/* The output has this rank's rows. */
static const srt_layer_t rowwise_rows_layer = {
	.name = "embedding_rowwise",
	.keeps_in = 1u << 0,
	.sums = SRT_SUM_OUTPUT_ROWS,
	.gathers = SRT_GATHER_GRAD_OUT,
	.forward = forward_embedding,
	.backward = backward_embedding,
};

/* Sets what a node needs to make the rows of all ranks and keep its own. @return whether it can. */
static int cut_rows(srt_tape_t *tape, srt_node_desc_t *desc)
{
	const size_t nbytes = srt_tape_f32_nbytes(tape, desc->rows, desc->n) / sizeof(float) *
			      (srt_dtype_bits(desc->dtype) / 8);

	if (!srt_tape_can_cut_rows(tape, desc->layer->name, desc->rows))
		return 0;
	desc->rows /= tape->nranks;
	desc->args.own_offset = srt_align_block(nbytes);
	desc->forward_scratch = desc->args.own_offset + nbytes / (size_t)tape->nranks;
	desc->backward_scratch = nbytes;
	return 1;
}

/* `part` of the vocabulary is that of the table. */
static srt_tensor_t *record_embedding(srt_tape_t *tape, const srt_layer_t *layer, srt_tensor_t *ids,
				      srt_param_t *table, srt_param_t *position, int64_t context,
				      int64_t padding, srt_vocab_part_t part)
{
	srt_node_desc_t desc = { .layer = layer,
				 .in = { ids },
				 .param = { table, position },
				 .args = { .context = context, .padding = padding, .part = part } };
	int64_t shape[SRT_MAX_DIMS];

	srt_param_partition(table, shape);
	if (position != NULL && !srt_tape_param_is(tape, "embedding", position, 2, -1, shape[1]))
		return NULL;
	if (ids->dtype != SRT_I32 || ids->n != 1 || context < 1 || ids->rows % context != 0 ||
	    (position != NULL && count_param_rows(position) < context)) {
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
			      "embedding: needs i32 ids (batch*context,1) and as many positions as "
			      "the context of %lld",
			      (long long)context);
		return NULL;
	}
	if (padding < -1 || padding >= part.vocab) {
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
			      "embedding: padding is %lld, the table has %lld rows",
			      (long long)padding, (long long)part.vocab);
		return NULL;
	}
	desc.dtype = srt_tape_compute_dtype(tape);
	desc.rows = ids->rows;
	desc.n = shape[1];
	if (layer == &rowwise_rows_layer && !cut_rows(tape, &desc))
		return NULL;
	return srt_tape_record(tape, &desc);
}

srt_tensor_t *srt_layer_embedding_padded(srt_tape_t *tape, srt_tensor_t *ids, srt_param_t *table,
					 srt_param_t *position, int64_t context, int64_t padding)
{
	srt_vocab_part_t part = { 0 };

	if (!srt_tape_usable(tape, ids) || !srt_tape_param_is(tape, "embedding", table, 2, -1, -1))
		return NULL;
	part.vocab = part.n = count_param_rows(table);
	return record_embedding(tape, &embedding_layer, ids, table, position, context, padding,
				part);
}

srt_tensor_t *srt_layer_embedding_rowwise_padded(srt_tape_t *tape, srt_tensor_t *ids,
						 srt_param_t *table, srt_param_t *position,
						 int64_t context, int64_t padding)
{
	srt_vocab_part_t part;

	if (tape->nranks == 1)
		return srt_layer_embedding_padded(tape, ids, table, position, context, padding);
	if (!srt_tape_usable(tape, ids) ||
	    !srt_tape_param_part(tape, rowwise_layer.name, table, -1, &part))
		return NULL;
	return record_embedding(tape, tape->cuts_rows ? &rowwise_rows_layer : &rowwise_layer, ids,
				table, position, context, padding, part);
}

srt_tensor_t *srt_layer_embedding_rowwise(srt_tape_t *tape, srt_tensor_t *ids, srt_param_t *table,
					  srt_param_t *position, int64_t context)
{
	return srt_layer_embedding_rowwise_padded(tape, ids, table, position, context, -1);
}

srt_tensor_t *srt_layer_embedding(srt_tape_t *tape, srt_tensor_t *ids, srt_param_t *table,
				  srt_param_t *position, int64_t context)
{
	return srt_layer_embedding_padded(tape, ids, table, position, context, -1);
}

/* ---- one row ---------------------------------------------------------------------------- */

static srt_status_t forward_row(const srt_run_t *run, const srt_node_t *node)
{
	srt_view_t x = srt_run_value(run, node->in[0]), y = srt_run_value(run, node->out);
	size_t nbytes = (size_t)node->out->n * (srt_dtype_bits(x.dtype) / 8);
	int64_t row = *node->args.row;

	if (row < 0 || row >= node->in[0]->rows)
		return srt_tape_fail(run->tape, SRT_ERR_INVALID_ARGUMENT,
				     "row %lld of a matrix of %lld rows does not exist",
				     (long long)row, (long long)node->in[0]->rows);
	return srt_buffer_copy(y.buffer, y.offset, x.buffer, x.offset + (size_t)row * nbytes,
			       nbytes, run->stream);
}

static const srt_layer_t row_layer = {
	.name = "row",
	.forward = forward_row,
};

srt_tensor_t *srt_layer_row(srt_tape_t *tape, srt_tensor_t *x, const int64_t *row)
{
	srt_node_desc_t desc = { .layer = &row_layer, .rows = 1, .args = { .row = row } };

	desc.in[0] = x = srt_tape_enter(tape, "row", x);
	if (x == NULL)
		return NULL;
	desc.dtype = x->dtype;
	desc.n = x->n;
	return srt_tape_record(tape, &desc);
}
