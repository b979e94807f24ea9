/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Driver streams of the late device, and their scheduler. submit() queues a command. A thread that
 * waits, for a stream or for an event, runs commands until what it waits for is reached: either
 * those that it needs and no other, or in the order of the streams' levels, the highest first. So a
 * command that nobody waits for stays in its stream while those of other streams overtake it.
 *
 * The level of a stream changes at random, after 1 to 32 of its commands. In the upper half of the
 * levels the stream is in an early phase: its commands also run when they are submitted, if they
 * are ready. Priorities that change at random are the idea of PCT (Burckhardt et al., ASPLOS 2010).
 *
 * One lock protects all streams, so one command runs at a time.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/fakes/backend_late/late.h"

#define NSLOTS 64
#define NLEVELS 256u
#define PHASE_MAX 32u

/* A command, a host function, or a wait for the first `until` items of a stream. */
typedef struct late_item {
	late_stream_t *stream; /* NULL: no wait */
	uint64_t until;
	void (*fn)(void *arg); /* NULL: no host function */
	void *arg;
	srt_command_t command;
} late_item_t;

struct late_stream {
	late_queue_t queue; /* first: its address is the stream's */
	toy_device_t *device;
	toy_stream_t *toy; /* runs the commands; its random state is this stream's */
	late_stream_t *next;
	late_item_t *items; /* [NSLOTS]: a ring */
	uint64_t submitted, completed;
	uint32_t level, phase; /* phase: items until the level changes */
};

/* The end of a stream's submitted items. */
typedef struct late_event {
	late_stream_t *stream;
	uint64_t until;
} late_event_t;

/* The streams of all devices; the destroyed ones, to which events may refer. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static late_stream_t *streams, *destroyed;

static uint32_t draw(late_stream_t *stream, uint32_t limit)
{
	stream->toy->random = stream->toy->random * 1664525u + 1013904223u;
	return (stream->toy->random >> 16) % limit;
}

static bool is_ready(const late_stream_t *stream)
{
	const late_item_t *item = &stream->items[stream->completed % NSLOTS];

	if (stream->completed == stream->submitted)
		return false;
	return item->stream == NULL || item->stream->completed >= item->until;
}

/* Runs the stream's first item, which is ready. */
static void run_item(late_stream_t *stream)
{
	const late_item_t *item = &stream->items[stream->completed % NSLOTS];

	if (item->fn != NULL) {
		item->fn(item->arg);
	} else if (item->stream == NULL &&
		   toy_stream_ops.submit(stream->toy, &item->command) != SRT_OK) {
		fprintf(stderr, "late device: %s\n", stream->device->host->last_error());
		abort();
	}
	stream->completed++;
}

/* The ready stream of the highest level, or NULL. */
static late_stream_t *find_highest(void)
{
	late_stream_t *highest = NULL;

	for (late_stream_t *s = streams; s != NULL; s = s->next)
		if (is_ready(s) && (highest == NULL || s->level > highest->level))
			highest = s;
	return highest;
}

/* The ready stream that `stream` needs next: itself, or one that its first item waits for. */
static late_stream_t *find_needed(late_stream_t *stream)
{
	while (!is_ready(stream))
		stream = stream->items[stream->completed % NSLOTS].stream;
	return stream;
}

/* Under the lock. Every item waits for earlier ones only, so some stream is ready. */
static void run_until(late_stream_t *stream, uint64_t until)
{
	bool lazy;

	if (stream->completed >= until) /* perhaps of a destroyed stream */
		return;
	lazy = draw(stream, 2) == 0;
	while (stream->completed < until)
		run_item(lazy ? find_needed(stream) : find_highest());
}

static void append(late_stream_t *stream, const late_item_t *item)
{
	pthread_mutex_lock(&lock);
	if (stream->submitted - stream->completed == NSLOTS)
		run_until(stream, stream->completed + NSLOTS / 2);
	stream->items[stream->submitted++ % NSLOTS] = *item;
	if (stream->phase-- == 0) {
		stream->level = draw(stream, NLEVELS);
		stream->phase = draw(stream, PHASE_MAX);
	}
	while (stream->level >= NLEVELS / 2 && is_ready(stream))
		run_item(stream);
	pthread_mutex_unlock(&lock);
}

static void queue_put(late_queue_t *queue, void (*fn)(void *arg), void *arg)
{
	append((late_stream_t *)(void *)queue, &(late_item_t){ .fn = fn, .arg = arg });
}

