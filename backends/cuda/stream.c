/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams: the driver's, of which backends/ring.h makes streams and events. Each point has an event
 * of the driver for life, which is recorded anew.
 *
 * Why not cuLaunchHostFunc for host functions: what is in the driver's stream behind one runs even
 * if that fails, since it can return nothing; and the driver may run the functions of all streams
 * one after the other, so that one which waits for a peer would hold up the one that the peer waits
 * for.
 */
#include <string.h>

#include "backends/cuda/fast.h"

srt_status_t srt_cuda_stream_put(srt_cuda_stream_t *stream, const srt_cuda_op_t *op)
{
	return srt_ring_put(&stream->ring, &op->ring);
}

static srt_status_t run_op(void *stream, const void *o)
{
	const srt_cuda_op_t *op = o;

	return op->run(stream, op);
}

static srt_status_t finished(const srt_cuda_stream_t *stream, CUresult code)
{
	const srt_cuda_device_t *device = stream->device;

	if (code == CUDA_SUCCESS)
		return SRT_OK;
	return srt_cuda_fail(device->host, device->drv, code,
			     "stream \"%s\": work on device \"%s\" failed", stream->ring.name,
			     device->name);
}

/* By an event that sleeps: the worker may wait for long, and a core is worth more. */
srt_status_t srt_cuda_stream_finish(void *s)
{
	srt_cuda_stream_t *stream = s;
	const srt_cuda_driver_t *drv = stream->device->drv;
	CUresult code = drv->cuEventRecord(stream->idle, stream->queue);

	if (code == CUDA_SUCCESS)
		code = drv->cuEventSynchronize(stream->idle);
	return finished(stream, code);
}

static srt_status_t stream_sync(void *s)
{
	srt_cuda_stream_t *stream = s;

	return finished(stream, stream->device->drv->cuStreamSynchronize(stream->queue));
}

static bool enter(void *d)
{
	srt_cuda_device_t *device = d;

	return device->drv->cuCtxPushCurrent(device->context) == CUDA_SUCCESS;
}

static void leave(void *d)
{
	srt_cuda_device_t *device = d;
	CUcontext context;

	device->drv->cuCtxPopCurrent(&context);
}

/* ---- events ------------------------------------------------------------------------------ */

static srt_status_t event_make(void *d, void **out)
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

static void event_free(void *d, void *event)
{
	srt_cuda_device_t *device = d;

	device->drv->cuEventDestroy(event);
}

static srt_status_t event_record(void *s, void **event)
{
	srt_cuda_stream_t *stream = s;
	const srt_cuda_device_t *device = stream->device;
	CUresult code = device->drv->cuEventRecord(*event, stream->queue);

	if (code == CUDA_SUCCESS)
		return SRT_OK;
	return srt_cuda_fail(device->host, device->drv, code,
			     "stream \"%s\": recording an event failed", stream->ring.name);
}

static srt_status_t event_wait(void *s, void *event)
{
	srt_cuda_stream_t *stream = s;
	const srt_cuda_device_t *device = stream->device;
	CUresult code = device->drv->cuStreamWaitEvent(stream->queue, event, CU_EVENT_WAIT_DEFAULT);

	if (code == CUDA_SUCCESS)
		return SRT_OK;
	return srt_cuda_fail(device->host, device->drv, code,
			     "stream \"%s\": waiting for an event failed", stream->ring.name);
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

static bool event_reached(void *d, void *event)
{
	srt_cuda_device_t *device = d;

	return device->drv->cuEventQuery(event) != CUDA_ERROR_NOT_READY;
}

const srt_ring_driver_t srt_cuda_ring_driver = {
	.op_nbytes = sizeof(srt_cuda_op_t),
	.run = run_op,
	.finish = srt_cuda_stream_finish,
	.sync = stream_sync,
	.enter = enter,
	.leave = leave,
	.event_make = event_make,
	.event_free = event_free,
	.event_record = event_record,
	.event_wait = event_wait,
	.event_sync = event_sync,
	.event_reached = event_reached,
};

/* ---- making ----------------------------------------------------------------------------- */

/* 0 is the least urgent; negative numbers are more urgent, as far as the device has levels. */
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
			     stream->ring.name);
}

static srt_status_t stream_create(void *dev, int priority, const char *name, void **out)
{
	srt_cuda_device_t *device = dev;
	srt_cuda_stream_t *stream = device->host->alloc(sizeof(*stream));
	srt_cuda_scope_t scope;
	srt_status_t status;

	if (!stream)
		return SRT_ERR_OUT_OF_MEMORY;
	memset(stream, 0, sizeof(*stream));
	stream->device = device;
	srt_ring_init(&stream->ring, &device->rings, name);
	scope = srt_cuda_enter(device);
	status = make_queue(stream, priority);
	srt_cuda_leave(scope);
	if (status != SRT_OK) {
		srt_ring_destroy(&stream->ring);
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

	srt_ring_destroy(&stream->ring);
	scope = srt_cuda_enter(device);
	device->drv->cuStreamSynchronize(stream->queue);
	srt_cuda_staging_free(stream);
	srt_cuda_scratch_free(device, stream->scratch);
	srt_cuda_fast_stream_free(stream);
	device->drv->cuEventDestroy(stream->idle);
	device->drv->cuStreamDestroy(stream->queue);
	srt_cuda_leave(scope);
	device->host->free(stream);
}

const srt_backend_stream_ops_t srt_cuda_stream_ops = {
	.create = stream_create,
	.destroy = stream_destroy,
	.sync = srt_ring_sync,
	.host_fn = srt_ring_host_fn,
	.reserve = srt_cuda_reserve,
	.kept = srt_cuda_kept,
	.event_create = srt_ring_event_create,
	.event_destroy = srt_ring_event_destroy,
	.event_record = srt_ring_event_record,
	.event_wait = srt_ring_event_wait,
	.event_sync = srt_ring_event_sync,
	.event_query = srt_ring_event_query,
};
