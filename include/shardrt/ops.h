/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations on tensors: everything models/ and the engine compute with.
 *
 * All are asynchronous in the stream's order, row-major, and follow docs/numerics.md bit for bit
 * in exact mode. Shapes stand beside each argument; sizes are in elements unless a name says
 * otherwise; a size of 0 is allowed: nothing is written to a result without elements, and a sum of
 * no terms is +0. Inputs and outputs must not overlap unless
 * a description says "in place". `accumulate` = 0 stores the result, 1 does one separate add
 * onto what is there. All views of a call have one dtype, SRT_F32, SRT_F16 or SRT_BF16, unless
 * stated: mean, rstd, stats, losses and scratch are SRT_F32.
 *
 * Common errors: SRT_ERR_INVALID_ARGUMENT (negative size, view outside its buffer, misaligned
 * offset), SRT_ERR_UNSUPPORTED (no kernel for the dtype). Thread-safe for different streams.
 */
#ifndef SHARDRT_OPS_H
#define SHARDRT_OPS_H

#include <stdint.h>

#include <shardrt/device.h>
#include <shardrt/export.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- matrix product ------------------------------------------------------------------- */

/**
 * C[b] (m,n) = op(A[b]) (m,k) * op(B[b]) (k,n), then * alpha, then + bias, then added onto C if
 * `accumulate`. Row-major; ld* is the distance between stored rows, in elements.
 */
typedef struct srt_matmul {
	int64_t m, n, k;
	int64_t batch; /* 0 or 1 = one product */
	int trans_a;   /* 0: A stored (m,k); 1: stored (k,m) */
	int trans_b;   /* 0: B stored (k,n); 1: stored (n,k) */
	srt_view_t a, b, c;
	int64_t lda, ldb, ldc;
	int64_t stride_a, stride_b,
		stride_c; /* between batch items, in elements; C's are disjoint */
	float alpha;      /* 0 is taken as 1 (zero-initialised struct) */
	srt_view_t bias;  /* (n) or absent */
	int accumulate;
} srt_matmul_t;

/** Matrix product. Order: docs/numerics.md, "Matrix product". */
SRT_API srt_status_t srt_op_matmul(srt_stream_t *stream, const srt_matmul_t *mm);

/* ---- elementwise ---------------------------------------------------------------------- */

/** y[i] = value. */
SRT_API srt_status_t srt_op_fill(srt_stream_t *stream, srt_view_t y, float value, int64_t nelem);
/** y[i] = a * x[i]; in place allowed. */
SRT_API srt_status_t srt_op_scale(srt_stream_t *stream, srt_view_t y, srt_view_t x, float a,
				  int64_t nelem);
/** y[i] = x[i] / a, one IEEE division; in place allowed. */
SRT_API srt_status_t srt_op_divide(srt_stream_t *stream, srt_view_t y, srt_view_t x, float a,
				   int64_t nelem);
/** y[i] = a * x[i] + y[i], fused: one rounding; x may be y. */
SRT_API srt_status_t srt_op_axpy(srt_stream_t *stream, srt_view_t y, srt_view_t x, float a,
				 int64_t nelem);
/** y[i] = x[i] between any two of SRT_F32, SRT_F16 and SRT_BF16: exact where y is wider, else one
 * rounding to nearest even; too large becomes infinite, NaN stays NaN. Not in place. */
SRT_API srt_status_t srt_op_cast(srt_stream_t *stream, srt_view_t y, srt_view_t x, int64_t nelem);
/** y[i] = a[i] + b[i]; y may be a or b. */
SRT_API srt_status_t srt_op_add(srt_stream_t *stream, srt_view_t y, srt_view_t a, srt_view_t b,
				int64_t nelem);
