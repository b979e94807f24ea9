/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Driver streams of the late device, and their scheduler. submit() queues a command. A thread that
 * waits, for a stream or for an event, runs commands until what it waits for is reached: among the
 * streams whose first command is ready, the one of the highest level is next. So a command that
 * nobody waits for stays in its stream while those of other streams overtake it.
 *
 * The level of a stream changes at random, after 1 to 32 of its commands. In the upper half of the
 * levels the stream is in an early phase: its commands also run when they are submitted, if they are
 * ready. These are the priorities with change points of PCT (Burckhardt et al., ASPLOS 2010), which
 * find a missing order of two commands with a known probability.
 *
 * One lock protects all streams, so one command runs at a time.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/fakes/backend_late/late.h"

#define NSLOTS 256
#define NLEVELS 256u
#define PHASE_MAX 32u

/* A command, or a wait for the first `until` items of a stream. */
typedef struct late_item {
	late_stream_t *stream; /* NULL: a command */
	uint64_t until;
	srt_command_t command;
} late_item_t;

struct late_stream {
	toy_device_t *device;
	toy_stream_t *toy; /* runs the commands; its random state is this stream's */
	late_stream_t *next;
	late_item_t items[NSLOTS]; /* a ring */
	uint64_t submitted, completed;
	uint32_t level, phase; /* phase: items until the level changes */
};

/* The end of a stream's submitted items. */
typedef struct late_event {
	late_stream_t *stream;
	uint64_t until;
} late_event_t;

/* The streams of all devices. A destroyed one stays: events refer to it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static late_stream_t *streams;

static uint32_t draw(late_stream_t *stream, uint32_t limit)
{
	stream->toy->random = stream->toy->random * 1664525u + 1013904223u;
	return (stream->toy->random >> 8) % limit;
}

static bool is_ready(const late_stream_t *stream)
{
	const late_item_t *item = &stream->items[stream->completed % NSLOTS];

	if (stream->completed == stream->submitted)
		return false;
	return !item->stream || item->stream->completed >= item->until;
}

/* Runs the stream's first item, which is ready. */
static void run_item(late_stream_t *stream)
{
	const late_item_t *item = &stream->items[stream->completed % NSLOTS];

	if (!item->stream && toy_stream_ops.submit(stream->toy, &item->command) != SRT_OK) {
		fprintf(stderr, "late device: %s\n", stream->device->host->last_error());
		abort();
	}
	stream->completed++;
}

/* Runs the item that is next in the order of levels. */
static bool run_next(void)
{
	late_stream_t *next = NULL;

	for (late_stream_t *s = streams; s; s = s->next)
		if (is_ready(s) && (!next || s->level > next->level))
			next = s;
	if (next)
		run_item(next);
	return next != NULL;
}

/* Under the lock. Every wait is for an earlier item, so some stream is ready. */
static void run_until(const late_stream_t *stream, uint64_t until)
{
	while (stream->completed < until)
		if (!run_next()) {
			fprintf(stderr, "late device: no command is ready\n");
			abort();
		}
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

static srt_status_t stream_submit(void *stream, const srt_command_t *command)
{
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
	void *toy = NULL;
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	if (stream)
		status = toy_stream_ops.create(device, priority, name, &toy);
	if (status != SRT_OK) {
		device->host->free(stream);
		return status;
	}
	stream->device = device;
	stream->toy = toy;
	stream->submitted = stream->completed = 0;
	stream->phase = 0;
	pthread_mutex_lock(&lock);
	stream->next = streams;
	streams = stream;
	pthread_mutex_unlock(&lock);
	*out = stream;
	return SRT_OK;
}

static void stream_destroy(void *stream)
{
	stream_sync(stream, 0);
}

void late_streams_release(toy_device_t *device)
{
	late_stream_t **link = &streams, *stream;

	pthread_mutex_lock(&lock);
	while ((stream = *link)) {
		if (stream->device != device) {
			link = &stream->next;
			continue;
		}
		*link = stream->next;
		toy_stream_ops.destroy(stream->toy);
		device->host->free(stream);
	}
	pthread_mutex_unlock(&lock);
}

static srt_status_t event_create(void *dev, void **event)
{
	toy_device_t *device = dev;

	*event = device->host->alloc(sizeof(late_event_t));
	return *event ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
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
	run_next();
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
