/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Scratch of the tuned kernels: a stream's, whose users follow one another in its order. Reserved
 * by the plan (srt_stream_reserve()), else it grows when an operation needs more.
 */
#include "backends/opencl/tuned.h"

/* The old buffer lives on until the work in the queue that uses it is done. */
srt_status_t srt_ocl_scratch(srt_ocl_stream_t *stream, size_t nbytes)
{
	srt_ocl_device_t *device = stream->device;
	cl_int code;

	if (nbytes <= stream->scratch_nbytes)
		return SRT_OK;
	srt_ocl_scratch_free(stream);
	stream->scratch = clCreateBuffer(device->context, CL_MEM_READ_WRITE, nbytes, NULL, &code);
	if (code != CL_SUCCESS) {
		stream->scratch = NULL;
		return srt_ocl_fail(device->host, code,
				    "stream \"%s\": %zu bytes of scratch of matrix products and "
				    "attention",
				    stream->name, nbytes);
	}
	stream->scratch_nbytes = nbytes;
	atomic_fetch_add(&device->scratch_nbytes, nbytes);
	atomic_fetch_add(&device->nscratch, 1);
	return SRT_OK;
}

void srt_ocl_scratch_free(srt_ocl_stream_t *stream)
{
	if (stream->scratch)
		clReleaseMemObject(stream->scratch);
	atomic_fetch_sub(&stream->device->scratch_nbytes, stream->scratch_nbytes);
	stream->scratch = NULL;
	stream->scratch_nbytes = 0;
}

srt_status_t srt_ocl_reserve(void *stream, size_t nbytes)
{
	return srt_ocl_scratch(stream, nbytes);
}

void srt_ocl_scratch_usage(void *dev, size_t *nbytes, uint64_t *nallocations)
{
	srt_ocl_device_t *device = dev;

	*nbytes = atomic_load(&device->scratch_nbytes);
	*nallocations = atomic_load(&device->nscratch);
}
