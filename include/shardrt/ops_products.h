/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations that multiply matrices: the product, and attention. The rules of all operations are
 * in <shardrt/ops.h>.
 */
#ifndef SHARDRT_OPS_PRODUCTS_H
#define SHARDRT_OPS_PRODUCTS_H

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
 * `accumulate`. Row-major; ld* is the distance between stored rows in elements, 0 of dense ones.
 */
typedef struct srt_matmul {
	size_t size; /* set by SRT_MATMUL_INIT */
	int64_t m, n, k;
	int64_t batch; /* products */
	int trans_a;   /* 0: A stored (m,k); 1: stored (k,m) */
	int trans_b;   /* 0: B stored (k,n); 1: stored (n,k) */
	/* One dtype for all, and bias; or c is SRT_F32 and the others SRT_F16 or SRT_BF16: then
	 * nothing is rounded. */
	srt_view_t a, b, c;
	int64_t lda, ldb, ldc;
	/* Between batch items, in elements; C's are disjoint. */
	int64_t stride_a, stride_b, stride_c;
	float alpha;
	srt_view_t bias; /* (n) or absent */
	int accumulate;
} srt_matmul_t;

/** One product, alpha 1. */
#define SRT_MATMUL_INIT                                                                            \
	{                                                                                          \
		.size = sizeof(srt_matmul_t), .batch = 1, .alpha = 1.0f                            \
	}

/** Matrix product. Order: docs/numerics.md, "Matrix product". */
SRT_API srt_status_t srt_op_matmul(const srt_matmul_t *mm, srt_stream_t *stream);

/**
 * Raises *nbytes to the scratch that such a product needs on a stream (srt_stream_reserve()). Uses
 * the sizes, the distances of rows and mm->c.dtype only; the views may be absent.
 * @param dtype of a, b and bias; also of c, unless mm->c.dtype is SRT_F32.
 */
SRT_API srt_status_t srt_op_matmul_memory(srt_device_t *device, const srt_matmul_t *mm,
					  srt_dtype_t dtype, size_t *nbytes);

/* ---- sums in parts ---------------------------------------------------------------------- */

/** Most parts of srt_sum_parts_t. */
#define SRT_SUM_PARTS_MAX 8

/** The parts of a sum, e.g. of products over parts of their k, and what follows their sum. */
typedef struct srt_sum_parts {
	size_t size; /* set by SRT_SUM_PARTS_INIT */
	int64_t rows, n;
	int nparts;       /* 1 to SRT_SUM_PARTS_MAX */
	int64_t stride;   /* elements from a part to the next, at least rows * n; 0: rows * n */
	srt_view_t parts; /* (nparts,rows,n), SRT_F32 */
	srt_view_t bias;  /* (n), or absent; dtype of out */
	srt_view_t out;   /* (rows,n); where it is SRT_F32 it may be the first part */
	int accumulate;   /* added onto out */
} srt_sum_parts_t;

/** One part; the other defaults are zero. */
#define SRT_SUM_PARTS_INIT                                                                         \
	{                                                                                          \
		.size = sizeof(srt_sum_parts_t), .nparts = 1                                       \
	}

/**
 * out = sum of the parts, then + bias, then added onto out if `accumulate`; all in fp32, rounded
 * once to out's dtype. The parts are added by the pairwise tree: neighbours, then neighbours of
 * the sums, and so on; an odd last one passes up. Bits: docs/numerics.md, "Matrix product".
 */
SRT_API srt_status_t srt_op_sum_parts(const srt_sum_parts_t *args, srt_stream_t *stream);

/* ---- attention ------------------------------------------------------------------------ */

/**
 * Shape of multi-head attention: in each batch item and head, query i takes the softmax of
 * scale * (q[i] . k[j]) over the keys j that it attends to, and with these weights the sum of v[j].
 *
 * A row of q holds `heads` heads, head h at h * head_dim; one of k or v `kv_heads`. ld* is the
 * distance between rows in elements, 0 = dense, heads * head_dim or kv_heads * head_dim. Item b
 * begins at row b * queries, or b * keys. Separate tensors, parts of a packed projection and slices
 * are all views with their distances of rows.
 */
