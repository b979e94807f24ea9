/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Launches of portable kernels. Arguments in the order of kernels/dialect.h: an address and a byte
 * offset for each place, then the struct by value. A group is a block, of as many threads as the
 * kernel's launch bounds say.
 */
#include <limits.h>
#include <string.h>

#include "backends/cuda/cuda.h"

/* Places of a launch, an address and an offset each, and the struct. */
#define MAX_PARAMS (2 * SRT_LAUNCH_MAX_PLACES + 1)

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
			     stream->ring.name, name, grid[0], grid[1], grid[2]);
}

static srt_status_t run_launch(srt_cuda_stream_t *stream, const srt_cuda_op_t *op)
{
	const srt_launch_t *launch = &op->u.launch.launch;
	const unsigned grid[3] = { (unsigned)launch->ngroups, 1, 1 };
	CUdeviceptr addresses[SRT_LAUNCH_MAX_PLACES];
	unsigned long long offsets[SRT_LAUNCH_MAX_PLACES];
	void *params[MAX_PARAMS];
	srt_cuda_entry_t entry;
	srt_status_t status;
	int n = 0;

	status = srt_cuda_entry(stream->device, (srt_kernel_id_t)launch->kernel,
				(srt_dtype_t)launch->dtype, &entry);
	if (status != SRT_OK)
		return status;
	for (int i = 0; i < launch->nplaces; i++) {
		const srt_cuda_mem_t *mem = launch->places[i].mem;

		addresses[i] = mem ? mem->address : 0;
		offsets[i] = launch->places[i].offset;
		params[n++] = &addresses[i];
		params[n++] = &offsets[i];
	}
	params[n] = (void *)op->u.launch.args;
	return srt_cuda_launch_function(stream, entry.function, grid, entry.nthreads, params,
					srt_kernel_info((srt_kernel_id_t)launch->kernel)->name);
}

bool srt_cuda_sees(const srt_place_t *places, int nplaces)
{
	for (int i = 0; i < nplaces; i++) {
		const srt_cuda_mem_t *mem = places[i].mem;

		if (mem && !mem->address)
			return false;
	}
	return true;
}

static srt_status_t check_launch(const srt_cuda_stream_t *stream, const srt_launch_t *launch)
{
	const srt_host_services_t *host = stream->device->host;
	const srt_kernel_info_t *info = srt_kernel_info((srt_kernel_id_t)launch->kernel);

	if (!info || !srt_kernel_has((srt_kernel_id_t)launch->kernel, (srt_dtype_t)launch->dtype))
		return SRT_ERR_UNSUPPORTED;
	if (launch->ngroups > INT_MAX)
		return host->fail(SRT_ERR_UNSUPPORTED,
				  "kernel \"%s\": %lld blocks are more than a CUDA device takes in "
				  "one launch",
				  info->name, (long long)launch->ngroups);
	for (int i = 0; i < launch->nplaces; i++) {
		const srt_cuda_mem_t *mem = launch->places[i].mem;

		if (mem && !mem->address)
			return host->fail(SRT_ERR_INVALID_ARGUMENT,
					  "kernel \"%s\": tensor %d is in host memory that CUDA "
					  "device \"%s\" does not see; copy it to device memory "
					  "first",
					  info->name, i, stream->device->name);
	}
	return SRT_OK;
}

srt_status_t srt_cuda_launch(void *s, const srt_launch_t *launch)
{
	srt_cuda_stream_t *stream = s;
	srt_cuda_op_t op = { .run = run_launch };
	srt_status_t status = check_launch(stream, launch);

	if (status == SRT_OK && !stream->is_selftest)
		status = srt_selftest_kernel(&stream->device->selftest, launch->kernel,
					     launch->dtype);
	if (status != SRT_OK)
		return status;
	op.u.launch.launch = *launch;
	memcpy(op.u.launch.args, launch->args, launch->args_nbytes);
	return srt_cuda_stream_put(stream, &op);
}
