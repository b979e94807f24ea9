/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams. An operation is run (put into the driver's stream) by the caller at once, if the ring is
 * empty and it does not block; else it is copied into the ring, and the worker runs it in its turn.
 * A host function's turn comes when the driver's stream has finished. The ring is as long as it
 * will ever be: putting an operation allocates nothing, and waits when the ring is full.
 *
 * Why not cuLaunchHostFunc: what is in the driver's stream behind a host function runs even if that
 * fails, since it can return nothing; and the driver may run the functions of all streams one after
 * the other, so that one which waits for a peer would hold up the one that the peer waits for.
 *
 * Failure: the first failing operation's status and sentence stay with the stream; operations
 * after it are skipped (save those that hold references) and sync returns it.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "backends/cuda/fast.h"

#define RING_NSLOTS 256u

/* Runs one operation; called by whoever submits. Returns its failure. */
static srt_status_t run_op(srt_cuda_stream_t *stream, const srt_cuda_op_t *op)
{
	if (stream->failure.status != SRT_OK && !op->even_if_failed)
		return SRT_OK;
	return op->run(stream, op);
}

/* Keeps the first failure; the running thread's last error is its sentence. Under the lock. */
static void set_failure(srt_cuda_stream_t *stream, srt_status_t status)
{
	const char *message = stream->device->host->last_error();

	if (status == SRT_OK || stream->failure.status != SRT_OK)
		return;
	if (!message[0])
		message = "a host function failed without saying why";
	snprintf(stream->failure.message, sizeof(stream->failure.message), "%s", message);
	stream->failure.status = status;
}

static srt_status_t report_failure(const srt_cuda_stream_t *stream)
{
	if (stream->failure.status == SRT_OK)
		return SRT_OK;
	return stream->device->host->fail(stream->failure.status, "%s", stream->failure.message);
}

/* ---- the worker ------------------------------------------------------------------------- */

static void *worker_main(void *arg)
{
	srt_cuda_stream_t *stream = arg;
	srt_cuda_scope_t scope = srt_cuda_enter(stream->device);

	pthread_mutex_lock(&stream->lock);
	for (;;) {
		const srt_cuda_op_t *op;
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
		set_failure(stream, status);
		stream->completed++;
		pthread_cond_broadcast(&stream->room_cond);
	}
	pthread_mutex_unlock(&stream->lock);
	srt_cuda_leave(scope);
	return NULL;
}

static srt_status_t start_worker(srt_cuda_stream_t *stream)
{
	const srt_host_services_t *host = stream->device->host;
	char thread_name[16];
	srt_cuda_op_t *ring;
	sigset_t all, old;
	int error;

	ring = host->alloc(RING_NSLOTS * sizeof(*ring));
	if (!ring)
		return SRT_ERR_OUT_OF_MEMORY;
	/* Signals belong to the program's own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	error = pthread_create(&stream->worker, NULL, worker_main, stream);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (error) {
		host->free(ring);
		return host->fail(SRT_ERR_SYSTEM, "stream \"%s\": cannot start its thread: %s",
				  stream->name, strerror(error));
	}
	snprintf(thread_name, sizeof(thread_name), "srt-%.11s", stream->name);
	pthread_setname_np(stream->worker, thread_name);
	stream->ring = ring;
	return SRT_OK;
}

static void stop_worker(srt_cuda_stream_t *stream)
{
	pthread_mutex_lock(&stream->lock);
	stream->ending = true;
	pthread_cond_signal(&stream->work_cond);
	pthread_mutex_unlock(&stream->lock);
	pthread_join(stream->worker, NULL);
	stream->device->host->free(stream->ring);
}

/* ---- putting ---------------------------------------------------------------------------- */

/* Under the lock. */
static srt_status_t put_deferred(srt_cuda_stream_t *stream, const srt_cuda_op_t *op)
{
	if (!stream->ring) {
		srt_status_t status = start_worker(stream);

		if (status != SRT_OK)
			return status;
	}
	while (stream->submitted - stream->completed == RING_NSLOTS)
		pthread_cond_wait(&stream->room_cond, &stream->lock);
	stream->ring[stream->submitted % RING_NSLOTS] = *op;
	if (stream->submitted++ == stream->completed)
		pthread_cond_signal(&stream->work_cond);
	return SRT_OK;
}

static srt_status_t put_direct(srt_cuda_stream_t *stream, const srt_cuda_op_t *op)
{
	srt_cuda_scope_t scope = srt_cuda_enter(stream->device);

	set_failure(stream, run_op(stream, op));
	srt_cuda_leave(scope);
	return SRT_OK;
}

srt_status_t srt_cuda_stream_put(srt_cuda_stream_t *stream, const srt_cuda_op_t *op)
{
	srt_status_t status;

	pthread_mutex_lock(&stream->lock);
	if (stream->recording && (op->blocks || op->unrecorded))
		status = stream->device->host->fail(
			SRT_ERR_STATE,
			"stream \"%s\" is being recorded: only kernels, copies within the device "
			"and zeroing can be in a recording",
			stream->name);
	else if (op->blocks || stream->submitted != stream->completed)
		status = put_deferred(stream, op);
	else
		status = put_direct(stream, op);
	pthread_mutex_unlock(&stream->lock);
	return status;
}

void srt_cuda_stream_drain(srt_cuda_stream_t *stream)
{
	uint64_t until;

	pthread_mutex_lock(&stream->lock);
	until = stream->submitted;
	while (stream->completed < until)
		pthread_cond_wait(&stream->room_cond, &stream->lock);
	pthread_mutex_unlock(&stream->lock);
}

static srt_status_t finished(const srt_cuda_stream_t *stream, CUresult code)
{
	const srt_cuda_device_t *device = stream->device;

	if (code == CUDA_SUCCESS)
		return SRT_OK;
	return srt_cuda_fail(device->host, device->drv, code,
			     "stream \"%s\": work on device \"%s\" failed", stream->name,
			     device->name);
}

/* By an event that sleeps: the worker may wait for long, and a core is worth more. */
srt_status_t srt_cuda_stream_finish(srt_cuda_stream_t *stream)
{
	const srt_cuda_driver_t *drv = stream->device->drv;
	CUresult code = drv->cuEventRecord(stream->idle, stream->queue);

	if (code == CUDA_SUCCESS)
		code = drv->cuEventSynchronize(stream->idle);
	return finished(stream, code);
}

srt_status_t srt_cuda_stream_sync(void *s)
{
	srt_cuda_stream_t *stream = s;
	srt_cuda_scope_t scope;
	srt_status_t status;

	if (stream->recording)
		return stream->device->host->fail(SRT_ERR_STATE,
						  "stream \"%s\" is being recorded: there is "
						  "nothing to wait for",
						  stream->name);
	srt_cuda_stream_drain(stream);
	scope = srt_cuda_enter(stream->device);
	status = finished(stream, stream->device->drv->cuStreamSynchronize(stream->queue));
	pthread_mutex_lock(&stream->lock);
	set_failure(stream, status);
	status = report_failure(stream);
	pthread_mutex_unlock(&stream->lock);
	srt_cuda_leave(scope);
	return status;
}

static srt_status_t stream_query(void *s, int *done)
{
	srt_cuda_stream_t *stream = s;
	srt_cuda_scope_t scope = srt_cuda_enter(stream->device);
	srt_status_t status = SRT_OK;
	CUresult code;

	pthread_mutex_lock(&stream->lock);
	*done = stream->submitted == stream->completed;
	if (*done) {
		code = stream->device->drv->cuStreamQuery(stream->queue);
		*done = code != CUDA_ERROR_NOT_READY;
		status = *done ? finished(stream, code) : SRT_OK;
	}
	pthread_mutex_unlock(&stream->lock);
	srt_cuda_leave(scope);
	return status;
}

/* ---- making ----------------------------------------------------------------------------- */

/* 0 is the least urgent; negative numbers are more urgent, as far as the device has levels. */
static int clamp_priority(const srt_cuda_device_t *device, int priority)
{
	priority += device->priority_low;
	if (priority > device->priority_low)
		return device->priority_low;
	return priority < device->priority_high ? device->priority_high : priority;
}

static srt_status_t make_queue(srt_cuda_stream_t *stream, int priority)
{
	const srt_cuda_driver_t *drv = stream->device->drv;
	CUresult code;

	code = drv->cuStreamCreateWithPriority(&stream->queue, CU_STREAM_NON_BLOCKING,
					       clamp_priority(stream->device, priority));
	if (code == CUDA_SUCCESS) {
		code = drv->cuEventCreate(&stream->idle,
					  CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING);
		if (code != CUDA_SUCCESS)
			drv->cuStreamDestroy(stream->queue);
	}
	if (code == CUDA_SUCCESS)
		return SRT_OK;
	return srt_cuda_fail(stream->device->host, drv, code, "making stream \"%s\" failed",
			     stream->name);
}

static srt_status_t stream_create(void *dev, int priority, const char *name, void **out)
{
	srt_cuda_device_t *device = dev;
	srt_cuda_stream_t *stream = device->host->alloc(sizeof(*stream));
	srt_cuda_scope_t scope;
	srt_status_t status;

	if (!stream)
		return SRT_ERR_OUT_OF_MEMORY;
	memset(stream, 0, sizeof(*stream));
	stream->device = device;
	snprintf(stream->name, sizeof(stream->name), "%s", name);
	scope = srt_cuda_enter(device);
	status = make_queue(stream, priority);
	srt_cuda_leave(scope);
	if (status != SRT_OK) {
		device->host->free(stream);
		return status;
	}
	pthread_mutex_lock(&device->lock);
	stream->number = ++device->nstreams;
	pthread_mutex_unlock(&device->lock);
	pthread_mutex_init(&stream->lock, NULL);
	pthread_cond_init(&stream->work_cond, NULL);
	pthread_cond_init(&stream->room_cond, NULL);
	*out = stream;
	return SRT_OK;
}

static void stream_destroy(void *s)
{
	srt_cuda_stream_t *stream = s;
	srt_cuda_device_t *device = stream->device;
	srt_cuda_scope_t scope;

	if (stream->ring)
		stop_worker(stream);
	scope = srt_cuda_enter(device);
	device->drv->cuStreamSynchronize(stream->queue);
	srt_cuda_staging_free(stream);
	srt_cuda_fast_stream_free(stream);
	srt_cuda_scratch_free(device, stream->scratch);
	srt_cuda_scratch_free(device, stream->recorded_scratch);
	device->drv->cuEventDestroy(stream->idle);
	device->drv->cuStreamDestroy(stream->queue);
	srt_cuda_leave(scope);
	pthread_cond_destroy(&stream->room_cond);
	pthread_cond_destroy(&stream->work_cond);
	pthread_mutex_destroy(&stream->lock);
	device->host->free(stream);
}

static srt_status_t run_host_fn(srt_cuda_stream_t *stream, const srt_cuda_op_t *op)
{
	srt_status_t status = srt_cuda_stream_finish(stream);

	return status == SRT_OK ? op->u.host.fn(op->u.host.arg) : status;
}

static srt_status_t stream_host_fn(void *stream, srt_host_fn *fn, void *arg)
{
	return srt_cuda_stream_put(stream, &(srt_cuda_op_t){
						   .run = run_host_fn,
						   .blocks = true,
						   .u.host = { .fn = fn, .arg = arg },
					   });
}

const srt_backend_stream_ops_t srt_cuda_stream_ops = {
	.create = stream_create,
	.destroy = stream_destroy,
	.sync = srt_cuda_stream_sync,
	.query = stream_query,
	.host_fn = stream_host_fn,
	.write_value = srt_cuda_write_value,
	.wait_value = srt_cuda_wait_value,
	.event_create = srt_cuda_event_create,
	.event_destroy = srt_cuda_event_destroy,
	.event_record = srt_cuda_event_record,
	.event_wait = srt_cuda_event_wait,
	.event_sync = srt_cuda_event_sync,
	.event_query = srt_cuda_event_query,
	.event_elapsed = srt_cuda_event_elapsed,
};
