/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams and events of the driver.
 *
 * Host functions do not use cuLaunchHostFunc. Its function returns nothing, so later work of the
 * stream would run after a failure. And the driver may run the functions of all streams one after
 * the other: one that waits for a peer could block the one that the peer waits for.
 */
#include <stdio.h>
#include <string.h>

#include "backends/cuda/fast.h"
#include "base/base.h"

static srt_status_t check_sync(const srt_cuda_stream_t *stream, CUresult code)
{
	const srt_cuda_device_t *device = stream->device;

	if (code == CUDA_SUCCESS)
		return SRT_OK;
	return srt_cuda_fail(device->host, device->drv, code,
			     "stream \"%s\": work on device \"%s\" failed", stream->name,
			     device->name);
}

/* A wait that may be long uses an event with blocking sync, to free the core. */
static srt_status_t stream_sync(void *s, int sleep)
{
	srt_cuda_stream_t *stream = s;
	const srt_cuda_driver_t *drv = stream->device->drv;
	CUresult code;

	if (!sleep)
		return check_sync(stream, drv->cuStreamSynchronize(stream->queue));
	code = drv->cuEventRecord(stream->idle, stream->queue);
	if (code == CUDA_SUCCESS)
		code = drv->cuEventSynchronize(stream->idle);
	return check_sync(stream, code);
}

static srt_status_t stream_read(void *s, void *dst, void *m, size_t offset, size_t nbytes)
{
	srt_cuda_stream_t *stream = s;
	const srt_cuda_driver_t *drv = stream->device->drv;
	const srt_cuda_mem_t *mem = m;
	CUresult code = drv->cuMemcpyDtoHAsync(dst, mem->address + offset, nbytes, stream->queue);

	if (code == CUDA_SUCCESS)
		code = drv->cuStreamSynchronize(stream->queue);
	return check_sync(stream, code);
}

/* ---- events ------------------------------------------------------------------------------ */

static srt_status_t event_create(void *d, void **out)
{
	srt_cuda_device_t *device = d;
	CUevent event;
	CUresult code = device->drv->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);

	if (code != CUDA_SUCCESS)
		return srt_cuda_fail(device->host, device->drv, code,
				     "making an event of CUDA device \"%s\" failed", device->name);
	*out = event;
	return SRT_OK;
}

static void event_destroy(void *d, void *event)
{
	srt_cuda_device_t *device = d;

	device->drv->cuEventDestroy(event);
}

static srt_status_t event_record(void *s, void *event)
{
	srt_cuda_stream_t *stream = s;
	const srt_cuda_device_t *device = stream->device;
	CUresult code = device->drv->cuEventRecord(event, stream->queue);

	if (code == CUDA_SUCCESS)
		return SRT_OK;
	return srt_cuda_fail(device->host, device->drv, code,
			     "stream \"%s\": recording an event failed", stream->name);
}

static srt_status_t event_wait(void *s, void *event)
{
	srt_cuda_stream_t *stream = s;
	const srt_cuda_device_t *device = stream->device;
	CUresult code = device->drv->cuStreamWaitEvent(stream->queue, event, CU_EVENT_WAIT_DEFAULT);

	if (code == CUDA_SUCCESS)
		return SRT_OK;
	return srt_cuda_fail(device->host, device->drv, code,
			     "stream \"%s\": waiting for an event failed", stream->name);
}

static srt_status_t event_failed(const srt_cuda_device_t *device, CUresult code)
{
	return srt_cuda_fail(device->host, device->drv, code,
			     "work on device \"%s\" failed before an event that was waited for",
			     device->name);
}

static srt_status_t event_sync(void *d, void *event)
{
	srt_cuda_device_t *device = d;
	CUresult code = device->drv->cuEventSynchronize(event);

	return code == CUDA_SUCCESS ? SRT_OK : event_failed(device, code);
}

