/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events. Recording takes a "point" (the end of the stream at that moment) and puts it on the
 * stream; when the stream's turn comes, the point gets a marker of the queue, or the stream's
 * failure. A wait holds the point that was the event's at the time of the call, so recording the
 * event again does not move it. A wait for a point that has its marker is a barrier in the waiting
 * queue; for one that has not, the waiting stream's worker waits until it has.
 *
 * Points come from the device's list of free ones, which events and streams add to when they are
 * made: a record allocates nothing of ours.
 */
#include <stdio.h>
#include <string.h>

#include "backends/opencl/opencl.h"

static srt_ocl_point_t *point_new(const srt_host_services_t *host)
{
	srt_ocl_point_t *p = host->alloc(sizeof(*p));

	if (!p)
		return NULL;
	memset(p, 0, sizeof(*p));
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->queued_cond, NULL);
	return p;
}

/* A point with two references: the event's and the stream's. */
static srt_ocl_point_t *point_take(srt_ocl_device_t *device, uint64_t stream)
{
	srt_ocl_point_t *p;

	pthread_mutex_lock(&device->points_lock);
	p = device->free_points;
	if (p)
		device->free_points = p->next_free;
	pthread_mutex_unlock(&device->points_lock);
	if (!p)
		p = point_new(device->host);
	if (!p)
		return NULL;
	p->refs = 2;
	p->queued = false;
	p->event = NULL;
	p->stream = stream;
	p->failure.status = SRT_OK;
	return p;
}

static void point_drop(srt_ocl_device_t *device, srt_ocl_point_t *p)
{
	cl_event event = NULL;

	if (!p)
		return;
	pthread_mutex_lock(&device->points_lock);
	if (--p->refs == 0) {
		event = p->event;
		p->event = NULL;
		p->next_free = device->free_points;
		device->free_points = p;
	}
	pthread_mutex_unlock(&device->points_lock);
	if (event)
		clReleaseEvent(event);
}

srt_status_t srt_ocl_points_reserve(srt_ocl_device_t *device, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		srt_ocl_point_t *p = point_new(device->host);

		if (!p)
			return SRT_ERR_OUT_OF_MEMORY;
		pthread_mutex_lock(&device->points_lock);
		p->next_free = device->free_points;
		device->free_points = p;
		pthread_mutex_unlock(&device->points_lock);
	}
	return SRT_OK;
}

void srt_ocl_points_free(srt_ocl_device_t *device)
{
	while (device->free_points) {
		srt_ocl_point_t *p = device->free_points;

		device->free_points = p->next_free;
		pthread_cond_destroy(&p->queued_cond);
		pthread_mutex_destroy(&p->lock);
		device->host->free(p);
	}
}

/* Blocks until the point has its marker or its failure; not until the marker is reached. */
static void point_await(srt_ocl_point_t *p)
{
	pthread_mutex_lock(&p->lock);
	while (!p->queued)
		pthread_cond_wait(&p->queued_cond, &p->lock);
	pthread_mutex_unlock(&p->lock);
}

static bool point_is_queued(srt_ocl_point_t *p)
{
	bool queued;

	pthread_mutex_lock(&p->lock);
	queued = p->queued;
	pthread_mutex_unlock(&p->lock);
	return queued;
}

/* Of a queued point's marker: <= 0 is done, < 0 has failed. */
static cl_int marker_state(const srt_ocl_point_t *p)
{
	cl_int state = CL_COMPLETE, code;

	code = clGetEventInfo(p->event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(state), &state,
			      NULL);
	return code == CL_SUCCESS ? state : code;
}

static srt_status_t marker_failed(const srt_ocl_device_t *device, cl_int code)
{
	return srt_ocl_fail(device->host, code,
			    "work on device \"%s\" failed before an event that was waited for",
			    device->name);
}

/* The event's present point with a reference for the caller, or NULL. */
static srt_ocl_point_t *event_point(srt_ocl_event_t *event)
{
	srt_ocl_device_t *device = event->device;
	srt_ocl_point_t *p;

	pthread_mutex_lock(&event->lock);
	p = event->point;
	if (p) {
		pthread_mutex_lock(&device->points_lock);
		p->refs++;
		pthread_mutex_unlock(&device->points_lock);
	}
	pthread_mutex_unlock(&event->lock);
	return p;
}

srt_status_t srt_ocl_event_create(void *dev, void **out)
{
	srt_ocl_device_t *device = dev;
	srt_ocl_event_t *event = device->host->alloc(sizeof(*event));

	if (!event)
		return SRT_ERR_OUT_OF_MEMORY;
	/* One that it has, and one that takes its place in a record. */
	if (srt_ocl_points_reserve(device, 2) != SRT_OK) {
		device->host->free(event);
		return SRT_ERR_OUT_OF_MEMORY;
	}
	event->device = device;
	event->point = NULL;
	pthread_mutex_init(&event->lock, NULL);
	*out = event;
	return SRT_OK;
}

