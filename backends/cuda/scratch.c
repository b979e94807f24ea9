/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Scratch of the tuned kernels and of cuBLASLt: a stream's, whose users follow one another in its
 * order. Reserved by the plan (srt_stream_reserve()), else it grows when an operation wants more.
 * Called by tuned.c and fast.c.
 */
#include "backends/cuda/cuda.h"
#include "base/base.h"

/* A block of exactly so many bytes, in front of the older ones. */
static srt_status_t add_block(srt_cuda_stream_t *stream, size_t nbytes)
{
	srt_cuda_device_t *device = stream->device;
	srt_cuda_scratch_t *block = device->host->alloc(sizeof(*block));
	CUresult code;

	if (!block)
		return SRT_ERR_OUT_OF_MEMORY;
	*block = (srt_cuda_scratch_t){ .older = stream->scratch, .nbytes = nbytes };
	code = device->drv->cuMemAlloc(&block->address, nbytes);
	if (code != CUDA_SUCCESS) {
		device->host->free(block);
		return srt_cuda_fail(device->host, device->drv, code,
				     "stream \"%s\": %zu bytes of scratch of matrix products and "
				     "attention",
				     stream->name, nbytes);
	}
	stream->scratch = block;
	atomic_fetch_add(&device->scratch_nbytes, nbytes);
	atomic_fetch_add(&device->nscratch, 1);
	return SRT_OK;
}

srt_status_t srt_cuda_scratch(srt_cuda_stream_t *stream, size_t nbytes)
{
	const srt_cuda_scratch_t *block = stream->scratch;

	if (!nbytes || (block && block->nbytes >= nbytes))
		return SRT_OK;
	/* Older blocks stay, so they must not become many. */
	if (block && nbytes < block->nbytes + block->nbytes / 2)
		nbytes = block->nbytes + block->nbytes / 2;
	return add_block(stream, nbytes);
}

/* One block in the place of all: the stream has finished. */
srt_status_t srt_cuda_reserve(void *s, size_t nbytes)
{
	srt_cuda_stream_t *stream = s;

	if (nbytes && (!stream->scratch || stream->scratch->nbytes < nbytes)) {
		srt_cuda_scratch_free(stream->device, stream->scratch);
		stream->scratch = NULL;
		SRT_TRY(add_block(stream, nbytes));
	}
	stream->is_reserved = true;
	stream->reserved = nbytes > stream->reserved ? nbytes : stream->reserved;
	return SRT_OK;
}

void srt_cuda_scratch_usage(void *dev, size_t *nbytes, uint64_t *nallocations)
{
	srt_cuda_device_t *device = dev;

	*nbytes = atomic_load(&device->scratch_nbytes);
	*nallocations = atomic_load(&device->nscratch);
}

void srt_cuda_scratch_free(srt_cuda_device_t *device, srt_cuda_scratch_t *scratch)
{
	while (scratch) {
		srt_cuda_scratch_t *older = scratch->older;

		device->drv->cuMemFree(scratch->address);
		atomic_fetch_sub(&device->scratch_nbytes, scratch->nbytes);
		device->host->free(scratch);
		scratch = older;
	}
}