static srt_status_t stream_submit(void *stream, const srt_command_t *command)
{
	if (command->kind == SRT_COMMAND_NATIVE)
		return command->native.fn(stream, command->native.arg);
	append(stream, &(late_item_t){ .command = *command });
	return SRT_OK;
}

static srt_status_t stream_sync(void *s, int sleep)
{
	late_stream_t *stream = s;

	(void)sleep;
	pthread_mutex_lock(&lock);
	run_until(stream, stream->submitted);
	pthread_mutex_unlock(&lock);
	return SRT_OK;
}

static srt_status_t stream_read(void *s, void *dst, void *mem, size_t offset, size_t nbytes)
{
	late_stream_t *stream = s;

	return toy_stream_ops.read(stream->toy, dst, mem, offset, nbytes);
}

static srt_status_t stream_create(void *dev, int priority, const char *name, void **out)
{
	toy_device_t *device = dev;
	late_stream_t *stream = device->host->alloc(sizeof(*stream));
	late_item_t *items = device->host->alloc(NSLOTS * sizeof(*items));
	void *toy = NULL;
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	if (stream != NULL && items != NULL)
		status = toy_stream_ops.create(device, priority, name, &toy);
	if (status != SRT_OK) {
		device->host->free(stream);
		device->host->free(items);
		return status;
	}
	*stream = (late_stream_t){
		.queue.put = queue_put, .device = device, .toy = toy, .items = items
	};
	pthread_mutex_lock(&lock);
	stream->next = streams;
	streams = stream;
	pthread_mutex_unlock(&lock);
	*out = stream;
	return SRT_OK;
}

static void stream_destroy(void *s)
{
	late_stream_t *stream = s, **link = &streams;

	pthread_mutex_lock(&lock);
	run_until(stream, stream->submitted);
	while (*link != stream)
		link = &(*link)->next;
	*link = stream->next;
	stream->next = destroyed;
	destroyed = stream;
	toy_stream_ops.destroy(stream->toy);
	stream->device->host->free(stream->items);
	pthread_mutex_unlock(&lock);
}

void late_streams_release(toy_device_t *device)
{
	late_stream_t **link = &destroyed, *stream;

	pthread_mutex_lock(&lock);
	while ((stream = *link) != NULL) {
		if (stream->device == device) {
			*link = stream->next;
			device->host->free(stream);
		} else {
			link = &stream->next;
		}
	}
	pthread_mutex_unlock(&lock);
}

static srt_status_t event_create(void *dev, void **event)
{
	toy_device_t *device = dev;

	*event = device->host->alloc(sizeof(late_event_t));
	return *event != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
}

static void event_destroy(void *dev, void *event)
{
	toy_device_t *device = dev;

	device->host->free(event);
}

static srt_status_t event_record(void *s, void *e)
{
	late_stream_t *stream = s;
	late_event_t *event = e;

	pthread_mutex_lock(&lock);
	*event = (late_event_t){ stream, stream->submitted };
	pthread_mutex_unlock(&lock);
	return SRT_OK;
}

static srt_status_t event_wait(void *stream, void *e)
{
	const late_event_t *event = e;

	append(stream, &(late_item_t){ .stream = event->stream, .until = event->until });
	return SRT_OK;
}

static srt_status_t event_sync(void *device, void *e)
{
	const late_event_t *event = e;

	(void)device;
	pthread_mutex_lock(&lock);
	run_until(event->stream, event->until);
	pthread_mutex_unlock(&lock);
	return SRT_OK;
}

/* Runs one command, so that a program that asks again comes to an end. */
static int event_query(void *device, void *e)
{
	const late_event_t *event = e;
	int reached;

	(void)device;
	pthread_mutex_lock(&lock);
	if (event->stream->completed < event->until)
		run_item(find_needed(event->stream));
	reached = event->stream->completed >= event->until;
	pthread_mutex_unlock(&lock);
	return reached;
}

const srt_backend_stream_ops_t late_stream_ops = {
	.create = stream_create,
	.destroy = stream_destroy,
	.submit = stream_submit,
	.sync = stream_sync,
	.read = stream_read,
	.event_create = event_create,
	.event_destroy = event_destroy,
	.event_record = event_record,
	.event_wait = event_wait,
	.event_sync = event_sync,
	.event_query = event_query,
};