/** y[i] = max(x[i], 0), NaN stays; in place allowed. */
SRT_API srt_status_t srt_op_relu(srt_stream_t *stream, srt_view_t y, srt_view_t x, int64_t nelem);
/** dx[i] = y[i] > 0 ? dy[i] : 0, with y = relu(x); dx may be dy. */
SRT_API srt_status_t srt_op_relu_backward(srt_stream_t *stream, srt_view_t dx, srt_view_t dy,
					  srt_view_t y, int64_t nelem);
/** y[i] = gelu(x[i]), tanh form: x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))). */
SRT_API srt_status_t srt_op_gelu_tanh(srt_stream_t *stream, srt_view_t y, srt_view_t x,
				      int64_t nelem);
/** dx[i] = dy[i] * gelu'(x[i]); dx may be dy. */
SRT_API srt_status_t srt_op_gelu_tanh_backward(srt_stream_t *stream, srt_view_t dx, srt_view_t dy,
					       srt_view_t x, int64_t nelem);

/** y[i] = tanh(x[i]); in place allowed. */
SRT_API srt_status_t srt_op_tanh(srt_stream_t *stream, srt_view_t y, srt_view_t x, int64_t nelem);
/** dx[i] = dy[i] * (1 - y[i]^2), with y = tanh(x); dx may be dy. */
SRT_API srt_status_t srt_op_tanh_backward(srt_stream_t *stream, srt_view_t dx, srt_view_t dy,
					  srt_view_t y, int64_t nelem);
/** y[i] = 1 / (1 + exp(-x[i])); in place allowed. */
SRT_API srt_status_t srt_op_sigmoid(srt_stream_t *stream, srt_view_t y, srt_view_t x,
				    int64_t nelem);
/** dx[i] = dy[i] * y[i] * (1 - y[i]), with y = sigmoid(x); dx may be dy. */
SRT_API srt_status_t srt_op_sigmoid_backward(srt_stream_t *stream, srt_view_t dx, srt_view_t dy,
					     srt_view_t y, int64_t nelem);
/** y[i] = x[i] * sigmoid(x[i]); in place allowed. */
SRT_API srt_status_t srt_op_silu(srt_stream_t *stream, srt_view_t y, srt_view_t x, int64_t nelem);
/** dx[i] = dy[i] * silu'(x[i]); dx may be dy. */
SRT_API srt_status_t srt_op_silu_backward(srt_stream_t *stream, srt_view_t dx, srt_view_t dy,
					  srt_view_t x, int64_t nelem);
/** y[i] = gelu(x[i]), exact form: x/2 * (1 + erf(x / sqrt(2))); in place allowed. */
SRT_API srt_status_t srt_op_gelu_erf(srt_stream_t *stream, srt_view_t y, srt_view_t x,
				     int64_t nelem);
/** dx[i] = dy[i] * gelu'(x[i]) of the exact form; dx may be dy. */
SRT_API srt_status_t srt_op_gelu_erf_backward(srt_stream_t *stream, srt_view_t dx, srt_view_t dy,
					      srt_view_t x, int64_t nelem);

/* ---- rows ----------------------------------------------------------------------------- */

/** db (n) = sum over the rows of dy (rows,n). */
SRT_API srt_status_t srt_op_bias_backward(srt_stream_t *stream, srt_view_t db, srt_view_t dy,
					  int64_t rows, int64_t n, int accumulate);

/** y = (x - mean) * rstd * gamma + beta by row. x, y (rows,n); gamma, beta (n), beta may be
 * absent; mean, rstd (rows) are saved for the backward pass. Rows of no elements have no mean: n
 * is at least 1 unless rows is 0. */
SRT_API srt_status_t srt_op_layernorm(srt_stream_t *stream, srt_view_t y, srt_view_t mean,
				      srt_view_t rstd, srt_view_t x, srt_view_t gamma,
				      srt_view_t beta, int64_t rows, int64_t n, float eps);

