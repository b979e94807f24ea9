/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ring of a stream and its worker; see stream_queue.h. The ring has a fixed length: a submit
 * does not allocate, and waits while the ring is full.
 *
 * Failure: the stream stores the status and message of the first failing command. Later commands
 * are skipped, except those that hold references, and sync returns the failure. A host function
 * that peers wait for has a second function that is called then. The argument of a function of the
 * program is released in its turn, whether the function was called or not.
 */
#include "device/stream_queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NSLOTS 256

srt_scope_t srt_driver_enter(const srt_device_t *device)
{
	const srt_backend_stream_ops_t *ops = device->backend->stream;
	bool entered = ops->enter != NULL && ops->enter(device->impl);

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

	return !device->caps.host_memory &&
	       device->backend->mem->host(device->impl, binding->mem) != NULL;
}

/* Whether both sides are host memory, which the driver's stream does not access. */
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

/* Whether the backend's submit() runs the command. */
static bool is_submitted(const srt_stream_t *stream, const srt_command_t *command)
{
	return command->kind < SRT_COMMAND_HOST_FN &&
	       (stream->mode != SRT_STREAM_DRIVER || !is_on_host(stream, command));
}

/* Whether the command must not run on the caller's thread. */
static bool is_blocking(const srt_stream_t *stream, const srt_command_t *command)
{
	if (stream->mode == SRT_STREAM_WORKER)
		return true;
	if (command->kind == SRT_COMMAND_EVENT_WAIT)
		return command->gen->device == stream->device ?
			       !srt_event_gen_is_recorded(command->gen) :
			       !srt_event_gen_is_reached(command->gen);
	if (stream->mode == SRT_STREAM_INLINE)
		return false;
	return !is_submitted(stream, command) && command->kind != SRT_COMMAND_EVENT_RECORD;
}

/* After a failure, only commands that hold references run. */
static bool is_skipped(const srt_stream_t *stream, const srt_command_t *command)
{
	return stream->failure.status != SRT_OK && command->kind < SRT_COMMAND_CALL;
}

static unsigned char *host_address(const srt_stream_t *stream, const srt_binding_t *binding)
{
	const srt_device_t *device = stream->device;
	unsigned char *host = device->backend->mem->host(device->impl, binding->mem);

	return host + binding->offset;
}

static void run_on_host(const srt_stream_t *stream, const srt_command_t *command)
{
	unsigned char *dst = host_address(stream, &command->bindings[0]);

	if (command->kind == SRT_COMMAND_COPY)
		memcpy(dst, host_address(stream, &command->bindings[1]), command->copy.width);
	else if (command->kind == SRT_COMMAND_UPLOAD)
		memcpy(dst, command->bytes.host, command->bytes.nbytes);
	else
		memset(dst, 0, command->bytes.nbytes);
}

static srt_status_t run_host_fn(srt_stream_t *stream, const srt_command_t *command)
{
	const srt_backend_stream_ops_t *ops = stream->device->backend->stream;
	srt_status_t status = ops->sync != NULL ? ops->sync(stream->impl, 1) : SRT_OK;

	if (status == SRT_OK)
		status = command->host.fn(command->host.arg);
	else if (command->host.failed != NULL)
		command->host.failed(command->host.arg, (int)status, srt_error_last());
	if (status != SRT_OK && command->host.failed != NULL)
		atomic_store(&stream->failure_known, true);
	return status;
}

/* Runs a command that the backend's submit() does not run, on the thread that submits. */
static srt_status_t run_unsubmitted(srt_stream_t *stream, const srt_command_t *command)
{
	const srt_backend_stream_ops_t *ops = stream->device->backend->stream;

	if (command->kind == SRT_COMMAND_EVENT_RECORD)
		return srt_event_gen_record(stream, command->gen);
	if (command->kind == SRT_COMMAND_EVENT_WAIT)
		return srt_event_gen_wait(stream, command->gen);
	if (command->kind == SRT_COMMAND_CALL)
		return command->call.fn(stream->failure.status == SRT_OK ? stream->impl : NULL,
					command->call.arg);
	if (command->kind == SRT_COMMAND_HOST_FN)
		return run_host_fn(stream, command);
	if (ops->sync != NULL)
		SRT_TRY(ops->sync(stream->impl, 1));
	run_on_host(stream, command);
	return SRT_OK;
}

/* Whether this thread is in a function of the program. */
static _Thread_local bool in_function;

