/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams: in-order queues. A record enqueues a marker; a wait in another queue enqueues a barrier,
 * if the marker is not reached yet.
 *
 * Host functions do not use user events and callbacks: commands after a user event cannot be
 * cancelled when the host function fails, and drivers differ in this case. On PoCL, a host function
 * between two kernels has about the same cost with both.
 */
#include <stdio.h>
#include <string.h>

#include "backends/opencl/tuned.h"

/* A driver event; it has a marker after its first record. */
typedef struct event {
	cl_event marker;
} event_t;

static srt_status_t stream_sync(void *s, int sleep)
{
	srt_ocl_stream_t *stream = s;
	srt_ocl_device_t *device = stream->device;
	cl_int code = clFinish(stream->queue);

	(void)sleep;
	if (code == CL_SUCCESS)
		return SRT_OK;
	return srt_ocl_fail(device->host, code, "stream \"%s\": work on device \"%s\" failed",
			    stream->name, device->name);
}

static srt_status_t stream_read(void *s, void *dst, void *m, size_t offset, size_t nbytes)
{
	srt_ocl_stream_t *stream = s;
	const srt_ocl_mem_t *mem = m;
	cl_int code = clEnqueueReadBuffer(stream->queue, mem->buffer, CL_TRUE, offset, nbytes, dst,
					  0, NULL, NULL);

	return srt_ocl_queued(stream, code, "reading", nbytes);
}

/* ---- events ----------------------------------------------------------------------------- */

static srt_status_t event_create(void *dev, void **out)
{
	srt_ocl_device_t *device = dev;
	event_t *event = device->host->alloc(sizeof(*event));

	if (event == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	event->marker = NULL;
	*out = event;
	return SRT_OK;
}

static void event_destroy(void *dev, void *e)
{
	srt_ocl_device_t *device = dev;
	event_t *event = e;

	if (event->marker != NULL)
		clReleaseEvent(event->marker);
	device->host->free(event);
}

static srt_status_t event_record(void *s, void *e)
{
	srt_ocl_stream_t *stream = s;
	event_t *event = e;
	cl_event marker = NULL;
	cl_int code = clEnqueueMarkerWithWaitList(stream->queue, 0, NULL, &marker);

	/* Other queues and the host wait for it. */
	if (code == CL_SUCCESS)
		code = clFlush(stream->queue);
	if (event->marker != NULL)
		clReleaseEvent(event->marker);
	event->marker = marker;
	if (code == CL_SUCCESS)
		return SRT_OK;
	return srt_ocl_fail(stream->device->host, code, "stream \"%s\": recording an event failed",
			    stream->name);
}

/* <= 0: complete, < 0: failed. */
static cl_int event_state(const event_t *event)
{
	cl_int state = CL_COMPLETE, code;

	code = clGetEventInfo(event->marker, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(state),
			      &state, NULL);
	return code == CL_SUCCESS ? state : code;
}

static srt_status_t event_failed(const srt_ocl_device_t *device, cl_int code)
{
	return srt_ocl_fail(device->host, code,
			    "work on device \"%s\" failed before an event that was waited for",
			    device->name);
}

static srt_status_t event_wait(void *s, void *e)
{
	srt_ocl_stream_t *stream = s;
	const event_t *event = e;
	cl_int code, state = event_state(event);

	if (state < 0)
		return event_failed(stream->device, state);
	if (state == CL_COMPLETE)
		return SRT_OK;
	code = clEnqueueBarrierWithWaitList(stream->queue, 1, &event->marker, NULL);
	if (code == CL_SUCCESS)
		return SRT_OK;
	return srt_ocl_fail(stream->device->host, code,
			    "stream \"%s\": waiting for an event failed", stream->name);
}

static srt_status_t event_sync(void *device, void *e)
{
	const event_t *event = e;
	cl_int code = clWaitForEvents(1, &event->marker);

	return code == CL_SUCCESS ? SRT_OK : event_failed(device, code);
}

static int event_query(void *device, void *event)
{
	(void)device;
	return event_state(event) <= CL_COMPLETE;
}

/* ---- making ----------------------------------------------------------------------------- */

static void *stream_native(void *s)
{
	srt_ocl_stream_t *stream = s;

	return stream->queue;
}

static srt_status_t stream_reserve(void *s, size_t nbytes)
{
	srt_ocl_stream_t *stream = s;

	return srt_scratch_reserve(&stream->scratch, nbytes);
}

static void scratch_usage(void *dev, size_t *nbytes, uint64_t *nallocations)
{
	srt_ocl_device_t *device = dev;

	*nbytes = atomic_load(&device->scratch.nbytes);
	*nallocations = atomic_load(&device->scratch.nallocations);
}

static srt_status_t stream_create(void *dev, int priority, const char *name, void **out)
{
	srt_ocl_device_t *device = dev;
	const srt_host_services_t *host = device->host;
	srt_ocl_stream_t *stream = host->alloc(sizeof(*stream));
	cl_int code;

	(void)priority; /* not in OpenCL 1.2 */
	if (stream == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	memset(stream, 0, sizeof(*stream));
	stream->device = device;
	stream->scratch.owner = &device->scratch;
	snprintf(stream->name, sizeof(stream->name), "%s", name);
	stream->queue = clCreateCommandQueue(device->context, device->id, 0, &code);
	if (code != CL_SUCCESS) {
		host->free(stream);
		return srt_ocl_fail(host, code, "stream \"%s\": making its queue failed", name);
	}
	*out = stream;
	return SRT_OK;
}

static void stream_destroy(void *s)
{
	srt_ocl_stream_t *stream = s;

	clFinish(stream->queue);
	for (int i = 0; i < SRT_OCL_MAX_KERNELS; i++)
		if (stream->kernels[i] != NULL)
			clReleaseKernel(stream->kernels[i]);
	srt_scratch_free(&stream->scratch);
	clReleaseCommandQueue(stream->queue);
	stream->device->host->free(stream);
}

const srt_backend_stream_ops_t srt_ocl_stream_ops = {
	.create = stream_create,
	.destroy = stream_destroy,
	.submit = srt_ocl_submit,
	.native = stream_native,
	.sync = stream_sync,
	.read = stream_read,
	.reserve = stream_reserve,
	.scratch = srt_ocl_command_scratch,
	.scratch_usage = scratch_usage,
	.event_create = event_create,
	.event_destroy = event_destroy,
	.event_record = event_record,
	.event_wait = event_wait,
	.event_sync = event_sync,
	.event_query = event_query,
};