/** dx (rows,n) = gradient with respect to x; `accumulate` adds it onto dx. */
SRT_API srt_status_t srt_op_layernorm_backward(srt_stream_t *stream, srt_view_t dx, srt_view_t dy,
					       srt_view_t x, srt_view_t mean, srt_view_t rstd,
					       srt_view_t gamma, int64_t rows, int64_t n,
					       int accumulate);

/** dgamma (n), dbeta (n): each may be absent. */
SRT_API srt_status_t srt_op_layernorm_backward_params(srt_stream_t *stream, srt_view_t dgamma,
						      srt_view_t dbeta, srt_view_t dy, srt_view_t x,
						      srt_view_t mean, srt_view_t rstd,
						      int64_t rows, int64_t n, int accumulate_gamma,
						      int accumulate_beta);

/** y = x / sqrt(mean(x^2) + eps) * gamma by row. x, y (rows,n); gamma (n); rstd (rows), SRT_F32, is
 * saved for the backward pass. n is at least 1 unless rows is 0. */
SRT_API srt_status_t srt_op_rmsnorm(srt_stream_t *stream, srt_view_t y, srt_view_t rstd,
				    srt_view_t x, srt_view_t gamma, int64_t rows, int64_t n,
				    float eps);

/** dx (rows,n) = gradient with respect to x; `accumulate` adds it onto dx. */
SRT_API srt_status_t srt_op_rmsnorm_backward(srt_stream_t *stream, srt_view_t dx, srt_view_t dy,
					     srt_view_t x, srt_view_t rstd, srt_view_t gamma,
					     int64_t rows, int64_t n, int accumulate);

/** dgamma (n) = gradient with respect to gamma; `accumulate` adds it onto dgamma. */
SRT_API srt_status_t srt_op_rmsnorm_backward_params(srt_stream_t *stream, srt_view_t dgamma,
						    srt_view_t dy, srt_view_t x, srt_view_t rstd,
						    int64_t rows, int64_t n, int accumulate);

/**
 * BatchNorm of the columns of a batch, for training: y = (x - mean) * rstd * gamma + beta with mean
 * and variance over the rows. x, y (rows,n), at least 2 rows; gamma, beta (n), beta may be absent;
 * mean, rstd (n), SRT_F32, are saved for the backward pass. running_mean, running_var (n), SRT_F32,
 * each may be absent: running = momentum * new + (1 - momentum) * running, the variance being that
 * over rows - 1, as torch.nn.BatchNorm1d has it.
 */
SRT_API srt_status_t srt_op_batchnorm(srt_stream_t *stream, srt_view_t y, srt_view_t mean,
				      srt_view_t rstd, srt_view_t running_mean,
				      srt_view_t running_var, srt_view_t x, srt_view_t gamma,
				      srt_view_t beta, int64_t rows, int64_t n, float eps,
				      float momentum);

/** The same with the running statistics instead of the batch's, for evaluation, of any number of
 * rows. rstd (n), SRT_F32, is written; the backward pass takes running_mean as its mean. */
SRT_API srt_status_t srt_op_batchnorm_evaluation(srt_stream_t *stream, srt_view_t y,
						 srt_view_t rstd, srt_view_t running_mean,
						 srt_view_t running_var, srt_view_t x,
						 srt_view_t gamma, srt_view_t beta, int64_t rows,
						 int64_t n, float eps);

/** dgamma (n), dbeta (n): each may be absent. averages (2,n), SRT_F32: what
 * srt_op_batchnorm_backward() needs after training's forward pass; absent after evaluation's. */
SRT_API srt_status_t srt_op_batchnorm_backward_params(srt_stream_t *stream, srt_view_t dgamma,
						      srt_view_t dbeta, srt_view_t averages,
						      srt_view_t dy, srt_view_t x, srt_view_t mean,
						      srt_view_t rstd, int64_t rows, int64_t n,
						      int accumulate_gamma, int accumulate_beta);

/** dx (rows,n) = gradient with respect to x; `averages` absent: mean and rstd were constants
 * (evaluation). dx may be dy. */
