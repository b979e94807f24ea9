/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ring of a stream and its worker; see ring.h. An operation is run (put into the driver's
 * stream) by the caller at once, if the ring is empty and it does not block; else it is copied into
 * the ring, and the worker runs it in its turn. A host function's turn comes when the driver's
 * stream has finished. The ring is as long as it will ever be: putting an operation allocates
 * nothing, and waits when the ring is full.
 *
 * Failure: the first failing operation's status and sentence stay with the stream; operations
 * after it are skipped (save those that hold references) and sync returns it.
 */
#include "backends/ring.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define NSLOTS 256u

srt_ring_scope_t srt_ring_enter(srt_rings_t *rings)
{
	bool entered = rings->driver->enter && rings->driver->enter(rings);

	return (srt_ring_scope_t){ .rings = rings, .env = srt_fpenv_enter(), .entered = entered };
}

void srt_ring_leave(srt_ring_scope_t scope)
{
	srt_fpenv_leave(scope.env);
	if (scope.entered)
		scope.rings->driver->leave(scope.rings);
}

/* Runs one operation; called by whoever submits. Returns its failure. */
static srt_status_t run_op(srt_ring_t *ring, const srt_ring_op_t *op)
{
	if (ring->failure.status != SRT_OK && !op->even_if_failed)
		return SRT_OK;
	return op->own ? op->own(ring, op) : ring->rings->driver->run(ring, op);
}

/* Keeps the first failure; the running thread's last error is its sentence. Under the
 * lock. */
static void set_failure(srt_ring_t *ring, srt_status_t status)
{
	srt_ring_failure_t *failure = &ring->failure;
	const char *message;

	if (status == SRT_OK || failure->status != SRT_OK)
		return;
	message = ring->rings->host->last_error();
	if (!message[0])
		message = "a host function failed without saying why";
	snprintf(failure->message, sizeof(failure->message), "%s", message);
	failure->status = status;
}

/* ---- the worker -------------------------------------------------------------------------- */

static srt_ring_op_t *slot_of(const srt_ring_t *ring, uint64_t op)
{
	return (void *)(ring->slots + op % NSLOTS * ring->rings->driver->op_nbytes);
}

static void *worker_main(void *arg)
{
	srt_ring_t *ring = arg;
	srt_ring_scope_t scope = srt_ring_enter(ring->rings);

	pthread_mutex_lock(&ring->lock);
	for (;;) {
		const srt_ring_op_t *op;
		srt_status_t status;

		while (ring->submitted == ring->completed && !ring->ending)
			pthread_cond_wait(&ring->work_cond, &ring->lock);
		if (ring->submitted == ring->completed)
			break;
		op = slot_of(ring, ring->completed);
		pthread_mutex_unlock(&ring->lock);
		/* The slot is this thread's until `completed` passes it. */
		status = run_op(ring, op);
		pthread_mutex_lock(&ring->lock);
		set_failure(ring, status);
		ring->completed++;
		pthread_cond_broadcast(&ring->room_cond);
	}
	pthread_mutex_unlock(&ring->lock);
	srt_ring_leave(scope);
	return NULL;
}

