/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events; see ring.h. Recording takes a "point" (the end of the stream at that moment) and puts it
 * on the stream; when the stream's turn comes, the point's event of the driver is recorded, or the
 * point gets the stream's failure. A wait holds the point that was the event's at the time of the
 * call, so recording the event again does not move it. A wait for a point that is recorded is the
 * driver's; for one that is not, the waiting stream's worker waits until it is.
 *
 * Points come from the device's list of free ones, which has enough for all events: a record
 * allocates nothing of ours, unless many waits hold points.
 */
#include <stdio.h>
#include <string.h>

#include "backends/ring.h"

/* ---- points ------------------------------------------------------------------------------ */

static srt_status_t point_new(srt_rings_t *rings, srt_point_t **out)
{
	srt_point_t *p = rings->host->alloc(sizeof(*p));
	srt_status_t status = SRT_OK;
	srt_ring_scope_t scope;

	if (!p)
		return SRT_ERR_OUT_OF_MEMORY;
	memset(p, 0, sizeof(*p));
	if (rings->driver->event_make) {
		scope = srt_ring_enter(rings);
		status = rings->driver->event_make(rings, &p->event);
		srt_ring_leave(scope);
	}
	if (status != SRT_OK) {
		rings->host->free(p);
		return status;
	}
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->queued_cond, NULL);
	pthread_mutex_lock(&rings->lock);
	rings->npoints++;
	pthread_mutex_unlock(&rings->lock);
	*out = p;
	return SRT_OK;
}

/* A point with two references: the event's and the stream's. */
static srt_status_t point_take(srt_rings_t *rings, uint64_t stream, srt_point_t **out)
{
	srt_point_t *p;

	pthread_mutex_lock(&rings->lock);
	p = rings->free_points;
	if (p)
		rings->free_points = p->next_free;
	pthread_mutex_unlock(&rings->lock);
	if (!p) {
		srt_status_t status = point_new(rings, &p);

		if (status != SRT_OK)
			return status;
	}
	p->refs = 2;
	p->queued = false;
	p->stream = stream;
	p->failure.status = SRT_OK;
	*out = p;
	return SRT_OK;
}

void srt_point_drop(srt_rings_t *rings, srt_point_t *p)
{
	void *event = NULL;

	if (!p)
		return;
	pthread_mutex_lock(&rings->lock);
	if (--p->refs == 0) {
		if (rings->driver->event_release) {
			event = p->event;
			p->event = NULL;
		}
		p->next_free = rings->free_points;
		rings->free_points = p;
	}
	pthread_mutex_unlock(&rings->lock);
	if (event)
		rings->driver->event_release(rings, event);
}

/* Two for each event: one that it has, and one that takes its place in a record. */
static srt_status_t points_reserve(srt_rings_t *rings)
{
	for (;;) {
		srt_point_t *p;
		srt_status_t status;
		bool enough;

		pthread_mutex_lock(&rings->lock);
		enough = rings->npoints >= 2 * rings->nevents;
		pthread_mutex_unlock(&rings->lock);
		if (enough)
			return SRT_OK;
		status = point_new(rings, &p);
		if (status != SRT_OK)
			return status;
		pthread_mutex_lock(&rings->lock);
		p->next_free = rings->free_points;
		rings->free_points = p;
		pthread_mutex_unlock(&rings->lock);
	}
}

static void count_event(srt_rings_t *rings, int one)
{
	pthread_mutex_lock(&rings->lock);
	rings->nevents += one;
	pthread_mutex_unlock(&rings->lock);
}

void srt_rings_init(srt_rings_t *rings, const srt_host_services_t *host,
		    const srt_ring_driver_t *driver)
{
	*rings = (srt_rings_t){ .host = host, .driver = driver };
	pthread_mutex_init(&rings->lock, NULL);
}

void srt_rings_destroy(srt_rings_t *rings)
{
	while (rings->free_points) {
		srt_point_t *p = rings->free_points;

		rings->free_points = p->next_free;
		if (rings->driver->event_free) {
			srt_ring_scope_t scope = srt_ring_enter(rings);

			rings->driver->event_free(rings, p->event);
			srt_ring_leave(scope);
		}
		pthread_cond_destroy(&p->queued_cond);
		pthread_mutex_destroy(&p->lock);
		rings->host->free(p);
	}
	pthread_mutex_destroy(&rings->lock);
}

/* Blocks until the point is recorded or has its failure; not until it is reached. */
static void point_await(srt_point_t *p)
{
	pthread_mutex_lock(&p->lock);
	while (!p->queued)
		pthread_cond_wait(&p->queued_cond, &p->lock);
	pthread_mutex_unlock(&p->lock);
}

static bool point_is_queued(srt_point_t *p)
{
	bool queued;

	pthread_mutex_lock(&p->lock);
	queued = p->queued;
	pthread_mutex_unlock(&p->lock);
	return queued;
}

bool srt_point_is_recorded(srt_point_t *p)
{
	return p && point_is_queued(p) && p->failure.status == SRT_OK;
}

srt_point_t *srt_ring_event_point(srt_ring_event_t *event)
{
	srt_point_t *p;

	pthread_mutex_lock(&event->lock);
	p = event->point;
	if (p) {
		pthread_mutex_lock(&event->rings->lock);
		p->refs++;
		pthread_mutex_unlock(&event->rings->lock);
	}
	pthread_mutex_unlock(&event->lock);
	return p;
}

