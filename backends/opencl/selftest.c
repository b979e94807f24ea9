/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The self-test of an OpenCL device (backends/trial.h). Of SRT_F32 when the device is opened, by
 * device.c; of a 16-bit kernel, and so of its program, before its first launch, by launch.c.
 */
#include <stdio.h>

#include "backends/opencl/opencl.h"

static void mark_stream(void *s)
{
	srt_ocl_stream_t *stream = s;

	stream->is_trial = true;
}

void srt_ocl_trial_init(srt_ocl_device_t *device)
{
	device->trial = (srt_trial_t){
		.host = device->host,
		.mem = &srt_ocl_mem_ops,
		.stream = &srt_ocl_stream_ops,
		.work = &srt_ocl_work_ops,
		.device = device,
		.mark_stream = mark_stream,
		.remedy = " or SHARDRT_OPENCL_LANES",
	};
	srt_trial_init(&device->trial);
}

srt_status_t srt_ocl_selftest(srt_ocl_device_t *device, int exact)
{
	snprintf(device->trial.what, sizeof(device->trial.what), "OpenCL device \"%s\"",
		 device->name);
	return srt_trial_device(&device->trial, exact != 0);
}

srt_status_t srt_ocl_try_kernel(const srt_ocl_stream_t *stream, srt_kernel_id_t kernel,
				srt_dtype_t dtype)
{
	if (stream->is_trial)
		return SRT_OK;
	return srt_trial_kernel(&stream->device->trial, kernel, dtype, stream->device->exact);
}
