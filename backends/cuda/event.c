/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events. Recording takes a "point" (the end of the stream at that moment) and puts it on the
 * stream; when the stream's turn comes, the point's event of the driver is recorded, or the point
 * gets the stream's failure. A wait holds the point that was the event's at the time of the call,
 * so recording the event again does not move it. A wait for a point that is recorded is the
 * driver's; for one that is not, the waiting stream's worker waits until it is.
 *
 * Points come from the device's list of free ones, which has enough for all events: a record
 * allocates nothing, unless many waits hold points.
 */
#include <stdio.h>
#include <string.h>

#include "backends/cuda/cuda.h"

/* ---- points ------------------------------------------------------------------------------ */

static srt_status_t point_new(srt_cuda_device_t *device, srt_cuda_point_t **out)
{
	srt_cuda_point_t *p = device->host->alloc(sizeof(*p));
	srt_status_t status = SRT_OK;
	srt_cuda_scope_t scope;
	CUresult code;

	if (!p)
		return SRT_ERR_OUT_OF_MEMORY;
	memset(p, 0, sizeof(*p));
	scope = srt_cuda_enter(device);
	code = device->drv->cuEventCreate(&p->event, CU_EVENT_DEFAULT);
	if (code != CUDA_SUCCESS)
		status =
			srt_cuda_fail(device->host, device->drv, code,
				      "making an event of CUDA device \"%s\" failed", device->name);
	srt_cuda_leave(scope);
	if (status != SRT_OK) {
		device->host->free(p);
		return status;
	}
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->queued_cond, NULL);
	pthread_mutex_lock(&device->points_lock);
	device->npoints++;
	pthread_mutex_unlock(&device->points_lock);
	*out = p;
	return SRT_OK;
}

/* A point with two references: the event's and the stream's. */
static srt_status_t point_take(srt_cuda_device_t *device, uint64_t stream, srt_cuda_point_t **out)
{
	srt_cuda_point_t *p;

	pthread_mutex_lock(&device->points_lock);
	p = device->free_points;
	if (p)
		device->free_points = p->next_free;
	pthread_mutex_unlock(&device->points_lock);
	if (!p) {
		srt_status_t status = point_new(device, &p);

		if (status != SRT_OK)
			return status;
	}
	p->refs = 2;
	p->queued = false;
	p->recorded = false;
	p->stream = stream;
	p->failure.status = SRT_OK;
	*out = p;
	return SRT_OK;
}

static void point_drop(srt_cuda_device_t *device, srt_cuda_point_t *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&device->points_lock);
	if (--p->refs == 0) {
		p->next_free = device->free_points;
		device->free_points = p;
	}
	pthread_mutex_unlock(&device->points_lock);
}

/* Two for each event: one that it has, and one that takes its place in a record. */
static srt_status_t points_reserve(srt_cuda_device_t *device)
{
	for (;;) {
		srt_cuda_point_t *p;
		srt_status_t status;
		bool enough;

		pthread_mutex_lock(&device->points_lock);
		enough = device->npoints >= 2 * device->nevents;
		pthread_mutex_unlock(&device->points_lock);
		if (enough)
			return SRT_OK;
		status = point_new(device, &p);
		if (status != SRT_OK)
			return status;
		pthread_mutex_lock(&device->points_lock);
		p->next_free = device->free_points;
		device->free_points = p;
		pthread_mutex_unlock(&device->points_lock);
	}
}

static void count_event(srt_cuda_device_t *device, int one)
{
	pthread_mutex_lock(&device->points_lock);
	device->nevents += one;
	pthread_mutex_unlock(&device->points_lock);
}

void srt_cuda_points_free(srt_cuda_device_t *device)
{
	while (device->free_points) {
		srt_cuda_point_t *p = device->free_points;

		device->free_points = p->next_free;
		device->drv->cuEventDestroy(p->event);
		pthread_cond_destroy(&p->queued_cond);
		pthread_mutex_destroy(&p->lock);
		device->host->free(p);
	}
}

