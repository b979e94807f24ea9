/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Launches of portable and tuned kernels. Arguments in the order of kernels/dialect/dialect.h: an
 * address and a byte offset for each binding, then the struct by value. A group is a block, or a
 * few in sums over rows, with the number of threads of the portable kernel's launch bounds or of
 * the tuned kernel's table.
 */
#include <limits.h>

#include "backends/cuda/cuda.h"
#include "base/base.h"

/* An address and an offset of each binding, and the struct. */
#define MAX_PARAMS (2 * SRT_COMMAND_MAX_BINDINGS + 1)

CUdeviceptr srt_cuda_address(const srt_cuda_stream_t *stream, const srt_binding_t *binding)
{
	const bool is_scratch = binding->mem == srt_gpu_scratch;
	const srt_cuda_mem_t *mem = is_scratch ? srt_scratch_mem(&stream->scratch) : binding->mem;

	return mem != NULL ? mem->address : 0;
}

const srt_gpu_kernel_info_t *srt_cuda_tuned_info(int kernel)
{
	static const srt_gpu_kernel_info_t fast[] = {
		{ NULL, "fast_attention_64", 128 },    { NULL, "fast_attention_128", 128 },
		{ NULL, "fast_attention_q_64", 128 },  { NULL, "fast_attention_q_128", 128 },
		{ NULL, "fast_attention_kv_64", 128 }, { NULL, "fast_attention_kv_128", 128 },
	};

	return kernel < SRT_GPU_KERNEL_COUNT ? &srt_gpu_kernels[kernel] :
					       &fast[kernel - SRT_GPU_KERNEL_COUNT];
}

static srt_status_t find_portable(srt_cuda_stream_t *stream, const srt_command_t *command,
				  srt_cuda_entry_t *entry)
{
	if (!stream->is_selftest)
		SRT_TRY(srt_selftest_kernel(&stream->device->selftest, command->kernel,
					    command->dtype));
	return srt_cuda_entry(stream->device, command->kernel, command->dtype, entry);
}

srt_status_t srt_cuda_launch(srt_cuda_stream_t *stream, const srt_command_t *command)
{
	const srt_cuda_device_t *device = stream->device;
	const srt_gpu_kernel_info_t *tuned =
		command->kind == SRT_COMMAND_TUNED ? srt_cuda_tuned_info(command->kernel) : NULL;
	const char *name = tuned != NULL ? tuned->name : srt_kernel_info(command->kernel)->name;
	CUdeviceptr addresses[SRT_COMMAND_MAX_BINDINGS];
	unsigned long long offsets[SRT_COMMAND_MAX_BINDINGS];
	void *params[MAX_PARAMS];
	srt_cuda_entry_t entry;
	CUresult code;
	int n = 0;

	if (command->ngroups > INT_MAX)
		return device->host
			->fail(SRT_ERR_UNSUPPORTED,
			       "kernel \"%s\": %lld groups are more than a CUDA launch can have",
			       name, (long long)command->ngroups);
	if (tuned != NULL)
		entry = (srt_cuda_entry_t){
			device->tuning.functions[command->dtype][command->kernel],
			tuned->nitems ? (unsigned)tuned->nitems : SRT_K_LANES,
			1,
		};
	else
		SRT_TRY(find_portable(stream, command, &entry));
	for (int i = 0; i < command->nbindings; i++) {
		addresses[i] = srt_cuda_address(stream, &command->bindings[i]);
		offsets[i] = command->bindings[i].offset;
		params[n++] = &addresses[i];
		params[n++] = &offsets[i];
	}
	params[n] = (void *)command->args;
	code = device->drv->cuLaunchKernel(entry.function, (unsigned)command->ngroups,
					   entry.nblocks, 1, entry.nthreads, 1, 1, 0, stream->queue,
					   params, NULL);
	if (code == CUDA_SUCCESS)
		return SRT_OK;
	return srt_cuda_fail(device->host, device->drv, code,
			     "stream \"%s\": launching kernel \"%s\" with %lld blocks failed",
			     stream->name, name, (long long)command->ngroups);
}