SRT_API srt_status_t srt_op_batchnorm_backward(srt_stream_t *stream, srt_view_t dx, srt_view_t dy,
					       srt_view_t x, srt_view_t mean, srt_view_t rstd,
					       srt_view_t gamma, srt_view_t averages, int64_t rows,
					       int64_t n);

/** y (rows,n)[r] = table (vocab,n)[ids[r]] + position (context,n)[r % context]; `position` may be
 * absent. ids (rows), SRT_I32, each must be in 0..vocab-1 (checked by the caller). */
SRT_API srt_status_t srt_op_embedding(srt_stream_t *stream, srt_view_t y, srt_view_t table,
				      srt_view_t position, srt_view_t ids, int64_t rows, int64_t n,
				      int64_t vocab, int64_t context);

/**
 * dtable (vocab,n)[v] = sum of dy (rows,n)[r] over rising r with ids[r] == v; rows of dtable that
 * no id names become 0 (or stay, if `accumulate`). padding: a row that takes no gradient, as if no
 * id named it (padding_idx of torch.nn.Embedding; the forward pass reads it like any other); -1 =
 * none.
 */
SRT_API srt_status_t srt_op_embedding_backward(srt_stream_t *stream, srt_view_t dtable,
					       srt_view_t dy, srt_view_t ids, int64_t rows,
					       int64_t n, int64_t vocab, int64_t padding,
					       int accumulate);

/** dposition (context,n)[t] = sum of dy (rows,n)[r] over rising r with r % context == t. */
SRT_API srt_status_t srt_op_position_backward(srt_stream_t *stream, srt_view_t dposition,
					      srt_view_t dy, int64_t rows, int64_t n,
					      int64_t context, int accumulate);

/** y (rows,n) = softmax of x (rows,n) by row; in place allowed. */
SRT_API srt_status_t srt_op_softmax(srt_stream_t *stream, srt_view_t y, srt_view_t x, int64_t rows,
				    int64_t n);

/** dx (rows,n) = gradient of the softmax, from its output y; dx may be dy. */
SRT_API srt_status_t srt_op_softmax_backward(srt_stream_t *stream, srt_view_t dx, srt_view_t dy,
					     srt_view_t y, int64_t rows, int64_t n);

/** y (rows,n) = logarithm of the softmax of x (rows,n) by row; in place allowed. */
SRT_API srt_status_t srt_op_log_softmax(srt_stream_t *stream, srt_view_t y, srt_view_t x,
					int64_t rows, int64_t n);

/** dx (rows,n) = its gradient, from its output y; dx may be dy. */
SRT_API srt_status_t srt_op_log_softmax_backward(srt_stream_t *stream, srt_view_t dx, srt_view_t dy,
						 srt_view_t y, int64_t rows, int64_t n);

/**
 * Cross-entropy by row: loss (rows)[r] = log(sum(exp(x[r] - max))) + max - x[r][targets[r]] and,
 * unless dx is absent, dx (rows,n) = (softmax(x) - onehot) * grad_scale. dx may be x.
 * targets (rows), SRT_I32, in 0..n-1, so n is at least 1 unless rows is 0.
 */
SRT_API srt_status_t srt_op_cross_entropy(srt_stream_t *stream, srt_view_t loss, srt_view_t dx,
					  srt_view_t x, srt_view_t targets, int64_t rows, int64_t n,
					  float grad_scale);

/** loss (rows)[r] = sum of (x - t)^2 over the row; dx = 2 * (x - t) * grad_scale unless absent. */
SRT_API srt_status_t srt_op_mse(srt_stream_t *stream, srt_view_t loss, srt_view_t dx, srt_view_t x,
				srt_view_t target, int64_t rows, int64_t n, float grad_scale);

/* ---- attention ------------------------------------------------------------------------ */