void srt_ocl_event_destroy(void *ev)
{
	srt_ocl_event_t *event = ev;
	const srt_host_services_t *host = event->device->host;

	point_drop(event->device, event->point);
	pthread_mutex_destroy(&event->lock);
	host->free(event);
}

static srt_status_t run_record(srt_ocl_stream_t *stream, const srt_ocl_op_t *op)
{
	srt_ocl_device_t *device = stream->device;
	srt_ocl_point_t *p = op->u.point;
	cl_event marker = NULL;
	srt_status_t status = SRT_OK;
	cl_int code;

	/* Only who submits writes the failure, and this is it. */
	if (stream->failure.status == SRT_OK) {
		code = clEnqueueMarkerWithWaitList(stream->queue, 0, NULL, &marker);
		/* Other queues and the host wait for it. */
		if (code == CL_SUCCESS)
			code = clFlush(stream->queue);
		if (code != CL_SUCCESS)
			status = srt_ocl_fail(device->host, code,
					      "stream \"%s\": recording an event failed",
					      stream->name);
	}
	pthread_mutex_lock(&p->lock);
	if (status != SRT_OK) {
		p->failure.status = status;
		snprintf(p->failure.message, sizeof(p->failure.message), "%s",
			 device->host->last_error());
	} else if (stream->failure.status != SRT_OK) {
		p->failure = stream->failure;
	}
	p->event = marker;
	p->queued = true;
	pthread_cond_broadcast(&p->queued_cond);
	pthread_mutex_unlock(&p->lock);
	point_drop(device, p);
	return status;
}

srt_status_t srt_ocl_event_record(void *ev, void *s)
{
	srt_ocl_event_t *event = ev;
	srt_ocl_stream_t *stream = s;
	srt_ocl_point_t *p = point_take(event->device, stream->number), *old;

	if (!p)
		return SRT_ERR_OUT_OF_MEMORY;
	pthread_mutex_lock(&event->lock);
	old = event->point;
	event->point = p;
	pthread_mutex_unlock(&event->lock);
	point_drop(event->device, old);
	/* Cannot be refused: it starts no worker. */
	return srt_ocl_stream_put(stream, &(srt_ocl_op_t){
						  .run = run_record,
						  .even_if_failed = true,
						  .u.point = p,
					  });
}

/* With the point queued: its failure, or a barrier if one is needed. */
static srt_status_t wait_for_marker(srt_ocl_stream_t *stream, const srt_ocl_point_t *p)
{
	srt_ocl_device_t *device = stream->device;
	cl_int state, code;

	if (p->failure.status != SRT_OK)
		return device->host->fail(p->failure.status, "%s", p->failure.message);
	if (p->stream == stream->number)
		return SRT_OK;
	state = marker_state(p);
	if (state < 0)
		return marker_failed(device, state);
	if (state == CL_COMPLETE)
		return SRT_OK;
	code = clEnqueueBarrierWithWaitList(stream->queue, 1, &p->event, NULL);
	if (code == CL_SUCCESS)
		return SRT_OK;
	return srt_ocl_fail(device->host, code, "stream \"%s\": waiting for an event failed",
			    stream->name);
}

static srt_status_t run_wait(srt_ocl_stream_t *stream, const srt_ocl_op_t *op)
{
	srt_ocl_point_t *p = op->u.point;
	srt_status_t status = SRT_OK;

	point_await(p);
	if (stream->failure.status == SRT_OK)
		status = wait_for_marker(stream, p);
	point_drop(stream->device, p);
	return status;
}

srt_status_t srt_ocl_event_wait(void *stream, void *ev)
{
	srt_ocl_event_t *event = ev;
	srt_ocl_point_t *p = event_point(event);
	srt_status_t status;

	if (!p)
		return SRT_OK;
	status = srt_ocl_stream_put(stream, &(srt_ocl_op_t){
						    .run = run_wait,
						    .even_if_failed = true,
						    .blocks = !point_is_queued(p),
						    .u.point = p,
					    });
	if (status != SRT_OK)
		point_drop(event->device, p);
	return status;
}

srt_status_t srt_ocl_event_sync(void *ev)
{
	srt_ocl_event_t *event = ev;
	srt_ocl_device_t *device = event->device;
	srt_ocl_point_t *p = event_point(event);
	srt_status_t status = SRT_OK;
	cl_int code;

	if (!p)
		return SRT_OK;
	point_await(p);
	if (p->failure.status != SRT_OK) {
		status = device->host->fail(p->failure.status, "%s", p->failure.message);
	} else {
		code = clWaitForEvents(1, &p->event);
		if (code != CL_SUCCESS)
			status = marker_failed(device, code);
	}
	point_drop(device, p);
	return status;
}

srt_status_t srt_ocl_event_query(void *ev, int *done)
{
	srt_ocl_event_t *event = ev;
	srt_ocl_point_t *p = event_point(event);

	*done = 1;
	if (!p)
		return SRT_OK;
	*done = point_is_queued(p) && (!p->event || marker_state(p) <= CL_COMPLETE);
	point_drop(event->device, p);
	return SRT_OK;
}
