/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams. An operation is run (put into the queue) by the caller at once, if the ring is empty
 * and it does not block; else it is copied into the ring, and the worker runs it in its turn. A
 * host function's turn comes when the queue has finished. The ring is as long as it will ever
 * be: putting an operation allocates nothing, and waits when the ring is full.
 *
 * Why no user events and callbacks: what is in the queue behind a user event cannot be taken back
 * when the host function fails, and drivers differ in what they do with it. Here it is not in the
 * queue yet. Measured on PoCL, a host function between two kernels costs about the same either way.
 *
 * Failure: the first failing operation's status and sentence stay with the stream; operations
 * after it are skipped (save those that hold references) and sync returns it.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "backends/opencl/tuned.h"
#include "base/fpenv.h"

#define RING_NSLOTS 256u

/* Runs one operation; called by whoever submits. Returns its failure. */
static srt_status_t run_op(srt_ocl_stream_t *stream, const srt_ocl_op_t *op)
{
	if (stream->failure.status != SRT_OK && !op->even_if_failed)
		return SRT_OK;
	return op->run(stream, op);
}

/* Keeps the first failure; the running thread's last error is its sentence. Under the lock. */
static void set_failure(srt_ocl_stream_t *stream, srt_status_t status)
{
	const char *message = stream->device->host->last_error();

	if (status == SRT_OK || stream->failure.status != SRT_OK)
		return;
	if (!message[0])
		message = "a host function failed without saying why";
	snprintf(stream->failure.message, sizeof(stream->failure.message), "%s", message);
	stream->failure.status = status;
}

static srt_status_t report_failure(const srt_ocl_stream_t *stream)
{
	if (stream->failure.status == SRT_OK)
		return SRT_OK;
	return stream->device->host->fail(stream->failure.status, "%s", stream->failure.message);
}

/* ---- the worker ------------------------------------------------------------------------- */

static void *worker_main(void *arg)
{
	srt_ocl_stream_t *stream = arg;

	srt_fpenv_set(SRT_FPENV_DEFAULT);
	pthread_mutex_lock(&stream->lock);
	for (;;) {
		const srt_ocl_op_t *op;
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
	return NULL;
}

static srt_status_t start_worker(srt_ocl_stream_t *stream)
{
	const srt_host_services_t *host = stream->device->host;
	char thread_name[16];
	srt_ocl_op_t *ring;
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

static void stop_worker(srt_ocl_stream_t *stream)
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
static srt_status_t put_deferred(srt_ocl_stream_t *stream, const srt_ocl_op_t *op)
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

srt_status_t srt_ocl_stream_put(srt_ocl_stream_t *stream, const srt_ocl_op_t *op)
{
	srt_status_t status = SRT_OK;
	srt_fpenv_t env;

	pthread_mutex_lock(&stream->lock);
	if (op->blocks || stream->submitted != stream->completed) {
		status = put_deferred(stream, op);
	} else {
		env = srt_fpenv_enter();
		set_failure(stream, run_op(stream, op));
		srt_fpenv_leave(env);
	}
	pthread_mutex_unlock(&stream->lock);
	return status;
}

void srt_ocl_stream_drain(srt_ocl_stream_t *stream)
{
	uint64_t until;

	pthread_mutex_lock(&stream->lock);
	until = stream->submitted;
	while (stream->completed < until)
		pthread_cond_wait(&stream->room_cond, &stream->lock);
	pthread_mutex_unlock(&stream->lock);
}

srt_status_t srt_ocl_stream_finish(srt_ocl_stream_t *stream)
{
	srt_ocl_device_t *device = stream->device;
	cl_int code = clFinish(stream->queue);

	if (code == CL_SUCCESS)
		return SRT_OK;
	return srt_ocl_fail(device->host, code, "stream \"%s\": work on device \"%s\" failed",
			    stream->name, device->name);
}

srt_status_t srt_ocl_stream_sync(void *s)
{
	srt_ocl_stream_t *stream = s;
	srt_fpenv_t env = srt_fpenv_enter();
	srt_status_t status;

	srt_ocl_stream_drain(stream);
	status = srt_ocl_stream_finish(stream);
	pthread_mutex_lock(&stream->lock);
	set_failure(stream, status);
	status = report_failure(stream);
	pthread_mutex_unlock(&stream->lock);
	srt_fpenv_leave(env);
	return status;
}

/* ---- making ----------------------------------------------------------------------------- */

static srt_status_t stream_create(void *dev, int priority, const char *name, void **out)
{
	srt_ocl_device_t *device = dev;
	const srt_host_services_t *host = device->host;
	srt_ocl_stream_t *stream = host->alloc(sizeof(*stream));
	cl_int code;

	(void)priority; /* not in OpenCL 1.2 */
	if (!stream)
		return SRT_ERR_OUT_OF_MEMORY;
	memset(stream, 0, sizeof(*stream));
	stream->device = device;
	snprintf(stream->name, sizeof(stream->name), "%s", name);
	stream->queue = clCreateCommandQueue(device->context, device->id, 0, &code);
	if (code != CL_SUCCESS) {
		host->free(stream);
		return srt_ocl_fail(host, code, "stream \"%s\": making its queue failed", name);
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
	srt_ocl_stream_t *stream = s;

	if (stream->ring)
		stop_worker(stream);
	clFinish(stream->queue);
	for (int i = 0; i < SRT_OCL_MAX_KERNELS; i++)
		if (stream->kernels[i])
			clReleaseKernel(stream->kernels[i]);
	srt_ocl_scratch_free(stream);
	clReleaseCommandQueue(stream->queue);
	pthread_cond_destroy(&stream->room_cond);
	pthread_cond_destroy(&stream->work_cond);
	pthread_mutex_destroy(&stream->lock);
	stream->device->host->free(stream->staging);
	stream->device->host->free(stream);
}

static srt_status_t run_host_fn(srt_ocl_stream_t *stream, const srt_ocl_op_t *op)
{
	srt_status_t status = srt_ocl_stream_finish(stream);

	return status == SRT_OK ? op->u.host.fn(op->u.host.arg) : status;
}

static srt_status_t stream_host_fn(void *stream, srt_host_fn *fn, void *arg)
{
	return srt_ocl_stream_put(stream, &(srt_ocl_op_t){
						  .run = run_host_fn,
						  .blocks = true,
						  .u.host = { .fn = fn, .arg = arg },
					  });
}

const srt_backend_stream_ops_t srt_ocl_stream_ops = {
	.create = stream_create,
	.destroy = stream_destroy,
	.sync = srt_ocl_stream_sync,
	.host_fn = stream_host_fn,
	.event_create = srt_ocl_event_create,
	.event_destroy = srt_ocl_event_destroy,
	.event_record = srt_ocl_event_record,
	.event_wait = srt_ocl_event_wait,
	.event_sync = srt_ocl_event_sync,
	.event_query = srt_ocl_event_query,
};
