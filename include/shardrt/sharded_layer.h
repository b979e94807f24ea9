/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Linear layers and embeddings whose weight is a sharded tensor, as those of PyTorch's
 * ShardedTensor, and the sharding of a module's parameters. Each rank has its own rows of the
 * input, and gets the rows of the output that a layer with the whole weight gives. The gradient of
 * the weight is that of the rows of all ranks.
 *
 *                weight          cut by dimension 0            cut by dimension 1
 *     Linear     (out,in)        columns of the output         a sum over the ranks
 *     Embedding  (vocab,n)       a sum over the ranks          columns of the output
 *
 * A rank gathers the input of all ranks (of a Linear cut by dimension 1: its columns), multiplies
 * it with its shard, and the results go to the ranks of the rows: columns by one all-to-all, sums
 * by one reduce-scatter, in the tree's order over the ranks (docs/numerics.md). Columns and
 * embeddings have the bits of the whole layer.
 *
 * Streams. Passes queue their work on the stream and return. Work that wrote the weight, and the
 * next pass, may be on other streams only if the program orders them.
 *
 * Errors. A pass with a wrong argument on one rank fails the job: all ranks get the sentence.
 *
 * Thread safety: a layer belongs to one thread at a time.
 */
#ifndef SHARDRT_SHARDED_LAYER_H
#define SHARDRT_SHARDED_LAYER_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/device.h>
#include <shardrt/export.h>
#include <shardrt/module.h>
#include <shardrt/sharded_tensor.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A row of a plan: a parameter of a module, and how it is cut. */
typedef struct srt_shard_plan {
	size_t size;       /* sizeof(srt_shard_plan_t) */
	const char *param; /* its path from the module on, e.g. "linear1.weight" */
	const srt_sharding_t *sharding;
	srt_view_t whole; /* its values, on the root; as for srt_sharded_tensor_create_from() */
} srt_shard_plan_t;

/** A row without a parameter. */
#define SRT_SHARD_PLAN_INIT                                                                        \
	{                                                                                          \
		.size = sizeof(srt_shard_plan_t)                                                   \
	}

/**
 * Shards parameters of a module from a rank that has their values, as PyTorch's shard_module() with
 * a ShardingPlan. The module describes dtypes and shapes; it and its other parameters stay as they
 * are. Collective over the communicator, blocking.
 * @param comm NULL: the world.
 * @param plan nplan rows, the same parameters and shardings in the same order on all ranks.
 * @param root rank of the communicator that has the values.
 * @param[out] tensors nplan sharded tensors, named by their paths; owned by the caller, set on
 *        success only.
 * @return on all ranks: SRT_ERR_NOT_FOUND for a parameter that the module does not have,
 *         SRT_ERR_INVALID_ARGUMENT for values of another dtype on the root, SRT_ERR_MISMATCH for
 *         different plans, else as srt_sharded_tensor_create_from().
 */
SRT_API srt_status_t srt_shard_plan_apply(srt_context_t *context, srt_comm_t *comm,
					  srt_module_t *module, const srt_shard_plan_t *plan,
					  size_t nplan, int root, srt_sharded_tensor_t **tensors,
					  srt_stream_t *stream);

/** A layer with a sharded weight, for a number of rows. Opaque. */
typedef struct srt_sharded_layer srt_sharded_layer_t;

/**
 * Creates a Linear layer: y = x W^T + b. Collective over the weight's communicator, blocking.
 * @param weight (out,in), SRT_F32, SRT_F16 or SRT_BF16, in chunks, at most one on each rank and
 *        none on a host device that is not the context's. It must outlive the layer.
 * @param grad its gradient, of the same sharding; NULL: none, the weight is frozen. As the weight.
 * @param rows of this rank's input, at least 0; ranks may have different numbers. The rows of all
 *        ranks times the wider side of the weight must fit in 61 bits.
 * @param[out] layer owned by the caller, set on success only.
 * @return on all ranks: SRT_ERR_INVALID_ARGUMENT for another weight, gradient or number;
 *         SRT_ERR_OUT_OF_MEMORY.
 */
SRT_API srt_status_t srt_sharded_layer_create_linear(srt_sharded_tensor_t *weight,
						     srt_sharded_tensor_t *grad, int64_t rows,
						     srt_sharded_layer_t **layer);

/** Creates an Embedding: row r of the output is the row ids[r] of the weight (vocab,n). The rest as
 * srt_sharded_layer_create_linear(); grad may be NULL. */
SRT_API srt_status_t srt_sharded_layer_create_embedding(srt_sharded_tensor_t *weight,
							srt_sharded_tensor_t *grad, int64_t rows,
							srt_sharded_layer_t **layer);

/** Frees a layer. Waits for the streams of its passes. Local. NULL is allowed. */
SRT_API void srt_sharded_layer_destroy(srt_sharded_layer_t *layer);

/**
 * Forward pass. Collective, asynchronous.
 * @param x Linear: (rows,in) of the weight's dtype. Embedding: (rows), SRT_I32, each in 0 ..
 *        vocab - 1 (checked by the caller). Kept by the layer for the backward pass.
 * @param bias Linear: (out), all of it on each rank, or absent. Embedding: absent.
 * @param y (rows,out) or (rows,n) of the weight's dtype.
 */
SRT_API srt_status_t srt_sharded_layer_forward(srt_sharded_layer_t *layer, srt_view_t x,
					       srt_view_t bias, srt_view_t y, srt_stream_t *stream);

/**
 * Backward pass of the last forward pass: stores the gradient of the weight, or adds it. The
 * gradient of a bias is srt_op_bias_backward() of dy: of this rank's rows, as in PyTorch. The
 * program all-reduces it before a step of an optimizer that has the bias as a plain parameter.
 * Collective, asynchronous.
 * @param dy as y.
 * @param dx Linear: as x, or absent. Either all ranks pass it or none does, else the ranks that do
 *        wait for the others; a rank without rows passes any view with a buffer. Embedding: absent.
 * @param accumulate 1: adds the gradient of the weight to what is there.
 * @return SRT_ERR_STATE without a forward pass.
 */
SRT_API srt_status_t srt_sharded_layer_backward(srt_sharded_layer_t *layer, srt_view_t dy,
						srt_view_t dx, int accumulate,
						srt_stream_t *stream);

#ifdef __cplusplus
}
#endif
#endif