/**
 * Shape of multi-head attention: in each batch item and head, query i takes the softmax of
 * scale * (q[i] . k[j]) over the keys j that it sees, and with these weights the sum of v[j].
 *
 * A row holds all heads, head h at h * head_dim; ld* is the distance between rows in elements, 0 =
 * dense, heads * head_dim. Item b begins at row b * queries, or b * keys. Separate tensors, parts
 * of a packed projection and slices are all views with their distances of rows.
 */
typedef struct srt_attention {
	int64_t batch, queries, keys, heads, head_dim; /* queries, keys: of one batch item */
	float scale;                                   /* applied to q.k after the sum */
	/* 1: query i sees keys j <= i, both counted from the first, also where there are more of
	 * one than of the other (is_causal of torch's scaled_dot_product_attention). */
	int causal;
	int64_t ldq, ldk, ldv;
	int64_t lddq, lddk, lddv;
} srt_attention_t;

/**
 * The tensors of an attention. A key is seen by the queries of its item if j < lengths[b], which is
 * taken as 0 or keys where it is outside of them, and if mask[b][j] is not 0; and as `causal` says.
 * Keys that a query does not see take part in nothing: infinities and NaN there do not reach its
 * results. A query that sees no key gets zeros, and there are no gradients through it (torch: NaN);
 * the gradient of a key that no query sees is zero.
 */
typedef struct srt_attention_views {
	srt_view_t q, k, v; /* (batch,queries,heads*head_dim), (batch,keys,heads*head_dim) twice */
	srt_view_t lengths; /* (batch), SRT_I32, or absent: keys of each item */
	srt_view_t mask;    /* (batch,keys), SRT_U8, or absent: 0 hides a key */
	srt_view_t out;     /* (batch,queries,heads*head_dim), dense */
	/* (batch,heads,queries,2), SRT_F32: row maximum and row sum, saved for the backward pass; a
	 * query that sees nothing has -infinity and 0. */
	srt_view_t stats;
	/* The backward pass's own. The gradients lie as q, k, v do, with distances of their own;
	 * each may be absent. */
	srt_view_t dout; /* as out */
	srt_view_t dq, dk, dv;
	srt_view_t scratch; /* SRT_F32: srt_op_attention_scratch() bytes, contents undefined */
} srt_attention_views_t;

/** out and stats from q, k, v, lengths, mask. Order: docs/numerics.md, "Attention". */
SRT_API srt_status_t srt_op_attention(srt_stream_t *stream, const srt_attention_t *shape,
				      const srt_attention_views_t *views);

/** dq, dk, dv from all others. Rows of dq, dk and dv may lie side by side in one buffer. */
SRT_API srt_status_t srt_op_attention_backward(srt_stream_t *stream, const srt_attention_t *shape,
					       const srt_attention_views_t *views);

/** Bytes of scratch that the backward pass needs on the device. */
SRT_API srt_status_t srt_op_attention_scratch(srt_device_t *device, const srt_attention_t *shape,
					      size_t *nbytes);

/**
 * Self-attention over packed projections: sets keys, all distances of rows, and the views of q, k,
 * v and of their gradients to the thirds of the rows of qkv and dqkv
 * (batch,queries,3*heads*head_dim). The other members are left alone; dqkv may be absent. A
 * convenience, always succeeds.
 */
SRT_API void srt_attention_packed(srt_attention_t *shape, srt_attention_views_t *views,
				  srt_view_t qkv, srt_view_t dqkv);

/* ---- copies --------------------------------------------------------------------------- */

/** Most dimensions of a strided copy. */
#define SRT_STRIDED_MAX_DIMS 5

/** Two views of one shape: element (i,j,...) of y is at i * stride_y[0] + j * stride_y[1] + ... */
typedef struct srt_strided {
	int ndim; /* 0..SRT_STRIDED_MAX_DIMS; 0 = one element */
	int64_t size[SRT_STRIDED_MAX_DIMS];
	int64_t stride_y[SRT_STRIDED_MAX_DIMS]; /* in elements; none may be negative */
	int64_t stride_x[SRT_STRIDED_MAX_DIMS]; /* likewise; 0 repeats an element */
} srt_strided_t;

