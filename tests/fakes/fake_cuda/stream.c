/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams: a thread each, which takes operations from a list in order and waits a random time
 * before some of them. An operation that fails makes its context fail for good, as a faulting
 * kernel does: every later call reports it, and what is queued is skipped.
 */
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "base/fpenv.h"
#include "tests/fakes/fake_cuda/fake.h"

/* ---- operations ---------------------------------------------------------------------------- */
fake_op_t *fake_op_new(fake_op_kind_t kind, const char *name, size_t nbytes)
{
	fake_op_t *op = calloc(1, sizeof(*op) + nbytes);

	if (op == NULL)
		abort();
	op->kind = kind;
	op->name = name;
	return op;
}

fake_point_t *fake_point_new(int refs)
{
	fake_point_t *point = calloc(1, sizeof(*point));

	if (point == NULL)
		abort();
	point->refs = refs;
	return point;
}

void fake_point_drop(fake_point_t *point)
{
	if (point != NULL && --point->refs == 0)
		free(point);
}

static void run_host_fn(fake_lane_t *lane, const fake_op_t *op)
{
	fake_lock();
	fake_clock_join(&fake_fn_clock, &lane->clock);
	fake_unlock();
	fake_thread.in_host_fn = true;
	op->u.host.fn(op->u.host.arg);
	fake_thread.in_host_fn = false;
	fake_lock();
	fake_clock_join(&lane->clock, &fake_fn_clock);
	fake_unlock();
}

/* Runs one that is no event's. Without the lock. */
static void run(CUcontext ctx, fake_lane_t *lane, const fake_op_t *op)
{
	switch (op->kind) {
	case FAKE_COPY:
	case FAKE_SET:
		fake_run_copy(ctx, lane, op);
		break;
	case FAKE_LAUNCH:
		fake_run_launch(ctx, lane, op);
		break;
	case FAKE_HOST_FN:
		run_host_fn(lane, op);
		break;
	case FAKE_RECORD:
	case FAKE_WAIT:
		break; /* run_event() */
	}
}

/* ---- the stream's thread ------------------------------------------------------------------- */
/* One operation in four comes late. */
static void random_delay(CUstream stream)
{
	uint32_t r = fake_random(&stream->random);

	if (fake.delay_us && r % 4 == 0)
		nanosleep(&(struct timespec){ .tv_nsec = (long)((r >> 8) % fake.delay_us) * 1000 },
			  NULL);
}

/* Called with the lock held. Waits and records see to themselves when the context has failed:
 * others wait for them. */
static void run_event(CUstream stream, fake_op_t *op)
{
	fake_point_t *point = op->u.point;

	if (op->kind == FAKE_RECORD) {
		point->reached = true;
		point->clock = stream->lane.clock;
		pthread_cond_broadcast(&fake.changed);
	} else {
		while (!point->reached)
			pthread_cond_wait(&fake.changed, &fake.lock);
		fake_clock_join(&stream->lane.clock, &point->clock);
	}
	fake_point_drop(point);
}

static void run_first(CUstream stream)
{
	fake_op_t *op = stream->first;
	CUcontext ctx = stream->object.ctx;

	stream->first = op->next;
	if (stream->first == NULL)
		stream->last = &stream->first;
	stream->length--;
	stream->busy = true;
	fake_unlock();
	random_delay(stream);
	fake_lock();
	fake_clock_join(&stream->lane.clock, &op->known);
	if (op->fails && !ctx->sticky)
		ctx->sticky = fake_fail_code();
	if (op->kind == FAKE_RECORD || op->kind == FAKE_WAIT) {
		run_event(stream, op);
	} else if (!ctx->sticky) {
		fake_unlock();
		run(ctx, &stream->lane, op);
		fake_lock();
	}
	free(op);
	stream->busy = false;
	pthread_cond_broadcast(&fake.changed);
}

static void *stream_main(void *arg)
{
	CUstream stream = arg;

	srt_fpenv_set(SRT_FPENV_DEFAULT);
	fake_lock();
	while (stream->first != NULL || !stream->ending) {
		if (stream->first != NULL)
			run_first(stream);
		else
			pthread_cond_wait(&stream->work, &fake.lock);
	}
	fake_unlock();
	return NULL;
}

/* A queue is bounded as the driver's, and who waits for room has the driver's lock. */
static void await_room(CUstream stream)
{
	if (stream->length < fake.queue)
		return;
	fake.nfull++;
	while (stream->length >= fake.queue)
		pthread_cond_wait(&fake.changed, &fake.lock);
	fake.nfull--;
	pthread_cond_broadcast(&fake.changed);
}

