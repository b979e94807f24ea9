/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events; see stream_queue.h. Recording takes a point and puts it on the stream; when the stream's
 * turn comes, the point's event of the driver is recorded, or the point gets the stream's failure.
 * A wait for a point that is recorded is the driver's; for one that is not, the waiting stream's
 * worker waits until it is. Without a driver's stream a point is recorded when it is reached.
 *
 * Points come from the device's list of free ones, which has two for each event: one that it has,
 * and one that takes its place in a record; and one for each command that waits for a worker. So a
 * record allocates nothing, unless many waits hold points.
 */
#include <stdio.h>
#include <stdlib.h>

#include "device/stream_queue.h"

/* ---- points ------------------------------------------------------------------------------ */

static void point_free(const srt_device_t *device, srt_point_t *p)
{
	if (p->event) {
		srt_scope_t scope = srt_driver_enter(device);

		device->backend->stream->event_destroy(device->impl, p->event);
		srt_driver_leave(scope);
	}
	pthread_cond_destroy(&p->recorded_cond);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

static srt_status_t point_new(srt_device_t *device, srt_point_t **out)
{
	const srt_backend_stream_ops_t *ops = device->backend->stream;
	srt_point_t *p = srt_calloc(1, sizeof(*p), "an event");
	srt_status_t status = SRT_OK;

	if (!p)
		return SRT_ERR_OUT_OF_MEMORY;
	if (ops->event_create) {
		srt_scope_t scope = srt_driver_enter(device);

		status = ops->event_create(device->impl, &p->event);
		srt_driver_leave(scope);
	}
	if (status != SRT_OK) {
		free(p);
		return status;
	}
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->recorded_cond, NULL);
	pthread_mutex_lock(&device->points_lock);
	device->npoints++;
	pthread_mutex_unlock(&device->points_lock);
	*out = p;
	return SRT_OK;
}

/* A point with two references: the event's and the stream's. */
static srt_status_t point_take(srt_device_t *device, uint64_t stream, srt_point_t **out)
{
	srt_point_t *p;

	pthread_mutex_lock(&device->points_lock);
	p = device->free_points;
	if (p)
		device->free_points = p->next_free;
	pthread_mutex_unlock(&device->points_lock);
	if (!p)
		SRT_TRY(point_new(device, &p));
	p->refs = 2;
	p->recorded = false;
	p->stream = stream;
	p->failure.status = SRT_OK;
	*out = p;
	return SRT_OK;
}

static void point_drop(srt_device_t *device, srt_point_t *p)
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

srt_status_t srt_points_reserve(srt_device_t *device, int n)
{
	bool enough;

	pthread_mutex_lock(&device->points_lock);
	device->nheld += n;
	pthread_mutex_unlock(&device->points_lock);
	for (;;) {
		srt_status_t status;
		srt_point_t *p;

		pthread_mutex_lock(&device->points_lock);
		enough = device->npoints >= device->nheld;
		pthread_mutex_unlock(&device->points_lock);
		if (enough)
			return SRT_OK;
		status = point_new(device, &p);
		if (status != SRT_OK) {
			srt_points_release(device, n);
			return status;
		}
		p->refs = 1;
		point_drop(device, p);
	}
}

void srt_points_release(srt_device_t *device, int n)
{
	pthread_mutex_lock(&device->points_lock);
	device->nheld -= n;
	pthread_mutex_unlock(&device->points_lock);
}

void srt_points_free(srt_device_t *device)
{
	while (device->free_points) {
		srt_point_t *p = device->free_points;

		device->free_points = p->next_free;
		point_free(device, p);
	}
}

/* Blocks until the point is recorded or has its failure; not until it is reached. */
static void point_await(srt_point_t *p)
{
	pthread_mutex_lock(&p->lock);
	while (!p->recorded)
		pthread_cond_wait(&p->recorded_cond, &p->lock);
	pthread_mutex_unlock(&p->lock);
}

bool srt_point_is_recorded(srt_point_t *p)
{
	bool recorded;

	pthread_mutex_lock(&p->lock);
	recorded = p->recorded;
	pthread_mutex_unlock(&p->lock);
	return recorded;
}

/* The event's present point with a reference for the caller, or NULL. */
static srt_point_t *event_point(srt_event_t *event)
{
	srt_point_t *p;

	pthread_mutex_lock(&event->lock);
	p = event->point;
	if (p) {
		pthread_mutex_lock(&event->device->points_lock);
		p->refs++;
		pthread_mutex_unlock(&event->device->points_lock);
	}
	pthread_mutex_unlock(&event->lock);
	return p;
}

/* ---- commands ---------------------------------------------------------------------------- */

