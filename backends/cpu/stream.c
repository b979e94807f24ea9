/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams of both kinds. An operation is put on a stream as a slot of plain data: an inline
 * stream runs it at once on the caller, a threaded one copies it into a ring that its worker
 * empties in order. The ring is as long as it will ever be: putting an operation allocates
 * nothing, and waits when the ring is full.
 *
 * Failure: the first failing operation's status and sentence stay with the stream; operations
 * after it are skipped (save those that hold references) and sync returns it.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "backends/hostmem.h"
#include "base/fpenv.h"
#include "base/base.h"

#define RING_NSLOTS 256u

/* Runs one operation; called by the caller (inline) or the worker. Returns its failure. */
static srt_status_t run_op(srt_cpu_stream_t *stream, const srt_cpu_op_t *op)
{
	if (stream->failure.status != SRT_OK && !op->even_if_failed)
		return SRT_OK;
	return op->run(stream, op);
}

/* Keeps the first failure; `message` is the running thread's last error. */
static void set_failure(srt_cpu_stream_t *stream, srt_status_t status, const char *message)
{
	if (status == SRT_OK || stream->failure.status != SRT_OK)
		return;
	if (!message[0])
		message = srt_status_string(status);
	snprintf(stream->failure.message, sizeof(stream->failure.message), "%s", message);
	stream->failure.status = status;
}

static srt_status_t report_failure(const srt_cpu_stream_t *stream)
{
	if (stream->failure.status == SRT_OK)
		return SRT_OK;
	return srt_fail_copy(stream->failure.status, stream->failure.message);
}

/* ---- threaded ------------------------------------------------------------------------- */

static void *worker_main(void *arg)
{
	srt_cpu_stream_t *stream = arg;

	srt_fpenv_set(SRT_FPENV_DEFAULT);
	pthread_mutex_lock(&stream->lock);
	for (;;) {
		const srt_cpu_op_t *op;
		srt_status_t status;

		while (stream->submitted == stream->completed && !stream->ending)
			pthread_cond_wait(&stream->work_cond, &stream->lock);
		if (stream->submitted == stream->completed)
			break;
		op = &stream->ring[stream->completed % RING_NSLOTS];
		pthread_mutex_unlock(&stream->lock);
		/* The slot is this thread's until `completed` passes it. */
		status = run_op(stream, op);
		pthread_mutex_lock(&stream->lock);
		set_failure(stream, status, srt_last_error());
		stream->completed++;
		pthread_cond_broadcast(&stream->room_cond);
	}
	pthread_mutex_unlock(&stream->lock);
	return NULL;
}

static void put_threaded(srt_cpu_stream_t *stream, const srt_cpu_op_t *op)
{
	srt_cpu_op_t *slot;

	pthread_mutex_lock(&stream->lock);
	while (stream->submitted - stream->completed == RING_NSLOTS)
		pthread_cond_wait(&stream->room_cond, &stream->lock);
	slot = &stream->ring[stream->submitted % RING_NSLOTS];
	*slot = *op;
	if (stream->submitted++ == stream->completed)
		pthread_cond_signal(&stream->work_cond);
	pthread_mutex_unlock(&stream->lock);
}

