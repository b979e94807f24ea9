/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events; see stream_queue.h. A record acquires an event generation and submits it to the stream.
 * In stream order the generation's driver event is recorded, or the generation gets the stream's
 * failure. If a generation is recorded, the driver waits for it; else the worker of the waiting
 * stream waits for the record first. Without driver streams a generation is recorded when it is
 * reached. For a stream of another device, its worker waits until the generation is reached.
 *
 * Generations come from the device's free list. It has two for each event, because a record
 * acquires the new one before it releases the old one, and one for each slot of a ring. So a record
 * allocates only when many waits hold generations.
 */
#include <stdio.h>
#include <stdlib.h>

#include "device/stream_queue.h"

/* ---- event generations ------------------------------------------------------------------- */

static void free_gen(const srt_device_t *device, srt_event_gen_t *gen)
{
	if (gen->event != NULL) {
		srt_scope_t scope = srt_driver_enter(device);

		device->backend->stream->event_destroy(device->impl, gen->event);
		srt_driver_leave(scope);
	}
	pthread_cond_destroy(&gen->recorded_cond);
	pthread_mutex_destroy(&gen->lock);
	free(gen);
}

static srt_status_t create_gen(srt_device_t *device, srt_event_gen_t **out)
{
	const srt_backend_stream_ops_t *ops = device->backend->stream;
	srt_event_gen_t *gen = srt_calloc(1, sizeof(*gen), "an event");
	srt_status_t status = SRT_OK;

	if (gen == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	if (ops->event_create != NULL) {
		srt_scope_t scope = srt_driver_enter(device);

		status = ops->event_create(device->impl, &gen->event);
		srt_driver_leave(scope);
	}
	if (status != SRT_OK) {
		free(gen);
		return status;
	}
	gen->device = device;
	pthread_mutex_init(&gen->lock, NULL);
	pthread_cond_init(&gen->recorded_cond, NULL);
	pthread_mutex_lock(&device->gens_lock);
	device->ngens++;
	pthread_mutex_unlock(&device->gens_lock);
	*out = gen;
	return SRT_OK;
}

/* Acquires a generation with two references: the event's and the stream's. */
static srt_status_t acquire_gen(srt_device_t *device, uint64_t stream, srt_event_gen_t **out)
{
	srt_event_gen_t *gen;

	pthread_mutex_lock(&device->gens_lock);
	gen = device->free_gens;
	if (gen != NULL)
		device->free_gens = gen->next_free;
	pthread_mutex_unlock(&device->gens_lock);
	if (gen == NULL)
		SRT_TRY(create_gen(device, &gen));
	gen->refs = 2;
	gen->recorded = false;
	gen->stream = stream;
	gen->failure.status = SRT_OK;
	*out = gen;
	return SRT_OK;
}

static void release_gen(srt_event_gen_t *gen)
{
	srt_device_t *device;

	if (gen == NULL)
		return;
	device = gen->device;
	pthread_mutex_lock(&device->gens_lock);
	if (--gen->refs == 0) {
		gen->next_free = device->free_gens;
		device->free_gens = gen;
	}
	pthread_mutex_unlock(&device->gens_lock);
}

srt_status_t srt_event_gens_reserve(srt_device_t *device, int n)
{
	bool enough;

	pthread_mutex_lock(&device->gens_lock);
	device->ngens_held += n;
	pthread_mutex_unlock(&device->gens_lock);
	for (;;) {
		srt_status_t status;
		srt_event_gen_t *gen;

		pthread_mutex_lock(&device->gens_lock);
		enough = device->ngens >= device->ngens_held;
		pthread_mutex_unlock(&device->gens_lock);
		if (enough)
			return SRT_OK;
		status = create_gen(device, &gen);
		if (status != SRT_OK) {
			srt_event_gens_release(device, n);
			return status;
		}
		gen->refs = 1;
		release_gen(gen);
	}
}

void srt_event_gens_release(srt_device_t *device, int n)
{
	pthread_mutex_lock(&device->gens_lock);
	device->ngens_held -= n;
	pthread_mutex_unlock(&device->gens_lock);
}

void srt_event_gens_free(srt_device_t *device)
{
	pthread_mutex_lock(&device->gens_lock);
	while (device->nwaits > 0)
		pthread_cond_wait(&device->waited_cond, &device->gens_lock);
	pthread_mutex_unlock(&device->gens_lock);
	while (device->free_gens != NULL) {
		srt_event_gen_t *gen = device->free_gens;

		device->free_gens = gen->next_free;
		free_gen(device, gen);
	}
}

/* Waits until the generation is recorded or has a failure, not until it is reached. */
static void await_record(srt_event_gen_t *gen)
{
	pthread_mutex_lock(&gen->lock);
	while (!gen->recorded)
		pthread_cond_wait(&gen->recorded_cond, &gen->lock);
	pthread_mutex_unlock(&gen->lock);
}

bool srt_event_gen_is_recorded(srt_event_gen_t *gen)
{
	bool recorded;

	pthread_mutex_lock(&gen->lock);
	recorded = gen->recorded;
	pthread_mutex_unlock(&gen->lock);
	return recorded;
}

bool srt_event_gen_is_reached(srt_event_gen_t *gen)
{
	return srt_event_gen_is_recorded(gen) && gen->event == NULL;
}

/* Returns the event's generation with a reference for the caller, or NULL. */
static srt_event_gen_t *hold_last_gen(srt_event_t *event)
{
	srt_event_gen_t *gen;

	pthread_mutex_lock(&event->lock);
	gen = event->gen;
	if (gen != NULL) {
		pthread_mutex_lock(&event->device->gens_lock);
		gen->refs++;
		pthread_mutex_unlock(&event->device->gens_lock);
	}
	pthread_mutex_unlock(&event->lock);
	return gen;
}

/* ---- commands ---------------------------------------------------------------------------- */

srt_status_t srt_event_gen_record(srt_stream_t *stream, srt_event_gen_t *gen)
{
	const srt_backend_stream_ops_t *ops = stream->device->backend->stream;
	srt_status_t status = SRT_OK;

	/* This is the thread that submits: no other thread writes the stream's failure. */
	if (stream->failure.status == SRT_OK && gen->event != NULL)
		status = ops->event_record(stream->impl, gen->event);
	pthread_mutex_lock(&gen->lock);
	if (status != SRT_OK) {
		gen->failure.status = status;
		snprintf(gen->failure.message, sizeof(gen->failure.message), "%s",
			 srt_error_last());
	} else if (stream->failure.status != SRT_OK) {
		gen->failure = stream->failure;
		atomic_store(&stream->failure_known, true);
	}
	gen->recorded = true;
	pthread_mutex_unlock(&gen->lock);
	pthread_cond_broadcast(&gen->recorded_cond); /* of the waiters, each takes the lock */
	release_gen(gen);
	return status;
}

/* Waits on this thread until a recorded generation without a failure is reached. */
static srt_status_t sync_gen(const srt_event_gen_t *gen)
{
	srt_device_t *device = gen->device;
	srt_status_t status = SRT_OK;
	srt_scope_t scope;

	if (gen->event != NULL) {
		scope = srt_driver_enter(device);
		status = device->backend->stream->event_sync(device->impl, gen->event);
		srt_driver_leave(scope);
	}
	return srt_device_waited(device, status);
}

/* Keeps another device open until end_wait(). The caller has its event. */
static void begin_wait(const srt_stream_t *stream, const srt_event_gen_t *gen)
{
	if (gen->device == stream->device)
		return;
	pthread_mutex_lock(&gen->device->gens_lock);
	gen->device->nwaits++;
	pthread_mutex_unlock(&gen->device->gens_lock);
}

/* Releases the stream's reference. */
static void end_wait(const srt_stream_t *stream, srt_event_gen_t *gen)
{
	srt_device_t *device = gen->device;

	release_gen(gen);
	if (device == stream->device)
		return;
	pthread_mutex_lock(&device->gens_lock);
	if (--device->nwaits == 0)
		pthread_cond_broadcast(&device->waited_cond);
	pthread_mutex_unlock(&device->gens_lock);
}

srt_status_t srt_event_gen_wait(srt_stream_t *stream, srt_event_gen_t *gen)
{
	const srt_device_t *device = stream->device;
	srt_status_t status = SRT_OK;

	await_record(gen);
	if (stream->failure.status == SRT_OK && gen->failure.status != SRT_OK) {
		status = srt_error_set(gen->failure.status, gen->failure.message);
		atomic_store(&stream->failure_known, true);
	} else if (stream->failure.status == SRT_OK && gen->device != device) {
		status = sync_gen(gen);
	} else if (stream->failure.status == SRT_OK && gen->event != NULL &&
		   gen->stream != stream->number) {
		status = device->backend->stream->event_wait(stream->impl, gen->event);
	}
	end_wait(stream, gen);
	return status;
}

/* ---- public ------------------------------------------------------------------------------ */

srt_status_t srt_event_create(srt_device_t *device, srt_event_t **out)
{
	srt_event_t *event;
	srt_status_t status;

	SRT_NOT_NULL(device);
	SRT_TRY(srt_check_not_null(out, __func__, "event"));
	event = srt_calloc(1, sizeof(*event), "an event");
	if (event == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_event_gens_reserve(device, 2);
	if (status != SRT_OK) {
		free(event);
		return status;
	}
	event->device = device;
	srt_device_hold(device);
	pthread_mutex_init(&event->lock, NULL);
	*out = event;
	return SRT_OK;
}

void srt_event_destroy(srt_event_t *event)
{
	srt_device_t *device;

	if (event == NULL || srt_device_is_inherited(event->device))
		return;
	device = event->device;
	release_gen(event->gen);
	srt_event_gens_release(device, 2);
	pthread_mutex_destroy(&event->lock);
	free(event);
	srt_device_release(device);
}

srt_status_t srt_event_record(srt_event_t *event, srt_stream_t *stream)
{
	srt_command_t command = { .kind = SRT_COMMAND_EVENT_RECORD };
	srt_event_gen_t *old;

	SRT_NOT_NULL(event);
	SRT_NOT_NULL(stream);
	if (event->device != stream->device)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_event_record: stream \"%s\" and the event belong to different "
				"devices",
				stream->name);
	SRT_TRY(srt_queue_check_caller());
	SRT_TRY(acquire_gen(event->device, stream->number, &command.gen));
	pthread_mutex_lock(&event->lock);
	old = event->gen;
	event->gen = command.gen;
	pthread_mutex_unlock(&event->lock);
	release_gen(old);
	atomic_store(&event->stream, stream->number);
	/* This cannot fail: it does not start a worker. */
	return srt_queue_put(stream, &command);
}

srt_status_t srt_stream_wait_event(srt_stream_t *stream, srt_event_t *event)
{
	srt_command_t command = { .kind = SRT_COMMAND_EVENT_WAIT };
	srt_status_t status;

	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(event);
	if (event->device == stream->device &&
	    atomic_load(&event->stream) == stream->number) /* the stream's own order */
		return SRT_OK;
	command.gen = hold_last_gen(event);
	if (command.gen == NULL)
		return SRT_OK;
	begin_wait(stream, command.gen);
	status = srt_queue_put(stream, &command);
	if (status != SRT_OK)
		end_wait(stream, command.gen);
	return status;
}

srt_status_t srt_event_sync(srt_event_t *event)
{
	srt_event_gen_t *gen;
	srt_status_t status;

	SRT_NOT_NULL(event);
	SRT_TRY(srt_queue_check_wait(event->device));
	gen = hold_last_gen(event);
	if (gen == NULL)
		return SRT_OK;
	await_record(gen);
	if (gen->failure.status != SRT_OK)
		status = srt_device_waited(event->device, srt_error_set(gen->failure.status,
									gen->failure.message));
	else
		status = sync_gen(gen);
	release_gen(gen);
	return status;
}

srt_status_t srt_event_query(srt_event_t *event, int *done)
{
	srt_event_gen_t *gen;

	SRT_NOT_NULL(event);
	SRT_NOT_NULL(done);
	*done = 1;
	gen = hold_last_gen(event);
	if (gen == NULL)
		return SRT_OK;
	*done = srt_event_gen_is_recorded(gen);
	/* A failure counts as reached. */
	if (*done && gen->failure.status == SRT_OK && gen->event != NULL) {
		srt_scope_t scope = srt_driver_enter(event->device);

		*done = event->device->backend->stream->event_query(event->device->impl,
								    gen->event);
		srt_driver_leave(scope);
	}
	release_gen(gen);
	return *done ? srt_event_sync(event) : SRT_OK;
}
