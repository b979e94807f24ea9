/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attention and its gradient as docs/numerics.md defines them, written plainly: what the portable
 * kernels (test_kernels_attention) and the processor's own version (test_attention) are compared
 * with, bit for bit; and the shapes and masks of the cases.
 */
#ifndef SRT_TESTS_ATTENTION_REF_H
#define SRT_TESTS_ATTENTION_REF_H

#include <stdint.h>

#include <shardrt/dtype.h>

#include "kernels/args.h"

/* A case: inputs, and the results, which att_reference() writes. Row r of q is at q + r * ldq. */
typedef struct att {
	srt_k_attention_t a;
	const int32_t *lengths;    /* (batch) or NULL */
	const unsigned char *mask; /* (batch,keys) or NULL */
	const int32_t *first;      /* (batch,queries) or NULL */
	const float *q, *k, *v, *dout;
	float *out, *stats, *dsum, *dq, *dk, *dv;
	srt_dtype_t dtype; /* that out is stored as */
} att_t;

/* How rows lie: parts of a packed row, dense, or with gaps. */
typedef enum att_layout { ATT_PACKED, ATT_DENSE, ATT_GAPS, ATT_NLAYOUTS } att_layout_t;

/* The shape has as many heads of keys as of queries, and offset 0. */
srt_k_attention_t att_shape(int64_t batch, int64_t queries, int64_t keys, int64_t heads,
			    int64_t head_dim, int causal, att_layout_t layout);

/* Elements from the first to the last of the rows of queries, or of keys. */
int64_t att_queries_extent(const srt_k_attention_t *a, int64_t ld);
int64_t att_keys_extent(const srt_k_attention_t *a, int64_t ld);
int att_sees(const att_t *t, int64_t b, int64_t i, int64_t j);

/* For item b and head h: row i of a tensor of rows ld apart. */
int64_t att_row(const att_t *t, int64_t b, int64_t h, int64_t positions, int64_t i, int64_t ld);
#define ATT_Q(t, b, h, i) ((t)->q + att_row(t, b, h, (t)->a.queries, i, (t)->a.ldq))
/* h: of the queries; the heads of keys are shared. */
#define ATT_SHARED(t, h) ((h) / ((t)->a.heads / (t)->a.kv_heads))
#define ATT_K(t, b, h, j) ((t)->k + att_row(t, b, ATT_SHARED(t, h), (t)->a.keys, j, (t)->a.ldk))
#define ATT_V(t, b, h, j) ((t)->v + att_row(t, b, ATT_SHARED(t, h), (t)->a.keys, j, (t)->a.ldv))
#define ATT_OUT(t, p, b, h, i)                                                                     \
	((t)->p + att_row(t, b, h, (t)->a.queries, i, (t)->a.heads * (t)->a.head_dim))

/* All results from the inputs. */
void att_reference(const att_t *t);

/* Lengths of items: none, one, all but one, more than there are, fewer than none, any. */
int32_t *att_lengths(const srt_k_attention_t *a);

/* A mask of bytes: some items see nothing, some all, some all but one piece; what is seen is any
 * byte but 0. */
unsigned char *att_mask(const srt_k_attention_t *a);

/* First keys of queries: windows, documents, any, 0. */
int32_t *att_first(const srt_k_attention_t *a);

#endif
