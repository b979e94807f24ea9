/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Commands as driver calls: copies, uploads, zeroing. Kernels are in launch.c, the plans of
 * tuned operations in tuned.c, those of numerics mode fast in fast.c and fast_attention.c.
 */
#include "backends/cuda/fast.h"
#include "base/base.h"

static srt_status_t check_submit(const srt_cuda_stream_t *stream, CUresult code, const char *what,
				 size_t nbytes)
{
	if (code == CUDA_SUCCESS)
		return SRT_OK;
	return srt_cuda_fail(stream->device->host, stream->device->drv, code,
			     "stream \"%s\": %s %zu bytes failed", stream->name, what, nbytes);
}

static CUdeviceptr address_of(const srt_binding_t *binding)
{
	const srt_cuda_mem_t *mem = binding->mem;

	return mem->address + binding->offset;
}

/* The address of host memory that the driver refused to register, or NULL. */
static unsigned char *pageable_address(const srt_binding_t *binding)
{
	const srt_cuda_mem_t *mem = binding->mem;

	return mem->address ? NULL : mem->host + binding->offset;
}

static srt_status_t run_copy_rows(srt_cuda_stream_t *stream, const srt_command_t *command)
{
	const srt_cuda_driver_t *drv = stream->device->drv;
	const srt_copy_args_t *rows = &command->copy;
	const CUdeviceptr to = address_of(&command->bindings[0]);
	const CUdeviceptr from = address_of(&command->bindings[1]);
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
	return check_submit(stream, code, "copying rows of", rows->width);
}

static srt_status_t run_copy(srt_cuda_stream_t *stream, const srt_command_t *command)
{
	const srt_cuda_driver_t *drv = stream->device->drv;
	const srt_binding_t *to = &command->bindings[0], *from = &command->bindings[1];
	const size_t nbytes = command->copy.width;
	CUresult code;

	if (command->copy.nrows > 1)
		return run_copy_rows(stream, command);
	if (pageable_address(to) != NULL)
		code = drv->cuMemcpyDtoHAsync(pageable_address(to), address_of(from), nbytes,
					      stream->queue);
	else if (pageable_address(from) != NULL)
		code = drv->cuMemcpyHtoDAsync(address_of(to), pageable_address(from), nbytes,
					      stream->queue);
	else
		code = drv->cuMemcpyAsync(address_of(to), address_of(from), nbytes, stream->queue);
	return check_submit(stream, code, "copying", nbytes);
}

/* A product or attention by the exact kernels. */
static srt_status_t run_plan(srt_cuda_stream_t *stream, const srt_command_t *command)
{
	srt_gpu_plan_t plan;

	SRT_TRY(srt_cuda_plan(stream, command, &plan));
	while (srt_gpu_next(&plan))
		for (int i = 0; i < plan.nlaunches; i++)
			SRT_TRY(srt_cuda_launch(stream, &plan.launches[i]));
	return SRT_OK;
}

srt_status_t srt_cuda_submit(void *s, const srt_command_t *command)
{
	srt_cuda_stream_t *stream = s;
	const srt_cuda_driver_t *drv = stream->device->drv;
	const srt_binding_t *at = command->bindings;
	const size_t nbytes = command->bytes.nbytes;
	srt_status_t status;

	switch ((srt_command_kind_t)command->kind) {
	case SRT_COMMAND_KERNEL:
		return srt_cuda_launch(stream, command);
	case SRT_COMMAND_MATMUL:
		status = srt_cuda_fast_matmul(stream, command);
		if (status != SRT_ERR_UNSUPPORTED)
			return status;
		return run_plan(stream, command);
	case SRT_COMMAND_ATTENTION:
	case SRT_COMMAND_ATTENTION_BACKWARD:
		status = srt_cuda_fast_attention(stream, command);
		return status == SRT_ERR_UNSUPPORTED ? run_plan(stream, command) : status;
	case SRT_COMMAND_COPY:
		return run_copy(stream, command);
	case SRT_COMMAND_ZERO:
		return check_submit(stream,
				    drv->cuMemsetD8Async(address_of(at), 0, nbytes, stream->queue),
				    "zeroing", nbytes);
	case SRT_COMMAND_UPLOAD:
		return check_submit(stream,
				    drv->cuMemcpyHtoDAsync(address_of(at), command->bytes.host,
							   nbytes, stream->queue),
				    "an upload of", nbytes);
	case SRT_COMMAND_NATIVE:
		return command->native.fn(stream->queue, command->native.arg);
	default:
		return stream->device->host->fail(SRT_ERR_INVALID_ARGUMENT,
						  "CUDA devices have no command %d", command->kind);
	}
}
