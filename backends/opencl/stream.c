/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams: in-order queues, of which backends/ring.h makes streams and events. An event that is
 * recorded is a marker of the queue; a wait for it in another queue is a barrier, if the marker is
 * not reached yet.
 *
 * Why no user events and callbacks for host functions: what is in the queue behind a user event
 * cannot be taken back when the host function fails, and drivers differ in what they do with it.
 * Here it is not in the queue yet. Measured on PoCL, a host function between two kernels costs
 * about the same either way.
 */
#include <string.h>

#include "backends/opencl/tuned.h"

srt_status_t srt_ocl_stream_put(srt_ocl_stream_t *stream, const srt_ocl_op_t *op)
{
	return srt_ring_put(&stream->ring, &op->ring);
}

static srt_status_t run_op(void *stream, const void *o)
{
	const srt_ocl_op_t *op = o;

	return op->run(stream, op);
}

srt_status_t srt_ocl_stream_finish(void *s)
{
	srt_ocl_stream_t *stream = s;
	srt_ocl_device_t *device = stream->device;
	cl_int code = clFinish(stream->queue);

	if (code == CL_SUCCESS)
		return SRT_OK;
	return srt_ocl_fail(device->host, code, "stream \"%s\": work on device \"%s\" failed",
			    stream->ring.name, device->name);
}

/* ---- events ----------------------------------------------------------------------------- */

static srt_status_t event_record(void *s, void **event)
{
	srt_ocl_stream_t *stream = s;
	cl_event marker = NULL;
	cl_int code = clEnqueueMarkerWithWaitList(stream->queue, 0, NULL, &marker);

	*event = marker;
	/* Other queues and the host wait for it. */
	if (code == CL_SUCCESS)
		code = clFlush(stream->queue);
	if (code == CL_SUCCESS)
		return SRT_OK;
	return srt_ocl_fail(stream->device->host, code, "stream \"%s\": recording an event failed",
			    stream->ring.name);
}

static void event_release(void *device, void *event)
{
	(void)device;
	clReleaseEvent(event);
}

/* <= 0 is done, < 0 has failed. */
static cl_int event_state(cl_event event)
{
	cl_int state = CL_COMPLETE, code;

	code = clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(state), &state,
			      NULL);
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
	cl_event event = e;
	cl_int code, state = event_state(event);

	if (state < 0)
		return event_failed(stream->device, state);
	if (state == CL_COMPLETE)
		return SRT_OK;
	code = clEnqueueBarrierWithWaitList(stream->queue, 1, &event, NULL);
	if (code == CL_SUCCESS)
		return SRT_OK;
	return srt_ocl_fail(stream->device->host, code,
			    "stream \"%s\": waiting for an event failed", stream->ring.name);
}

static srt_status_t event_sync(void *device, void *e)
{
	cl_event event = e;
	cl_int code = clWaitForEvents(1, &event);

	return code == CL_SUCCESS ? SRT_OK : event_failed(device, code);
}

static bool event_reached(void *device, void *event)
{
	(void)device;
	return event_state(event) <= CL_COMPLETE;
}

const srt_ring_driver_t srt_ocl_ring_driver = {
	.op_nbytes = sizeof(srt_ocl_op_t),
	.run = run_op,
	.finish = srt_ocl_stream_finish,
	.sync = srt_ocl_stream_finish,
	.event_record = event_record,
	.event_release = event_release,
	.event_wait = event_wait,
	.event_sync = event_sync,
	.event_reached = event_reached,
};

/* ---- making ----------------------------------------------------------------------------- */

/* Once the ring is empty it is this thread's turn to submit. */
static srt_status_t stream_reserve(void *s, size_t nbytes)
{
	srt_ocl_stream_t *stream = s;
	srt_fpenv_t env = srt_fpenv_enter();
	srt_status_t status;

	srt_ring_drain(&stream->ring);
	pthread_mutex_lock(&stream->ring.lock);
	status = srt_ocl_scratch(stream, (int64_t)((nbytes + sizeof(float) - 1) / sizeof(float)));
	pthread_mutex_unlock(&stream->ring.lock);
	srt_fpenv_leave(env);
	return status;
}

static void stream_kept(void *dev, size_t *nbytes, uint64_t *nallocations)
{
	srt_ocl_device_t *device = dev;

	*nbytes = atomic_load(&device->kept);
	*nallocations = atomic_load(&device->nkept);
}

static srt_status_t stream_create(void *dev, int priority, const char *name, void **out)
{
	srt_ocl_device_t *device = dev;
	const srt_host_services_t *host = device->host;
	srt_ocl_stream_t *stream = host->alloc(sizeof(*stream));
	cl_int code;

	(void)priority; /* not in OpenCL 1.2 */
	if (!stream)
		return SRT_ERR_OUT_OF_MEMORY;
	memset(stream, 0, sizeof(*stream));
	stream->device = device;
	stream->queue = clCreateCommandQueue(device->context, device->id, 0, &code);
	if (code != CL_SUCCESS) {
		host->free(stream);
		return srt_ocl_fail(host, code, "stream \"%s\": making its queue failed", name);
	}
	srt_ring_init(&stream->ring, &device->rings, name);
	*out = stream;
	return SRT_OK;
}

static void stream_destroy(void *s)
{
	srt_ocl_stream_t *stream = s;

	srt_ring_destroy(&stream->ring);
	clFinish(stream->queue);
	for (int i = 0; i < SRT_OCL_MAX_KERNELS; i++)
		if (stream->kernels[i])
			clReleaseKernel(stream->kernels[i]);
	srt_ocl_scratch_free(stream);
	clReleaseCommandQueue(stream->queue);
	stream->device->host->free(stream->staging);
	stream->device->host->free(stream);
}

const srt_backend_stream_ops_t srt_ocl_stream_ops = {
	.create = stream_create,
	.destroy = stream_destroy,
	.sync = srt_ring_sync,
	.host_fn = srt_ring_host_fn,
	.reserve = stream_reserve,
	.kept = stream_kept,
	.event_create = srt_ring_event_create,
	.event_destroy = srt_ring_event_destroy,
	.event_record = srt_ring_event_record,
	.event_wait = srt_ring_event_wait,
	.event_sync = srt_ring_event_sync,
	.event_query = srt_ring_event_query,
};
