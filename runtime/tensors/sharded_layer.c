/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Layers with a sharded weight: creation. The rows of all ranks are a tensor (total,width) in three
 * sets of boxes, and transfers go between them:
 *
 *     rows      each rank has its own
 *     whole     each rank with a shard has all rows
 *     columns   each rank with a shard has the columns of its shard, of all rows
 *
 *                        x to the shards      y from them     dy to them      dx from them
 *     Linear, dim 0      whole                columns         columns         sum
 *     Linear, dim 1      columns              sum             whole           columns
 *     Embedding, dim 0   whole (ids)          sum             whole           -
 *     Embedding, dim 1   whole (ids)          columns         columns         -
 *
 * Memory of a rank: the four tensors over all rows, and the sum for the rank's rows. An Embedding
 * cut by dimension 1 has no sum.
 */
#include <stdlib.h>

#include "runtime/tensors/sharded_layer.h"

static const char creating[] = "creating a sharded layer";

/* ---- checks ------------------------------------------------------------------------------ */

static srt_status_t check_weight(const srt_sharded_tensor_t *w, const srt_sharded_tensor_t *grad,
				 int64_t rows)
{
	if (w->ndim != 2 || !srt_dtype_is_float(w->dtype) || w->kind != SRT_SHARDING_CHUNK)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the weight '%s' must be a matrix of f32, f16 or bf16, in chunks",
				w->name);
	for (size_t i = 0; i < w->nshards; i++) {
		for (size_t j = 0; j < i; j++) {
			if (w->shards[i].location.rank == w->shards[j].location.rank)
				return srt_fail(SRT_ERR_INVALID_ARGUMENT,
						"shards %zu and %zu of the weight '%s' are both on "
						"rank %d of the communicator",
						j, i, w->name, w->shards[i].location.rank);
		}
	}
	for (size_t i = 0; i < w->nlocal; i++) {
		if (w->views[i].buffer != NULL && w->views[i].buffer->device != w->comm->device)
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"the shard of the weight '%s' is on the host device",
					w->name);
	}
	if (grad != NULL &&
	    (!srt_sharded_tensor_matches(w, grad) || !srt_sharded_tensor_same_shards(w, grad)))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the gradient of the weight '%s' has another shape, dtype or "
				"sharding",
				w->name);
	if (rows < 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%lld rows of the input of '%s'",
				(long long)rows, w->name);
	return SRT_OK;
}

/* ---- boxes ------------------------------------------------------------------------------- */

/* Boxes of the rows of all ranks, at most one of each rank. */
typedef struct boxes {
	srt_shard_t *shards;
	size_t n;
	const int64_t *rows; /* of each rank */
} boxes_t;

static srt_side_t list_rows(const srt_sharded_layer_t *layer, boxes_t *b, int64_t width)
{
	int64_t first = 0;

	b->n = 0;
	for (int r = 0; r < layer->comm->size; r++) {
		b->shards[b->n++] = (srt_shard_t){ .offset = { first },
						   .size = { b->rows[r], width },
						   .location = { r, 0 } };
		first += b->rows[r];
	}
	return (srt_side_t){ b->shards, b->n };
}

/* columns: those of the shard; else all of them. */
static srt_side_t list_parts(const srt_sharded_layer_t *layer, const srt_sharded_tensor_t *w,
			     boxes_t *b, int64_t width, bool columns)
{
	b->n = 0;
	for (size_t i = 0; i < w->nshards; i++) {
		const srt_shard_t *shard = &w->shards[i];
		srt_shard_t box = { .size = { layer->total, width }, .location = shard->location };

		box.location.on_host = 0;
		if (srt_shard_nelem(shard, w->ndim) == 0)
			continue;
		if (columns) {
			box.offset[1] = shard->offset[w->dim];
			box.size[1] = shard->size[w->dim];
		}
		b->shards[b->n++] = box;
	}
	return (srt_side_t){ b->shards, b->n };
}

/* ---- transfers --------------------------------------------------------------------------- */

/* A transfer between the ranks' rows and the shards, in one of the two directions, and memory for
 * what this rank's shard has of it. Collective. */
