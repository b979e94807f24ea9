/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations along rows and columns: normalizations, embeddings, softmax, losses. The rules of all
 * operations are in <shardrt/ops.h>.
 */
#ifndef SHARDRT_OPS_ROWS_H
#define SHARDRT_OPS_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/device.h>
#include <shardrt/export.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** db (n) = sum over the rows of dy (rows,n). */
SRT_API srt_status_t srt_op_bias_backward(srt_view_t db, srt_view_t dy, int64_t rows, int64_t n,
					  int accumulate, srt_stream_t *stream);

/** The sizes and tensors of a LayerNorm. A pass uses some of the tensors; the others may be
 * absent. */
typedef struct srt_layernorm {
	size_t size; /* set by SRT_LAYERNORM_INIT */
	/* Rows of no elements have no mean: n is at least 1 in a forward pass, unless rows is 0. */
	int64_t rows, n;
	float eps;
	srt_view_t x, y;        /* (rows,n) */
	srt_view_t gamma, beta; /* (n); beta may be absent */
	/* (rows), SRT_F32: written by the forward pass, read by the backward pass. */
	srt_view_t mean, rstd;
	srt_view_t dy, dx;        /* (rows,n) */
	srt_view_t dgamma, dbeta; /* (n); each may be absent */
	int accumulate_dx, accumulate_dgamma, accumulate_dbeta;
} srt_layernorm_t;

/** The epsilon of torch.nn.LayerNorm. */
#define SRT_LAYERNORM_INIT                                                                         \
	{                                                                                          \
		.size = sizeof(srt_layernorm_t), .eps = 1e-5f                                      \
	}

/** y = (x - mean) * rstd * gamma + beta by row, with mean and rstd. */
SRT_API srt_status_t srt_op_layernorm(const srt_layernorm_t *args, srt_stream_t *stream);

/** dx from dy, x, mean, rstd and gamma. */
SRT_API srt_status_t srt_op_layernorm_backward(const srt_layernorm_t *args, srt_stream_t *stream);

/** dgamma and dbeta from dy, x, mean and rstd. */
SRT_API srt_status_t srt_op_layernorm_backward_params(const srt_layernorm_t *args,
						      srt_stream_t *stream);

/** The sizes and tensors of an RMSNorm. A pass uses some of the tensors; the others may be
 * absent. */
typedef struct srt_rmsnorm {
	size_t size;     /* set by SRT_RMSNORM_INIT */
	int64_t rows, n; /* n is at least 1 in a forward pass, unless rows is 0 */
	float eps;
	srt_view_t x, y;  /* (rows,n) */
	srt_view_t gamma; /* (n) */
	/* (rows), SRT_F32: written by the forward pass, read by the backward pass. */
	srt_view_t rstd;
	srt_view_t dy, dx; /* (rows,n) */
	srt_view_t dgamma; /* (n) */
	int accumulate_dx, accumulate_dgamma;
	int one_plus; /* 1: gamma is the weight's distance from 1; 1 + gamma is rounded in fp32 */
} srt_rmsnorm_t;

/** The epsilon of torch.nn.RMSNorm in fp32: the distance from 1 to the next float. */
#define SRT_RMSNORM_INIT                                                                           \
	{                                                                                          \
		.size = sizeof(srt_rmsnorm_t), .eps = 0x1p-23f                                     \
	}

/** y = x * rstd * gamma by row, or x * rstd * (1 + gamma), rstd = 1 / sqrt(mean(x^2) + eps). */
SRT_API srt_status_t srt_op_rmsnorm(const srt_rmsnorm_t *args, srt_stream_t *stream);

/** dx from dy, x, rstd and gamma. */
SRT_API srt_status_t srt_op_rmsnorm_backward(const srt_rmsnorm_t *args, srt_stream_t *stream);

/** dgamma from dy, x and rstd. */
SRT_API srt_status_t srt_op_rmsnorm_backward_params(const srt_rmsnorm_t *args,
						    srt_stream_t *stream);

/**
 * The sizes and tensors of a BatchNorm of the columns of a batch. A pass uses some of the tensors;
 * the others may be absent.
 */