void fake_put(CUstream stream, fake_op_t *op)
{
	await_room(stream);
	stream->length++;
	op->known = fake_host_clock;
	if (op->kind != FAKE_RECORD && op->kind != FAKE_WAIT)
		op->fails = fake_op_should_fail(op->name);
	*stream->last = op;
	stream->last = &op->next;
	pthread_cond_signal(&stream->work);
}

/* ---- waiting ------------------------------------------------------------------------------- */
void fake_wait_stream(CUstream stream)
{
	while (stream->first != NULL || stream->busy)
		pthread_cond_wait(&fake.changed, &fake.lock);
	fake_clock_join(&fake_host_clock, &stream->lane.clock);
	fake_race_tidy();
	fake.host_syncs++;
}

/* Streams may come and go meanwhile, so from the start each time. */
void fake_wait_context(CUcontext ctx)
{
	int i = 0;

	while (i < FAKE_MAX_SLOTS) {
		CUstream s = fake.streams[i];

		if (s != NULL && s->object.ctx == ctx && (s->first != NULL || s->busy)) {
			pthread_cond_wait(&fake.changed, &fake.lock);
			i = 0;
		} else {
			i++;
		}
	}
	for (i = 0; i < FAKE_MAX_SLOTS; i++)
		if (fake.streams[i] != NULL && fake.streams[i]->object.ctx == ctx)
			fake_clock_join(&fake_host_clock, &fake.streams[i]->lane.clock);
	fake_race_tidy();
	fake.host_syncs++;
}

/* ---- the driver's functions ---------------------------------------------------------------- */
CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority)
{
	fake_entry_t call = { .name = "cuStreamCreateWithPriority" };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);
	CUstream stream;
	sigset_t all, old;

	if (status == CUDA_SUCCESS && flags != CU_STREAM_NON_BLOCKING && flags != CU_STREAM_DEFAULT)
		status = CUDA_ERROR_INVALID_VALUE;
	if (status != CUDA_SUCCESS)
		return fake_leave(&call, status);
	stream = calloc(1, sizeof(*stream));
	if (stream == NULL)
		abort();
	fake_object_add(stream, FAKE_STREAM, fake_current());
	stream->last = &stream->first;
	stream->priority = priority;
	stream->lane.slot = fake_slot_take();
	stream->lane.stream = stream->object.number;
	fake.streams[stream->lane.slot] = stream;
	stream->random = fake.seed ^ stream->object.number * 2654435761u;
	pthread_cond_init(&stream->work, NULL);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	if (pthread_create(&stream->thread, NULL, stream_main, stream) != 0)
		abort();
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	call.stream_number = stream->object.number;
	*out = stream;
	return fake_leave(&call, CUDA_SUCCESS);
}

void fake_stream_end(CUstream stream)
{
	stream->ending = true;
	pthread_cond_signal(&stream->work);
	fake_unlock();
	pthread_join(stream->thread, NULL);
	fake_lock();
	pthread_cond_destroy(&stream->work);
	fake_object_remove(stream);
	fake.streams[stream->lane.slot] = NULL;
	fake_slot_release(stream->lane.slot);
	free(stream);
}

/* The driver's returns at once and the work goes on; here it waits, as nothing can tell. */
CUresult cuStreamDestroy(CUstream stream)
{
	fake_entry_t call = { .name = "cuStreamDestroy", .has_stream = true, .stream = stream };
	CUresult status = fake_enter(&call, FAKE_CURRENT);

	if (status != CUDA_SUCCESS && !(fake_current() != NULL && status == fake_current()->sticky))
		return fake_leave(&call, status);
	fake_stream_end(stream);
	return fake_leave(&call, status);
}

CUresult cuStreamSynchronize(CUstream stream)
{
	fake_entry_t call = { .name = "cuStreamSynchronize", .has_stream = true, .stream = stream };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);

	if (status == CUDA_SUCCESS) {
		fake_wait_stream(stream);
		status = stream->object.ctx->sticky;
	}
	return fake_leave(&call, status);
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn fn, void *arg)
{
	fake_entry_t call = { .name = "cuLaunchHostFunc", .has_stream = true, .stream = stream };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);
	fake_op_t *op;

	if (status == CUDA_SUCCESS && fn == NULL)
		status = CUDA_ERROR_INVALID_VALUE;
	if (status == CUDA_SUCCESS) {
		op = fake_op_new(FAKE_HOST_FN, call.name, 0);
		op->u.host.fn = fn;
		op->u.host.arg = arg;
		fake_put(stream, op);
	}
	return fake_leave(&call, status);
}
