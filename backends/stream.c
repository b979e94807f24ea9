/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams and events, generic part: arguments are checked here, order and failure are the
 * backend's. A call that is refused here or by the backend has put nothing on the stream; a
 * failure of work already on the stream poisons it (srt_stream_sync() returns it). Whatever returns
 * after waiting for the device asks whether the device has failed meanwhile.
 */
#include <stdlib.h>

#include "backends/core.h"

srt_status_t srt_stream_create(srt_device_t *device, int priority, const char *name,
			       srt_stream_t **stream)
{
	srt_status_t status;
	srt_stream_t *s;

	if (!device || !stream)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "srt_stream_create: %s is NULL",
				device ? "the result" : "device");
	s = srt_calloc(1, sizeof(*s), "a stream");
	if (!s)
		return SRT_ERR_OUT_OF_MEMORY;
	s->device = device;
	s->name = srt_strdup(name ? name : "unnamed");
	if (!s->name) {
		status = SRT_ERR_OUT_OF_MEMORY;
		goto free_stream;
	}
	status = device->backend->stream->create(device->impl, priority, s->name, &s->impl);
	if (status != SRT_OK)
		goto free_name;
	s->number = atomic_fetch_add(&device->nstreams, 1) + 1;
	*stream = s;
	return SRT_OK;

free_name:
	free(s->name);
free_stream:
	free(s);
	return status;
}

void srt_stream_destroy(srt_stream_t *stream)
{
	if (!stream)
		return;
	stream->device->backend->stream->destroy(stream->impl);
	free(stream->name);
	free(stream);
}

srt_status_t srt_stream_sync(srt_stream_t *stream)
{
	if (!stream)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "srt_stream_sync: stream is NULL");
	return srt_device_waited(stream->device,
				 stream->device->backend->stream->sync(stream->impl));
}

srt_status_t srt_stream_reserve(srt_stream_t *stream, size_t nbytes)
{
	const srt_backend_stream_ops_t *ops;

	if (!stream)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "srt_stream_reserve: stream is NULL");
	if (stream->is_reserved && nbytes <= stream->reserved)
		return SRT_OK;
	ops = stream->device->backend->stream;
	if (ops->reserve)
		SRT_TRY(ops->reserve(stream->impl, nbytes));
	stream->is_reserved = true;
	stream->reserved = nbytes;
	return SRT_OK;
}

srt_device_t *srt_stream_device(const srt_stream_t *stream)
{
	return stream ? stream->device : NULL;
}

srt_status_t srt_stream_host_fn(srt_stream_t *stream, srt_host_fn *fn, void *arg)
{
	return stream->device->backend->stream->host_fn(stream->impl, fn, arg);
}

srt_status_t srt_event_create(srt_device_t *device, srt_event_t **event)
{
	srt_status_t status;
	srt_event_t *e;

	if (!device || !event)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "srt_event_create: %s is NULL",
				device ? "the result" : "device");
	e = srt_calloc(1, sizeof(*e), "an event");
	if (!e)
		return SRT_ERR_OUT_OF_MEMORY;
	e->device = device;
	status = device->backend->stream->event_create(device->impl, &e->impl);
	if (status != SRT_OK) {
		free(e);
		return status;
	}
	*event = e;
	return SRT_OK;
}

void srt_event_destroy(srt_event_t *event)
{
	if (!event)
		return;
	event->device->backend->stream->event_destroy(event->impl);
	free(event);
}

static srt_status_t check_pair(const char *call, const srt_event_t *event,
			       const srt_stream_t *stream)
{
	if (!event || !stream)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: %s is NULL", call,
				event ? "stream" : "event");
	if (event->device != stream->device)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: stream \"%s\" and the event belong to different devices", call,
				stream->name);
	return SRT_OK;
}

srt_status_t srt_event_record(srt_event_t *event, srt_stream_t *stream)
{
	SRT_TRY(check_pair("srt_event_record", event, stream));
	SRT_TRY(event->device->backend->stream->event_record(event->impl, stream->impl));
	atomic_store(&event->stream, stream->number);
	return SRT_OK;
}

srt_status_t srt_stream_wait_event(srt_stream_t *stream, srt_event_t *event)
{
	SRT_TRY(check_pair("srt_stream_wait_event", event, stream));
	if (atomic_load(&event->stream) == stream->number) /* the stream's own order */
		return SRT_OK;
	return stream->device->backend->stream->event_wait(stream->impl, event->impl);
}

srt_status_t srt_event_sync(srt_event_t *event)
{
	if (!event)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "srt_event_sync: event is NULL");
	return srt_device_waited(event->device,
				 event->device->backend->stream->event_sync(event->impl));
}

srt_status_t srt_event_query(srt_event_t *event, int *done)
{
	if (!event || !done)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "srt_event_query: %s is NULL",
				event ? "done" : "event");
	SRT_TRY(event->device->backend->stream->event_query(event->impl, done));
	return *done ? srt_event_sync(event) : SRT_OK;
}