typedef struct srt_batchnorm {
	size_t size;     /* set by SRT_BATCHNORM_INIT */
	int64_t rows, n; /* at least 2 rows in training's forward pass */
	float eps;
	float momentum;
	srt_view_t x, y;        /* (rows,n) */
	srt_view_t gamma, beta; /* (n); beta may be absent */
	/* (n), SRT_F32. Training updates them, and each may be absent: running = momentum * new +
	 * (1 - momentum) * running, the variance being that over rows - 1, as torch.nn.BatchNorm1d
	 * has it. Evaluation reads them. */
	srt_view_t running_mean, running_var;
	/* (n), SRT_F32: written by the forward pass, read by the backward pass. Evaluation writes
	 * rstd only; its backward pass is given running_mean as `mean`. */
	srt_view_t mean, rstd;
	srt_view_t dy, dx;        /* (rows,n); dx may be dy */
	srt_view_t dgamma, dbeta; /* (n); each may be absent */
	/* (2,n), SRT_F32: written by srt_op_batchnorm_backward_params() and read by
	 * srt_op_batchnorm_backward(); absent after an evaluation, in which mean and rstd are
	 * constants. */
	srt_view_t averages;
	int accumulate_dgamma, accumulate_dbeta;
} srt_batchnorm_t;

/** Epsilon and momentum of torch.nn.BatchNorm1d. */
#define SRT_BATCHNORM_INIT                                                                         \
	{                                                                                          \
		.size = sizeof(srt_batchnorm_t), .eps = 1e-5f, .momentum = 0.1f                    \
	}

/** Training: y = (x - mean) * rstd * gamma + beta with mean and variance over the rows. */
SRT_API srt_status_t srt_op_batchnorm(const srt_batchnorm_t *args, srt_stream_t *stream);

/** Evaluation: y as in training, with the running statistics instead of the batch's, of any number
 * of rows. */
SRT_API srt_status_t srt_op_batchnorm_evaluation(const srt_batchnorm_t *args, srt_stream_t *stream);

/** dgamma, dbeta and averages from dy, x, mean and rstd. */
SRT_API srt_status_t srt_op_batchnorm_backward_params(const srt_batchnorm_t *args,
						      srt_stream_t *stream);

/** dx from dy, x, mean, rstd, gamma and averages. */
SRT_API srt_status_t srt_op_batchnorm_backward(const srt_batchnorm_t *args, srt_stream_t *stream);

/**
 * A part of a vocabulary that is cut over ranks (Megatron-LM's VocabParallelEmbedding and
 * vocab_parallel_cross_entropy): of rows of an embedding's table, or of columns of logits. Ids and
 * targets are those of the whole vocabulary. A value, which does not grow.
 */
typedef struct srt_vocab_part {
	int64_t vocab; /* size of the whole vocabulary */
	int64_t first; /* the first row or column of this part */
	int64_t n;     /* rows or columns of this part; 0: none */
	int64_t ld;    /* of logits: elements from a row to the next, at least n; 0: n */
} srt_vocab_part_t;

/** The sizes and tensors of an embedding. A pass uses some of the tensors; the others may be
 * absent. */
typedef struct srt_embedding {
	size_t size; /* set by SRT_EMBEDDING_INIT */
	int64_t rows, n;
	int64_t vocab;   /* rows of the table */
	int64_t context; /* rows of position; at least 1 if that is there */
	/* NULL, or the part of the vocabulary of which table and dtable have the rows; `vocab` is
	 * then not used. */
	const srt_vocab_part_t *part;
	/* A row of the whole table that takes no gradient, as if no id named it (padding_idx of
	 * torch.nn.Embedding; the forward pass reads it like any other); -1: none. */
	int64_t padding;
	srt_view_t ids;               /* (rows), SRT_I32, of the whole vocabulary; not checked */
	srt_view_t table, position;   /* (vocab,n); (context,n), or absent */
	srt_view_t y, dy;             /* (rows,n) */
	srt_view_t dtable, dposition; /* (vocab,n), (context,n) */
	int accumulate_dtable, accumulate_dposition;
} srt_embedding_t;