/* ---- making and recording ---------------------------------------------------------------- */

srt_status_t srt_ring_event_create(void *device, void **out)
{
	srt_rings_t *rings = device;
	srt_ring_event_t *event = rings->host->alloc(sizeof(*event));
	srt_status_t status;

	if (!event)
		return SRT_ERR_OUT_OF_MEMORY;
	count_event(rings, 1);
	status = points_reserve(rings);
	if (status != SRT_OK) {
		count_event(rings, -1);
		rings->host->free(event);
		return status;
	}
	event->rings = rings;
	event->point = NULL;
	pthread_mutex_init(&event->lock, NULL);
	*out = event;
	return SRT_OK;
}

void srt_ring_event_destroy(void *ev)
{
	srt_ring_event_t *event = ev;

	srt_point_drop(event->rings, event->point);
	count_event(event->rings, -1);
	pthread_mutex_destroy(&event->lock);
	event->rings->host->free(event);
}

static srt_status_t run_record(srt_ring_t *ring, const srt_ring_op_t *op)
{
	const srt_rings_t *rings = ring->rings;
	srt_point_t *p = op->u.point;
	srt_status_t status = SRT_OK;
	void *event = p->event;

	/* Only who submits writes the failure, and this is it. */
	if (ring->failure.status == SRT_OK)
		status = rings->driver->event_record(ring, &event);
	pthread_mutex_lock(&p->lock);
	if (status != SRT_OK) {
		p->failure.status = status;
		snprintf(p->failure.message, sizeof(p->failure.message), "%s",
			 rings->host->last_error());
	} else if (ring->failure.status != SRT_OK) {
		p->failure = ring->failure;
	}
	p->event = event;
	p->queued = true;
	pthread_cond_broadcast(&p->queued_cond);
	pthread_mutex_unlock(&p->lock);
	srt_point_drop(ring->rings, p);
	return status;
}

srt_status_t srt_ring_event_record(void *ev, void *stream)
{
	srt_ring_event_t *event = ev;
	srt_ring_t *ring = stream;
	srt_point_t *p, *old;
	srt_status_t status;

	status = point_take(event->rings, ring->number, &p);
	if (status != SRT_OK)
		return status;
	pthread_mutex_lock(&event->lock);
	old = event->point;
	event->point = p;
	pthread_mutex_unlock(&event->lock);
	srt_point_drop(event->rings, old);
	/* Cannot be refused: it starts no worker. */
	return srt_ring_put(ring, &(srt_ring_op_t){
					  .own = run_record,
					  .even_if_failed = true,
					  .u.point = p,
				  });
}

/* ---- waiting ----------------------------------------------------------------------------- */

static srt_status_t report_failure(const srt_rings_t *rings, const srt_point_t *p)
{
	return rings->host->fail(p->failure.status, "%s", p->failure.message);
}

static srt_status_t run_wait(srt_ring_t *ring, const srt_ring_op_t *op)
{
	srt_point_t *p = op->u.point;
	srt_status_t status = SRT_OK;

	point_await(p);
	if (ring->failure.status == SRT_OK && p->failure.status != SRT_OK)
		status = report_failure(ring->rings, p);
	else if (ring->failure.status == SRT_OK && p->stream != ring->number)
		status = ring->rings->driver->event_wait(ring, p->event);
	srt_point_drop(ring->rings, p);
	return status;
}

srt_status_t srt_ring_event_wait(void *stream, void *ev)
{
	srt_ring_event_t *event = ev;
	srt_point_t *p = srt_ring_event_point(event);
	srt_status_t status;

	if (!p)
		return SRT_OK;
	status = srt_ring_put(stream, &(srt_ring_op_t){
					      .own = run_wait,
					      .even_if_failed = true,
					      .blocks = !point_is_queued(p),
					      .u.point = p,
				      });
	if (status != SRT_OK)
		srt_point_drop(event->rings, p);
	return status;
}

srt_status_t srt_ring_event_sync(void *ev)
{
	srt_ring_event_t *event = ev;
	srt_rings_t *rings = event->rings;
	srt_point_t *p = srt_ring_event_point(event);
	srt_ring_scope_t scope;
	srt_status_t status;

	if (!p)
		return SRT_OK;
	point_await(p);
	scope = srt_ring_enter(rings);
	if (p->failure.status != SRT_OK)
		status = report_failure(rings, p);
	else
		status = rings->driver->event_sync(rings, p->event);
	srt_ring_leave(scope);
	srt_point_drop(rings, p);
	return status;
}

srt_status_t srt_ring_event_query(void *ev, int *done)
{
	srt_ring_event_t *event = ev;
	srt_rings_t *rings = event->rings;
	srt_point_t *p = srt_ring_event_point(event);
	srt_ring_scope_t scope;

	*done = 1;
	if (!p)
		return SRT_OK;
	*done = point_is_queued(p);
	/* A failure counts as reached. */
	if (srt_point_is_recorded(p)) {
		scope = srt_ring_enter(rings);
		*done = rings->driver->event_reached(rings, p->event);
		srt_ring_leave(scope);
	}
	srt_point_drop(rings, p);
	return SRT_OK;
}