static srt_status_t create_transfer(srt_sharded_layer_t *layer, srt_sharded_tensor_t *w,
				    boxes_t b[2], srt_dtype_t dtype, int64_t width, bool columns,
				    bool to_shards, srt_transfer_t **transfer,
				    srt_buffer_t **memory)
{
	const srt_side_t rows = list_rows(layer, &b[0], width);
	const srt_side_t parts = list_parts(layer, w, &b[1], width, columns);
	const int64_t n = layer->weight.buffer == NULL ? 0 : columns ? layer->n : width;

	SRT_TRY(srt_comm_status_consensus(layer->comm, creating,
					  srt_buffer_create(layer->comm->device, SRT_MEM_DEVICE,
							    (size_t)(layer->total * n) *
								    srt_dtype_size(dtype),
							    layer->name, memory)));
	return srt_transfer_create(w->context, layer->comm, layer->name, dtype, 2,
				   to_shards ? rows : parts, to_shards ? parts : rows, transfer);
}

static srt_status_t create_transfers(srt_sharded_layer_t *layer, srt_sharded_tensor_t *w,
				     boxes_t b[2])
{
	const bool sums_y = srt_layer_sums_y(layer), linear = !layer->is_embedding;

	SRT_TRY(create_transfer(layer, w, b, linear ? layer->dtype : SRT_I32,
				linear ? layer->in : 1, linear && layer->dim == 1, true,
				&layer->take_x, &layer->x));
	SRT_TRY(create_transfer(layer, w, b, layer->dtype, layer->out, !sums_y, true,
				&layer->take_dy, &layer->dy));
	if (!sums_y)
		SRT_TRY(create_transfer(layer, w, b, layer->dtype, layer->out, true, false,
					&layer->give_y, &layer->y));
	if (linear && sums_y)
		SRT_TRY(create_transfer(layer, w, b, layer->dtype, layer->in, true, false,
					&layer->give_dx, &layer->dx));
	return SRT_OK;
}

/* The reduce-scatter by rows. Collective. */
static srt_status_t create_sum(srt_sharded_layer_t *layer, const int64_t *rows,
			       srt_coll_segment_t *segments, srt_coll_owner_t *owners)
{
	const size_t size = srt_dtype_size(layer->dtype);
	const size_t width = (size_t)srt_layer_sum_width(layer);
	srt_coll_desc_t desc = { .size = sizeof(srt_coll_desc_t),
				 .kind = SRT_COLL_REDUCE_SCATTER,
				 .name = layer->name,
				 .dtype = layer->dtype,
				 .owners = owners };
	srt_status_t status;
	size_t first = 0;

	for (int r = 0; r < layer->comm->size; r++) {
		segments[r] = (srt_coll_segment_t){ first, 0, (size_t)rows[r] * width };
		owners[r] = (srt_coll_owner_t){ &segments[r], 1 };
		first += segments[r].nelem;
	}
	status = srt_buffer_create(layer->comm->device, srt_comm_mem_kind(layer->comm),
				   first * size, layer->name, &layer->partial);
	if (status == SRT_OK)
		status = srt_buffer_create(layer->comm->device, SRT_MEM_DEVICE,
					   (size_t)layer->rows * width * size, layer->name,
					   &layer->summed);
	SRT_TRY(srt_comm_status_consensus(layer->comm, creating, status));
	desc.full = srt_view(layer->partial, 0, layer->dtype);
	desc.shard = srt_view(layer->summed, 0, layer->dtype);
	return srt_coll_create(layer->comm, &desc, &layer->sum);
}

/* ---- created ----------------------------------------------------------------------------- */

/* Adds the rows of all ranks, which all ranks have: all fail or none. */
static srt_status_t add_rows(srt_sharded_layer_t *layer, const int64_t *rows)
{
	const int64_t width = layer->is_embedding ? layer->out : srt_max64(layer->in, layer->out);
	bool overflow = false;
	int64_t nbytes;

	for (int r = 0; r < layer->comm->size; r++)
		overflow |= __builtin_add_overflow(layer->total, rows[r], &layer->total);
	if (overflow || __builtin_mul_overflow(layer->total, srt_max64(width, 1), &nbytes) ||
	    __builtin_mul_overflow(nbytes, (int64_t)sizeof(float), &nbytes))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the ranks have too many rows of the input of '%s' together",
				layer->name);
	return SRT_OK;
}