/**
 * y = x for all indices of the shape: slices, transposes, permutations, repetitions, bit for bit.
 * Any dtype of whole bytes, the same for both. What lies between y's elements stays. y's elements
 * must have places of their own: each stride goes beyond all that the smaller ones reach. y and x
 * may share a buffer if one begins behind the other's last element, or if their largest strides are
 * the same and the parts that they step over lie side by side.
 */
SRT_API srt_status_t srt_op_copy_strided(srt_stream_t *stream, srt_view_t y, srt_view_t x,
					 const srt_strided_t *shape);

/* ---- random numbers -------------------------------------------------------------------- */

/**
 * y[i] = mean + std * N(0,1), element first + i of the tensor called `name`. Philox 4x32-10 keyed
 * by (seed, name, global element): the same values however the tensor is sharded.
 */
SRT_API srt_status_t srt_op_normal(srt_stream_t *stream, srt_view_t y, uint64_t seed,
				   const char *name, int64_t first, int64_t nelem, float mean,
				   float std);

/**
 * y[i] = x[i] / (1 - rate) with probability 1 - rate, else +0, whatever x[i]; in place allowed. The
 * choice depends on (seed, name, first + i) alone, as in srt_op_normal(), so the gradient is the
 * same call on dy. A seed of its own for each pass makes masks differ. rate is from 0, which keeps
 * all and changes nothing, to 1, which keeps nothing.
 */
SRT_API srt_status_t srt_op_dropout(srt_stream_t *stream, srt_view_t y, srt_view_t x, uint64_t seed,
				    const char *name, int64_t first, int64_t nelem, float rate);

/* ---- sums that do not depend on order -------------------------------------------------- */

/** max (1, SRT_F32) = largest |x[i]|; NaN sticks; `accumulate` keeps the larger of it and max. */
SRT_API srt_status_t srt_op_absmax(srt_stream_t *stream, srt_view_t max, srt_view_t x,
				   int64_t nelem, int accumulate);

/**
 * bins (2, SRT_F64) = exact partial sums of |x[i]|^power, power 1 (of x[i] itself if `is_signed`),
 * 2 or
 * 3, relative to `max` (1, SRT_F32: largest |x| over all ranks) and `total_nelem` (elements over
 * all ranks; zeros, such as padding, need not be counted). Bins of different parts add in any
 * order without rounding.
 */
SRT_API srt_status_t srt_op_bin_sum(srt_stream_t *stream, srt_view_t bins, srt_view_t max,
				    srt_view_t x, int64_t nelem, int64_t total_nelem, int power,
				    int is_signed, int accumulate);

/** out (1, SRT_F32) = the sum that nbins pairs of bins hold; then its power-th root if `root`. A
 * non-finite max decides the result. */
SRT_API srt_status_t srt_op_bin_total(srt_stream_t *stream, srt_view_t out, srt_view_t bins,
				      srt_view_t max, int64_t nbins, int power, int root);

/* ---- sparse gradients ------------------------------------------------------------------ */

/** Most dimensions of the indices of a sparse gradient. */
#define SRT_COO_MAX_DIMS 4

/**
 * A sparse gradient in coordinate form, as torch.sparse_coo_tensor has it: entry i stands at
 * (indices[0][i], indices[1][i], ...) of a tensor of this shape and has `block` values. indices
 * (ndim,nnz), SRT_I32 or SRT_I64, each within the shape (checked by the caller); values
 * (nnz,block).
 */
typedef struct srt_coo {
	int64_t nnz;
	int64_t block; /* 1 for single values; the width of a row of an embedding's gradient */
	int ndim;      /* 1..SRT_COO_MAX_DIMS */
	int64_t shape[SRT_COO_MAX_DIMS];
	int round_each; /* 16-bit values: 0 = sums in float, rounded once; 1 = after each addition,
			 * as torch.amp.GradScaler does it */
} srt_coo_t;