static int event_query(void *d, void *event)
{
	srt_cuda_device_t *device = d;

	return device->drv->cuEventQuery(event) != CUDA_ERROR_NOT_READY;
}

/* ---- making ----------------------------------------------------------------------------- */

/* 0 is the least urgent; negative numbers are more urgent, within the device's levels. */
static int clamp_priority(const srt_cuda_device_t *device, int priority)
{
	priority += device->priority_low;
	if (priority > device->priority_low)
		return device->priority_low;
	return priority < device->priority_high ? device->priority_high : priority;
}

static srt_status_t make_queue(srt_cuda_stream_t *stream, int priority)
{
	const srt_cuda_driver_t *drv = stream->device->drv;
	CUresult code;

	code = drv->cuStreamCreateWithPriority(&stream->queue, CU_STREAM_NON_BLOCKING,
					       clamp_priority(stream->device, priority));
	if (code == CUDA_SUCCESS) {
		code = drv->cuEventCreate(&stream->idle,
					  CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING);
		if (code != CUDA_SUCCESS)
			drv->cuStreamDestroy(stream->queue);
	}
	if (code == CUDA_SUCCESS)
		return SRT_OK;
	return srt_cuda_fail(stream->device->host, drv, code, "making stream \"%s\" failed",
			     stream->name);
}

static void *stream_native(void *s)
{
	srt_cuda_stream_t *stream = s;

	return stream->queue;
}

static srt_status_t stream_reserve(void *s, size_t nbytes)
{
	srt_cuda_stream_t *stream = s;

	SRT_TRY(srt_scratch_reserve(&stream->scratch, nbytes));
	stream->is_reserved = true;
	stream->reserved = nbytes > stream->reserved ? nbytes : stream->reserved;
	return SRT_OK;
}

static void scratch_usage(void *dev, size_t *nbytes, uint64_t *nallocations)
{
	srt_cuda_device_t *device = dev;

	*nbytes = atomic_load(&device->scratch.nbytes);
	*nallocations = atomic_load(&device->scratch.nallocations);
}

static srt_status_t stream_create(void *dev, int priority, const char *name, void **out)
{
	srt_cuda_device_t *device = dev;
	srt_cuda_stream_t *stream = device->host->alloc(sizeof(*stream));
	srt_cuda_scope_t scope;
	srt_status_t status;

	if (stream == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	memset(stream, 0, sizeof(*stream));
	stream->device = device;
	stream->scratch.owner = &device->scratch;
	snprintf(stream->name, sizeof(stream->name), "%s", name);
	scope = srt_cuda_enter(device);
	status = make_queue(stream, priority);
	srt_cuda_leave(scope);
	if (status != SRT_OK) {
		device->host->free(stream);
		return status;
	}
	*out = stream;
	return SRT_OK;
}

static void stream_destroy(void *s)
{
	srt_cuda_stream_t *stream = s;
	srt_cuda_device_t *device = stream->device;
	srt_cuda_scope_t scope;

	scope = srt_cuda_enter(device);
	device->drv->cuStreamSynchronize(stream->queue);
	srt_scratch_free(&stream->scratch);
	srt_cuda_fast_stream_free(stream);
	device->drv->cuEventDestroy(stream->idle);
	device->drv->cuStreamDestroy(stream->queue);
	srt_cuda_leave(scope);
	device->host->free(stream);
}

const srt_backend_stream_ops_t srt_cuda_stream_ops = {
	.create = stream_create,
	.destroy = stream_destroy,
	.submit = srt_cuda_submit,
	.native = stream_native,
	.sync = stream_sync,
	.read = stream_read,
	.reserve = stream_reserve,
	.scratch = srt_cuda_command_scratch,
	.scratch_usage = scratch_usage,
	.event_create = event_create,
	.event_destroy = event_destroy,
	.event_record = event_record,
	.event_wait = event_wait,
	.event_sync = event_sync,
	.event_query = event_query,
	.enter = srt_cuda_push_context,
	.leave = srt_cuda_pop_context,
};
