/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The stream queue: what is between the callers and a backend's submit(), for all backends.
 *
 *   inline   the caller runs a command at the call
 *   worker   a thread of the stream runs commands in order, from a ring
 *   driver   the caller submits to the driver's stream as long as it can; a host function, or a
 *            wait for an event that is not recorded yet, would block it: these, and what follows
 *            them, go through the ring
 *
 * So each thread that submits has the stream's failure before it, and skips what follows a failure.
 *
 * An event that is recorded refers to a point: the end of the stream at that moment. A wait holds
 * the point that was the event's at the time of the call, so recording the event again, or
 * destroying it, does not move the wait.
 */
#ifndef SRT_DEVICE_STREAM_QUEUE_H
#define SRT_DEVICE_STREAM_QUEUE_H

#include "device/device.h"
#include "base/fpenv.h"

/* The event that was recorded and every wait on it hold a reference; the last one puts the point
 * back on the device's list of free ones. */
typedef struct srt_point {
	struct srt_point *next_free;
	int refs; /* under the device's points_lock */
	pthread_mutex_t lock;
	pthread_cond_t recorded_cond;
	bool recorded;         /* in the driver's stream; without one, reached */
	void *event;           /* the driver's, for life; NULL without one */
	uint64_t stream;       /* number of the recording stream */
	srt_failure_t failure; /* of the recording stream; then nothing is recorded */
} srt_point_t;

/* What the caller's thread had before. */
typedef struct srt_scope {
	const srt_device_t *device;
	srt_fpenv_t env;
	bool entered;
} srt_scope_t;

/* ---- stream_queue.c ---------------------------------------------------------------------- */

/* The thread may call the driver, in the floating-point environment that kernels need; and back. */
srt_scope_t srt_driver_enter(const srt_device_t *device);
void srt_driver_leave(srt_scope_t scope);

/* Starts the worker of a stream that always needs one. */
srt_status_t srt_queue_open(srt_stream_t *stream);
/* Ends the worker, once the ring is empty. */
void srt_queue_close(srt_stream_t *stream);

/* Puts a command on the stream, which copies it. A failure of the command is the stream's; a
 * failure of this call has put nothing there. */
srt_status_t srt_queue_put(srt_stream_t *stream, const srt_command_t *command);
/* Waits for all commands, and returns the first failure. */
srt_status_t srt_queue_sync(srt_stream_t *stream);

/* ---- event.c ----------------------------------------------------------------------------- */

/* Of a command of the kind, when its turn has come; gives up the stream's reference. */
srt_status_t srt_point_record(srt_stream_t *stream, srt_point_t *point);
srt_status_t srt_point_wait(srt_stream_t *stream, srt_point_t *point);
bool srt_point_is_recorded(srt_point_t *point);
/* n more points may be held at a time; and n fewer. */
srt_status_t srt_points_reserve(srt_device_t *device, int n);
void srt_points_release(srt_device_t *device, int n);
/* All events are gone. */
void srt_points_free(srt_device_t *device);

/* ---- upload.c ---------------------------------------------------------------------------- */

void srt_staging_free(srt_stream_t *stream);

#endif
