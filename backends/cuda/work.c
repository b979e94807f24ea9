/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies and zeroing on streams. What the driver can order is its own; where both sides are host
 * memory, or one side is host memory that it would not lock, the stream's worker copies when the
 * stream has come to it. Uploads are in upload.c, launches in launch.c.
 */
#include <string.h>

#include "backends/cuda/fast.h"

static srt_status_t queued(const srt_cuda_stream_t *stream, CUresult code, const char *what,
			   size_t nbytes)
{
	if (code == CUDA_SUCCESS)
		return SRT_OK;
	return srt_cuda_fail(stream->device->host, stream->device->drv, code,
			     "stream \"%s\": %s %zu bytes failed", stream->ring.name, what, nbytes);
}

static bool is_pageable(const srt_cuda_mem_t *mem)
{
	return !mem->address;
}

/* ---- copies ------------------------------------------------------------------------------ */

/* On the worker, the stream having finished. */
static srt_status_t copy_by_worker(srt_cuda_stream_t *stream, const srt_cuda_mem_t *dst, size_t to,
				   const srt_cuda_mem_t *src, size_t from, size_t nbytes)
{
	const srt_cuda_driver_t *drv = stream->device->drv;
	srt_status_t status = srt_cuda_stream_finish(stream);
	CUresult code;

	if (status != SRT_OK)
		return status;
	if (dst->host && src->host) {
		memcpy(dst->host + to, src->host + from, nbytes);
		return SRT_OK;
	}
	if (src->host)
		code = drv->cuMemcpyHtoDAsync(dst->address + to, src->host + from, nbytes,
					      stream->queue);
	else
		code = drv->cuMemcpyDtoHAsync(dst->host + to, src->address + from, nbytes,
					      stream->queue);
	status = queued(stream, code, "copying", nbytes);
	/* The bytes are looked at and changed behind this operation. */
	return status == SRT_OK ? srt_cuda_stream_finish(stream) : status;
}

static bool is_for_worker(const srt_cuda_mem_t *dst, const srt_cuda_mem_t *src)
{
	return (dst->host && src->host) || is_pageable(dst) || is_pageable(src);
}

static srt_status_t run_copy(srt_cuda_stream_t *stream, const srt_cuda_op_t *op)
{
	const srt_cuda_mem_t *dst = op->u.copy.dst, *src = op->u.copy.src;
	size_t to = op->u.copy.dst_offset, from = op->u.copy.src_offset;
	size_t nbytes = op->u.copy.nbytes;

	if (is_for_worker(dst, src))
		return copy_by_worker(stream, dst, to, src, from, nbytes);
	return queued(stream,
		      stream->device->drv->cuMemcpyAsync(dst->address + to, src->address + from,
							 nbytes, stream->queue),
		      "copying", nbytes);
}

static srt_status_t work_copy(void *stream, void *dst, size_t dst_offset, void *src,
			      size_t src_offset, size_t nbytes)
{
	return srt_cuda_stream_put(stream, &(srt_cuda_op_t){
						   .run = run_copy,
						   .ring.blocks = is_for_worker(dst, src),
						   .u.copy = { .dst = dst,
							       .src = src,
							       .dst_offset = dst_offset,
							       .src_offset = src_offset,
							       .nbytes = nbytes },
					   });
}

static srt_status_t run_copy_rows(srt_cuda_stream_t *stream, const srt_cuda_op_t *op)
{
	const srt_cuda_driver_t *drv = stream->device->drv;
	const srt_copy_rows_t *rows = &op->u.rows.rows;
	CUdeviceptr to = op->u.rows.dst->address + rows->dst_offset;
	CUdeviceptr from = op->u.rows.src->address + rows->src_offset;
	CUDA_MEMCPY2D copy = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcDevice = from,
		.srcPitch = rows->src_pitch,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = to,
		.dstPitch = rows->dst_pitch,
		.WidthInBytes = rows->width,
		.Height = rows->nrows,
	};
	CUresult code = CUDA_ERROR_INVALID_VALUE;

	if (rows->src_pitch <= stream->device->max_pitch &&
	    rows->dst_pitch <= stream->device->max_pitch)
		code = drv->cuMemcpy2DAsync(&copy, stream->queue);
	/* A driver may refuse a pitch. */
	if (code == CUDA_ERROR_INVALID_VALUE) {
		code = CUDA_SUCCESS;
		for (size_t r = 0; r < rows->nrows && code == CUDA_SUCCESS; r++)
			code = drv->cuMemcpyAsync(to + r * rows->dst_pitch,
						  from + r * rows->src_pitch, rows->width,
						  stream->queue);
	}
	return queued(stream, code, "copying rows of", rows->width);
}

