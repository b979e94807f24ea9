/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events. Recording takes a "point" (the end of the stream at that moment) and puts it on the
 * stream; the stream marks it reached, with its failure if it has one. A wait holds the point
 * that was the event's at the time of the call, so recording the event again does not move it.
 *
 * Points come from the device's list of free ones, which events and streams add to when they are
 * made: a record allocates nothing.
 */
#include <stdlib.h>

#include "backends/cpu/cpu.h"
#include "base/base.h"

static srt_cpu_point_t *point_new(void)
{
	srt_cpu_point_t *p = srt_calloc(1, sizeof(*p), "an event");

	if (!p)
		return NULL;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->reached_cond, NULL);
	return p;
}

/* A point with two references: the event's and the stream's. */
static srt_cpu_point_t *point_take(srt_cpu_device_t *device)
{
	srt_cpu_point_t *p;

	pthread_mutex_lock(&device->points_lock);
	p = device->free_points;
	if (p)
		device->free_points = p->next_free;
	pthread_mutex_unlock(&device->points_lock);
	if (!p)
		p = point_new();
	if (!p)
		return NULL;
	p->refs = 2;
	p->reached = false;
	p->failure.status = SRT_OK;
	return p;
}

static void point_hold(srt_cpu_device_t *device, srt_cpu_point_t *p)
{
	pthread_mutex_lock(&device->points_lock);
	p->refs++;
	pthread_mutex_unlock(&device->points_lock);
}

static void point_drop(srt_cpu_device_t *device, srt_cpu_point_t *p)
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

/* n more free points, so that recording does not allocate however far a stream is behind. */
srt_status_t srt_cpu_points_reserve(srt_cpu_device_t *device, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		srt_cpu_point_t *p = point_new();

		if (!p)
			return SRT_ERR_OUT_OF_MEMORY;
		pthread_mutex_lock(&device->points_lock);
		p->next_free = device->free_points;
		device->free_points = p;
		pthread_mutex_unlock(&device->points_lock);
	}
	return SRT_OK;
}

void srt_cpu_points_free(srt_cpu_device_t *device)
{
	while (device->free_points) {
		srt_cpu_point_t *p = device->free_points;

		device->free_points = p->next_free;
		pthread_cond_destroy(&p->reached_cond);
		pthread_mutex_destroy(&p->lock);
		free(p);
	}
}

static void point_reach(srt_cpu_point_t *p, const srt_cpu_failure_t *failure)
{
	pthread_mutex_lock(&p->lock);
	if (failure->status != SRT_OK)
		p->failure = *failure;
	p->reached = true;
	pthread_cond_broadcast(&p->reached_cond);
	pthread_mutex_unlock(&p->lock);
}

/* Blocks until the point is reached; its failure becomes the thread's last error. */
static srt_status_t point_wait(srt_cpu_point_t *p)
{
	pthread_mutex_lock(&p->lock);
	while (!p->reached)
		pthread_cond_wait(&p->reached_cond, &p->lock);
	pthread_mutex_unlock(&p->lock);
	/* Not written any more once reached. */
	if (p->failure.status != SRT_OK)
		return srt_fail_copy(p->failure.status, p->failure.message);
	return SRT_OK;
}

/* The event's present point with a reference for the caller, or NULL. */
static srt_cpu_point_t *event_point(srt_cpu_event_t *event)
{
	srt_cpu_point_t *p;

	pthread_mutex_lock(&event->lock);
	p = event->point;
	if (p)
		point_hold(event->device, p);
	pthread_mutex_unlock(&event->lock);
	return p;
}

srt_status_t srt_cpu_event_create(void *device, void **out)
{
	srt_cpu_event_t *event = srt_calloc(1, sizeof(*event), "an event");

	if (!event)
		return SRT_ERR_OUT_OF_MEMORY;
	/* One that it has, and one that takes its place in a record. */
	if (srt_cpu_points_reserve(device, 2) != SRT_OK) {
		free(event);
		return SRT_ERR_OUT_OF_MEMORY;
	}
	event->device = device;
	pthread_mutex_init(&event->lock, NULL);
	*out = event;
	return SRT_OK;
}

void srt_cpu_event_destroy(void *ev)
{
	srt_cpu_event_t *event = ev;

	point_drop(event->device, event->point);
	pthread_mutex_destroy(&event->lock);
	free(event);
}

static srt_status_t run_record(srt_cpu_stream_t *stream, const srt_cpu_op_t *op)
{
	/* Only the running thread writes the failure, and this is it. */
	point_reach(op->u.point, &stream->failure);
	point_drop(stream->device, op->u.point);
	return SRT_OK;
}

static srt_status_t run_wait(srt_cpu_stream_t *stream, const srt_cpu_op_t *op)
{
	srt_status_t status = point_wait(op->u.point);

	point_drop(stream->device, op->u.point);
	return status;
}

srt_status_t srt_cpu_event_record(void *ev, void *stream)
{
	srt_cpu_event_t *event = ev;
	srt_cpu_point_t *p = point_take(event->device), *old;

	if (!p)
		return SRT_ERR_OUT_OF_MEMORY;
	pthread_mutex_lock(&event->lock);
	old = event->point;
	event->point = p;
	pthread_mutex_unlock(&event->lock);
	point_drop(event->device, old);
	return srt_cpu_stream_put(stream, &(srt_cpu_op_t){
						  .run = run_record,
						  .even_if_failed = true,
						  .u.point = p,
					  });
}

srt_status_t srt_cpu_event_wait(void *stream, void *ev)
{
	srt_cpu_point_t *p = event_point(ev);

	if (!p)
		return SRT_OK;
	return srt_cpu_stream_put(stream, &(srt_cpu_op_t){
						  .run = run_wait,
						  .even_if_failed = true,
						  .u.point = p,
					  });
}

srt_status_t srt_cpu_event_sync(void *ev)
{
	srt_cpu_event_t *event = ev;
	srt_cpu_point_t *p = event_point(event);
	srt_status_t status;

	if (!p)
		return SRT_OK;
	status = point_wait(p);
	point_drop(event->device, p);
	return status;
}

srt_status_t srt_cpu_event_query(void *ev, int *done)
{
	srt_cpu_event_t *event = ev;
	srt_cpu_point_t *p = event_point(event);

	*done = 1;
	if (!p)
		return SRT_OK;
	pthread_mutex_lock(&p->lock);
	*done = p->reached;
	pthread_mutex_unlock(&p->lock);
	point_drop(event->device, p);
	return SRT_OK;
}
