/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams of the toy device: a thread each, which takes operations from a list in order and waits
 * a random time before some of them.
 *
 * Failure: the first failing operation's status and sentence stay with the stream, what follows on
 * it is skipped (save events: others wait for those), and sync returns it.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/fpenv.h"
#include "tests/backend_toy/toy.h"

toy_op_t *toy_op_new(toy_stream_t *stream, size_t nbytes)
{
	toy_op_t *op = stream->device->host->alloc(sizeof(*op) + nbytes);

	if (op)
		memset(op, 0, sizeof(*op));
	return op;
}

srt_status_t toy_report(const toy_device_t *device, const toy_failure_t *failure)
{
	if (failure->status == SRT_OK)
		return SRT_OK;
	return device->host->fail(failure->status, "%s", failure->message);
}

/* One operation in four comes late. */
static void dawdle(toy_stream_t *stream)
{
	uint32_t r = stream->random = stream->random * 1664525u + 1013904223u;
	uint32_t limit = stream->device->delay_us;

	if (limit && r >> 30 == 0)
		nanosleep(&(struct timespec){ .tv_nsec = (long)((r >> 8) % limit) * 1000 }, NULL);
}

/* Called with the lock held, which it gives up while the operation runs. */
static void run_first(toy_stream_t *stream)
{
	toy_device_t *device = stream->device;
	toy_op_t *op = stream->first;
	bool skip = stream->failure.status != SRT_OK && !op->even_if_failed;
	srt_status_t status = SRT_OK;

	stream->first = op->next;
	if (!stream->first)
		stream->last = &stream->first;
	stream->busy = true;
	pthread_mutex_unlock(&device->lock);
	if (!skip) {
		dawdle(stream);
		/* The sentence that belongs to this failure, not an older one of this thread. */
		device->host->fail(SRT_OK, "an operation on the toy device failed");
		status = op->run(stream, op);
	}
	device->host->free(op);
	pthread_mutex_lock(&device->lock);
	if (status != SRT_OK && stream->failure.status == SRT_OK) {
		stream->failure.status = status;
		snprintf(stream->failure.message, sizeof(stream->failure.message), "%s",
			 device->host->last_error());
	}
	stream->busy = false;
	if (!stream->first)
		pthread_cond_broadcast(&device->changed); /* sync waits for this */
}

static void *stream_main(void *arg)
{
	toy_stream_t *stream = arg;
	toy_device_t *device = stream->device;

	/* docs/numerics.md: every thread that computes. */
	srt_fpenv_set(SRT_FPENV_DEFAULT);
	pthread_mutex_lock(&device->lock);
	while (stream->first || !stream->ending) {
		if (stream->first)
			run_first(stream);
		else
			pthread_cond_wait(&stream->work, &device->lock);
	}
	pthread_mutex_unlock(&device->lock);
	return NULL;
}

srt_status_t toy_stream_put(toy_stream_t *stream, toy_op_t *op)
{
	pthread_mutex_lock(&stream->device->lock);
	*stream->last = op;
	stream->last = &op->next;
	pthread_cond_signal(&stream->work);
	pthread_mutex_unlock(&stream->device->lock);
	return SRT_OK;
}

static srt_status_t stream_create(void *dev, int priority, const char *name, void **out)
{
	toy_device_t *device = dev;
	toy_stream_t *stream = device->host->alloc(sizeof(*stream));
	sigset_t all, old;
	int error;

	(void)priority;
	if (!stream)
		return SRT_ERR_OUT_OF_MEMORY;
	*stream = (toy_stream_t){ .device = device };
	stream->last = &stream->first;
	pthread_cond_init(&stream->work, NULL);
	pthread_mutex_lock(&device->lock);
	stream->random = (device->seed ^ ++device->nstreams * 2654435761u) | 1;
	pthread_mutex_unlock(&device->lock);
	/* Signals belong to the program's own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	error = pthread_create(&stream->thread, NULL, stream_main, stream);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (error) {
		pthread_cond_destroy(&stream->work);
		device->host->free(stream);
		return device->host->fail(SRT_ERR_SYSTEM, "stream \"%s\": no thread: %s", name,
					  strerror(error));
	}
	*out = stream;
	return SRT_OK;
}

static void stream_destroy(void *s)
{
	toy_stream_t *stream = s;
	toy_device_t *device = stream->device;

	pthread_mutex_lock(&device->lock);
	stream->ending = true;
	pthread_cond_signal(&stream->work);
	pthread_mutex_unlock(&device->lock);
	pthread_join(stream->thread, NULL);
	pthread_cond_destroy(&stream->work);
	device->host->free(stream);
}

srt_status_t toy_stream_sync(void *s)
{
	toy_stream_t *stream = s;
	srt_status_t status;

	pthread_mutex_lock(&stream->device->lock);
	while (stream->first || stream->busy)
		pthread_cond_wait(&stream->device->changed, &stream->device->lock);
	status = toy_report(stream->device, &stream->failure);
	pthread_mutex_unlock(&stream->device->lock);
	return status;
}

static srt_status_t run_host_fn(toy_stream_t *stream, toy_op_t *op)
{
	(void)stream;
	return op->u.host.fn(op->u.host.arg);
}

static srt_status_t stream_host_fn(void *stream, srt_host_fn *fn, void *arg)
{
	toy_op_t *op = toy_op_new(stream, 0);

	if (!op)
		return SRT_ERR_OUT_OF_MEMORY;
	op->run = run_host_fn;
	op->u.host.fn = fn;
	op->u.host.arg = arg;
	return toy_stream_put(stream, op);
}

const srt_backend_stream_ops_t toy_stream_ops = {
	.create = stream_create,
	.destroy = stream_destroy,
	.sync = toy_stream_sync,
	.host_fn = stream_host_fn,
	.event_create = toy_event_create,
	.event_destroy = toy_event_destroy,
	.event_record = toy_event_record,
	.event_wait = toy_event_wait,
	.event_sync = toy_event_sync,
	.event_query = toy_event_query,
};
