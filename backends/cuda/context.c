/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes the device's context current on the calling thread. */
#include "backends/cuda/cuda.h"

int srt_cuda_push_context(void *d)
{
	srt_cuda_device_t *device = d;

	return device->drv->cuCtxPushCurrent(device->context) == CUDA_SUCCESS;
}

void srt_cuda_pop_context(void *d)
{
	srt_cuda_device_t *device = d;
	CUcontext context;

	device->drv->cuCtxPopCurrent(&context);
}

srt_cuda_scope_t srt_cuda_enter(srt_cuda_device_t *device)
{
	bool entered = srt_cuda_push_context(device);

	return (srt_cuda_scope_t){ .device = device, .env = srt_fpenv_enter(), .entered = entered };
}

void srt_cuda_leave(srt_cuda_scope_t scope)
{
	srt_fpenv_leave(scope.env);
	if (scope.entered)
		srt_cuda_pop_context(scope.device);
}
