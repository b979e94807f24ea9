/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The stream queue: passes commands from the callers to a backend's submit(), for all backends.
 *
 *   inline   the caller runs a command at the call, unless it is a wait that would block, or the
 *            ring has commands
 *   worker   a thread of the stream runs commands in order, from a ring
 *   driver   the caller submits to the driver's stream. A host function, or a wait for an event
 *            that is not recorded yet, would block the caller: these commands, and the commands
 *            after them, go through the ring
 *
 * Each thread that submits reads the stream's failure first, and skips commands after a failure.
 *
 * A recorded event refers to an event generation: the end of the stream at the time of the record.
 * A wait holds the event's generation at the time of the call. Recording or destroying the event
 * later does not change the wait.
 *
 * A wait for an event of another device blocks the thread that runs it until the event is reached.
 * So it goes through the ring unless the event is reached, for an inline stream too, which then
 * gets a worker. It counts in the other device's nwaits: the device is not closed before the wait
 * is done.
 */
#ifndef SRT_DEVICE_STREAM_QUEUE_H
#define SRT_DEVICE_STREAM_QUEUE_H

#include "device/device.h"
#include "base/fpenv.h"

/* The recorded event and every wait on it hold a reference. The last release returns the generation
 * to the device's free list. */
typedef struct srt_event_gen {
	struct srt_event_gen *next_free;
	srt_device_t *device; /* of the event and of the recording stream */
	int refs;             /* under the device's gens_lock */
	pthread_mutex_t lock;
	pthread_cond_t recorded_cond;
	bool recorded;         /* in the driver's stream; without driver streams, reached */
	void *event;           /* the driver's event; NULL without driver streams */
	uint64_t stream;       /* number of the recording stream, of its device */
	srt_failure_t failure; /* of the recording stream; then the event is not recorded */
} srt_event_gen_t;

/* State of the calling thread, restored by srt_driver_leave(). */
typedef struct srt_scope {
	const srt_device_t *device;
	srt_fpenv_t env;
	bool entered;
} srt_scope_t;

/* ---- stream_queue.c ---------------------------------------------------------------------- */

/* Prepares the thread for driver calls, in the floating-point environment of kernels; and back. */
srt_scope_t srt_driver_enter(const srt_device_t *device);
void srt_driver_leave(srt_scope_t scope);

/* Sets the stream's mode, and starts the worker of a stream that always needs one. */
srt_status_t srt_queue_open(srt_stream_t *stream);
/* Ends the worker after the ring is empty. */
void srt_queue_close(srt_stream_t *stream);

/* Fails in a function of srt_stream_enqueue(), which may hold a stream's lock. */
srt_status_t srt_queue_check_caller(void);
/* Fails where srt_queue_check_caller() does, and in a child by fork(), where a wait for the thread
 * of a stream would not end. */
srt_status_t srt_queue_check_wait(const srt_device_t *device);
/* Submits a copy of the command to the stream. A failure of the command becomes the stream's; if
 * this call fails, the command was not submitted. */
srt_status_t srt_queue_put(srt_stream_t *stream, const srt_command_t *command);
/* Waits for all commands, and returns the first failure. */
srt_status_t srt_queue_sync(srt_stream_t *stream);
/* Waits for the present commands. Any thread, also while another thread submits. */
void srt_queue_drain(srt_stream_t *stream);

/* ---- event.c ----------------------------------------------------------------------------- */

/* Run a command of the kind in stream order; release the stream's reference. */
srt_status_t srt_event_gen_record(srt_stream_t *stream, srt_event_gen_t *gen);
srt_status_t srt_event_gen_wait(srt_stream_t *stream, srt_event_gen_t *gen);
bool srt_event_gen_is_recorded(srt_event_gen_t *gen);
/* False also if only the driver can tell. */
bool srt_event_gen_is_reached(srt_event_gen_t *gen);
/* Raises the maximum of generations held at a time by n; lowers it by n. */
srt_status_t srt_event_gens_reserve(srt_device_t *device, int n);
void srt_event_gens_release(srt_device_t *device, int n);
/* Frees all generations, after all events were destroyed. First waits until other devices' streams
 * have done their waits for them, which were all recorded. */
void srt_event_gens_free(srt_device_t *device);

/* ---- upload.c ---------------------------------------------------------------------------- */

void srt_staging_free(srt_stream_t *stream);

#endif
