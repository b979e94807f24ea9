/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cases (kernels/cases/cases.h) by the operations of <shardrt/ops.h> that have tuned versions.
 */
#include "tests/kernels/kernel_operations.h"

static srt_attention_t attention_shape(const srt_k_attention_t *a)
{
	return (srt_attention_t){ .size = sizeof(srt_attention_t),
				  .batch = a->batch,
				  .queries = a->queries,
				  .keys = a->keys,
				  .heads = a->heads,
				  .kv_heads = a->kv_heads,
				  .head_dim = a->head_dim,
				  .offset = a->offset,
				  .scale = a->scale,
				  .causal = a->causal,
				  .ldq = a->ldq,
				  .ldk = a->ldk,
				  .ldv = a->ldv,
				  .lddq = a->lddq,
				  .lddk = a->lddk,
				  .lddv = a->lddv };
}

/* A place as an operation's tensor; absent stays absent. */
static srt_view_t typed(srt_view_t view, srt_dtype_t dtype)
{
	view.dtype = dtype;
	return view;
}

static srt_status_t attention_forward(srt_stream_t *stream, srt_dtype_t dtype, const void *args,
				      const srt_view_t *places)
{
	const srt_attention_t shape = attention_shape(args);
	const srt_attention_views_t views = { .size = sizeof(srt_attention_views_t),
					      .out = typed(places[0], dtype),
					      .stats = typed(places[1], SRT_F32),
					      .q = typed(places[2], dtype),
					      .k = typed(places[3], dtype),
					      .v = typed(places[4], dtype),
					      .lengths = typed(places[5], SRT_I32),
					      .mask = typed(places[6], SRT_U8),
					      .first = typed(places[7], SRT_I32) };

	return srt_op_attention(&shape, &views, stream);
}

srt_status_t kernel_case_operation(srt_stream_t *stream, srt_kernel_id_t kernel, srt_dtype_t dtype,
				   const void *args, const srt_view_t *views)
{
	srt_view_t of[4] = { { 0 } };

	for (int i = 0; i < srt_kernel_info(kernel)->nplaces && i < 4; i++) {
		of[i] = views[i];
		if (of[i].buffer != NULL)
			of[i].dtype = dtype;
	}
	if (kernel == SRT_K_MATMUL) {
		const srt_k_matmul_t *a = args;

		of[0].dtype = a->c_is_f32 ? SRT_F32 : of[0].dtype;
		return srt_op_matmul(
			&(srt_matmul_t){
				.size = sizeof(srt_matmul_t),
				.m = a->m,
				.n = a->n,
				.k = a->k,
				.batch = a->batch,
				.trans_a = a->trans_a,
				.trans_b = a->trans_b,
				.c = of[0],
				.a = of[1],
				.b = of[2],
				.bias = of[3],
				.lda = a->lda,
				.ldb = a->ldb,
				.ldc = a->ldc,
				.stride_a = a->stride_a,
				.stride_b = a->stride_b,
				.stride_c = a->stride_c,
				.alpha = a->alpha,
				.accumulate = a->accumulate,
			},
			stream);
	}
	if (kernel == SRT_K_ATTENTION)
		return attention_forward(stream, dtype, args, views);
	return SRT_ERR_UNSUPPORTED;
}

srt_status_t kernel_case_attention_backward(srt_stream_t *stream, srt_dtype_t dtype,
					    const void *args, const srt_view_t *places)
{
	const srt_attention_t shape = attention_shape(args);
	const size_t width = (size_t)(shape.heads * shape.head_dim) * srt_dtype_bits(dtype) / 8;
	srt_attention_views_t views = { .size = sizeof(srt_attention_views_t),
					.dq = typed(places[0], dtype),
					.dout = typed(places[1], dtype),
					.out = typed(places[1], dtype),
					.q = typed(places[2], dtype),
					.k = typed(places[3], dtype),
					.v = typed(places[4], dtype),
					.stats = typed(places[5], SRT_F32),
					.scratch = typed(places[6], SRT_F32),
					.lengths = typed(places[7], SRT_I32),
					.mask = typed(places[8], SRT_U8),
					.first = typed(places[9], SRT_I32) };

	if (shape.ldq == 3 * shape.heads * shape.head_dim) { /* packed: room for all three */
		views.dk = views.dv = views.dq;
		views.dk.offset += width;
		views.dv.offset += 2 * width;
	}
	return srt_op_attention_backward(&shape, &views, stream);
}