srt_status_t srt_queue_check_caller(void)
{
	if (!in_function)
		return SRT_OK;
	return srt_fail(
		SRT_ERR_STATE,
		"a function of srt_stream_enqueue() must not submit to a stream or wait for "
		"one; it uses the native queue");
}

/* Calls the program's release(), which leaves the last error as it was. */
static void release_argument(const srt_command_t *command)
{
	srt_error_text_t before;

	if (command->native.release == NULL)
		return;
	srt_error_save(&before);
	in_function = true;
	command->native.release(command->native.arg);
	in_function = false;
	srt_error_restore(&before);
}

/* A function of the program sets the last error if it fails, or does not. */
static srt_status_t submit_function(srt_stream_t *stream, const srt_command_t *command)
{
	srt_error_text_t before;
	srt_status_t status;

	srt_error_save(&before);
	srt_error_set(SRT_OK, "");
	in_function = true;
	status = stream->device->backend->stream->submit(stream->impl, command);
	in_function = false;
	if (status == SRT_OK)
		srt_error_restore(&before);
	else if (!srt_error_last()[0])
		srt_fail(status, "stream \"%s\": a function of srt_stream_enqueue() failed: %s",
			 stream->name, srt_status_string(status));
	release_argument(command);
	return status;
}

/* Runs the command, or skips it after a failure, on the thread that submits. */
static srt_status_t run_command(srt_stream_t *stream, const srt_command_t *command)
{
	const srt_failure_t *failure = &stream->failure;

	if (is_skipped(stream, command)) {
		if (command->kind == SRT_COMMAND_HOST_FN && command->host.failed != NULL)
			command->host.failed(command->host.arg, (int)failure->status,
					     failure->message);
		else if (command->kind == SRT_COMMAND_NATIVE)
			release_argument(command);
		return SRT_OK;
	}
	if (!is_submitted(stream, command))
		return run_unsubmitted(stream, command);
	if (command->kind == SRT_COMMAND_NATIVE)
		return submit_function(stream, command);
	return stream->device->backend->stream->submit(stream->impl, command);
}

/* Stores the first failure with the thread's last error as its message. Under the lock. */
static void set_failure(srt_stream_t *stream, srt_status_t status)
{
	const char *message = srt_error_last();

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
		/* Callers do not overwrite the slot before `completed` passes it. */
		status = run_command(stream, command);
		pthread_mutex_lock(&stream->lock);
		set_failure(stream, status);
		if (++stream->completed < stream->wake_at)
			continue;
		stream->wake_at = UINT64_MAX;
		/* Without the lock, which the woken threads take. */
		pthread_mutex_unlock(&stream->lock);
		pthread_cond_broadcast(&stream->space_cond);
		pthread_mutex_lock(&stream->lock);
	}
	pthread_mutex_unlock(&stream->lock);
	srt_driver_leave(scope);
	return NULL;
}

