/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ring of a stream and its worker; see stream_queue.h. The ring is as long as it will ever be:
 * putting a command allocates nothing, and waits when the ring is full.
 *
 * Failure: the first failing command's status and sentence stay with the stream; commands after it
 * are skipped (save those that hold references) and sync returns it.
 */
#include "device/stream_queue.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NSLOTS 256

srt_scope_t srt_driver_enter(const srt_device_t *device)
{
	const srt_backend_stream_ops_t *ops = device->backend->stream;
	bool entered = ops->enter && ops->enter(device->impl);

	return (srt_scope_t){ .device = device, .env = srt_fpenv_enter(), .entered = entered };
}

void srt_driver_leave(srt_scope_t scope)
{
	srt_fpenv_leave(scope.env);
	if (scope.entered)
		scope.device->backend->stream->leave(scope.device->impl);
}

/* ---- commands ---------------------------------------------------------------------------- */

static bool is_host_mem(const srt_stream_t *stream, const srt_binding_t *binding)
{
	const srt_device_t *device = stream->device;

	return !device->caps.host_memory && device->backend->mem->host(device->impl, binding->mem);
}

/* Both sides are host memory, which the driver's stream does not reach. */
static bool is_on_host(const srt_stream_t *stream, const srt_command_t *command)
{
	switch (command->kind) {
	case SRT_COMMAND_COPY:
		return is_host_mem(stream, &command->bindings[0]) &&
		       is_host_mem(stream, &command->bindings[1]);
	case SRT_COMMAND_ZERO:
	case SRT_COMMAND_UPLOAD:
		return is_host_mem(stream, &command->bindings[0]);
	default:
		return false;
	}
}

/* submit() of the backend runs it. */
static bool is_submitted(const srt_stream_t *stream, const srt_command_t *command)
{
	return command->kind < SRT_COMMAND_HOST_FN &&
	       (stream->mode != SRT_STREAM_DRIVER || !is_on_host(stream, command));
}

/* Must not run on the caller's thread. */
static bool is_blocking(const srt_stream_t *stream, const srt_command_t *command, bool submitted)
{
	if (stream->mode != SRT_STREAM_DRIVER)
		return stream->mode == SRT_STREAM_WORKER;
	if (command->kind == SRT_COMMAND_EVENT_WAIT)
		return !srt_point_is_recorded(command->point);
	return !submitted && command->kind != SRT_COMMAND_EVENT_RECORD;
}

/* After a failure only commands that hold references run. */
static bool is_skipped(const srt_stream_t *stream, const srt_command_t *command)
{
	return stream->failure.status != SRT_OK && command->kind < SRT_COMMAND_CALL;
}

static unsigned char *host_of(const srt_stream_t *stream, const srt_binding_t *binding)
{
	const srt_device_t *device = stream->device;
	unsigned char *host = device->backend->mem->host(device->impl, binding->mem);

	return host + binding->offset;
}

static void run_on_host(const srt_stream_t *stream, const srt_command_t *command)
{
	unsigned char *dst = host_of(stream, &command->bindings[0]);

	if (command->kind == SRT_COMMAND_COPY)
		memcpy(dst, host_of(stream, &command->bindings[1]), command->copy.width);
	else if (command->kind == SRT_COMMAND_UPLOAD)
		memcpy(dst, command->bytes.host, command->bytes.nbytes);
	else
		memset(dst, 0, command->bytes.nbytes);
}

/* Runs what is not submitted, on the thread that may submit. Returns its failure. */
static srt_status_t run_own(srt_stream_t *stream, const srt_command_t *command)
{
	const srt_backend_stream_ops_t *ops = stream->device->backend->stream;

	if (command->kind == SRT_COMMAND_EVENT_RECORD)
		return srt_point_record(stream, command->point);
	if (command->kind == SRT_COMMAND_EVENT_WAIT)
		return srt_point_wait(stream, command->point);
	if (command->kind == SRT_COMMAND_CALL)
		return command->call.fn(stream->failure.status == SRT_OK ? stream->impl : NULL,
					command->call.arg);
	if (ops->sync)
		SRT_TRY(ops->sync(stream->impl, 1));
	if (command->kind == SRT_COMMAND_HOST_FN)
		return command->host.fn(command->host.arg);
	run_on_host(stream, command);
	return SRT_OK;
}

/* Keeps the first failure; the running thread's last error is its sentence. Under the lock. */
static void set_failure(srt_stream_t *stream, srt_status_t status)
{
	const char *message = srt_last_error();

	if (status == SRT_OK || stream->failure.status != SRT_OK)
		return;
	if (!message[0])
		message = srt_status_string(status);
	snprintf(stream->failure.message, sizeof(stream->failure.message), "%s", message);
	stream->failure.status = status;
}

/* ---- the worker -------------------------------------------------------------------------- */

