/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Portable kernels. Arguments in the order of kernels/dialect/dialect.h: an address and a byte
 * offset for each binding, then the struct by value. A group is a block, of as many threads as the
 * kernel's launch bounds say.
 */
#include <limits.h>
#include <string.h>

#include "backends/cuda/cuda.h"
#include "base/base.h"

/* Of bindings an address and an offset each, and the struct. */
#define MAX_PARAMS (2 * SRT_COMMAND_MAX_BINDINGS + 1)

srt_status_t srt_cuda_launch_function(srt_cuda_stream_t *stream, CUfunction function,
				      const unsigned grid[3], unsigned nthreads, void **params,
				      const char *name)
{
	const srt_cuda_device_t *device = stream->device;
	CUresult code = device->drv->cuLaunchKernel(function, grid[0], grid[1], grid[2], nthreads,
						    1, 1, 0, stream->queue, params, NULL);

	if (code == CUDA_SUCCESS)
		return SRT_OK;
	return srt_cuda_fail(device->host, device->drv, code,
			     "stream \"%s\": launching kernel \"%s\" with %u x %u x %u blocks "
			     "failed",
			     stream->name, name, grid[0], grid[1], grid[2]);
}

srt_status_t srt_cuda_run_kernel(void *s, const srt_command_t *command)
{
	srt_cuda_stream_t *stream = s;
	const srt_kernel_id_t kernel = (srt_kernel_id_t)command->kernel;
	const srt_dtype_t dtype = (srt_dtype_t)command->dtype;
	const unsigned grid[3] = { (unsigned)command->ngroups, 1, 1 };
	CUdeviceptr addresses[SRT_COMMAND_MAX_BINDINGS];
	unsigned long long offsets[SRT_COMMAND_MAX_BINDINGS];
	void *params[MAX_PARAMS];
	srt_cuda_entry_t entry;
	int n = 0;

	if (command->ngroups > INT_MAX)
		return stream->device->host
			->fail(SRT_ERR_UNSUPPORTED,
			       "kernel \"%s\": %lld groups are more than a CUDA launch can have",
			       srt_kernel_info(kernel)->name, (long long)command->ngroups);
	if (!stream->is_selftest)
		SRT_TRY(srt_selftest_kernel(&stream->device->selftest, kernel, dtype));
	SRT_TRY(srt_cuda_entry(stream->device, kernel, dtype, &entry));
	for (int i = 0; i < command->nbindings; i++) {
		const srt_cuda_mem_t *mem = command->bindings[i].mem;

		addresses[i] = mem ? mem->address : 0;
		offsets[i] = command->bindings[i].offset;
		params[n++] = &addresses[i];
		params[n++] = &offsets[i];
	}
	params[n] = (void *)command->args;
	return srt_cuda_launch_function(stream, entry.function, grid, entry.nthreads, params,
					srt_kernel_info(kernel)->name);
}