srt_status_t srt_point_record(srt_stream_t *stream, srt_point_t *p)
{
	const srt_backend_stream_ops_t *ops = stream->device->backend->stream;
	srt_status_t status = SRT_OK;

	/* Only the thread that submits writes the stream's failure, and this is it. */
	if (stream->failure.status == SRT_OK && p->event)
		status = ops->event_record(stream->impl, p->event);
	pthread_mutex_lock(&p->lock);
	if (status != SRT_OK) {
		p->failure.status = status;
		snprintf(p->failure.message, sizeof(p->failure.message), "%s", srt_last_error());
	} else if (stream->failure.status != SRT_OK) {
		p->failure = stream->failure;
	}
	p->recorded = true;
	pthread_cond_broadcast(&p->recorded_cond);
	pthread_mutex_unlock(&p->lock);
	point_drop(stream->device, p);
	return status;
}

srt_status_t srt_point_wait(srt_stream_t *stream, srt_point_t *p)
{
	srt_status_t status = SRT_OK;

	point_await(p);
	if (stream->failure.status == SRT_OK && p->failure.status != SRT_OK)
		status = srt_fail_copy(p->failure.status, p->failure.message);
	else if (stream->failure.status == SRT_OK && p->event && p->stream != stream->number)
		status = stream->device->backend->stream->event_wait(stream->impl, p->event);
	point_drop(stream->device, p);
	return status;
}

/* ---- public ------------------------------------------------------------------------------ */

srt_status_t srt_event_create(srt_device_t *device, srt_event_t **out)
{
	srt_event_t *event;
	srt_status_t status;

	if (!device || !out)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "srt_event_create: %s is NULL",
				device ? "the result" : "device");
	event = srt_calloc(1, sizeof(*event), "an event");
	if (!event)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_points_reserve(device, 2);
	if (status != SRT_OK) {
		free(event);
		return status;
	}
	event->device = device;
	pthread_mutex_init(&event->lock, NULL);
	*out = event;
	return SRT_OK;
}

void srt_event_destroy(srt_event_t *event)
{
	if (!event)
		return;
	point_drop(event->device, event->point);
	srt_points_release(event->device, 2);
	pthread_mutex_destroy(&event->lock);
	free(event);
}

static srt_status_t check_pair(const char *call, const srt_event_t *event,
			       const srt_stream_t *stream)
{
	if (!event || !stream)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: %s is NULL", call,
				event ? "stream" : "event");
	if (event->device != stream->device)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: stream \"%s\" and the event belong to different devices", call,
				stream->name);
	return SRT_OK;
}

srt_status_t srt_event_record(srt_event_t *event, srt_stream_t *stream)
{
	srt_command_t command = { .kind = SRT_COMMAND_EVENT_RECORD };
	srt_point_t *old;

	SRT_TRY(check_pair("srt_event_record", event, stream));
	SRT_TRY(point_take(event->device, stream->number, &command.point));
	pthread_mutex_lock(&event->lock);
	old = event->point;
	event->point = command.point;
	pthread_mutex_unlock(&event->lock);
	point_drop(event->device, old);
	atomic_store(&event->stream, stream->number);
	/* Cannot be refused: it starts no worker. */
	return srt_queue_put(stream, &command);
}

srt_status_t srt_stream_wait_event(srt_stream_t *stream, srt_event_t *event)
{
	srt_command_t command = { .kind = SRT_COMMAND_EVENT_WAIT };
	srt_status_t status;

	SRT_TRY(check_pair("srt_stream_wait_event", event, stream));
	if (atomic_load(&event->stream) == stream->number) /* the stream's own order */
		return SRT_OK;
	command.point = event_point(event);
	if (!command.point)
		return SRT_OK;
	status = srt_queue_put(stream, &command);
	if (status != SRT_OK)
		point_drop(event->device, command.point);
	return status;
}

srt_status_t srt_event_sync(srt_event_t *event)
{
	srt_status_t status = SRT_OK;
	srt_point_t *p;

	if (!event)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "srt_event_sync: event is NULL");
	p = event_point(event);
	if (!p)
		return SRT_OK;
	point_await(p);
	if (p->failure.status != SRT_OK) {
		status = srt_fail_copy(p->failure.status, p->failure.message);
	} else if (p->event) {
		srt_scope_t scope = srt_driver_enter(event->device);

		status = event->device->backend->stream->event_sync(event->device->impl, p->event);
		srt_driver_leave(scope);
	}
	point_drop(event->device, p);
	return srt_device_waited(event->device, status);
}

srt_status_t srt_event_query(srt_event_t *event, int *done)
{
	srt_point_t *p;

	if (!event || !done)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "srt_event_query: %s is NULL",
				event ? "done" : "event");
	*done = 1;
	p = event_point(event);
	if (!p)
		return SRT_OK;
	*done = srt_point_is_recorded(p);
	/* A failure counts as reached. */
	if (*done && p->failure.status == SRT_OK && p->event) {
		srt_scope_t scope = srt_driver_enter(event->device);

		*done = event->device->backend->stream->event_query(event->device->impl, p->event);
		srt_driver_leave(scope);
	}
	point_drop(event->device, p);
	return *done ? srt_event_sync(event) : SRT_OK;
}