static srt_status_t start_worker(srt_stream_t *stream)
{
	srt_command_t *ring;
	char thread_name[16];
	int error;

	/* Each command of the ring and the running one may hold a generation. */
	SRT_TRY(srt_event_gens_reserve(stream->device, NSLOTS + 1));
	ring = srt_calloc(NSLOTS, sizeof(*ring), "a stream's queue");
	if (ring == NULL) {
		srt_event_gens_release(stream->device, NSLOTS + 1);
		return SRT_ERR_OUT_OF_MEMORY;
	}
	error = srt_thread_create(&stream->worker, worker_main, stream);
	if (error) {
		srt_event_gens_release(stream->device, NSLOTS + 1);
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

	stream->mode = device->backend->stream->sync != NULL ? SRT_STREAM_DRIVER :
		       device->caps.async_streams            ? SRT_STREAM_WORKER :
							       SRT_STREAM_INLINE;
	stream->wake_at = UINT64_MAX;
	pthread_mutex_init(&stream->lock, NULL);
	pthread_cond_init(&stream->work_cond, NULL);
	pthread_cond_init(&stream->space_cond, NULL);
	if (stream->mode == SRT_STREAM_WORKER)
		status = start_worker(stream);
	if (status != SRT_OK)
		srt_queue_close(stream);
	return status;
}

void srt_queue_close(srt_stream_t *stream)
{
	if (stream->ring != NULL) {
		pthread_mutex_lock(&stream->lock);
		stream->ending = true;
		pthread_cond_signal(&stream->work_cond);
		pthread_mutex_unlock(&stream->lock);
		pthread_join(stream->worker, NULL);
		srt_event_gens_release(stream->device, NSLOTS + 1);
		free(stream->ring);
	}
	pthread_cond_destroy(&stream->space_cond);
	pthread_cond_destroy(&stream->work_cond);
	pthread_mutex_destroy(&stream->lock);
}

srt_status_t srt_queue_check_wait(const srt_device_t *device)
{
	SRT_TRY(srt_queue_check_caller());
	if (!srt_device_is_inherited(device))
		return SRT_OK;
	return srt_fail(SRT_ERR_STATE,
			"the %s device belongs to the process that opened it, and this one is a "
			"child by fork() without the threads of its streams: wait there, or start "
			"another program by exec()",
			device->backend->name);
}

/* ---- submission -------------------------------------------------------------------------- */

/* Sleeps until `until` commands are complete, or another caller is woken. Under the lock. */
static void sleep_until(srt_stream_t *stream, uint64_t until)
{
	if (until < stream->wake_at)
		stream->wake_at = until;
	pthread_cond_wait(&stream->space_cond, &stream->lock);
}

/* Under the lock. *wakes: whether the worker must be woken. */
static srt_status_t append_to_ring(srt_stream_t *stream, const srt_command_t *command, bool *wakes)
{
	if (stream->ring == NULL)
		SRT_TRY(start_worker(stream));
	while (stream->submitted - stream->completed == NSLOTS) {
		SRT_TRY(srt_queue_check_wait(stream->device));
		sleep_until(stream, stream->completed + 1);
	}
	stream->ring[stream->submitted % NSLOTS] = *command;
	*wakes = stream->submitted++ == stream->completed;
	return SRT_OK;
}

srt_status_t srt_queue_put(srt_stream_t *stream, const srt_command_t *command)
{
	srt_status_t status = SRT_OK;
	bool wakes = false;

	SRT_TRY(srt_queue_check_caller());
	pthread_mutex_lock(&stream->lock);
	if (command->kind == SRT_COMMAND_NATIVE && stream->failure.status != SRT_OK) {
		/* The function would never be called, and the program would not know. */
		status = srt_fail(stream->failure.status, "stream \"%s\" has failed: %s",
				  stream->name, stream->failure.message);
		atomic_store(&stream->failure_known, true);
	} else if (stream->submitted != stream->completed || is_blocking(stream, command)) {
		status = append_to_ring(stream, command, &wakes);
	} else {
		srt_scope_t scope = srt_driver_enter(stream->device);

		set_failure(stream, run_command(stream, command));
		srt_driver_leave(scope);
	}
	pthread_mutex_unlock(&stream->lock);
	if (wakes)
		pthread_cond_signal(&stream->work_cond);
	return status;
}

/* Waits until the present commands of the ring were submitted. */
static void wait_ring(srt_stream_t *stream)
{
	uint64_t until;

	pthread_mutex_lock(&stream->lock);
	until = stream->submitted;
	while (stream->completed < until)
		sleep_until(stream, until);
	pthread_mutex_unlock(&stream->lock);
}

srt_status_t srt_queue_sync(srt_stream_t *stream)
{
	const srt_backend_stream_ops_t *ops = stream->device->backend->stream;
	srt_status_t status = srt_queue_check_wait(stream->device);

	if (status != SRT_OK)
		return status;
	wait_ring(stream);
	if (ops->sync != NULL) {
		srt_scope_t scope = srt_driver_enter(stream->device);

		status = ops->sync(stream->impl, 0);
		srt_driver_leave(scope);
	}
	pthread_mutex_lock(&stream->lock);
	set_failure(stream, status);
	status = stream->failure.status;
	if (status != SRT_OK)
		srt_error_set(status, stream->failure.message);
	pthread_mutex_unlock(&stream->lock);
	return status;
}

void srt_queue_drain(srt_stream_t *stream)
{
	const srt_backend_stream_ops_t *ops = stream->device->backend->stream;
	uint64_t until;

	pthread_mutex_lock(&stream->lock);
	until = stream->submitted;
	/* With an empty ring this thread may call the driver while it holds the lock. */
	while (stream->completed < until ||
	       (ops->sync != NULL && stream->submitted != stream->completed))
		sleep_until(stream, ops->sync != NULL ? stream->submitted : until);
	if (ops->sync != NULL) {
		srt_scope_t scope = srt_driver_enter(stream->device);

		set_failure(stream, ops->sync(stream->impl, 0));
		srt_driver_leave(scope);
	}
	pthread_mutex_unlock(&stream->lock);
}