static srt_status_t start_worker(srt_ring_t *ring)
{
	const srt_host_services_t *host = ring->rings->host;
	unsigned char *slots = host->alloc(NSLOTS * ring->rings->driver->op_nbytes);
	char thread_name[16];
	sigset_t all, old;
	int error;

	if (!slots)
		return SRT_ERR_OUT_OF_MEMORY;
	/* Signals belong to the program's own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	error = pthread_create(&ring->worker, NULL, worker_main, ring);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (error) {
		host->free(slots);
		return host->fail(SRT_ERR_SYSTEM, "stream \"%s\": cannot start its thread: %s",
				  ring->name, strerror(error));
	}
	snprintf(thread_name, sizeof(thread_name), "srt-%.11s", ring->name);
	pthread_setname_np(ring->worker, thread_name);
	ring->slots = slots;
	return SRT_OK;
}

static void stop_worker(srt_ring_t *ring)
{
	pthread_mutex_lock(&ring->lock);
	ring->ending = true;
	pthread_cond_signal(&ring->work_cond);
	pthread_mutex_unlock(&ring->lock);
	pthread_join(ring->worker, NULL);
	ring->rings->host->free(ring->slots);
}

/* ---- making ------------------------------------------------------------------------------ */

void srt_ring_init(srt_ring_t *ring, srt_rings_t *rings, const char *name)
{
	memset(ring, 0, sizeof(*ring));
	ring->rings = rings;
	snprintf(ring->name, sizeof(ring->name), "%s", name);
	pthread_mutex_init(&ring->lock, NULL);
	pthread_cond_init(&ring->work_cond, NULL);
	pthread_cond_init(&ring->room_cond, NULL);
	pthread_mutex_lock(&rings->lock);
	ring->number = ++rings->nstreams;
	pthread_mutex_unlock(&rings->lock);
}

void srt_ring_destroy(srt_ring_t *ring)
{
	if (ring->slots)
		stop_worker(ring);
	pthread_cond_destroy(&ring->room_cond);
	pthread_cond_destroy(&ring->work_cond);
	pthread_mutex_destroy(&ring->lock);
}

/* ---- putting ----------------------------------------------------------------------------- */

/* Under the lock. */
static srt_status_t put_deferred(srt_ring_t *ring, const srt_ring_op_t *op)
{
	if (!ring->slots) {
		srt_status_t status = start_worker(ring);

		if (status != SRT_OK)
			return status;
	}
	while (ring->submitted - ring->completed == NSLOTS)
		pthread_cond_wait(&ring->room_cond, &ring->lock);
	memcpy(slot_of(ring, ring->submitted), op,
	       op->own ? sizeof(*op) : ring->rings->driver->op_nbytes);
	if (ring->submitted++ == ring->completed)
		pthread_cond_signal(&ring->work_cond);
	return SRT_OK;
}

static srt_status_t put_direct(srt_ring_t *ring, const srt_ring_op_t *op)
{
	srt_ring_scope_t scope = srt_ring_enter(ring->rings);

	set_failure(ring, run_op(ring, op));
	srt_ring_leave(scope);
	return SRT_OK;
}

srt_status_t srt_ring_put(srt_ring_t *ring, const srt_ring_op_t *op)
{
	srt_status_t status;

	pthread_mutex_lock(&ring->lock);
	if (op->blocks || ring->submitted != ring->completed)
		status = put_deferred(ring, op);
	else
		status = put_direct(ring, op);
	pthread_mutex_unlock(&ring->lock);
	return status;
}

void srt_ring_drain(srt_ring_t *ring)
{
	uint64_t until;

	pthread_mutex_lock(&ring->lock);
	until = ring->submitted;
	while (ring->completed < until)
		pthread_cond_wait(&ring->room_cond, &ring->lock);
	pthread_mutex_unlock(&ring->lock);
}

srt_status_t srt_ring_sync(void *stream)
{
	srt_ring_t *ring = stream;
	const srt_host_services_t *host = ring->rings->host;
	srt_ring_scope_t scope;
	srt_status_t status;

	srt_ring_drain(ring);
	scope = srt_ring_enter(ring->rings);
	status = ring->rings->driver->sync(ring);
	pthread_mutex_lock(&ring->lock);
	set_failure(ring, status);
	status = ring->failure.status;
	if (status != SRT_OK)
		host->fail(status, "%s", ring->failure.message);
	pthread_mutex_unlock(&ring->lock);
	srt_ring_leave(scope);
	return status;
}

/* ---- host functions ---------------------------------------------------------------------- */

static srt_status_t run_host_fn(srt_ring_t *ring, const srt_ring_op_t *op)
{
	srt_status_t status = ring->rings->driver->finish(ring);

	return status == SRT_OK ? op->u.host.fn(op->u.host.arg) : status;
}

srt_status_t srt_ring_host_fn(void *stream, srt_host_fn *fn, void *arg)
{
	return srt_ring_put(stream, &(srt_ring_op_t){
					    .own = run_host_fn,
					    .blocks = true,
					    .u.host = { .fn = fn, .arg = arg },
				    });
}