/** No padding; the other defaults are zero. */
#define SRT_EMBEDDING_INIT                                                                         \
	{                                                                                          \
		.size = sizeof(srt_embedding_t), .padding = -1                                     \
	}

/**
 * y[r] = table[ids[r]] + position[r % context]. The row of an id of another part counts as -0, so
 * the sum of y over all parts is the row of the whole table; `position` is given to one part.
 */
SRT_API srt_status_t srt_op_embedding(const srt_embedding_t *args, srt_stream_t *stream);

/** dtable[v] = sum of dy[r] over rising r with ids[r] == v; rows that no id names become 0, or stay
 * if accumulate_dtable. */
SRT_API srt_status_t srt_op_embedding_backward(const srt_embedding_t *args, srt_stream_t *stream);

/** dposition[t] = sum of dy[r] over rising r with r % context == t. */
SRT_API srt_status_t srt_op_position_backward(const srt_embedding_t *args, srt_stream_t *stream);

/** The sizes and tensors of a copy of rows to places by number. */
typedef struct srt_index_copy {
	size_t size; /* set by SRT_INDEX_COPY_INIT */
	int64_t rows, n;
	int64_t yrows; /* rows of y */
	/* Elements from a row to the next, n <= ld < 2^31; 0: n. What lies between rows is neither
	 * read nor written. */
	int64_t ldx, ldy;
	srt_view_t x;     /* (rows,n) */
	srt_view_t index; /* (rows), SRT_I32, rows of y; any other number stores nothing */
	srt_view_t y;     /* (yrows,n), of the dtype of x; does not overlap x */
} srt_index_copy_t;

/** All zero. */
#define SRT_INDEX_COPY_INIT                                                                        \
	{                                                                                          \
		.size = sizeof(srt_index_copy_t)                                                   \
	}

/**
 * y[index[r]] = x[r], bit for bit, as torch.Tensor.index_copy_() with dim 0 has it; the other rows
 * of y stay. An index below 0, or of yrows or more, stores nothing. No two rows have the same index
 * within y: which of them, or what parts of them, y then has is undefined.
 */
SRT_API srt_status_t srt_op_index_copy(const srt_index_copy_t *args, srt_stream_t *stream);

/** The sizes and tensors of a rotary position embedding. */
typedef struct srt_rotary {
	size_t size; /* set by SRT_ROTARY_INIT */
	int64_t rows, heads, head_dim;
	int64_t dim; /* values of a head that are rotated, the first ones: even, up to head_dim */
	/* Elements from a row to the next, heads * head_dim <= ld < 2^31; 0: heads * head_dim. */
	int64_t ldx, ldy;
	int64_t npositions;
	int64_t copied;       /* last heads of a row, which are not rotated: 0 to heads */
	srt_view_t x, y;      /* (rows, heads * head_dim) */
	srt_view_t positions; /* (rows), SRT_I32, rows of the tables; not checked */
	srt_view_t cos, sin;  /* (npositions, dim / 2), SRT_F32 */
	int backward;         /* 1: by the opposite angle, so that x is dy and y is dx */
	int accumulate;
} srt_rotary_t;

/** All zero. */
#define SRT_ROTARY_INIT                                                                            \
	{                                                                                          \
		.size = sizeof(srt_rotary_t)                                                       \
	}

/**
 * Turns each pair of values of a head, dim / 2 apart, by the angle of the row's position: y1 = x1 *
 * cos - x2 * sin, y2 = x2 * cos + x1 * sin for i < dim / 2, x1 = x[i], x2 = x[i + dim / 2]; copies
 * the values from dim on, and the last heads. A position outside of the tables gives NaN. In place
 * allowed.
 */
SRT_API srt_status_t srt_op_rotary(const srt_rotary_t *args, srt_stream_t *stream);

/** y (rows,n) = softmax of x (rows,n) by row; in place allowed. */
SRT_API srt_status_t srt_op_softmax(srt_view_t y, srt_view_t x, int64_t rows, int64_t n,
				    srt_stream_t *stream);