static srt_status_t work_copy_rows(void *stream, void *dst, void *src,
				   const srt_copy_rows_t *copies, size_t ncopies)
{
	srt_cuda_mem_t *d = dst, *s = src;
	srt_status_t status = SRT_OK;

	for (size_t i = 0; i < ncopies && status == SRT_OK; i++) {
		const srt_copy_rows_t *rows = &copies[i];

		if (!d->host && !s->host) {
			status = srt_cuda_stream_put(stream, &(srt_cuda_op_t){
								     .run = run_copy_rows,
								     .u.rows = { d, s, *rows },
							     });
			continue;
		}
		for (size_t r = 0; r < rows->nrows && status == SRT_OK; r++)
			status = work_copy(stream, dst, rows->dst_offset + r * rows->dst_pitch, src,
					   rows->src_offset + r * rows->src_pitch, rows->width);
	}
	return status;
}

static srt_status_t work_to_host(void *s, void *dst, void *src, size_t offset, size_t nbytes)
{
	srt_cuda_stream_t *stream = s;
	const srt_cuda_driver_t *drv = stream->device->drv;
	const srt_cuda_mem_t *mem = src;
	srt_status_t status = srt_ring_sync(stream);
	srt_cuda_scope_t scope;
	CUresult code;

	if (status != SRT_OK)
		return status;
	if (mem->host) {
		memcpy(dst, mem->host + offset, nbytes);
		return SRT_OK;
	}
	scope = srt_cuda_enter(stream->device);
	code = drv->cuMemcpyDtoHAsync(dst, mem->address + offset, nbytes, stream->queue);
	if (code == CUDA_SUCCESS)
		code = drv->cuStreamSynchronize(stream->queue);
	status = queued(stream, code, "reading", nbytes);
	srt_cuda_leave(scope);
	return status;
}

/* ---- zero -------------------------------------------------------------------------------- */

static srt_status_t run_zero(srt_cuda_stream_t *stream, const srt_cuda_op_t *op)
{
	const srt_cuda_mem_t *dst = op->u.copy.dst;
	size_t offset = op->u.copy.dst_offset, nbytes = op->u.copy.nbytes;
	srt_status_t status;

	if (dst->host) {
		status = srt_cuda_stream_finish(stream);
		if (status == SRT_OK)
			memset(dst->host + offset, 0, nbytes);
		return status;
	}
	return queued(stream,
		      stream->device->drv->cuMemsetD8Async(dst->address + offset, 0, nbytes,
							   stream->queue),
		      "zeroing", nbytes);
}

static srt_status_t work_zero(void *stream, void *dst, size_t offset, size_t nbytes)
{
	const srt_cuda_mem_t *mem = dst;

	return srt_cuda_stream_put(stream, &(srt_cuda_op_t){
						   .run = run_zero,
						   .ring.blocks = mem->host != NULL,
						   .u.copy = { .dst = dst,
							       .dst_offset = offset,
							       .nbytes = nbytes },
					   });
}

static srt_status_t work_matmul(void *stream, const srt_matmul_t *mm, srt_dtype_t dtype,
				const srt_place_t places[4], int exact)
{
	srt_status_t status = SRT_ERR_UNSUPPORTED;

	if (!exact)
		status = srt_cuda_fast_matmul(stream, mm, dtype, places);
	if (status == SRT_ERR_UNSUPPORTED)
		status = srt_cuda_matmul(stream, mm, dtype, places, exact);
	return status;
}

const srt_backend_work_ops_t srt_cuda_work_ops = {
	.copy = work_copy,
	.copy_rows = work_copy_rows,
	.from_host = srt_cuda_from_host,
	.to_host = work_to_host,
	.zero = work_zero,
	.launch = srt_cuda_launch,
	.matmul = work_matmul,
	.attention = srt_cuda_attention,
	.attention_backward = srt_cuda_attention_backward,
	.matmul_memory = srt_cuda_matmul_memory,
	.attention_memory = srt_cuda_attention_memory,
};
