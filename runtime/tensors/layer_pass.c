/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Layers with a sharded weight: forward and backward passes (sharded_layer.c has the transfers).
 *
 *     Linear      Y = X W^T,  dX = dY W,  dW = dY^T X, with the shard of W and what it needs of the
 *                 rows of all ranks
 *     Embedding   rows of W by id, and their sums
 *
 * A rank without a shard takes part in each transfer, and adds -0 to each sum: no bit changes.
 */
#include "runtime/tensors/sharded_layer.h"

#include <shardrt/ops.h>

/* ---- views ------------------------------------------------------------------------------- */

static srt_view_t whole_view(const srt_sharded_layer_t *layer, srt_buffer_t *buffer)
{
	return srt_view(buffer, 0, layer->dtype);
}

static bool has_shard(const srt_sharded_layer_t *layer)
{
	return layer->weight.buffer != NULL;
}

/* What products of this rank read and write: columns of the shard, or all of them. */
static int64_t x_width(const srt_sharded_layer_t *layer)
{
	return layer->dim == 1 ? layer->n : layer->in;
}

static int64_t y_width(const srt_sharded_layer_t *layer)
{
	return srt_layer_sums_y(layer) ? layer->out : layer->n;
}

/* Where the product y goes, and the product dx. */
static srt_view_t y_view(const srt_sharded_layer_t *layer)
{
	return whole_view(layer, srt_layer_sums_y(layer) ? layer->partial : layer->y);
}

static srt_view_t dx_view(const srt_sharded_layer_t *layer)
{
	return whole_view(layer, srt_layer_sums_y(layer) ? layer->dx : layer->partial);
}

/* ---- sums over the ranks ----------------------------------------------------------------- */

/* Before this rank writes to `partial`. */
static srt_status_t begin_sum(const srt_sharded_layer_t *layer, srt_stream_t *stream)
{
	/* Edge: the peers' last reading -> the new products. */
	SRT_TRY(srt_coll_wait_readers(layer->sum, stream));
	if (has_shard(layer))
		return SRT_OK;
	return srt_op_fill(whole_view(layer, layer->partial), -0.0f,
			   layer->total * srt_layer_sum_width(layer), stream);
}

/* This rank's rows of the sum. */
static srt_status_t end_sum(const srt_sharded_layer_t *layer, srt_view_t to, srt_stream_t *stream)
{
	const size_t nbytes =
		(size_t)(layer->rows * srt_layer_sum_width(layer)) * srt_dtype_size(layer->dtype);

	SRT_TRY(srt_coll_start(layer->sum, NULL, stream));
	if (nbytes == 0)
		return SRT_OK;
	return srt_buffer_copy(to.buffer, to.offset, layer->summed, 0, nbytes, stream);
}

/* y = y + bias in each row; the bias is repeated in `summed`, whose values y has. */
static srt_status_t add_bias(const srt_sharded_layer_t *layer, srt_view_t bias, srt_view_t y,
			     srt_stream_t *stream)
{
	const srt_strided_t repeat = { .ndim = 2,
				       .size = { layer->rows, layer->out },
				       .stride_y = { layer->out, 1 },
				       .stride_x = { 0, 1 } };
	const srt_view_t rows = whole_view(layer, layer->summed);

	if (bias.buffer == NULL || layer->rows == 0)
		return SRT_OK;
	SRT_TRY(srt_op_copy_strided(rows, bias, &repeat, stream));
	return srt_op_add(y, y, rows, layer->rows * layer->out, stream);
}

/* ---- Linear ------------------------------------------------------------------------------ */

static srt_status_t multiply_y(const srt_sharded_layer_t *layer, srt_view_t bias,
			       srt_stream_t *stream)
{
	const int64_t k = x_width(layer), n = y_width(layer);
	srt_matmul_t mm = SRT_MATMUL_INIT;

	mm.m = layer->total;
	mm.n = n;
	mm.k = k;
	mm.trans_b = 1;
	mm.a = whole_view(layer, layer->x);
	mm.b = layer->weight;
	mm.c = y_view(layer);
	if (bias.buffer != NULL && !srt_layer_sums_y(layer)) {
		mm.bias = bias;
		mm.bias.offset += (size_t)layer->first * srt_dtype_size(layer->dtype);
	}
	return srt_op_matmul(&mm, stream);
}

