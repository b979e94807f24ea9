/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The streams and events of a backend whose driver has streams of its own, as far as they are the
 * same for all drivers. What differs is a table of functions, srt_ring_driver_t; a module carries
 * its own copy of the rest (libring.la).
 *
 * Work goes straight from the caller to the driver's stream as long as it can; a host function, and
 * a wait for work that is not in its stream yet, would block the caller: these, and what follows
 * them, go through a ring that the stream's worker thread empties in order. So whoever puts work
 * into the driver's stream has the stream's failure before it, and skips what follows a failure.
 *
 *   ring.c    the ring, the worker, the failure, host functions
 *   point.c   points and events
 *
 * A backend's device begins with its srt_rings_t and its stream with its srt_ring_t, so that each
 * `void *device` and `void *stream` of backend.h, and of the table, is both.
 */
#ifndef SRT_BACKENDS_RING_H
#define SRT_BACKENDS_RING_H

#include <pthread.h>
#include <stdbool.h>

#include "backends/backend.h"
#include "base/fpenv.h"

#define SRT_RING_FAILURE_NBYTES 512

/* A failure on its way from the thread where it happened to those that wait for it. */
typedef struct srt_ring_failure {
	srt_status_t status; /* SRT_OK: none */
	char message[SRT_RING_FAILURE_NBYTES];
} srt_ring_failure_t;

/* What the driver does; `event` is the driver's own, of one point. Called in the floating-point
 * environment of docs/numerics.md, between enter() and leave() where there are these two. */
typedef struct srt_ring_driver {
	size_t op_nbytes; /* of the backend's operations; each begins with a srt_ring_op_t */
	/* Puts an operation into the driver's stream, or does it. */
	srt_status_t (*run)(void *stream, const void *op);
	/* Waits for the driver's stream: on the worker, where it may take long and should sleep;
	 * and on the caller's thread. */
	srt_status_t (*finish)(void *stream);
	srt_status_t (*sync)(void *stream);
	/* NULL ok, both. Makes the calling thread one that may call the driver; false: leave() is
	 * not called. */
	bool (*enter)(void *device);
	void (*leave)(void *device);
	/* NULL ok, both: the event that a point has for life. */
	srt_status_t (*event_make)(void *device, void **event);
	void (*event_free)(void *device, void *event);
	/* The end of what is in the driver's stream; later records leave waits as they are. */
	srt_status_t (*event_record)(void *stream, void **event);
	/* NULL ok. Frees an event that event_record() has made. */
	void (*event_release)(void *device, void *event);
	/* Later work of another stream waits for it. */
	srt_status_t (*event_wait)(void *stream, void *event);
	srt_status_t (*event_sync)(void *device, void *event);
	bool (*event_reached)(void *device, void *event); /* or failed */
} srt_ring_driver_t;

/* The end of a stream at one moment: an event of the driver, as soon as the stream's work up to
 * there is in the driver's stream. The event that was recorded and every wait on it hold a
 * reference; the last one puts it back on the device's list of free points. */
typedef struct srt_point {
	struct srt_point *next_free;
	int refs; /* under the lock of srt_rings_t */
	pthread_mutex_t lock;
	pthread_cond_t queued_cond;
	bool queued;
	void *event;     /* the driver's */
	uint64_t stream; /* number of the recording stream */
	srt_ring_failure_t
		failure; /* of the recording stream, when queued; then nothing is recorded */
} srt_point_t;

/* What the streams of a device share. */
typedef struct srt_rings {
	const srt_host_services_t *host;
	const srt_ring_driver_t *driver;
	pthread_mutex_t lock; /* of what follows */
	srt_point_t *free_points;
	int npoints, nevents; /* that there are */
	uint64_t nstreams;    /* ever made */
} srt_rings_t;

typedef struct srt_ring_event {
	srt_rings_t *rings;
	pthread_mutex_t lock;
	srt_point_t *point; /* of the last record, or NULL */
} srt_ring_event_t;

typedef struct srt_ring srt_ring_t;
typedef struct srt_ring_op srt_ring_op_t;

/* One operation. A backend's begins with it and has all that it needs: a slot of the ring. */
struct srt_ring_op {
	bool even_if_failed; /* must run on a poisoned stream too: it holds a reference */
	bool blocks;         /* not on the caller's thread */
	/* Of an operation of ring.c and point.c; NULL: the backend's. */
	srt_status_t (*own)(srt_ring_t *ring, const srt_ring_op_t *op);
	union {
		struct {
			srt_host_fn *fn;
			void *arg;
		} host;
		srt_point_t *point;
	} u;
};

struct srt_ring {
	srt_rings_t *rings;
	uint64_t number;
	char name[32];
	srt_ring_failure_t failure; /* the first one; under `lock` */

	/* submitted - completed = operations in the ring. Whoever holds the lock while it is empty
	 * may put work into the driver's stream; else only the worker does. */
	pthread_mutex_t lock;
	pthread_cond_t work_cond; /* the worker waits for operations, or the end */
	pthread_cond_t room_cond; /* callers wait for room or for completion */
	pthread_t worker;         /* started when first needed */
	unsigned char *slots;     /* NULL: no worker yet */
	uint64_t submitted, completed;
	bool ending;
};

/* What the caller's thread had before. */
typedef struct srt_ring_scope {
	srt_rings_t *rings;
	srt_fpenv_t env;
	bool entered;
} srt_ring_scope_t;

/* ---- ring.c ------------------------------------------------------------------------------ */

/* The thread may call the driver, in the floating-point environment that kernels need; and back. */
srt_ring_scope_t srt_ring_enter(srt_rings_t *rings);
void srt_ring_leave(srt_ring_scope_t scope);

void srt_ring_init(srt_ring_t *ring, srt_rings_t *rings, const char *name);
/* Ends the worker, once the ring is empty. */
void srt_ring_destroy(srt_ring_t *ring);

/* Puts an operation on a stream; op is copied. */
srt_status_t srt_ring_put(srt_ring_t *ring, const srt_ring_op_t *op);
/* Waits until all operations put so far are in the driver's stream (not until they are done). */
void srt_ring_drain(srt_ring_t *ring);

/* Slots of srt_backend_stream_ops_t. */
srt_status_t srt_ring_sync(void *stream);
srt_status_t srt_ring_host_fn(void *stream, srt_host_fn *fn, void *arg);

/* ---- point.c ----------------------------------------------------------------------------- */

void srt_rings_init(srt_rings_t *rings, const srt_host_services_t *host,
		    const srt_ring_driver_t *driver);
/* All streams and events are gone. */
void srt_rings_destroy(srt_rings_t *rings);

/* The event's present point with a reference for the caller, or NULL. */
srt_point_t *srt_ring_event_point(srt_ring_event_t *event);
/* Whether its event of the driver is recorded, if not yet reached; NULL is not. */
bool srt_point_is_recorded(srt_point_t *point);
void srt_point_drop(srt_rings_t *rings, srt_point_t *point);

/* Slots of srt_backend_stream_ops_t. */
srt_status_t srt_ring_event_create(void *device, void **event);
void srt_ring_event_destroy(void *event);
srt_status_t srt_ring_event_record(void *event, void *stream);
srt_status_t srt_ring_event_wait(void *stream, void *event);
srt_status_t srt_ring_event_sync(void *event);
srt_status_t srt_ring_event_query(void *event, int *done);

#endif