static void *worker_main(void *arg)
{
	srt_stream_t *stream = arg;
	const srt_backend_stream_ops_t *ops = stream->device->backend->stream;
	srt_scope_t scope = srt_driver_enter(stream->device);

	pthread_mutex_lock(&stream->lock);
	for (;;) {
		const srt_command_t *command;
		srt_status_t status;

		while (stream->submitted == stream->completed && !stream->ending)
			pthread_cond_wait(&stream->work_cond, &stream->lock);
		if (stream->submitted == stream->completed)
			break;
		command = &stream->ring[stream->completed % NSLOTS];
		pthread_mutex_unlock(&stream->lock);
		/* The slot is this thread's until `completed` passes it. */
		status = is_skipped(stream, command)   ? SRT_OK :
			 is_submitted(stream, command) ? ops->submit(stream->impl, command) :
							 run_own(stream, command);
		pthread_mutex_lock(&stream->lock);
		set_failure(stream, status);
		stream->completed++;
		pthread_cond_broadcast(&stream->room_cond);
	}
	pthread_mutex_unlock(&stream->lock);
	srt_driver_leave(scope);
	return NULL;
}

static srt_status_t start_worker(srt_stream_t *stream)
{
	srt_command_t *ring;
	char thread_name[16];
	sigset_t all, old;
	int error;

	/* It may be as late as the ring is long. */
	SRT_TRY(srt_points_reserve(stream->device, NSLOTS + 1));
	ring = srt_calloc(NSLOTS, sizeof(*ring), "a stream's queue");
	if (!ring) {
		srt_points_release(stream->device, NSLOTS + 1);
		return SRT_ERR_OUT_OF_MEMORY;
	}
	/* Signals belong to the program's own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	error = pthread_create(&stream->worker, NULL, worker_main, stream);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (error) {
		srt_points_release(stream->device, NSLOTS + 1);
		free(ring);
		return srt_fail(SRT_ERR_SYSTEM, "stream \"%s\": cannot start its thread: %s",
				stream->name, strerror(error));
	}
	snprintf(thread_name, sizeof(thread_name), "srt-%.11s", stream->name);
	pthread_setname_np(stream->worker, thread_name);
	stream->ring = ring;
	return SRT_OK;
}

srt_status_t srt_queue_open(srt_stream_t *stream)
{
	const srt_device_t *device = stream->device;
	srt_status_t status = SRT_OK;

	stream->mode = device->backend->stream->sync ? SRT_STREAM_DRIVER :
		       device->caps.async_streams    ? SRT_STREAM_WORKER :
						       SRT_STREAM_INLINE;
	pthread_mutex_init(&stream->lock, NULL);
	pthread_cond_init(&stream->work_cond, NULL);
	pthread_cond_init(&stream->room_cond, NULL);
	if (stream->mode == SRT_STREAM_WORKER)
		status = start_worker(stream);
	if (status != SRT_OK)
		srt_queue_close(stream);
	return status;
}

void srt_queue_close(srt_stream_t *stream)
{
	if (stream->ring) {
		pthread_mutex_lock(&stream->lock);
		stream->ending = true;
		pthread_cond_signal(&stream->work_cond);
		pthread_mutex_unlock(&stream->lock);
		pthread_join(stream->worker, NULL);
		srt_points_release(stream->device, NSLOTS + 1);
		free(stream->ring);
	}
	pthread_cond_destroy(&stream->room_cond);
	pthread_cond_destroy(&stream->work_cond);
	pthread_mutex_destroy(&stream->lock);
}

/* ---- putting ----------------------------------------------------------------------------- */

/* Under the lock. */
static srt_status_t put_deferred(srt_stream_t *stream, const srt_command_t *command)
{
	if (!stream->ring)
		SRT_TRY(start_worker(stream));
	while (stream->submitted - stream->completed == NSLOTS)
		pthread_cond_wait(&stream->room_cond, &stream->lock);
	stream->ring[stream->submitted % NSLOTS] = *command;
	if (stream->submitted++ == stream->completed)
		pthread_cond_signal(&stream->work_cond);
	return SRT_OK;
}

srt_status_t srt_queue_put(srt_stream_t *stream, const srt_command_t *command)
{
	const srt_backend_stream_ops_t *ops = stream->device->backend->stream;
	const bool submitted = is_submitted(stream, command);
	srt_status_t status = SRT_OK;

	pthread_mutex_lock(&stream->lock);
	if (stream->submitted != stream->completed || is_blocking(stream, command, submitted)) {
		status = put_deferred(stream, command);
	} else if (!is_skipped(stream, command)) {
		srt_scope_t scope = srt_driver_enter(stream->device);

		set_failure(stream, submitted ? ops->submit(stream->impl, command) :
						run_own(stream, command));
		srt_driver_leave(scope);
	}
	pthread_mutex_unlock(&stream->lock);
	return status;
}

/* Waits until what is in the ring now has been submitted. */
static void drain(srt_stream_t *stream)
{
	uint64_t until;

	pthread_mutex_lock(&stream->lock);
	until = stream->submitted;
	while (stream->completed < until)
		pthread_cond_wait(&stream->room_cond, &stream->lock);
	pthread_mutex_unlock(&stream->lock);
}

srt_status_t srt_queue_sync(srt_stream_t *stream)
{
	const srt_backend_stream_ops_t *ops = stream->device->backend->stream;
	srt_status_t status = SRT_OK;

	drain(stream);
	if (ops->sync) {
		srt_scope_t scope = srt_driver_enter(stream->device);

		status = ops->sync(stream->impl, 0);
		srt_driver_leave(scope);
	}
	pthread_mutex_lock(&stream->lock);
	set_failure(stream, status);
	status = stream->failure.status;
	if (status != SRT_OK)
		srt_fail_copy(status, stream->failure.message);
	pthread_mutex_unlock(&stream->lock);
	return status;
}
