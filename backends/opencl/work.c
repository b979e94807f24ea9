/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies and zeroing on streams. Three kinds of pairs: buffer to buffer (a copy of the device's),
 * buffer and host memory (a read or a write that does not block), host to host (by the stream's
 * worker, when the queue has finished). Launches are in launch.c.
 */
#include <string.h>

#include "backends/opencl/tuned.h"

#define STAGING_NBYTES ((size_t)1 << 18)
#define STAGING_ALIGN ((size_t)64)
/* Uploads up to this size wait in the stream's staging memory; larger ones for the stream. */
#define UPLOAD_NBYTES ((size_t)1 << 15)

static srt_status_t queued(const srt_ocl_stream_t *stream, cl_int code, const char *what,
			   size_t nbytes)
{
	if (code == CL_SUCCESS)
		return SRT_OK;
	return srt_ocl_fail(stream->device->host, code, "stream \"%s\": %s %zu bytes failed",
			    stream->ring.name, what, nbytes);
}

static srt_status_t run_copy(srt_ocl_stream_t *stream, const srt_ocl_op_t *op)
{
	const srt_ocl_mem_t *dst = op->u.copy.dst, *src = op->u.copy.src;
	size_t to = op->u.copy.dst_offset, from = op->u.copy.src_offset;
	size_t nbytes = op->u.copy.nbytes;
	srt_status_t status;
	cl_int code;

	if (dst->buffer && src->buffer) {
		code = clEnqueueCopyBuffer(stream->queue, src->buffer, dst->buffer, from, to,
					   nbytes, 0, NULL, NULL);
	} else if (dst->buffer) {
		code = clEnqueueWriteBuffer(stream->queue, dst->buffer, CL_FALSE, to, nbytes,
					    src->host + from, 0, NULL, NULL);
	} else if (src->buffer) {
		code = clEnqueueReadBuffer(stream->queue, src->buffer, CL_FALSE, from, nbytes,
					   dst->host + to, 0, NULL, NULL);
	} else {
		status = srt_ocl_stream_finish(stream);
		if (status != SRT_OK)
			return status;
		memcpy(dst->host + to, src->host + from, nbytes);
		code = CL_SUCCESS;
	}
	return queued(stream, code, "copying", nbytes);
}

static srt_status_t work_copy(void *stream, void *dst, size_t dst_offset, void *src,
			      size_t src_offset, size_t nbytes)
{
	const srt_ocl_mem_t *d = dst, *s = src;

	return srt_ocl_stream_put(stream, &(srt_ocl_op_t){
						  .run = run_copy,
						  .ring.blocks = !d->buffer && !s->buffer,
						  .u.copy = { .dst = dst,
							      .src = src,
							      .dst_offset = dst_offset,
							      .src_offset = src_offset,
							      .nbytes = nbytes },
					  });
}

static srt_status_t run_copy_rows(srt_ocl_stream_t *stream, const srt_ocl_op_t *op)
{
	const srt_copy_rows_t *rows = &op->u.rows.rows;
	const size_t to[3] = { rows->dst_offset, 0, 0 }, from[3] = { rows->src_offset, 0, 0 };
	const size_t region[3] = { rows->width, rows->nrows, 1 };

	return queued(stream,
		      clEnqueueCopyBufferRect(stream->queue, op->u.rows.src->buffer,
					      op->u.rows.dst->buffer, from, to, region,
					      rows->src_pitch, 0, rows->dst_pitch, 0, 0, NULL,
					      NULL),
		      "copying rows of", rows->width);
}

static srt_status_t work_copy_rows(void *stream, void *dst, void *src,
				   const srt_copy_rows_t *copies, size_t ncopies)
{
	srt_ocl_mem_t *d = dst, *s = src;
	srt_status_t status = SRT_OK;

	for (size_t i = 0; i < ncopies && status == SRT_OK; i++) {
		const srt_copy_rows_t *rows = &copies[i];

		if (d->buffer && s->buffer) {
			status = srt_ocl_stream_put(stream, &(srt_ocl_op_t){
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

/* ---- host memory that is not pinned ------------------------------------------------------ */

static srt_status_t run_store(srt_ocl_stream_t *stream, const srt_ocl_op_t *op)
{
	const srt_ocl_mem_t *dst = op->u.store.dst;
	size_t nbytes = op->u.store.nbytes;
	srt_status_t status;
	cl_int code;

	if (!dst->buffer) {
		status = srt_ocl_stream_finish(stream);
		if (status == SRT_OK)
			memcpy(dst->host + op->u.store.offset, op->u.store.bytes, nbytes);
		return status;
	}
	code = clEnqueueWriteBuffer(stream->queue, dst->buffer, CL_FALSE, op->u.store.offset,
				    nbytes, op->u.store.bytes, 0, NULL, NULL);
	return queued(stream, code, "an upload of", nbytes);
}

static srt_status_t put_store(void *stream, srt_ocl_mem_t *dst, size_t offset, const void *bytes,
			      size_t nbytes)
{
	return srt_ocl_stream_put(stream, &(srt_ocl_op_t){
						  .run = run_store,
						  .ring.blocks = !dst->buffer,
						  .u.store = { dst, offset, nbytes, bytes },
					  });
}

/* Room for an upload on its way. All of it is free again when the stream has finished. */
static unsigned char *stage(srt_ocl_stream_t *stream, size_t nbytes)
{
	unsigned char *p;

	if (!stream->staging) {
		stream->staging = stream->device->host->alloc(STAGING_NBYTES);
		if (!stream->staging)
			return NULL;
	}
	if (stream->staging_used + nbytes > STAGING_NBYTES) {
		srt_ring_sync(stream); /* a failure stays with the stream */
		stream->staging_used = 0;
	}
	p = stream->staging + stream->staging_used;
	stream->staging_used += (nbytes + STAGING_ALIGN - 1) & ~(STAGING_ALIGN - 1);
	return p;
}

static srt_status_t work_from_host(void *s, void *dst, size_t offset, const void *src,
				   size_t nbytes)
{
	srt_ocl_stream_t *stream = s;
	srt_status_t status;
	unsigned char *staged;

	if (nbytes > UPLOAD_NBYTES) {
		status = put_store(stream, dst, offset, src, nbytes);
		/* The source is the caller's again on return. A failure is the stream's: sync
		 * says it. */
		if (status == SRT_OK)
			srt_ring_sync(stream);
		return status;
	}
	staged = stage(stream, nbytes);
	if (!staged)
		return SRT_ERR_OUT_OF_MEMORY;
	memcpy(staged, src, nbytes);
	return put_store(stream, dst, offset, staged, nbytes);
}

static srt_status_t work_to_host(void *s, void *dst, void *src, size_t offset, size_t nbytes)
{
	srt_ocl_stream_t *stream = s;
	const srt_ocl_mem_t *mem = src;
	srt_status_t status = srt_ring_sync(stream);
	cl_int code;

	if (status != SRT_OK)
		return status;
	if (!mem->buffer) {
		memcpy(dst, mem->host + offset, nbytes);
		return SRT_OK;
	}
	code = clEnqueueReadBuffer(stream->queue, mem->buffer, CL_TRUE, offset, nbytes, dst, 0,
				   NULL, NULL);
	return queued(stream, code, "reading", nbytes);
}

/* ---- zero ------------------------------------------------------------------------------- */

static srt_status_t run_zero(srt_ocl_stream_t *stream, const srt_ocl_op_t *op)
{
	static const cl_uchar zeros[64];
	const srt_ocl_mem_t *dst = op->u.copy.dst;
	size_t offset = op->u.copy.dst_offset, nbytes = op->u.copy.nbytes;
	size_t unit = sizeof(zeros);
	srt_status_t status;

	if (!dst->buffer) {
		status = srt_ocl_stream_finish(stream);
		if (status == SRT_OK)
			memset(dst->host + offset, 0, nbytes);
		return status;
	}
	/* The widest pattern that fits is the fastest. */
	while (offset % unit || nbytes % unit)
		unit /= 2;
	return queued(stream,
		      clEnqueueFillBuffer(stream->queue, dst->buffer, zeros, unit, offset, nbytes,
					  0, NULL, NULL),
		      "zeroing", nbytes);
}

static srt_status_t work_zero(void *stream, void *dst, size_t offset, size_t nbytes)
{
	const srt_ocl_mem_t *mem = dst;

	return srt_ocl_stream_put(stream, &(srt_ocl_op_t){
						  .run = run_zero,
						  .ring.blocks = !mem->buffer,
						  .u.copy = { .dst = dst,
							      .dst_offset = offset,
							      .nbytes = nbytes },
					  });
}

const srt_backend_work_ops_t srt_ocl_work_ops = {
	.copy = work_copy,
	.copy_rows = work_copy_rows,
	.from_host = work_from_host,
	.to_host = work_to_host,
	.zero = work_zero,
	.launch = srt_ocl_put_launch,
	.matmul = srt_ocl_put_matmul,
	.attention = srt_ocl_put_attention,
	.attention_backward = srt_ocl_put_attention_backward,
	.matmul_memory = srt_ocl_matmul_memory,
	.attention_memory = srt_ocl_attention_memory,
};