static srt_status_t multiply_dx(const srt_sharded_layer_t *layer, srt_stream_t *stream)
{
	const int64_t k = y_width(layer), n = x_width(layer);
	srt_matmul_t mm = SRT_MATMUL_INIT;

	mm.m = layer->total;
	mm.n = n;
	mm.k = k;
	mm.a = whole_view(layer, layer->dy);
	mm.b = layer->weight;
	mm.c = dx_view(layer);
	return srt_op_matmul(&mm, stream);
}

static srt_status_t multiply_dw(const srt_sharded_layer_t *layer, int accumulate,
				srt_stream_t *stream)
{
	const int64_t m = y_width(layer), n = x_width(layer);
	srt_matmul_t mm = SRT_MATMUL_INIT;

	mm.m = m;
	mm.n = n;
	mm.k = layer->total;
	mm.trans_a = 1;
	mm.a = whole_view(layer, layer->dy);
	mm.b = whole_view(layer, layer->x);
	mm.c = layer->grad;
	mm.accumulate = accumulate;
	return srt_op_matmul(&mm, stream);
}

/* ---- Embedding --------------------------------------------------------------------------- */

/* The rows of the table that this rank has: all of them if columns are cut. */
static srt_vocab_part_t part_of(const srt_sharded_layer_t *layer)
{
	if (layer->dim == 1)
		return (srt_vocab_part_t){ .vocab = layer->in, .n = layer->in };
	return (srt_vocab_part_t){ .vocab = layer->in, .first = layer->first, .n = layer->n };
}

static srt_embedding_t get_embedding(const srt_sharded_layer_t *layer, const srt_vocab_part_t *part)
{
	srt_embedding_t args = SRT_EMBEDDING_INIT;

	args.rows = layer->total;
	args.n = y_width(layer);
	args.part = part;
	args.ids = srt_view(layer->x, 0, SRT_I32);
	return args;
}

static srt_status_t look_up(const srt_sharded_layer_t *layer, srt_stream_t *stream)
{
	const srt_vocab_part_t part = part_of(layer);
	srt_embedding_t args = get_embedding(layer, &part);

	args.y = y_view(layer);
	args.table = layer->weight;
	return srt_op_embedding(&args, stream);
}

static srt_status_t sum_rows(const srt_sharded_layer_t *layer, int accumulate, srt_stream_t *stream)
{
	const srt_vocab_part_t part = part_of(layer);
	srt_embedding_t args = get_embedding(layer, &part);

	args.dy = whole_view(layer, layer->dy);
	args.dtable = layer->grad;
	args.accumulate_dtable = accumulate;
	return srt_op_embedding_backward(&args, stream);
}

/* ---- passes ------------------------------------------------------------------------------ */

static srt_status_t check_rows(const srt_sharded_layer_t *layer, srt_view_t view, int64_t nelem,
			       srt_dtype_t dtype, const char *what)
{
	if (nelem == 0)
		return SRT_OK;
	SRT_TRY(srt_view_check(&view, (size_t)nelem, what));
	if (view.dtype != dtype || view.buffer->device != layer->comm->device)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s of '%s' must be %s, on the device of the communicator", what,
				layer->name, srt_dtype_name(dtype));
	return SRT_OK;
}