/**
 * Adds entries with the same indices into one. The results are sorted row-major, sums go by rising
 * position. count (1, SRT_I32) = number of entries that are left, k of nnz: columns k.. of
 * out_indices (ndim,nnz) and rows k.. of out_values (nnz,block) become 0, so that without knowing k
 * they are entries that add nothing. Nothing returns to the host. scratch (SRT_U8):
 * srt_op_coo_scratch() bytes, contents undefined.
 */
SRT_API srt_status_t srt_op_coo_coalesce(srt_stream_t *stream, const srt_coo_t *coo,
					 srt_view_t out_indices, srt_view_t out_values,
					 srt_view_t count, srt_view_t indices, srt_view_t values,
					 srt_view_t scratch);

/** Bytes of scratch that coalescing needs on the device. */
SRT_API srt_status_t srt_op_coo_scratch(const srt_coo_t *coo, size_t *nbytes);

/* ---- optimizer steps ------------------------------------------------------------------- */

/**
 * The step-state block, in device memory: what the optimizer kernels read, advanced by
 * srt_op_step_advance(). All fields 4 bytes.
 */
typedef struct srt_step_state {
	int32_t step;     /* real steps done, the one under way included */
	float lr;         /* of this step */
	float scale;      /* loss scale */
	float inv_scale;  /* 1/scale */
	float found_inf;  /* non-zero: skip the step */
	float clip_coef;  /* gradients are multiplied by it */
	float grad_norm;  /* of the last step, before clipping */
	float base_lr;    /* schedule: peak */
	float min_lr;     /* schedule: end of the cosine */
	int32_t warmup;   /* schedule: steps of linear warm-up; 0 = none */
	int32_t lr_steps; /* schedule: steps of the whole; 0 = constant base_lr */
	int32_t reserved[5];
} srt_step_state_t;

/** Per-parameter state, in device memory, advanced by srt_op_step_advance(). */
typedef struct srt_param_state {
	int32_t used; /* 0: no rank has a gradient; the parameter is left alone in this step */
	int32_t step; /* real steps of this parameter (torch counts per parameter) */
	float bias1;  /* 1 - beta1^step, rounded once (a float power would lose its digits) */
	float bias2;  /* 1 - beta2^step */
} srt_param_state_t;

/**
 * If state.found_inf is 0: state.step += 1, state.lr from the schedule (linear warm-up to base_lr,
 * then half a cosine down to min_lr at lr_steps), and for each of the nparams entries of `params`
 * with used != 0: step += 1, bias corrections from the powers of beta, by squaring.
 * clip_coef = min(1, max_norm / (norm + 1e-6)) with norm (1, SRT_F32), which is also stored in
 * grad_norm; norm absent: clip_coef = 1; max_norm <= 0: clip_coef = 1 and the norm is stored.
 * state and params have dtype SRT_U8.
 */
SRT_API srt_status_t srt_op_step_advance(srt_stream_t *stream, srt_view_t state, srt_view_t params,
					 int64_t nparams, srt_view_t norm, float max_norm,
					 double beta1, double beta2);

/**
 * The check of the loss scaler: found_inf = 1 if any g[i] is infinite or NaN, else it stays, so
 * that calls on several tensors share one float, zeroed before; then g[i] *= inv_scale, found or
 * not. What the multiplication makes infinite is not looked for. With `state` (srt_step_state_t,
 * SRT_U8), inv_scale is state.inv_scale and the argument is ignored; `found_inf` (1, SRT_F32)
 * absent: state.found_inf, on which the optimizers' steps depend. One of the two must be there.
 * Nothing returns to the host. For a sparse gradient g are its values, coalesced before.
 */
SRT_API srt_status_t srt_op_unscale(srt_stream_t *stream, srt_view_t g, srt_view_t found_inf,
				    srt_view_t state, float inv_scale, int64_t nelem);