/* Collective: the rows of each rank, then all that depends on them. */
static srt_status_t build(srt_sharded_layer_t *layer, srt_sharded_tensor_t *w)
{
	const size_t size = (size_t)layer->comm->size;
	int64_t *rows = srt_comm_calloc(layer->comm, size, sizeof(*rows), creating);
	srt_coll_segment_t *segments =
		srt_comm_calloc(layer->comm, size, sizeof(*segments), creating);
	srt_coll_owner_t *owners = srt_comm_calloc(layer->comm, size, sizeof(*owners), creating);
	boxes_t b[2] = { { 0 } };
	srt_status_t status =
		rows != NULL && segments != NULL && owners != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;

	for (int i = 0; i < 2; i++) {
		b[i].shards = srt_comm_calloc(layer->comm, size + w->nshards, sizeof(srt_shard_t),
					      creating);
		b[i].rows = rows;
		if (b[i].shards == NULL)
			status = SRT_ERR_OUT_OF_MEMORY;
	}
	if (status == SRT_OK)
		status = srt_comm_oob_allgather_for(layer->comm, creating, &layer->rows,
						    sizeof(layer->rows), rows);
	if (status == SRT_OK)
		status = add_rows(layer, rows);
	if (status == SRT_OK)
		status = create_transfers(layer, w, b);
	if (status == SRT_OK && srt_layer_has_sum(layer))
		status = create_sum(layer, rows, segments, owners);
	free(b[0].shards);
	free(b[1].shards);
	free(owners);
	free(segments);
	free(rows);
	return status;
}

static srt_status_t create_layer(srt_sharded_tensor_t *w, srt_sharded_tensor_t *grad, int64_t rows,
				 bool is_embedding, srt_sharded_layer_t **out)
{
	srt_sharded_layer_t *layer = srt_comm_calloc(w->comm, 1, sizeof(*layer), creating);
	srt_status_t status;

	if (layer == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	layer->comm = w->comm;
	srt_comm_hold(w->comm);
	status = check_weight(w, grad, rows);
	layer->name = srt_strdup(w->name);
	if (status == SRT_OK && layer->name == NULL)
		status = SRT_ERR_OUT_OF_MEMORY;
	status = srt_comm_status_consensus(w->comm, creating, status);
	if (status != SRT_OK)
		goto destroy_layer;
	layer->is_embedding = is_embedding;
	layer->dim = w->dim;
	layer->dtype = w->dtype;
	layer->rows = rows;
	layer->out = w->shape[is_embedding ? 1 : 0];
	layer->in = w->shape[is_embedding ? 0 : 1];
	if (w->nlocal > 0) {
		layer->first = w->shards[w->local[0]].offset[w->dim];
		layer->n = w->shards[w->local[0]].size[w->dim];
		layer->weight = w->views[0];
		if (grad != NULL)
			layer->grad = grad->views[0];
	}
	status = build(layer, w);
	if (status != SRT_OK)
		goto destroy_layer;
	*out = layer;
	return SRT_OK;
destroy_layer:
	srt_sharded_layer_destroy(layer);
	return status;
}

srt_status_t srt_sharded_layer_create_linear(srt_sharded_tensor_t *weight,
					     srt_sharded_tensor_t *grad, int64_t rows,
					     srt_sharded_layer_t **layer)
{
	SRT_NOT_NULL(weight);
	SRT_NOT_NULL(layer);
	return create_layer(weight, grad, rows, false, layer);
}

srt_status_t srt_sharded_layer_create_embedding(srt_sharded_tensor_t *weight,
						srt_sharded_tensor_t *grad, int64_t rows,
						srt_sharded_layer_t **layer)
{
	SRT_NOT_NULL(weight);
	SRT_NOT_NULL(layer);
	return create_layer(weight, grad, rows, true, layer);
}

void srt_sharded_layer_destroy(srt_sharded_layer_t *layer)
{
	if (layer == NULL || srt_device_is_inherited(layer->comm->device))
		return;
	srt_coll_destroy(layer->sum);
	srt_transfer_destroy(layer->take_x);
	srt_transfer_destroy(layer->give_y);
	srt_transfer_destroy(layer->take_dy);
	srt_transfer_destroy(layer->give_dx);
	srt_buffer_destroy(layer->x);
	srt_buffer_destroy(layer->y);
	srt_buffer_destroy(layer->dy);
	srt_buffer_destroy(layer->dx);
	srt_buffer_destroy(layer->partial);
	srt_buffer_destroy(layer->summed);
	srt_comm_release(layer->comm);
	free(layer->name);
	free(layer);
}