typedef struct srt_attention {
	size_t size;                                   /* set by SRT_ATTENTION_INIT */
	int64_t batch, queries, keys, heads, head_dim; /* queries, keys: of one batch item */
	float scale;                                   /* applied to q.k after the sum */
	/* 1: query i attends to keys j <= offset + i, both counted from the first, also if their
	 * numbers differ (offset 0: is_causal of torch's scaled_dot_product_attention). */
	int causal;
	int64_t ldq, ldk, ldv;
	int64_t lddq, lddk, lddv;
	/* Heads of k and v, 0 = heads: head h of the queries reads head h / (heads / kv_heads).
	 * Divides heads; at most 127 heads share one. */
	int64_t kv_heads;
	/* The position of the first query among the keys, of no effect unless causal: how many keys
	 * were there before these queries. At least 0. */
	int64_t offset;
} srt_attention_t;

/** Sets srt_attention_t.size; the other defaults are zero. */
#define SRT_ATTENTION_INIT                                                                         \
	{                                                                                          \
		.size = sizeof(srt_attention_t)                                                    \
	}

/**
 * The tensors of an attention. Queries of item b attend to key j if j < lengths[b] (clamped to 0
 * and keys), mask[b][j] is not 0, and `causal` allows it; query i if j >= first[b][i] too. Other
 * keys have no effect: infinities and NaN there do not reach the results. A query without keys gets
 * zeros and no gradient (torch: NaN). The gradient of a key that no query attends to is zero.
 *
 * With `causal`, `first` makes windows (offset + i - window + 1) and documents packed into one item
 * (where the query's begins). Out and dq of a query have the same bits whatever lies before its
 * first key and after the last it sees: a document alone or packed, in one call or in several with
 * `offset`.
 */
typedef struct srt_attention_views {
	size_t size; /* set by SRT_ATTENTION_VIEWS_INIT */
	/* (batch,queries,heads*head_dim), and twice (batch,keys,kv_heads*head_dim) */
	srt_view_t q, k, v;
	srt_view_t lengths; /* (batch), SRT_I32, or absent: keys of each item */
	srt_view_t mask;    /* (batch,keys), SRT_U8, or absent: 0 hides a key */
	srt_view_t out;     /* (batch,queries,heads*head_dim), dense */
	/* (batch,heads,queries,2), SRT_F32: row maximum and row sum, saved for the backward pass; a
	 * query without keys has -infinity and 0. */
	srt_view_t stats;
	/* The backward pass has these. The gradients have the layouts of q, k, v, with lddq, lddk,
	 * lddv; each may be absent. */
	srt_view_t dout; /* as out */
	srt_view_t dq, dk, dv;
	srt_view_t scratch; /* SRT_F32: srt_op_attention_scratch() bytes, contents undefined */
	/* (batch,queries), SRT_I32, or absent: the first key that a query attends to; below 0: 0 */
	srt_view_t first;
} srt_attention_views_t;

/** Sets srt_attention_views_t.size; the other defaults are zero: every tensor is absent. */
#define SRT_ATTENTION_VIEWS_INIT                                                                   \
	{                                                                                          \
		.size = sizeof(srt_attention_views_t)                                              \
	}

/** out and stats from q, k, v, lengths, mask, first. Order: docs/numerics.md, "Attention". */
SRT_API srt_status_t srt_op_attention(const srt_attention_t *shape,
				      const srt_attention_views_t *views, srt_stream_t *stream);

/** dq, dk, dv from the others (16 bits: not from out); their rows may alternate in one buffer. */
SRT_API srt_status_t srt_op_attention_backward(const srt_attention_t *shape,
					       const srt_attention_views_t *views,
					       srt_stream_t *stream);

/**
 * Raises *nbytes to the scratch that the pass needs on a stream (srt_stream_reserve()).
 * @param backward 0: srt_op_attention(), 1: srt_op_attention_backward().
 * @param masked whether there are lengths, a mask or first keys.
 */
SRT_API srt_status_t srt_op_attention_memory(srt_device_t *device, const srt_attention_t *shape,
					     srt_dtype_t dtype, int backward, int masked,
					     size_t *nbytes);

/** Bytes of scratch that the backward pass needs on the device. */
SRT_API srt_status_t srt_op_attention_scratch(srt_device_t *device, const srt_attention_t *shape,
					      size_t *nbytes);

/**
 * Self-attention over packed projections: sets keys, all distances of rows, and the views of q, k,
 * v and of their gradients to the parts of the rows of qkv and dqkv
 * (batch,queries,(heads+2*kv_heads)*head_dim). The other members are left alone; dqkv may be
 * absent. A convenience, always succeeds.
 */
SRT_API void srt_attention_set_packed(srt_attention_t *shape, srt_attention_views_t *views,
				      srt_view_t qkv, srt_view_t dqkv);

#ifdef __cplusplus
}
#endif
#endif