/**
 * y[i] = x[i] * scale: the scaling of a loss, or of any output, before the backward pass. y of x's
 * dtype (in place allowed), rounded once, as torch's ShardedGradScaler keeps it; or SRT_F32, as its
 * GradScaler makes of a loss of one element. With `state` (SRT_U8), scale is state.scale and the
 * argument is ignored.
 */
SRT_API srt_status_t srt_op_scale_loss(srt_stream_t *stream, srt_view_t y, srt_view_t x,
				       srt_view_t state, float scale, int64_t nelem);

/** A run of elements in the flat buffers that belongs to one parameter. */
typedef struct srt_optim_segment {
	int64_t offset; /* elements from the start of the flat buffers */
	int64_t nelem;
	int32_t group; /* index into the group table */
	int32_t param; /* index into the parameter states */
} srt_optim_segment_t;

/** Hyper-parameters of a group, in device memory. */
typedef struct srt_optim_group {
	float lr_scale; /* lr of the group = state.lr * lr_scale */
	float weight_decay;
} srt_optim_group_t;

/**
 * The flat buffers of a step and their tables; param, grad, m, v, vmax, copy share their layout.
 *
 * Without `copy` all of them have one dtype; with 16 bits everything that torch's loop stores in a
 * tensor of that dtype is rounded to it, as there (Adam's eps of 1e-8 is then 0 in SRT_F16). With
 * `copy`, param and moments are SRT_F32 (masters), gradients SRT_F32 or the copy's dtype, and the
 * stepped parameters are written to the copy too, rounded once.
 */
typedef struct srt_optim_args {
	srt_view_t state;    /* srt_step_state_t, SRT_U8 */
	srt_view_t params;   /* srt_param_state_t [], SRT_U8 */
	srt_view_t segments; /* srt_optim_segment_t [nsegments], device memory, SRT_U8; by rising
			      * offset, disjoint; gaps between them are left alone */
	srt_view_t groups;   /* srt_optim_group_t [], device memory, SRT_U8 */
	int64_t nsegments;
	int64_t nelem; /* span of the flat buffers: where the last segment ends */
	srt_view_t param, grad;
	srt_view_t m;    /* momentum_buffer (SGD, absent without momentum) or exp_avg */
	srt_view_t v;    /* exp_avg_sq; absent for SGD */
	srt_view_t vmax; /* max_exp_avg_sq; absent but for Adam with amsgrad */
	srt_view_t copy; /* of the parameters, in 16 bits; absent: see above */
} srt_optim_args_t;

/** Hyper-parameters of SGD, as torch.optim.SGD has them. */
typedef struct srt_sgd {
	float momentum, dampening;
	int nesterov;
	int maximize; /* 1: steps up the gradient */
} srt_sgd_t;

/** Hyper-parameters of Adam and AdamW, as torch.optim has them. */
typedef struct srt_adam {
	double beta1, beta2; /* in double: 1 - 0.999f is off by 1e-5 */
	float eps;
	int decoupled; /* 0: Adam (decay added to the gradient), 1: AdamW */
	int amsgrad;   /* 1: divides by the root of the largest exp_avg_sq so far */
	int maximize;  /* 1: steps up the gradient */
} srt_adam_t;

/** SGD on all segments: grad * clip_coef, decay, momentum (a parameter's first step: buffer =
 * gradient). Does nothing if state.found_inf, nor to parameters that are not used. */
SRT_API srt_status_t srt_op_sgd(srt_stream_t *stream, const srt_optim_args_t *args,
				const srt_sgd_t *sgd);

/** Adam or AdamW on all segments, likewise. Moments below 2^-120 are stored as 0. */
SRT_API srt_status_t srt_op_adam(srt_stream_t *stream, const srt_optim_args_t *args,
				 const srt_adam_t *adam);

#ifdef __cplusplus
}
#endif
#endif
