/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Commands as driver calls: copies, uploads, zeroing. Kernels are in launch.c, the plans of
 * tuned operations in tuned.c, peers in peer.c.
 */
#include "backends/opencl/tuned.h"
#include "base/base.h"

srt_status_t srt_ocl_queued(const srt_ocl_stream_t *stream, cl_int code, const char *what,
			    size_t nbytes)
{
	if (code == CL_SUCCESS)
		return SRT_OK;
	return srt_ocl_fail(stream->device->host, code, "stream \"%s\": %s %zu bytes failed",
			    stream->name, what, nbytes);
}

static srt_status_t run_copy_rows(srt_ocl_stream_t *stream, const srt_command_t *command)
{
	const srt_binding_t *at = command->bindings;
	const srt_ocl_mem_t *dst = at[0].mem, *src = at[1].mem;
	const srt_copy_args_t *rows = &command->copy;
	const size_t to[3] = { at[0].offset, 0, 0 }, from[3] = { at[1].offset, 0, 0 };
	const size_t region[3] = { rows->width, rows->nrows, 1 };

	return srt_ocl_queued(stream,
			      clEnqueueCopyBufferRect(stream->queue, src->buffer, dst->buffer, from,
						      to, region, rows->src_pitch, 0,
						      rows->dst_pitch, 0, 0, NULL, NULL),
			      "copying rows of", rows->width);
}

/* Between two buffers, or a buffer and pinned memory. */
static srt_status_t run_copy(srt_ocl_stream_t *stream, const srt_command_t *command)
{
	const srt_ocl_mem_t *dst = command->bindings[0].mem, *src = command->bindings[1].mem;
	size_t to = command->bindings[0].offset, from = command->bindings[1].offset;
	size_t nbytes = command->copy.width;
	cl_int code;

	if (command->copy.nrows > 1)
		return run_copy_rows(stream, command);
	if (src->buffer == NULL)
		code = clEnqueueWriteBuffer(stream->queue, dst->buffer, CL_FALSE, to, nbytes,
					    src->host + from, 0, NULL, NULL);
	else if (dst->buffer == NULL)
		code = clEnqueueReadBuffer(stream->queue, src->buffer, CL_FALSE, from, nbytes,
					   dst->host + to, 0, NULL, NULL);
	else
		code = clEnqueueCopyBuffer(stream->queue, src->buffer, dst->buffer, from, to,
					   nbytes, 0, NULL, NULL);
	return srt_ocl_queued(stream, code, "copying", nbytes);
}

static srt_status_t run_upload(srt_ocl_stream_t *stream, const srt_command_t *command)
{
	const srt_ocl_mem_t *dst = command->bindings[0].mem;
	cl_int code = clEnqueueWriteBuffer(stream->queue, dst->buffer, CL_FALSE,
					   command->bindings[0].offset, command->bytes.nbytes,
					   command->bytes.host, 0, NULL, NULL);

	return srt_ocl_queued(stream, code, "an upload of", command->bytes.nbytes);
}

static srt_status_t run_zero(srt_ocl_stream_t *stream, const srt_command_t *command)
{
	static const cl_uchar zeros[64];
	const srt_ocl_mem_t *dst = command->bindings[0].mem;
	size_t offset = command->bindings[0].offset, nbytes = command->bytes.nbytes;
	size_t unit = sizeof(zeros);

	/* The widest pattern that fits is the fastest. */
	while (offset % unit || nbytes % unit)
		unit /= 2;
	return srt_ocl_queued(stream,
			      clEnqueueFillBuffer(stream->queue, dst->buffer, zeros, unit, offset,
						  nbytes, 0, NULL, NULL),
			      "zeroing", nbytes);
}

srt_status_t srt_ocl_submit(void *s, const srt_command_t *command)
{
	srt_ocl_stream_t *stream = s;
	srt_ocl_plan_t plan;

	switch ((srt_command_kind_t)command->kind) {
	case SRT_COMMAND_KERNEL:
		return srt_ocl_launch(stream, command);
	case SRT_COMMAND_MATMUL:
	case SRT_COMMAND_ATTENTION:
	case SRT_COMMAND_ATTENTION_BACKWARD:
		SRT_TRY(srt_ocl_plan(stream, command, &plan));
		while (srt_ocl_next(&plan))
			for (int i = 0; i < plan.gpu.nlaunches; i++)
				SRT_TRY(srt_ocl_launch(stream, &plan.gpu.launches[i]));
		return SRT_OK;
	case SRT_COMMAND_COPY:
		return run_copy(stream, command);
	case SRT_COMMAND_ZERO:
		return run_zero(stream, command);
	case SRT_COMMAND_UPLOAD:
		return run_upload(stream, command);
	case SRT_COMMAND_PEER_BEGIN:
		return srt_ocl_run_peer_begin(stream, command);
	case SRT_COMMAND_NATIVE:
		return command->native.fn(stream->queue, command->native.arg);
	default:
		return stream->device->host->fail(SRT_ERR_INVALID_ARGUMENT,
						  "OpenCL devices have no command %d",
						  command->kind);
	}
}
