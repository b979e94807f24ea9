/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events of the toy device. Recording makes a point, the end of the stream at that moment, and
 * queues its being reached; a wait holds the point that was the event's when it was called, so
 * that recording the event again, or destroying it, does not move the wait.
 */
#include "tests/backend_toy/toy.h"

/* Called with the lock held. */
static void point_drop(toy_device_t *device, toy_point_t *point)
{
	if (point && --point->refs == 0)
		device->host->free(point);
}

srt_status_t toy_event_create(void *dev, void **out)
{
	toy_device_t *device = dev;
	toy_event_t *event = device->host->alloc(sizeof(*event));

	if (!event)
		return SRT_ERR_OUT_OF_MEMORY;
	*event = (toy_event_t){ .device = device };
	*out = event;
	return SRT_OK;
}

void toy_event_destroy(void *ev)
{
	toy_event_t *event = ev;
	toy_device_t *device = event->device;

	pthread_mutex_lock(&device->lock);
	point_drop(device, event->point);
	pthread_mutex_unlock(&device->lock);
	device->host->free(event);
}

static srt_status_t run_record(toy_stream_t *stream, toy_op_t *op)
{
	toy_device_t *device = stream->device;

	pthread_mutex_lock(&device->lock);
	op->u.point->failure = stream->failure;
	op->u.point->reached = true;
	point_drop(device, op->u.point);
	pthread_cond_broadcast(&device->changed);
	pthread_mutex_unlock(&device->lock);
	return SRT_OK;
}

srt_status_t toy_event_record(void *ev, void *s)
{
	toy_event_t *event = ev;
	toy_stream_t *stream = s;
	toy_device_t *device = event->device;
	toy_point_t *point = device->host->alloc(sizeof(*point));
	toy_op_t *op = toy_op_new(stream, 0);

	if (!point || !op) {
		device->host->free(point);
		device->host->free(op);
		return SRT_ERR_OUT_OF_MEMORY;
	}
	*point = (toy_point_t){ .refs = 2 }; /* the event's and the stream's */
	op->run = run_record;
	op->even_if_failed = true;
	op->u.point = point;
	pthread_mutex_lock(&device->lock);
	point_drop(device, event->point);
	event->point = point;
	pthread_mutex_unlock(&device->lock);
	return toy_stream_put(stream, op);
}

/* Waits for a point and gives up the caller's reference; its failure becomes the thread's. */
static srt_status_t point_wait(toy_device_t *device, toy_point_t *point)
{
	srt_status_t status;

	pthread_mutex_lock(&device->lock);
	while (!point->reached)
		pthread_cond_wait(&device->changed, &device->lock);
	status = toy_report(device, &point->failure);
	point_drop(device, point);
	pthread_mutex_unlock(&device->lock);
	return status;
}

/* The event's present point with a reference for the caller, or NULL. */
static toy_point_t *point_hold(toy_event_t *event)
{
	toy_point_t *point;

	pthread_mutex_lock(&event->device->lock);
	point = event->point;
	if (point)
		point->refs++;
	pthread_mutex_unlock(&event->device->lock);
	return point;
}

static srt_status_t run_wait(toy_stream_t *stream, toy_op_t *op)
{
	return point_wait(stream->device, op->u.point);
}

srt_status_t toy_event_wait(void *stream, void *ev)
{
	toy_op_t *op = toy_op_new(stream, 0);

	if (!op)
		return SRT_ERR_OUT_OF_MEMORY;
	op->run = run_wait;
	op->even_if_failed = true; /* it holds a reference */
	op->u.point = point_hold(ev);
	if (op->u.point)
		return toy_stream_put(stream, op);
	((toy_stream_t *)stream)->device->host->free(op);
	return SRT_OK;
}

srt_status_t toy_event_sync(void *ev)
{
	toy_event_t *event = ev;
	toy_point_t *point = point_hold(event);

	return point ? point_wait(event->device, point) : SRT_OK;
}

srt_status_t toy_event_query(void *ev, int *done)
{
	toy_event_t *event = ev;

	pthread_mutex_lock(&event->device->lock);
	*done = !event->point || event->point->reached;
	pthread_mutex_unlock(&event->device->lock);
	return SRT_OK;
}
