/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The public stream functions. They check arguments; the stream queue (stream_queue.h) keeps order
 * and failures. A refused call submits nothing; a failure of submitted work poisons the stream
 * (srt_stream_sync() returns it). After each wait for the device, the device's failure is checked.
 */
#include <stdlib.h>
#include <string.h>

#include "device/stream_queue.h"

srt_status_t srt_stream_create(srt_device_t *device, int priority, const char *name,
			       srt_stream_t **stream)
{
	srt_status_t status;
	srt_stream_t *s;

	SRT_NOT_NULL(device);
	SRT_NOT_NULL(stream);
	s = srt_calloc(1, sizeof(*s), "a stream");
	if (s == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	s->device = device;
	s->name = srt_strdup(name != NULL ? name : "unnamed");
	if (s->name == NULL) {
		status = SRT_ERR_OUT_OF_MEMORY;
		goto free_stream;
	}
	status = device->backend->stream->create(device->impl, priority, s->name, &s->impl);
	if (status != SRT_OK)
		goto free_name;
	status = srt_queue_open(s);
	if (status != SRT_OK)
		goto destroy;
	s->number = atomic_fetch_add(&device->nstreams, 1) + 1;
	srt_device_hold(device);
	pthread_mutex_lock(&device->streams_lock);
	s->next = device->streams;
	device->streams = s;
	pthread_mutex_unlock(&device->streams_lock);
	*stream = s;
	return SRT_OK;

destroy:
	device->backend->stream->destroy(s->impl);
free_name:
	free(s->name);
free_stream:
	free(s);
	return status;
}

/* Takes the stream from the device's list once no other thread waits for its work. */
static void delist_stream(srt_stream_t *stream)
{
	srt_device_t *device = stream->device;
	srt_stream_t **link = &device->streams;

	pthread_mutex_lock(&device->streams_lock);
	while (stream->ndrains > 0)
		pthread_cond_wait(&device->drained_cond, &device->streams_lock);
	while (*link != stream)
		link = &(*link)->next;
	*link = stream->next;
	pthread_mutex_unlock(&device->streams_lock);
}

void srt_stream_destroy(srt_stream_t *stream)
{
	srt_device_t *device;

	if (stream == NULL || srt_device_is_inherited(stream->device))
		return;
	device = stream->device;
	srt_queue_drain(stream); /* a buffer that is destroyed later does not find the stream */
	if (stream->failure.status != SRT_OK && !atomic_load(&stream->failure_known))
		srt_log(SRT_LOG_WARN,
			"stream \"%s\" is destroyed after a failure that no call has returned: %s",
			stream->name, stream->failure.message);
	delist_stream(stream);
	srt_queue_close(stream);
	device->backend->stream->destroy(stream->impl);
	srt_staging_free(stream);
	free(stream->name);
	free(stream);
	srt_device_release(device);
}

srt_status_t srt_stream_sync(srt_stream_t *stream)
{
	srt_status_t status;

	SRT_NOT_NULL(stream);
	status = srt_queue_sync(stream);
	if (status != SRT_OK)
		atomic_store(&stream->failure_known, true);
	return srt_device_waited(stream->device, status);
}

srt_status_t srt_stream_check(srt_stream_t *stream)
{
	srt_failure_t failure;

	pthread_mutex_lock(&stream->lock);
	failure = stream->failure;
	pthread_mutex_unlock(&stream->lock);
	if (failure.status == SRT_OK)
		return srt_device_check(stream->device);
	atomic_store(&stream->failure_known, true);
	return srt_fail(failure.status, "stream \"%s\" has failed: %s", stream->name,
			failure.message);
}

/* The stream must be idle: its scratch may be in use. */
srt_status_t srt_stream_reserve(srt_stream_t *stream, size_t nbytes)
{
	const srt_backend_stream_ops_t *ops;
	srt_status_t status = SRT_OK;
	srt_scope_t scope;

	SRT_NOT_NULL(stream);
	if (stream->is_reserved && nbytes <= stream->reserved)
		return SRT_OK;
	ops = stream->device->backend->stream;
	if (ops->reserve != NULL) {
		srt_queue_sync(stream); /* the stream stores a failure */
		scope = srt_driver_enter(stream->device);
		status = ops->reserve(stream->impl, nbytes);
		srt_driver_leave(scope);
	}
	if (status != SRT_OK)
		return status;
	stream->is_reserved = true;
	stream->reserved = nbytes;
	return SRT_OK;
}

srt_device_t *srt_stream_device(const srt_stream_t *stream)
{
	return stream != NULL ? stream->device : NULL;
}

srt_status_t srt_stream_call(srt_stream_t *stream, srt_status_t (*fn)(void *stream, void *arg),
			     void *arg)
{
	return srt_queue_put(stream, &(srt_command_t){
					     .kind = SRT_COMMAND_CALL,
					     .call = { .fn = fn, .arg = arg },
				     });
}

srt_status_t srt_stream_enqueue(srt_stream_t *stream, srt_enqueue_fn *fn, const void *arg,
				size_t arg_nbytes, srt_release_fn *release)
{
	srt_command_t command = { .kind = SRT_COMMAND_NATIVE, .native = { fn, release, { 0 } } };

	SRT_NOT_NULL(stream);
	if (fn == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "srt_stream_enqueue: fn is NULL");
	if (arg_nbytes > 0)
		SRT_NOT_NULL(arg);
	if (arg_nbytes > sizeof(command.native.arg))
		return srt_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"srt_stream_enqueue: an argument of %zu bytes for stream \"%s\", at "
			"most %d are possible; pass a pointer to it",
			arg_nbytes, stream->name, SRT_ENQUEUE_MAX_NBYTES);
	if (arg_nbytes > 0)
		memcpy(command.native.arg, arg, arg_nbytes);
	srt_stream_set_add(&stream->device->enqueued_on, stream);
	return srt_queue_put(stream, &command);
}

srt_status_t srt_stream_host_fn_or(srt_stream_t *stream, srt_host_fn *fn,
				   void (*failed)(void *arg, int status, const char *message),
				   void *arg)
{
	atomic_fetch_add_explicit(&stream->device->nhost_fns, 1, memory_order_relaxed);
	return srt_queue_put(stream, &(srt_command_t){
					     .kind = SRT_COMMAND_HOST_FN,
					     .host = { .fn = fn, .failed = failed, .arg = arg },
				     });
}

srt_status_t srt_stream_host_fn(srt_stream_t *stream, srt_host_fn *fn, void *arg)
{
	return srt_stream_host_fn_or(stream, fn, NULL, arg);
}
