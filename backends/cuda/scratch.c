/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Scratch of the tuned kernels: a stream's, whose users follow one another in its order, and a
 * recording's, since its replays run on other streams too. Called by tuned.c.
 */
#include "backends/cuda/cuda.h"

srt_status_t srt_cuda_scratch(srt_cuda_stream_t *stream, size_t nbytes, CUdeviceptr *address)
{
	const srt_cuda_device_t *device = stream->device;
	srt_cuda_scratch_t **newest =
		stream->recording ? &stream->recorded_scratch : &stream->scratch;
	srt_cuda_scratch_t *block = *newest;
	CUresult code;

	if (block && block->nbytes >= nbytes) {
		*address = block->address;
		return SRT_OK;
	}
	if (block && nbytes < block->nbytes + block->nbytes / 2)
		nbytes = block->nbytes + block->nbytes / 2;
	block = device->host->alloc(sizeof(*block));
	if (!block)
		return SRT_ERR_OUT_OF_MEMORY;
	*block = (srt_cuda_scratch_t){ .older = *newest, .nbytes = nbytes };
	code = device->drv->cuMemAlloc(&block->address, nbytes);
	if (code != CUDA_SUCCESS) {
		device->host->free(block);
		return srt_cuda_fail(device->host, device->drv, code,
				     "stream \"%s\": %zu bytes of scratch of the matrix product or "
				     "attention",
				     stream->name, nbytes);
	}
	*newest = block;
	*address = block->address;
	return SRT_OK;
}

void srt_cuda_scratch_free(srt_cuda_device_t *device, srt_cuda_scratch_t *scratch)
{
	while (scratch) {
		srt_cuda_scratch_t *older = scratch->older;

		device->drv->cuMemFree(scratch->address);
		device->host->free(scratch);
		scratch = older;
	}
}
