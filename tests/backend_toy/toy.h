/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The backend "toy": the smallest complete one, walked through in docs/porting.md. A device that
 * is no device: its memory is host memory that the library cannot address, its queues are threads
 * that dawdle at random, its kernels are the portable ones compiled for the processor. It fills
 * only the slots that are required, so everything optional runs in its fallback.
 *
 * As a test it finds edges that are missing between streams: work starts late, in an order that
 * differs from run to run, and freed memory is overwritten. TOY_SEED=N repeats a run's delays,
 * TOY_DELAY_US=N bounds them (default 200, 0 = none).
 */
#ifndef SRT_TESTS_BACKEND_TOY_TOY_H
#define SRT_TESTS_BACKEND_TOY_TOY_H

#include <pthread.h>
#include <stdbool.h>

#include "backends/backend.h"
#include "kernels/cpu.h"

#define TOY_ALIGN 64u

/* device.c. One lock for all its streams and events, one condition for all that wait for them:
 * slow, and easy to check. */
typedef struct toy_device {
	const srt_host_services_t *host;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* a stream has nothing left, or an event was reached */
	srt_cpu_isa_t isa;      /* the best that the processor has */
	uint32_t seed;
	uint32_t delay_us;
	uint32_t nstreams; /* ever made */
} toy_device_t;

/* memory.c */
typedef struct toy_mem {
	unsigned char *bytes;
	size_t nbytes;
	bool pinned; /* the library may have the address */
	bool owned;  /* bytes are freed with it; not of wrap_host */
} toy_mem_t;

/* A failure on its way from the thread where it happened to those that wait for it. */
typedef struct toy_failure {
	srt_status_t status; /* SRT_OK: none */
	char message[512];
} toy_failure_t;

/* The end of a stream at one moment; held by the event and by every wait on it. */
typedef struct toy_point {
	int refs;
	bool reached;
	toy_failure_t failure; /* of the stream, when reached */
} toy_point_t;

typedef struct toy_event {
	toy_device_t *device;
	toy_point_t *point; /* of the last record, or NULL */
} toy_event_t;

typedef struct toy_stream toy_stream_t;
typedef struct toy_op toy_op_t;

/* One piece of queued work: what to run and all that it needs. */
struct toy_op {
	toy_op_t *next;
	srt_status_t (*run)(toy_stream_t *stream, toy_op_t *op);
	bool even_if_failed; /* an event's: others wait for it */
	union {
		struct {
			unsigned char *dst;
			const unsigned char *src; /* NULL: zero; or the bytes after the op */
			size_t nbytes;
		} copy;
		struct {
			srt_launch_t launch;
			_Alignas(16) unsigned char args[SRT_LAUNCH_MAX_ARGS];
		} launch;
		struct {
			srt_host_fn *fn;
			void *arg;
		} host;
		toy_point_t *point;
	} u;
	unsigned char bytes[]; /* of an upload */
};

struct toy_stream {
	toy_device_t *device;
	pthread_t thread;
	uint32_t random; /* state of the delays */
	/* Under the device's lock. */
	pthread_cond_t work; /* something was queued, or it ends */
	toy_op_t *first, **last;
	bool busy, ending;
	toy_failure_t failure; /* the first one */
};

extern const srt_backend_device_ops_t toy_device_ops;
extern const srt_backend_mem_ops_t toy_mem_ops;
extern const srt_backend_stream_ops_t toy_stream_ops;
extern const srt_backend_work_ops_t toy_work_ops;

/* stream.c. An op with room for nbytes more, zeroed; NULL: fail() was called. */
toy_op_t *toy_op_new(toy_stream_t *stream, size_t nbytes);
/* Queues it; the stream frees it. */
srt_status_t toy_stream_put(toy_stream_t *stream, toy_op_t *op);
srt_status_t toy_stream_sync(void *stream);
/* Hands a failure to the calling thread: fail() with its sentence. */
srt_status_t toy_report(const toy_device_t *device, const toy_failure_t *failure);

/* event.c */
srt_status_t toy_event_create(void *device, void **event);
void toy_event_destroy(void *event);
srt_status_t toy_event_record(void *event, void *stream);
srt_status_t toy_event_wait(void *stream, void *event);
srt_status_t toy_event_sync(void *event);
srt_status_t toy_event_query(void *event, int *done);

#endif
