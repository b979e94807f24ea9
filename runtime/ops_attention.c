/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Launchers of attention of <shardrt/ops.h>: the backend's tuned version if it has one for the
 * shape, else kernels/attention.k (one kernel forward, three backward). In exact mode both have
 * the same bits.
 */
#include "runtime/ops.h"

static srt_status_t check_shape(const char *name, const srt_attention_t *shape)
{
	if (!shape)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: shape is NULL", name);
	if (shape->batch >= 0 && shape->context >= 0 && shape->heads >= 0 && shape->head_dim >= 0)
		return SRT_OK;
	return srt_fail(SRT_ERR_INVALID_ARGUMENT,
			"%s: batch %lld, context %lld, heads %lld, head_dim %lld: none may be "
			"negative",
			name, (long long)shape->batch, (long long)shape->context,
			(long long)shape->heads, (long long)shape->head_dim);
}

/* Sizes of the tensors in elements; -1 where they overflow. */
typedef struct sizes {
	int64_t out, qkv, stats, rows;
} sizes_t;

static sizes_t sizes_of(const srt_attention_t *a)
{
	sizes_t s;

	s.rows = srt_op_size3(a->batch, a->heads, a->context);
	s.out = srt_op_size(s.rows, a->head_dim);
	s.qkv = srt_op_size(s.out, 3);
	s.stats = srt_op_size(s.rows, 2);
	return s;
}

static srt_k_attention_t kernel_args(const srt_attention_t *a)
{
	return (srt_k_attention_t){
		.batch = a->batch,
		.context = a->context,
		.heads = a->heads,
		.head_dim = a->head_dim,
		.scale = a->scale,
		.causal = a->causal != 0,
	};
}

static srt_status_t make_places(srt_stream_t *stream, const srt_view_t *views, int nviews,
				srt_place_t *places)
{
	for (int i = 0; i < nviews; i++)
		SRT_TRY(srt_place(stream, &views[i], &places[i]));
	return SRT_OK;
}

srt_status_t srt_op_attention(srt_stream_t *stream, const srt_attention_t *shape, srt_view_t out,
			      srt_view_t stats, srt_view_t qkv)
{
	static const char name[] = "srt_op_attention";
	const srt_backend_work_ops_t *work;
	srt_k_attention_t args;
	srt_op_call_t call = { name, stream, SRT_K_ATTENTION, false, &args };
	srt_place_t places[3];
	srt_dtype_t dtype;
	srt_status_t status;
	sizes_t n;

	SRT_TRY(check_shape(name, shape));
	args = kernel_args(shape);
	n = sizes_of(shape);
	const srt_op_tensor_t tensors[] = {
		{ "out", out, n.out, 0 },
		{ "stats", stats, n.stats, SRT_OP_DTYPE_F32 },
		{ "qkv", qkv, n.qkv, 0 },
	};

	SRT_TRY(srt_op_check(&call, tensors, &dtype));
	if (!n.out)
		return SRT_OK;
	work = stream->device->backend->work;
	if (work->attention) {
		SRT_TRY(make_places(stream, (srt_view_t[]){ out, stats, qkv }, 3, places));
		status = work->attention(stream->impl, shape, dtype, places,
					 stream->device->numerics == SRT_NUMERICS_EXACT);
		if (status != SRT_ERR_UNSUPPORTED)
			return srt_launched(stream, status);
	}
	return srt_op_put(&call, tensors, dtype);
}

/* The views of a backward pass, under the header's names. */
typedef struct backward {
	srt_view_t dqkv, dout, out, qkv, stats, scratch;
} backward_t;

/* The portable backward pass: three kernels in order. `check` checks, else they are launched. */
static srt_status_t backward_kernels(const char *name, srt_stream_t *stream,
				     const srt_attention_t *shape, const backward_t *v, bool check)
{
	const srt_k_attention_t args = kernel_args(shape);
	const sizes_t n = sizes_of(shape);
	const srt_op_tensor_t first[] = {
		{ "scratch", v->scratch, n.rows, SRT_OP_DTYPE_F32 },
		{ "dout", v->dout, n.out, 0 },
		{ "out", v->out, n.out, 0 },
	};
	const srt_op_tensor_t then[] = {
		{ "dqkv", v->dqkv, n.qkv, 0 },
		{ "dout", v->dout, n.out, 0 },
		{ "qkv", v->qkv, n.qkv, 0 },
		{ "stats", v->stats, n.stats, SRT_OP_DTYPE_F32 },
		{ "scratch", v->scratch, n.rows, SRT_OP_DTYPE_F32 },
	};
	const struct {
		srt_kernel_id_t kernel;
		const srt_op_tensor_t *tensors;
	} steps[] = {
		{ SRT_K_ATTENTION_BACKWARD_D, first },
		{ SRT_K_ATTENTION_BACKWARD_Q, then },
		{ SRT_K_ATTENTION_BACKWARD_KV, then },
	};

	for (size_t i = 0; i < SRT_ARRAY_LEN(steps); i++) {
		srt_op_call_t call = { name, stream, steps[i].kernel, false, &args };
		srt_dtype_t dtype;

		if (check)
			SRT_TRY(srt_op_check(&call, steps[i].tensors, &dtype));
		else
			SRT_TRY(srt_op_put(&call, steps[i].tensors, v->qkv.dtype));
	}
	return SRT_OK;
}

srt_status_t srt_op_attention_backward(srt_stream_t *stream, const srt_attention_t *shape,
				       srt_view_t dqkv, srt_view_t dout, srt_view_t out,
				       srt_view_t qkv, srt_view_t stats, srt_view_t scratch)
{
	static const char name[] = "srt_op_attention_backward";
	const backward_t views = { dqkv, dout, out, qkv, stats, scratch };
	const srt_backend_work_ops_t *work;
	srt_place_t places[6];
	srt_status_t status;

	SRT_TRY(check_shape(name, shape));
	SRT_TRY(backward_kernels(name, stream, shape, &views, true));
	if (!sizes_of(shape).out)
		return SRT_OK;
	work = stream->device->backend->work;
	if (work->attention_backward) {
		SRT_TRY(make_places(stream, (srt_view_t[]){ dqkv, dout, out, qkv, stats, scratch },
				    6, places));
		status = work->attention_backward(stream->impl, shape, qkv.dtype, places,
						  stream->device->numerics == SRT_NUMERICS_EXACT);
		if (status != SRT_ERR_UNSUPPORTED)
			return srt_launched(stream, status);
	}
	return backward_kernels(name, stream, shape, &views, false);
}

srt_status_t srt_op_attention_scratch(srt_device_t *device, const srt_attention_t *shape,
				      size_t *nbytes)
{
	static const char name[] = "srt_op_attention_scratch";
	const srt_backend_work_ops_t *work;
	int64_t rows;
	size_t tuned = 0;

	if (!device || !nbytes)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: %s is NULL", name,
				device ? "nbytes" : "device");
	SRT_TRY(check_shape(name, shape));
	rows = srt_op_size(sizes_of(shape).rows, sizeof(float));
	if (rows < 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: the shape is too large", name);
	work = device->backend->work;
	if (work->attention_scratch)
		tuned = work->attention_scratch(device->impl, shape);
	/* Enough for the tuned and for the portable version: which one runs is decided at the
	 * call. */
	*nbytes = tuned > (size_t)rows ? tuned : (size_t)rows;
	return SRT_OK;
}