static srt_status_t forward(srt_sharded_layer_t *layer, srt_view_t x, srt_view_t bias, srt_view_t y,
			    srt_stream_t *stream)
{
	const bool sums = srt_layer_sums_y(layer), linear = !layer->is_embedding;
	const srt_view_t all_x = srt_view(layer->x, 0, linear ? layer->dtype : SRT_I32);
	const srt_view_t all_y = y_view(layer);

	SRT_TRY(check_rows(layer, x, layer->rows * (linear ? layer->in : 1), all_x.dtype, "x"));
	SRT_TRY(check_rows(layer, y, layer->rows * layer->out, layer->dtype, "y"));
	if (bias.buffer != NULL)
		SRT_TRY(check_rows(layer, bias, layer->out, layer->dtype, "the bias"));
	if (bias.buffer != NULL && !linear)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "the embedding '%s' has no bias",
				layer->name);
	SRT_TRY(srt_transfer_run(layer->take_x, &x, &all_x, stream));
	if (sums)
		SRT_TRY(begin_sum(layer, stream));
	if (has_shard(layer) && layer->total > 0)
		SRT_TRY(linear ? multiply_y(layer, bias, stream) : look_up(layer, stream));
	layer->has_x = true;
	if (!sums)
		return srt_transfer_run(layer->give_y, &all_y, &y, stream);
	SRT_TRY(end_sum(layer, y, stream));
	return add_bias(layer, bias, y, stream);
}

/* The gradient of x. */
static srt_status_t backward_x(const srt_sharded_layer_t *layer, srt_view_t dx,
			       srt_stream_t *stream)
{
	const bool sums = !srt_layer_sums_y(layer);
	const srt_view_t all_dx = dx_view(layer);

	if (sums)
		SRT_TRY(begin_sum(layer, stream));
	if (has_shard(layer) && layer->total > 0)
		SRT_TRY(multiply_dx(layer, stream));
	return sums ? end_sum(layer, dx, stream) :
		      srt_transfer_run(layer->give_dx, &all_dx, &dx, stream);
}

static srt_status_t backward(srt_sharded_layer_t *layer, srt_view_t dy, srt_view_t dx,
			     int accumulate, srt_stream_t *stream)
{
	const srt_view_t all_dy = whole_view(layer, layer->dy);

	if (!layer->has_x)
		return srt_fail(SRT_ERR_STATE,
				"the backward pass of '%s' follows no forward pass: call "
				"srt_sharded_layer_forward() first",
				layer->name);
	SRT_TRY(check_rows(layer, dy, layer->rows * layer->out, layer->dtype, "dy"));
	if (dx.buffer != NULL && layer->is_embedding)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "the ids of '%s' have no gradient",
				layer->name);
	if (dx.buffer != NULL)
		SRT_TRY(check_rows(layer, dx, layer->rows * layer->in, layer->dtype, "dx"));
	SRT_TRY(srt_transfer_run(layer->take_dy, &dy, &all_dy, stream));
	if (layer->grad.buffer != NULL)
		SRT_TRY(layer->is_embedding ? sum_rows(layer, accumulate, stream) :
					      multiply_dw(layer, accumulate, stream));
	return dx.buffer != NULL ? backward_x(layer, dx, stream) : SRT_OK;
}

srt_status_t srt_sharded_layer_forward(srt_sharded_layer_t *layer, srt_view_t x, srt_view_t bias,
				       srt_view_t y, srt_stream_t *stream)
{
	srt_status_t status;

	SRT_NOT_NULL(layer);
	SRT_NOT_NULL(stream);
	status = forward(layer, x, bias, y, stream);
	if (status == SRT_OK)
		return SRT_OK;
	return srt_comm_fail_alone(layer->comm, "the forward pass of a sharded layer", status,
				   srt_error_last());
}

srt_status_t srt_sharded_layer_backward(srt_sharded_layer_t *layer, srt_view_t dy, srt_view_t dx,
					int accumulate, srt_stream_t *stream)
{
	srt_status_t status;

	SRT_NOT_NULL(layer);
	SRT_NOT_NULL(stream);
	status = backward(layer, dy, dx, accumulate, stream);
	if (status == SRT_OK)
		return SRT_OK;
	return srt_comm_fail_alone(layer->comm, "the backward pass of a sharded layer", status,
				   srt_error_last());
}
