/* SPDX-License-Identifier: BSD-3-Clause */
/* Internals of <shardrt/sharded_layer.h>: sharded_layer.c creates a layer, layer_pass.c runs it. */
#ifndef SRT_RUNTIME_TENSORS_SHARDED_LAYER_H
#define SRT_RUNTIME_TENSORS_SHARDED_LAYER_H

#include <shardrt/sharded_layer.h>

#include "runtime/tensors/tensors.h"

struct srt_sharded_layer {
	srt_comm_t *comm;
	char *name; /* of the weight */
	bool is_embedding;
	int dim; /* of the weight, that is cut */
	srt_dtype_t dtype;
	int64_t rows;    /* of this rank */
	int64_t total;   /* of all ranks */
	int64_t in, out; /* Embedding: vocab, n */
	/* This rank's shard of the dimension, and its memory; buffer NULL: none, or no gradient. */
	int64_t first, n;
	srt_view_t weight, grad;

	/* Rows of the ranks <-> what the ranks with shards need of all rows. */
	srt_transfer_t *take_x, *give_y;   /* give_y: columns; else `sum` */
	srt_transfer_t *take_dy, *give_dx; /* give_dx: columns; else `sum`; Embedding: NULL */
	srt_coll_t *sum;                   /* reduce-scatter of `partial` to `summed`, or NULL */
	srt_buffer_t *x, *y, *dy, *dx;     /* of all rows: what this rank's shard needs or makes */
	srt_buffer_t *partial, *summed;
	bool has_x; /* a forward pass was made */
};

/* Whether a pass ends in a sum over the ranks: y, or the gradient of x. */
static inline bool srt_layer_sums_y(const srt_sharded_layer_t *layer)
{
	return layer->is_embedding == (layer->dim == 0);
}

/* Whether either pass does. Ids have no gradient. */
static inline bool srt_layer_has_sum(const srt_sharded_layer_t *layer)
{
	return !layer->is_embedding || layer->dim == 0;
}

/* What the sum is wide: a row of y or of the gradient of x. */
static inline int64_t srt_layer_sum_width(const srt_sharded_layer_t *layer)
{
	return srt_layer_sums_y(layer) ? layer->out : layer->in;
}

#endif
