/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tuned matrix product and attention of devices that are GPUs: backends/gpu on this backend's
 * streams. Called when the operation is put into the queue.
 */
#include <stdio.h>

#include "backends/opencl/tuned.h"
#include "base/base.h"

static bool is_scratch(const srt_binding_t *place)
{
	return place->mem == srt_gpu_scratch;
}

/* Buffers begin at multiples of more than 16 bytes, but for those that are the caller's memory. */
static unsigned low_bits(const srt_binding_t *place)
{
	const srt_ocl_mem_t *mem = place->mem;
	size_t at = place->offset;

	if (!is_scratch(place) && mem->host)
		at += (size_t)(uintptr_t)mem->host;
	return at & 15;
}

static srt_status_t scratch(void *stream, size_t nbytes)
{
	return srt_ocl_scratch(stream, (int64_t)(nbytes / sizeof(float)));
}

static srt_status_t launch(void *stream_impl, srt_gpu_kernel_t which, srt_dtype_t dtype,
			   const srt_binding_t *places, const void *args, size_t args_nbytes,
			   int64_t ngroups)
{
	srt_ocl_stream_t *stream = stream_impl;
	const srt_ocl_device_t *device = stream->device;
	const srt_gpu_kernel_info_t *info = &srt_gpu_kernels[which];
	const size_t nitems = info->nitems          ? (size_t)info->nitems :
			      device->lanes_as_loop ? 1 :
						      SRT_K_LANES;
	const size_t local[3] = { nitems, 1, 1 }, global[3] = { (size_t)ngroups * nitems, 1, 1 };
	const char *type = srt_kernel_dtype_name(dtype);
	srt_ocl_at_t at[SRT_COMMAND_MAX_BINDINGS];
	char name[64], options[64];
	cl_kernel kernel;

	snprintf(name, sizeof(name), "k_%s_%s", info->name, type);
	snprintf(options, sizeof(options), "-DK_DTYPE=%s %s", type, device->tuning.options);
	SRT_TRY(srt_ocl_stream_kernel(stream,
				      SRT_OCL_GPU_SLOT + (int)dtype * SRT_GPU_KERNEL_COUNT +
					      (int)which,
				      info->source, options, name, &kernel));
	for (int i = 0; i < info->nplaces; i++) {
		at[i] = is_scratch(&places[i]) ? srt_ocl_scratch_at(stream, 0) :
						 srt_ocl_at(&places[i], 0);
		if (is_scratch(&places[i]))
			at[i].offset = places[i].offset;
	}
	return srt_ocl_tuned_enqueue(stream, kernel, name, at, info->nplaces, args, args_nbytes,
				     global, local);
}

srt_gpu_t srt_ocl_gpu(const srt_ocl_device_t *device, srt_ocl_stream_t *stream)
{
	const srt_ocl_tuning_t *tuning = &device->tuning;

	return (srt_gpu_t){
		.stream = stream,
		.nunits = tuning->units,
		.max_items = tuning->width,
		.tile = tuning->tile,
		.cut = tuning->cut,
		.low_bits = low_bits,
		.scratch = scratch,
		.launch = launch,
	};
}