/* Blocks until the point is recorded or has its failure; not until it is reached. */
static void point_await(srt_cuda_point_t *p)
{
	pthread_mutex_lock(&p->lock);
	while (!p->queued)
		pthread_cond_wait(&p->queued_cond, &p->lock);
	pthread_mutex_unlock(&p->lock);
}

static bool point_is_queued(srt_cuda_point_t *p)
{
	bool queued;

	pthread_mutex_lock(&p->lock);
	queued = p->queued;
	pthread_mutex_unlock(&p->lock);
	return queued;
}

/* The event's present point with a reference for the caller, or NULL. */
static srt_cuda_point_t *event_point(srt_cuda_event_t *event)
{
	srt_cuda_device_t *device = event->device;
	srt_cuda_point_t *p;

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

static srt_status_t event_failed(const srt_cuda_device_t *device, CUresult code)
{
	return srt_cuda_fail(device->host, device->drv, code,
			     "work on device \"%s\" failed before an event that was waited for",
			     device->name);
}

/* ---- making and recording ---------------------------------------------------------------- */

srt_status_t srt_cuda_event_create(void *dev, void **out)
{
	srt_cuda_device_t *device = dev;
	srt_cuda_event_t *event = device->host->alloc(sizeof(*event));
	srt_status_t status;

	if (!event)
		return SRT_ERR_OUT_OF_MEMORY;
	count_event(device, 1);
	status = points_reserve(device);
	if (status != SRT_OK) {
		count_event(device, -1);
		device->host->free(event);
		return status;
	}
	event->device = device;
	event->point = NULL;
	pthread_mutex_init(&event->lock, NULL);
	*out = event;
	return SRT_OK;
}

void srt_cuda_event_destroy(void *ev)
{
	srt_cuda_event_t *event = ev;

	point_drop(event->device, event->point);
	count_event(event->device, -1);
	pthread_mutex_destroy(&event->lock);
	event->device->host->free(event);
}

static srt_status_t run_record(srt_cuda_stream_t *stream, const srt_cuda_op_t *op)
{
	srt_cuda_device_t *device = stream->device;
	srt_cuda_point_t *p = op->u.point;
	srt_status_t status = SRT_OK;
	CUresult code;

	/* Only who submits writes the failure, and this is it. */
	if (stream->failure.status == SRT_OK) {
		code = device->drv->cuEventRecord(p->event, stream->queue);
		if (code != CUDA_SUCCESS)
			status = srt_cuda_fail(device->host, device->drv, code,
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
	p->recorded = p->failure.status == SRT_OK;
	p->queued = true;
	pthread_cond_broadcast(&p->queued_cond);
	pthread_mutex_unlock(&p->lock);
	point_drop(device, p);
	return status;
}

srt_status_t srt_cuda_event_record(void *ev, void *s)
{
	srt_cuda_event_t *event = ev;
	srt_cuda_stream_t *stream = s;
	srt_cuda_point_t *p, *old;
	srt_cuda_op_t op = { .run = run_record, .even_if_failed = true };
	srt_status_t status;

	if (stream->recording)
		return event->device->host->fail(SRT_ERR_STATE,
						 "stream \"%s\" is being recorded: events cannot "
						 "be in a recording",
						 stream->name);
	status = point_take(event->device, stream->number, &p);
	if (status != SRT_OK)
		return status;
	pthread_mutex_lock(&event->lock);
	old = event->point;
	event->point = p;
	pthread_mutex_unlock(&event->lock);
	point_drop(event->device, old);
	/* Cannot be refused: it starts no worker. */
	op.u.point = p;
	return srt_cuda_stream_put(stream, &op);
}

/* ---- waiting ----------------------------------------------------------------------------- */

static srt_status_t run_wait(srt_cuda_stream_t *stream, const srt_cuda_op_t *op)
{
	srt_cuda_device_t *device = stream->device;
	srt_cuda_point_t *p = op->u.point;
	srt_status_t status = SRT_OK;
	CUresult code = CUDA_SUCCESS;

	point_await(p);
	if (stream->failure.status == SRT_OK && p->failure.status != SRT_OK)
		status = device->host->fail(p->failure.status, "%s", p->failure.message);
	else if (stream->failure.status == SRT_OK && p->stream != stream->number)
		code = device->drv->cuStreamWaitEvent(stream->queue, p->event,
						      CU_EVENT_WAIT_DEFAULT);
	if (code != CUDA_SUCCESS)
		status = srt_cuda_fail(device->host, device->drv, code,
				       "stream \"%s\": waiting for an event failed", stream->name);
	point_drop(device, p);
	return status;
}

srt_status_t srt_cuda_event_wait(void *stream, void *ev)
{
	srt_cuda_event_t *event = ev;
	srt_cuda_point_t *p = event_point(event);
	srt_status_t status;

	if (!p)
		return SRT_OK;
	status = srt_cuda_stream_put(stream, &(srt_cuda_op_t){
						     .run = run_wait,
						     .even_if_failed = true,
						     .blocks = !point_is_queued(p),
						     .unrecorded = true,
						     .u.point = p,
					     });
	if (status != SRT_OK)
		point_drop(event->device, p);
	return status;
}

srt_status_t srt_cuda_event_sync(void *ev)
{
	srt_cuda_event_t *event = ev;
	srt_cuda_device_t *device = event->device;
	srt_cuda_point_t *p = event_point(event);
	srt_status_t status = SRT_OK;
	srt_cuda_scope_t scope;
	CUresult code;

	if (!p)
		return SRT_OK;
	point_await(p);
	scope = srt_cuda_enter(device);
	if (p->failure.status != SRT_OK) {
		status = device->host->fail(p->failure.status, "%s", p->failure.message);
	} else {
		code = device->drv->cuEventSynchronize(p->event);
		if (code != CUDA_SUCCESS)
			status = event_failed(device, code);
	}
	srt_cuda_leave(scope);
	point_drop(device, p);
	return status;
}

/* Of a queued point; a failure counts as reached. */
static bool point_is_reached(srt_cuda_device_t *device, const srt_cuda_point_t *p)
{
	srt_cuda_scope_t scope = srt_cuda_enter(device);
	bool reached = !p->recorded || device->drv->cuEventQuery(p->event) != CUDA_ERROR_NOT_READY;

	srt_cuda_leave(scope);
	return reached;
}

srt_status_t srt_cuda_event_query(void *ev, int *done)
{
	srt_cuda_event_t *event = ev;
	srt_cuda_point_t *p = event_point(event);

	*done = 1;
	if (!p)
		return SRT_OK;
	*done = point_is_queued(p) && point_is_reached(event->device, p);
	point_drop(event->device, p);
	return SRT_OK;
}

srt_status_t srt_cuda_event_elapsed(void *start, void *end, float *ms)
{
	srt_cuda_event_t *first = start, *last = end;
	srt_cuda_device_t *device = last->device;
	srt_cuda_point_t *p = event_point(first), *q = event_point(last);
	srt_status_t status = SRT_OK;
	srt_cuda_scope_t scope;
	CUresult code;

	scope = srt_cuda_enter(device);
	if (!p || !q || !point_is_queued(p) || !point_is_queued(q) || !p->recorded ||
	    !q->recorded) {
		status = device->host->fail(SRT_ERR_STATE,
					    "the time between two events: %s is not "
					    "recorded",
					    p && point_is_queued(p) && p->recorded ? "the later" :
										     "the earlier");
	} else {
		code = device->drv->cuEventElapsedTime(ms, p->event, q->event);
		if (code == CUDA_ERROR_NOT_READY)
			status = device->host->fail(SRT_ERR_STATE, "the time between two events: "
								   "the device has not come to "
								   "them yet");
		else if (code != CUDA_SUCCESS)
			status = event_failed(device, code);
	}
	srt_cuda_leave(scope);
	point_drop(device, p);
	point_drop(device, q);
	return status;
}
