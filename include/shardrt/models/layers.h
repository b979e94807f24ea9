/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The layers of models: each function checks the shapes and records an operation on a tape, which
 * has its forward and its backward pass. Of libshardrt-models, whose interface may change in every
 * version.
 *
 * Tensors are matrices (rows,n), row-major; a sequence batch has rows = batch * context. All
 * return a tensor owned by the tape, or NULL after a failure, which the tape remembers.
 * Parameters that are frozen get no gradient; an absent bias is NULL.
 *
 * x and y of a layer have one dtype: SRT_F32, SRT_F16 or SRT_BF16. It is that of the layer's
 * parameters, or running the tape fails. Losses, their targets of floats, and statistics are
 * described where they differ.
 */
#ifndef SHARDRT_MODELS_LAYERS_H
#define SHARDRT_MODELS_LAYERS_H

#include <shardrt/ops.h>
#include <shardrt/shardrt.h>

#include <shardrt/models/rotary.h>
#include <shardrt/models/tape.h>

#ifdef __cplusplus
extern "C" {
#endif

/** y = x in another dtype, rounded once; the gradient comes back in that of x. x itself if it has
 * this dtype. */
SRT_API srt_tensor_t *srt_layer_cast(srt_tape_t *tape, srt_tensor_t *x, srt_dtype_t dtype);

/** y (rows,out) = x (rows,in) weight^T (out,in) + bias (out). */
SRT_API srt_tensor_t *srt_layer_linear(srt_tape_t *tape, srt_tensor_t *x, srt_param_t *weight,
				       srt_param_t *bias);

/** srt_layer_linear() with rows first .. first + nrows - 1 of weight and bias: y (rows,nrows).
 * Several such layers may use disjoint or overlapping rows; rows that none uses get a gradient of
 * zero. */
SRT_API srt_tensor_t *srt_layer_linear_rows(srt_tape_t *tape, srt_tensor_t *x, srt_param_t *weight,
					    srt_param_t *bias, int64_t first, int64_t nrows);

/**
 * Linear cut over the tensor-parallel ranks of the tape (srt_tape_set_mesh()), as Megatron-LM and
 * PyTorch's ColwiseParallel: x is whole, each rank has rows of weight and bias
 * (srt_placement_t.tensor_dim 0) and makes these columns of y. The gradient of x is summed over
 * the ranks. With one rank srt_layer_linear().
 */
SRT_API srt_tensor_t *srt_layer_linear_colwise(srt_tape_t *tape, srt_tensor_t *x,
					       srt_param_t *weight, srt_param_t *bias);

/** srt_layer_linear_colwise() where weight and bias are `nblocks` equal blocks of rows, of each of
 * which a rank has its part (srt_placement_t.nblocks): a joint projection of q, k and v has 3. */
SRT_API srt_tensor_t *srt_layer_linear_colwise_blocks(srt_tape_t *tape, srt_tensor_t *x,
						      srt_param_t *weight, srt_param_t *bias,
						      int nblocks);

/**
 * PyTorch's RowwiseParallel: each rank has columns of x and the same of weight (tensor_dim 1). y is
 * summed over the ranks, in fp32 by the tree of docs/numerics.md and rounded once, then the bias,
 * whole on each rank, is added. With one rank srt_layer_linear().
 */
SRT_API srt_tensor_t *srt_layer_linear_rowwise(srt_tape_t *tape, srt_tensor_t *x,
					       srt_param_t *weight, srt_param_t *bias);

/** y = (x - mean) / sqrt(var + eps) * weight (n) + bias (n) by row. */
SRT_API srt_tensor_t *srt_layer_layernorm(srt_tape_t *tape, srt_tensor_t *x, srt_param_t *weight,
					  srt_param_t *bias, float eps);

/** y = x / sqrt(mean(x^2) + eps) * weight (n) by row. */
SRT_API srt_tensor_t *srt_layer_rmsnorm(srt_tape_t *tape, srt_tensor_t *x, srt_param_t *weight,
					float eps);

/** What an RMSNorm has in addition to its weight. */
typedef struct srt_rmsnorm_in {
	float eps;
	int one_plus; /* 1: the weight is 1 + the parameter, rounded in fp32 (Gemma) */
} srt_rmsnorm_in_t;

/** y = x / sqrt(mean(x^2) + eps) * weight (n) for each run of n values of a row of x (rows, a
 * multiple of n). With n the size of a head, each head has its own norm. */
SRT_API srt_tensor_t *srt_layer_rmsnorm_of(srt_tape_t *tape, srt_tensor_t *x, srt_param_t *weight,
					   const srt_rmsnorm_in_t *in);

/**
 * srt_layer_rmsnorm_of() where x has this tensor-parallel rank's columns, whole runs of them, e.g.
 * its heads. The weight is whole on each rank, and so is its gradient: each rank's part is rounded,
 * then the parts are summed by the tree of docs/numerics.md. With one rank srt_layer_rmsnorm_of().
 */
SRT_API srt_tensor_t *srt_layer_rmsnorm_colwise(srt_tape_t *tape, srt_tensor_t *x,
						srt_param_t *weight, const srt_rmsnorm_in_t *in);

/**
 * srt_layer_rmsnorm_of() of whole rows where x (rows, n / ranks) has this tensor-parallel rank's
 * columns, an equal part; weight (n) is whole on each rank. Each rank gathers the columns of all
 * ranks, computes whole rows and keeps its columns, so values and gradients have the bits of one
 * rank, and the gradient of the weight is the same on all ranks without a sum. Scratch: two
 * tensors (rows, n) in the forward pass, three in the backward pass. With one rank
 * srt_layer_rmsnorm_of().
 */
SRT_API srt_tensor_t *srt_layer_rmsnorm_gathered(srt_tape_t *tape, srt_tensor_t *x,
						 srt_param_t *weight, const srt_rmsnorm_in_t *in);

/** What BatchNorm has in addition to its parameters, as torch.nn.BatchNorm1d. */
typedef struct srt_batchnorm_in {
	/* (n), of one float dtype, of the caller, not in the arena. A training tape updates them in
	 * its forward pass, in fp32 and then rounded, a forward tape reads them. Both may be absent
	 * on a training tape. They are not parameters: each rank updates them by its batches. */
	srt_view_t running_mean, running_var;
	float eps;
	float momentum;  /* weight of the new statistics */
	int use_running; /* 1: a training tape, too, normalises by them and does not update them */
} srt_batchnorm_in_t;

/** y = (x - mean) / sqrt(var + eps) * weight (n) + bias (n) by column: mean and variance are those
 * of the batch, of at least 2 rows, on a training tape, and the running ones on a forward tape. */
SRT_API srt_tensor_t *srt_layer_batchnorm(srt_tape_t *tape, srt_tensor_t *x, srt_param_t *weight,
					  srt_param_t *bias, const srt_batchnorm_in_t *in);

/** y = max(x, 0). */
SRT_API srt_tensor_t *srt_layer_relu(srt_tape_t *tape, srt_tensor_t *x);
/** y = gelu(x), tanh form. */
SRT_API srt_tensor_t *srt_layer_gelu(srt_tape_t *tape, srt_tensor_t *x);
/** y = gelu(x), exact form: x times the normal law at x. */
SRT_API srt_tensor_t *srt_layer_gelu_erf(srt_tape_t *tape, srt_tensor_t *x);
/** y = x * sigmoid(x). */
SRT_API srt_tensor_t *srt_layer_silu(srt_tape_t *tape, srt_tensor_t *x);
/** y = tanh(x), by element. */
SRT_API srt_tensor_t *srt_layer_tanh(srt_tape_t *tape, srt_tensor_t *x);
/** y = 1 / (1 + exp(-x)). */
SRT_API srt_tensor_t *srt_layer_sigmoid(srt_tape_t *tape, srt_tensor_t *x);

/** y = cap * tanh(x / cap), which is between -cap and cap, by element. cap is above 0. */
SRT_API srt_tensor_t *srt_layer_softcap(srt_tape_t *tape, srt_tensor_t *x, float cap);
/** y = x * factor, by element, rounded once. */
SRT_API srt_tensor_t *srt_layer_scale(srt_tape_t *tape, srt_tensor_t *x, float factor);
/** y = act(gate) * up, by element, of one shape, rounded once: the gated layer of SwiGLU and
 * GeGLU. */
SRT_API srt_tensor_t *srt_layer_glu(srt_tape_t *tape, srt_tensor_t *gate, srt_tensor_t *up,
				    srt_glu_t act);

/** The position of a run, for dropout: set by the caller before each forward pass, not changed
 * until the backward pass is queued. */
typedef struct srt_dropout_at {
	uint64_t seed; /* of the training run */
	int64_t step;  /* of the run, skipped ones counted too */
	/* Global number of the tape's first row: rows before it in the batch of the step, over all
	 * ranks and micro-batches. So the mask of a row does not depend on the number of ranks. */
	int64_t first_row;
} srt_dropout_at_t;

/**
 * y = x / (1 - rate) with probability 1 - rate, else 0 (srt_op_dropout), on a training tape; on a
 * forward tape, x itself. The mask of an element depends on seed, step, name and its global number
 * alone.
 * @param name distinguishes the layers of a model; name and `at` must outlive the tape.
 */
SRT_API srt_tensor_t *srt_layer_dropout(srt_tape_t *tape, srt_tensor_t *x, const char *name,
					float rate, const srt_dropout_at_t *at);

/** y = a + b, of one shape. */
SRT_API srt_tensor_t *srt_layer_add(srt_tape_t *tape, srt_tensor_t *a, srt_tensor_t *b);

/** y = a * b, by element, of one shape: the product of a gated layer (SwiGLU). */
SRT_API srt_tensor_t *srt_layer_mul(srt_tape_t *tape, srt_tensor_t *a, srt_tensor_t *b);

/** y (rows,n) = x + row (1,n), added to each row. */
SRT_API srt_tensor_t *srt_layer_add_row(srt_tape_t *tape, srt_tensor_t *x, srt_tensor_t *row);

/** y (rows,n) = x + vector (n), added to each row. */
SRT_API srt_tensor_t *srt_layer_add_param(srt_tape_t *tape, srt_tensor_t *x, srt_param_t *vector);

/** y (.,n) = the elements of x, seen as a matrix of `nrows` rows, transposed and seen as rows of n
 * elements; any dtype. So a layer can run along another dimension than the last one. */
SRT_API srt_tensor_t *srt_layer_transpose(srt_tape_t *tape, srt_tensor_t *x, int64_t nrows,
					  int64_t n);

/** y (rows,n) = table (vocab,n)[ids] + position (>= context,n)[row % context]; position or NULL.
 * ids (rows,1), SRT_I32, values below vocab. */
SRT_API srt_tensor_t *srt_layer_embedding(srt_tape_t *tape, srt_tensor_t *ids, srt_param_t *table,
					  srt_param_t *position, int64_t context);

/** srt_layer_embedding() where row `padding` of the table takes no gradient (padding_idx of
 * torch.nn.Embedding); -1 = none. */
SRT_API srt_tensor_t *srt_layer_embedding_padded(srt_tape_t *tape, srt_tensor_t *ids,
						 srt_param_t *table, srt_param_t *position,
						 int64_t context, int64_t padding);

/**
 * srt_layer_embedding() with rows of the table on each tensor-parallel rank
 * (srt_placement_t.tensor_dim 0), as Megatron-LM's VocabParallelEmbedding; position is whole. ids
 * are those of the whole table. y is summed over the ranks and has the bits of
 * srt_layer_embedding(). With one rank that.
 */
SRT_API srt_tensor_t *srt_layer_embedding_rowwise(srt_tape_t *tape, srt_tensor_t *ids,
						  srt_param_t *table, srt_param_t *position,
						  int64_t context);

/** srt_layer_embedding_rowwise() where row `padding` of the whole table takes no gradient; -1 =
 * none. */
SRT_API srt_tensor_t *srt_layer_embedding_rowwise_padded(srt_tape_t *tape, srt_tensor_t *ids,
							 srt_param_t *table, srt_param_t *position,
							 int64_t context, int64_t padding);

/** The positions of a rotary embedding, and its tables (<shardrt/models/rotary.h>). */
typedef struct srt_rotary_in {
	srt_tensor_t *positions; /* (rows,1), SRT_I32, below npositions; NaN for others */
	/* (npositions, dim / 2), SRT_F32, of the caller, not in the arena. */
	srt_view_t cos, sin;
	int64_t npositions;
	int64_t head_dim;
	int64_t dim; /* values of a head that are rotated, the first ones: even, up to head_dim */
	int64_t copied; /* last heads of a row, which are not: v after q and k */
} srt_rotary_in_t;

/**
 * Makes the angles of in->npositions positions in memory of a device, and sets in->cos, in->sin and
 * in->dim. Waits for the device. Local; threads may call it with an `in` each.
 * @param device must outlive the tables.
 * @param rope is read in the call only.
 * @param[out] tables (2, npositions, dim / 2), SRT_F32, owned by the caller: to be destroyed after
 *        the tapes; set on success only.
 * @return SRT_ERR_INVALID_ARGUMENT for NULL and for fewer than 1 position; else as
 *         srt_rope_tables(), or the failure of the device. `in` is unchanged then.
 */
SRT_API srt_status_t srt_rotary_create(srt_device_t *device, const srt_rope_t *rope,
				       srt_rotary_in_t *in, srt_buffer_t **tables);

/** y (rows,n) = x with the pairs of values of each head turned by the angle of the row's position
 * (srt_op_rotary()); n is a multiple of head_dim. */
SRT_API srt_tensor_t *srt_layer_rotary(srt_tape_t *tape, srt_tensor_t *x,
				       const srt_rotary_in_t *in);

/** The inputs of attention: tensors of a tape, and their shape. */
typedef struct srt_attention_in {
	/* (batch*queries, width), width = heads*head_dim; without k: q, k, v packed, width +
	 * 2*kv_width with kv_width = kv_heads*head_dim */
	srt_tensor_t *q;
	srt_tensor_t *k; /* (batch*keys, kv_width), or NULL; without v: k, v packed, 2*kv_width */
	srt_tensor_t *v; /* (batch*keys, kv_width), or NULL */
	/* (batch,1), SRT_I32, or NULL: keys of each item; the rest is padding. */
	srt_tensor_t *lengths;
	srt_tensor_t *mask; /* (batch,keys), SRT_U8, or NULL: 0 hides a key */
	int64_t batch, heads;
	int causal; /* query i sees keys j <= offset + i */
	/* Heads of k and v, 0 = heads: each is read by heads/kv_heads heads of q (at most 127). */
	int64_t kv_heads;
	float scale; /* of q.k; 0 = 1/sqrt(head_dim) */
	/* (batch*queries,1), SRT_I32, or NULL: the first key that a query sees. */
	srt_tensor_t *first;
	int64_t offset; /* the position of an item's first query among its keys */
} srt_attention_in_t;

/** Multi-head attention -> (batch*queries, width). What is not seen, a query that sees nothing,
 * and what `first` is for: srt_attention_views_t. */
SRT_API srt_tensor_t *srt_layer_attention_of(srt_tape_t *tape, const srt_attention_in_t *in);

/** Multi-head self-attention: qkv (batch*context, 3*width) -> (batch*context, width); scale
 * 1/sqrt(width/heads). */
SRT_API srt_tensor_t *srt_layer_attention(srt_tape_t *tape, srt_tensor_t *qkv, int64_t context,
					  int64_t heads, int causal);

/** The new tokens of a pass in a cache: of one sequence, at these positions. */
typedef struct srt_attention_at {
	int64_t sequence; /* of the cache's */
	int64_t offset;   /* position of the first new token */
} srt_attention_at_t;

/** Keys and values of the tokens of some sequences, in memory of the caller that outlives the
 * tape. A value, which does not grow. */
typedef struct srt_attention_cache {
	srt_view_t k, v; /* (sequences*length, kv_width), in the dtype of q */
	int64_t sequences, length;
	/* (batch*queries,1), SRT_I32: the row of k and v where a new token's are stored; below 0:
	 * nowhere. */
	srt_tensor_t *rows;
	/* Not NULL: new tokens of one sequence, batch 1, of which each sees those up to itself;
	 * read at each forward pass. NULL: one new token for each of the first `batch` sequences,
	 * which sees the tokens that srt_attention_in_t.lengths counts, itself included. */
	const srt_attention_at_t *at;
} srt_attention_cache_t;

/**
 * Attention of new tokens, whose keys and values are stored in the cache first, to the cache's
 * tokens, with the bits of srt_layer_attention_of() over all tokens at once. `in` has the new
 * tokens' q, k and v, packed in q or in three tensors; causal, offset and mask are not used. Only
 * for forward tapes.
 */
SRT_API srt_tensor_t *srt_layer_attention_cached(srt_tape_t *tape, const srt_attention_in_t *in,
						 const srt_attention_cache_t *cache);

/** y (1,n) = row *row of x (rows,n). `row` is read at each forward pass; no backward. */
SRT_API srt_tensor_t *srt_layer_row(srt_tape_t *tape, srt_tensor_t *x, const int64_t *row);

/**
 * loss (rows,1) = cross-entropy of the rows of x weight^T (weight (vocab,n)) against targets
 * (rows,1), SRT_I32, values below vocab: the output layer and its loss in one. A row whose target
 * is below 0 has loss 0 and a gradient of 0; this holds for all cross-entropies.
 *
 * The logits exist for chunk_rows rows at a time, a multiple of SRT_HEAD_ROWS. 0 means
 * SRT_HEAD_ROWS; on a device with its own memory it means as many rows as fit into the smaller of
 * 512 MiB and a 128th of that memory, at least SRT_HEAD_ROWS. On a training tape product, loss and
 * gradients are made chunk by chunk in the backward pass, so that the product is not made twice; on
 * a forward tape in the forward pass.
 *
 * The logits have the dtype of x. Definition of the weight's gradient: the products of
 * SRT_HEAD_ROWS rows each, in rising order, each added separately onto the gradient, whatever the
 * chunks. SRT_HEAD_ROWS is a block of the matrix product's sum (docs/numerics.md), so that a
 * gradient in fp32 that is stored has the bits of one whole product; in 16 bits each addition
 * rounds. Loss and dx are by row. So no result depends on chunk_rows, except in numerics mode fast
 * on a device with its own memory, where a chunk is one product.
 */
SRT_API srt_tensor_t *srt_layer_head_loss(srt_tape_t *tape, srt_tensor_t *x, srt_param_t *weight,
					  srt_tensor_t *targets, int64_t chunk_rows);

/**
 * srt_layer_head_loss() with rows of the weight, so columns of the logits, on each tensor-parallel
 * rank (tensor_dim 0). The ranks gather 3 floats for each row and rank, one chunk at a time, never
 * the logits (srt_op_cross_entropy_merge()). The loss has the same bits on all of them. The
 * gradient of x is summed over the ranks. chunk_rows of 0 is SRT_HEAD_ROWS on all devices. With one
 * rank srt_layer_head_loss().
 */
SRT_API srt_tensor_t *srt_layer_head_loss_colwise(srt_tape_t *tape, srt_tensor_t *x,
						  srt_param_t *weight, srt_tensor_t *targets,
						  int64_t chunk_rows);

/** Rows of a block of the weight gradient's sum. */
#define SRT_HEAD_ROWS 512

/** loss (rows,1), SRT_F32 = cross-entropy of the rows of x (rows,n) against targets (rows,1),
 * SRT_I32. */
SRT_API srt_tensor_t *srt_layer_cross_entropy(srt_tape_t *tape, srt_tensor_t *x,
					      srt_tensor_t *targets);

/** srt_layer_cross_entropy() where x has this tensor-parallel rank's columns of logits of `vocab`
 * columns, in chunks of ceil(vocab / ranks), as srt_layer_linear_colwise() makes them. The loss has
 * the same bits on all ranks. With one rank srt_layer_cross_entropy(). */
SRT_API srt_tensor_t *srt_layer_cross_entropy_colwise(srt_tape_t *tape, srt_tensor_t *x,
						      srt_tensor_t *targets, int64_t vocab);

/** y (1,n) = the columns of x (1,.) of all tensor-parallel ranks, cut as above, on each of them; no
 * backward. With one rank x. */
SRT_API srt_tensor_t *srt_layer_gather_columns(srt_tape_t *tape, srt_tensor_t *x, int64_t n);

/** loss (rows,1), SRT_F32 = sum of (x - target)^2 over each row; x, target (rows,n). x is cast to
 * the dtype of the target. */
SRT_API srt_tensor_t *srt_layer_mse(srt_tape_t *tape, srt_tensor_t *x, srt_tensor_t *target);

/** loss (rows,1), SRT_F32 = sum over each row of x (rows,n). The loss has the dtype of x: see
 * srt_tape_loss_dtype(). */
SRT_API srt_tensor_t *srt_layer_sum(srt_tape_t *tape, srt_tensor_t *x);

#ifdef __cplusplus
}
#endif
#endif