/** dx (rows,n) = gradient of the softmax, from its output y; dx may be dy. */
SRT_API srt_status_t srt_op_softmax_backward(srt_view_t dx, srt_view_t dy, srt_view_t y,
					     int64_t rows, int64_t n, srt_stream_t *stream);

/** y (rows,n) = logarithm of the softmax of x (rows,n) by row; in place allowed. */
SRT_API srt_status_t srt_op_log_softmax(srt_view_t y, srt_view_t x, int64_t rows, int64_t n,
					srt_stream_t *stream);

/** dx (rows,n) = its gradient, from its output y; dx may be dy. */
SRT_API srt_status_t srt_op_log_softmax_backward(srt_view_t dx, srt_view_t dy, srt_view_t y,
						 int64_t rows, int64_t n, srt_stream_t *stream);

/**
 * The sizes and tensors of a loss by row, with its gradient unless dx is absent. dx is multiplied
 * by grad_scale, and by `scale` unless that is absent; both are applied in fp32, before dx is
 * rounded to its dtype.
 */
typedef struct srt_loss {
	size_t size; /* set by SRT_LOSS_INIT */
	int64_t rows, n;
	/* For a cross-entropy: elements from a row of x and dx to the next, n <= ld < 2^31; 0: n.
	 * What lies between rows is neither read nor written. */
	int64_t ld;
	float grad_scale;
	/* (1), SRT_F32, in device memory: the scale of a loss scaler; or absent. */
	srt_view_t scale;
	srt_view_t x; /* (rows,n) */
	/* (rows,n); of a cross-entropy (rows), SRT_I32, each below n; below 0 (torch's ignore_index
	 * of -100): none. */
	srt_view_t target;
	srt_view_t loss; /* (rows), SRT_F32 */
	srt_view_t dx;   /* (rows,n), or absent */
	/* For srt_op_cross_entropy_merge(). */
	const srt_vocab_part_t *part; /* its n and ld are those of x and dx */
	int nparts;
	int64_t stride;   /* from the statistics of a part to the next's, at least 3 * rows */
	srt_view_t stats; /* (nparts,stride), SRT_F32: row p begins with those of part p */
} srt_loss_t;

/** grad_scale 1; the other defaults are zero. */
#define SRT_LOSS_INIT                                                                              \
	{                                                                                          \
		.size = sizeof(srt_loss_t), .grad_scale = 1.0f                                     \
	}

/**
 * Cross-entropy: loss[r] = log(sum(exp(x[r] - max))) + max - x[r][target[r]]; dx = (softmax(x) -
 * onehot) * grad_scale. A row without a target (below 0) has loss 0 and a gradient of 0, whatever x
 * is. dx may be x. n is at least 1 unless rows is 0.
 */
SRT_API srt_status_t srt_op_cross_entropy(const srt_loss_t *args, srt_stream_t *stream);

/**
 * The first half of a cross-entropy over parts of the logits: stats (3,rows), SRT_F32 = maximum of
 * the row of x (rows,part->n), whose rows are part->ld apart, sum(exp(x - maximum)), and
 * x[r][targets[r]]: -inf where another part has the target, or there is none. The ranks gather the
 * statistics of all parts, not the logits. part->n is at least 1 unless rows is 0.
 */
SRT_API srt_status_t srt_op_cross_entropy_part(srt_view_t stats, srt_view_t x, srt_view_t targets,
					       int64_t rows, const srt_vocab_part_t *part,
					       srt_stream_t *stream);

/**
 * The second half: the loss from the statistics of all parts, in their order, and dx of this part.
 * The loss has the same bits on all ranks; with one part they are those of srt_op_cross_entropy().
 */
SRT_API srt_status_t srt_op_cross_entropy_merge(const srt_loss_t *args, srt_stream_t *stream);

/** Squared error: loss[r] = sum of (x - target)^2 over the row; dx = 2 * (x - target) *
 * grad_scale. */
SRT_API srt_status_t srt_op_mse(const srt_loss_t *args, srt_stream_t *stream);

/** Sum: loss[r] = sum of x over the row; dx = grad_scale. */
SRT_API srt_status_t srt_op_sum_loss(const srt_loss_t *args, srt_stream_t *stream);

#ifdef __cplusplus
}
#endif
#endif