static srt_status_t start_worker(srt_cpu_stream_t *stream, const char *name)
{
	char thread_name[16];
	sigset_t all, old;
	int error;

	/* An operation holds at most one point. */
	SRT_TRY(srt_cpu_points_reserve(stream->device, RING_NSLOTS + 1));
	stream->ring = srt_calloc(RING_NSLOTS, sizeof(*stream->ring), "a stream's queue");
	if (!stream->ring)
		return SRT_ERR_OUT_OF_MEMORY;
	pthread_mutex_init(&stream->lock, NULL);
	pthread_cond_init(&stream->work_cond, NULL);
	pthread_cond_init(&stream->room_cond, NULL);
	/* Signals belong to the program's own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	error = pthread_create(&stream->worker, NULL, worker_main, stream);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (error) {
		pthread_cond_destroy(&stream->room_cond);
		pthread_cond_destroy(&stream->work_cond);
		pthread_mutex_destroy(&stream->lock);
		free(stream->ring);
		return srt_fail(SRT_ERR_SYSTEM, "stream \"%s\": cannot start its thread: %s", name,
				strerror(error));
	}
	snprintf(thread_name, sizeof(thread_name), "srt-%s", name);
	pthread_setname_np(stream->worker, thread_name);
	return SRT_OK;
}

static void stop_worker(srt_cpu_stream_t *stream)
{
	pthread_mutex_lock(&stream->lock);
	stream->ending = true;
	pthread_cond_signal(&stream->work_cond);
	pthread_mutex_unlock(&stream->lock);
	pthread_join(stream->worker, NULL);
	pthread_cond_destroy(&stream->room_cond);
	pthread_cond_destroy(&stream->work_cond);
	pthread_mutex_destroy(&stream->lock);
	free(stream->ring);
}

/* ---- both ----------------------------------------------------------------------------- */

srt_status_t srt_cpu_stream_put(srt_cpu_stream_t *stream, const srt_cpu_op_t *op)
{
	srt_status_t status;
	srt_fpenv_t env;

	if (stream->ring) {
		put_threaded(stream, op);
		return SRT_OK;
	}
	env = srt_fpenv_enter();
	status = run_op(stream, op);
	set_failure(stream, status, srt_last_error());
	srt_fpenv_leave(env);
	return SRT_OK;
}

static void drop_scratch(srt_cpu_stream_t *stream)
{
	stream->device->host->free(stream->scratch);
	atomic_fetch_sub(&stream->device->kept, stream->scratch_nbytes);
	stream->scratch = NULL;
	stream->scratch_nbytes = 0;
}

void *srt_cpu_stream_scratch(srt_cpu_stream_t *stream, size_t nbytes)
{
	const srt_host_services_t *host = stream->device->host;

	if (!nbytes)
		return stream; /* NULL means failure */
	if (nbytes <= stream->scratch_nbytes)
		return stream->scratch;
	drop_scratch(stream);
	stream->scratch = host->alloc(nbytes);
	if (!stream->scratch)
		return NULL;
	stream->scratch_nbytes = nbytes;
	atomic_fetch_add(&stream->device->kept, nbytes);
	atomic_fetch_add(&stream->device->nkept, 1);
	return stream->scratch;
}

static srt_status_t stream_reserve(void *s, size_t nbytes)
{
	srt_cpu_stream_t *stream = s;

	srt_cpu_stream_drain(stream); /* nothing runs that uses it */
	SRT_TRY(srt_hostmem_check(stream->device->host, nbytes,
				  "scratch of matrix products and attention"));
	return !nbytes || srt_cpu_stream_scratch(stream, nbytes) ?
		       SRT_OK :
		       srt_fail_prefix(SRT_ERR_OUT_OF_MEMORY,
				       "scratch of matrix products and attention: ");
}

static void stream_kept(void *dev, size_t *nbytes, uint64_t *nallocations)
{
	srt_cpu_device_t *device = dev;

	*nbytes = atomic_load(&device->kept);
	*nallocations = atomic_load(&device->nkept);
}

static srt_status_t stream_create(void *dev, int priority, const char *name, void **out)
{
	srt_cpu_device_t *device = dev;
	srt_cpu_stream_t *stream = srt_calloc(1, sizeof(*stream), "a stream");
	srt_status_t status;

	(void)priority;
	if (!stream)
		return SRT_ERR_OUT_OF_MEMORY;
	stream->device = device;
	if (device->threaded_streams) {
		status = start_worker(stream, name);
		if (status != SRT_OK) {
			free(stream);
			return status;
		}
	}
	*out = stream;
	return SRT_OK;
}

static void stream_destroy(void *s)
{
	srt_cpu_stream_t *stream = s;

	if (stream->ring)
		stop_worker(stream);
	drop_scratch(stream);
	free(stream);
}

void srt_cpu_stream_drain(srt_cpu_stream_t *stream)
{
	uint64_t until;

	if (!stream->ring)
		return;
	pthread_mutex_lock(&stream->lock);
	until = stream->submitted;
	while (stream->completed < until)
		pthread_cond_wait(&stream->room_cond, &stream->lock);
	pthread_mutex_unlock(&stream->lock);
}

srt_status_t srt_cpu_stream_sync(void *s)
{
	srt_cpu_stream_t *stream = s;
	srt_status_t status;

	if (!stream->ring)
		return report_failure(stream);
	srt_cpu_stream_drain(stream);
	pthread_mutex_lock(&stream->lock);
	status = report_failure(stream);
	pthread_mutex_unlock(&stream->lock);
	return status;
}

static srt_status_t run_host_fn(srt_cpu_stream_t *stream, const srt_cpu_op_t *op)
{
	(void)stream;
	return op->u.host.fn(op->u.host.arg);
}

static srt_status_t stream_host_fn(void *stream, srt_host_fn *fn, void *arg)
{
	return srt_cpu_stream_put(stream, &(srt_cpu_op_t){
						  .run = run_host_fn,
						  .u.host = { .fn = fn, .arg = arg },
					  });
}

const srt_backend_stream_ops_t srt_cpu_stream_ops = {
	.create = stream_create,
	.destroy = stream_destroy,
	.sync = srt_cpu_stream_sync,
	.host_fn = stream_host_fn,
	.reserve = stream_reserve,
	.kept = stream_kept,
	.event_create = srt_cpu_event_create,
	.event_destroy = srt_cpu_event_destroy,
	.event_record = srt_cpu_event_record,
	.event_wait = srt_cpu_event_wait,
	.event_sync = srt_cpu_event_sync,
	.event_query = srt_cpu_event_query,
};
