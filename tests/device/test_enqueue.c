/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * srt_stream_enqueue() on any device, on the cpu with both kinds of streams: the order with the
 * library's commands, with events between two streams and while the stream is blocked; failures;
 * releases of arguments; calls that a function must not make; destruction with work in flight. Run
 * under ThreadSanitizer too: functions run on threads of streams, so they report by their status
 * and count no checks.
 */
#include <pthread.h>
#include <time.h>

#include <shardrt/ops.h>

#include "tests/device/native_work.h"

#define N 1000
#define ROUNDS 20 /* x = 2 x + 1 is exact */

static srt_view_t f32(srt_buffer_t *buffer)
{
	return srt_view(buffer, 0, SRT_F32);
}

/* All of x[first ...] must be the value. */
static void check_values(srt_stream_t *stream, srt_buffer_t *x, size_t first, float value)
{
	static float values[N];
	int wrong = 0;

	test_get(stream, values, x, 0, sizeof(values));
	for (size_t i = first; i < N; i++)
		wrong += values[i] != value;
	CHECK_INT(wrong, 0);
}

/* ---- order ------------------------------------------------------------------------------- */

static void test_order(srt_device_t *device)
{
	srt_stream_t *s = test_stream(device, "s");
	srt_buffer_t *x = test_buffer(device, N * sizeof(float), "x");
	native_work_t *work = native_work_create(device, N);

	for (int repeat = 0; repeat < 20; repeat++) {
		CHECK_OK(srt_buffer_zero(x, 0, N * sizeof(float), s));
		for (int i = 0; i < ROUNDS; i++) {
			CHECK_OK(srt_op_scale(f32(x), f32(x), 2, N, s));
			native_work_add(work, s, x, sizeof(float) * (i == 0), N - (i == 0), 1);
		}
		check_values(s, x, 1, (float)((1 << ROUNDS) - 1));
	}
	native_work_destroy(work);
	srt_buffer_destroy(x);
	srt_stream_destroy(s);
}

/* One stream doubles, the other adds; only events order the two. */
static void test_events(srt_device_t *device)
{
	srt_stream_t *s = test_stream(device, "scale"), *t = test_stream(device, "add");
	srt_buffer_t *x = test_buffer(device, N * sizeof(float), "x");
	native_work_t *work = native_work_create(device, N);
	srt_event_t *scaled, *added;

	CHECK_OK_OR_DIE(srt_event_create(device, &scaled));
	CHECK_OK_OR_DIE(srt_event_create(device, &added));
	for (int i = 0; i < ROUNDS; i++) {
		CHECK_OK(srt_stream_wait_event(s, added));
		CHECK_OK(srt_op_scale(f32(x), f32(x), 2, N, s));
		CHECK_OK(srt_event_record(scaled, s));
		CHECK_OK(srt_stream_wait_event(t, scaled));
		native_work_add(work, t, x, 0, N, 1);
		CHECK_OK(srt_event_record(added, t));
	}
	CHECK_OK(srt_stream_wait_event(s, added));
	check_values(s, x, 0, (float)((1 << ROUNDS) - 1));
	srt_event_destroy(scaled);
	srt_event_destroy(added);
	native_work_destroy(work);
	srt_stream_destroy(s);
	srt_stream_destroy(t);
	srt_buffer_destroy(x);
}

static srt_status_t await_gate(void *gate)
{
	while (!atomic_load((atomic_bool *)gate))
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	return SRT_OK;
}

static void *open_later(void *gate)
{
	nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	atomic_store((atomic_bool *)gate, true);
	return NULL;
}

typedef struct call {
	atomic_int *ncalls;
	srt_status_t status;
	const char *sentence; /* NULL: none */
} call_t;

static srt_status_t count_call(void *queue, const void *arg)
{
	const call_t *call = arg;

	(void)queue;
	atomic_fetch_add(call->ncalls, 1);
	return call->sentence != NULL ? srt_error_set(call->status, call->sentence) : call->status;
}

/* A blocked stream does not block the call, and the function waits for its turn. */
static void test_blocked(srt_device_t *device)
{
	srt_stream_t *s = test_stream(device, "blocked");
	srt_buffer_t *x = test_buffer(device, N * sizeof(float), "x");
	native_work_t *work = native_work_create(device, N);
	atomic_bool gate = false;
	atomic_int ncalls = 0;

	if (s->mode != SRT_STREAM_INLINE) {
		CHECK_OK(srt_stream_host_fn(s, await_gate, &gate));
		native_work_add(work, s, x, 0, N, 1);
		CHECK_OK(srt_op_scale(f32(x), f32(x), 2, N, s));
		native_work_add(work, s, x, 0, N, 1);
		CHECK_OK(srt_stream_enqueue(s, count_call, &(call_t){ &ncalls, SRT_OK, NULL },
					    sizeof(call_t), NULL));
		CHECK_INT(atomic_load(&ncalls), 0);
		atomic_store(&gate, true);
		check_values(s, x, 0, 3);
		CHECK_INT(atomic_load(&ncalls), 1);
	}
	native_work_destroy(work);
	srt_stream_destroy(s);
	srt_buffer_destroy(x);
}

/* ---- arguments --------------------------------------------------------------------------- */

static srt_status_t check_argument(void *queue, const void *arg)
{
	const unsigned char *bytes = arg;
	int wrong = (uintptr_t)arg % 16 != 0;

	(void)queue;
	for (int i = 0; i < SRT_ENQUEUE_MAX_NBYTES; i++)
		wrong += bytes[i] != i;
	return wrong ? srt_error_set(SRT_ERR_IO, "the argument differs") : SRT_OK;
}

static srt_status_t do_nothing(void *queue, const void *arg)
{
	(void)queue;
	(void)arg;
	return SRT_OK;
}

static void test_arguments(srt_device_t *device)
{
	unsigned char bytes[SRT_ENQUEUE_MAX_NBYTES + 1];
	srt_stream_t *s = test_stream(device, "s");

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)i;
	CHECK_OK(srt_stream_enqueue(s, check_argument, bytes, SRT_ENQUEUE_MAX_NBYTES, NULL));
	memset(bytes, 0, sizeof(bytes));
	CHECK_OK(srt_stream_enqueue(s, do_nothing, NULL, 0, NULL));
	CHECK_STATUS(srt_stream_enqueue(s, do_nothing, bytes, sizeof(bytes), NULL),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("241 bytes for stream \"s\", at most 240");
	CHECK_STATUS(srt_stream_enqueue(s, do_nothing, NULL, 1, NULL), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_stream_enqueue(s, NULL, bytes, 1, NULL), SRT_ERR_INVALID_ARGUMENT);
	CHECK_OK(srt_stream_sync(s));
	srt_stream_destroy(s);
}

/* ---- failures ---------------------------------------------------------------------------- */

static srt_status_t leave_error(void *queue, const void *arg)
{
	(void)queue;
	(void)arg;
	srt_error_set(SRT_ERR_IO, "an error that the function handled");
	return SRT_OK;
}

/* Reliability: a function that is enqueued on a stream that has failed | accepted and never called:
 * its argument leaked | the call returns the stream's failure */
static void check_refused(srt_stream_t *failed, srt_enqueue_fn *fn, const call_t *arg)
{
	CHECK_STATUS(srt_stream_enqueue(failed, fn, arg, sizeof(*arg), NULL), SRT_ERR_IO);
	CHECK_ERROR_HAS("stream \"bad\" has failed: ");
}

static void test_failure(srt_device_t *device, const char *sentence, const char *expected)
{
	srt_stream_t *bad = test_stream(device, "bad"), *next = test_stream(device, "next");
	srt_buffer_t *x = test_buffer(device, N * sizeof(float), "x");
	atomic_int ncalls = 0;
	const call_t good = { &ncalls, SRT_OK, NULL }, fails = { &ncalls, SRT_ERR_IO, sentence };
	srt_event_t *event;
	srt_status_t status;

	CHECK_OK_OR_DIE(srt_event_create(device, &event));
	srt_error_set(SRT_OK, "before");
	CHECK_OK(srt_stream_enqueue(bad, leave_error, NULL, 0, NULL));
	CHECK_STR(srt_error_last(), "before");
	CHECK_OK(srt_stream_enqueue(bad, count_call, &good, sizeof(good), NULL));
	CHECK_OK(srt_stream_enqueue(bad, count_call, &fails, sizeof(fails), NULL));
	CHECK_OK(srt_op_fill(f32(x), 1, N, bad)); /* skipped */
	if (bad->mode == SRT_STREAM_INLINE)
		check_refused(bad, count_call, &good);
	CHECK_OK(srt_event_record(event, bad));
	CHECK_OK(srt_stream_wait_event(next, event));
	status = srt_stream_enqueue(next, count_call, &good, sizeof(good), NULL);
	CHECK_MSG(status == SRT_OK || status == SRT_ERR_IO, "%s", srt_error_last());
	CHECK_STATUS(srt_stream_sync(next), SRT_ERR_IO);
	CHECK_STR(srt_error_last(), expected);
	CHECK_STATUS(srt_stream_sync(bad), SRT_ERR_IO);
	CHECK_STR(srt_error_last(), expected);
	check_refused(bad, count_call, &good);
	CHECK_INT(atomic_load(&ncalls), 2);
	srt_stream_destroy(bad);
	srt_stream_destroy(next);
	next = test_stream(device, "clean");
	check_values(next, x, 0, 0);
	srt_stream_destroy(next);
	srt_event_destroy(event);
	srt_buffer_destroy(x);
}

/* ---- release of arguments ---------------------------------------------------------------- */

typedef struct owner {
	call_t call; /* first: count_call() reads it */
	atomic_int *nreleased, *nwrong;
	int min_calls; /* before the release */
} owner_t;

static void count_release(const void *arg)
{
	const owner_t *owner = arg;

	atomic_fetch_add(owner->nreleased, 1);
	if (atomic_load(owner->call.ncalls) < owner->min_calls)
		atomic_fetch_add(owner->nwrong, 1);
	srt_error_set(SRT_ERR_SYSTEM, "an error in release()");
}

/* Reliability: a function that a stream has accepted before the stream fails | never called: its
 * argument leaked | its argument is released in its turn */
static void test_release(srt_device_t *device)
{
	srt_stream_t *bad = test_stream(device, "bad"), *good = test_stream(device, "good");
	const bool is_inline = bad->mode == SRT_STREAM_INLINE;
	atomic_bool gate = is_inline;
	atomic_int ncalls = 0, nreleased = 0, nwrong = 0;
	owner_t owner = { { &ncalls, SRT_OK, NULL }, &nreleased, &nwrong, 1 };
	owner_t fails = { { &ncalls, SRT_ERR_IO, "it burst" }, &nreleased, &nwrong, 2 };

	CHECK_OK(srt_stream_host_fn(bad, await_gate, &gate)); /* inline: the gate is open */
	CHECK_OK(srt_stream_enqueue(bad, count_call, &owner, sizeof(owner), count_release));
	CHECK_OK(srt_stream_enqueue(bad, count_call, &fails, sizeof(fails), count_release));
	CHECK_INT(atomic_load(&nreleased), is_inline ? 2 : 0);
	if (!is_inline)
		CHECK_OK(srt_stream_enqueue(bad, count_call, &fails, sizeof(fails), count_release));
	atomic_store(&gate, true);
	CHECK_STATUS(srt_stream_sync(bad), SRT_ERR_IO);
	CHECK_STR(srt_error_last(), "it burst");
	CHECK_INT(atomic_load(&ncalls), 2);
	CHECK_INT(atomic_load(&nreleased), is_inline ? 2 : 3);

	/* The caller keeps the argument of a call that fails. */
	atomic_store(&nreleased, 0);
	CHECK_STATUS(srt_stream_enqueue(bad, count_call, &owner, sizeof(owner), count_release),
		     SRT_ERR_IO);
	CHECK_STATUS(srt_stream_enqueue(good, NULL, &owner, sizeof(owner), count_release),
		     SRT_ERR_INVALID_ARGUMENT);
	srt_stream_destroy(bad);
	CHECK_INT(atomic_load(&nreleased), 0);

	/* The destruction of a stream waits for the function and its release. */
	srt_error_set(SRT_OK, "before");
	CHECK_OK(srt_stream_enqueue(good, count_call, &owner, sizeof(owner), count_release));
	CHECK_STR(srt_error_last(), "before");
	srt_stream_destroy(good);
	CHECK_INT(atomic_load(&ncalls), 3);
	CHECK_INT(atomic_load(&nreleased), 1);
	CHECK_INT(atomic_load(&nwrong), 0);
}

/* A stream fails before the turns of its functions, and nobody waits for it. */
static void test_release_at_destruction(srt_device_t *device)
{
	srt_stream_t *s = test_stream(device, "s");
	atomic_bool gate = false;
	atomic_int ncalls = 0, nreleased = 0, nwrong = 0;
	const owner_t fails = { { &ncalls, SRT_ERR_IO, "it burst" }, &nreleased, &nwrong, 1 };
	pthread_t thread;

	if (s->mode != SRT_STREAM_INLINE) {
		CHECK_OR_DIE(!pthread_create(&thread, NULL, open_later, &gate));
		CHECK_OK(srt_stream_host_fn(s, await_gate, &gate));
		for (int i = 0; i < 10; i++)
			CHECK_OK(srt_stream_enqueue(s, count_call, &fails, sizeof(fails),
						    count_release));
		pthread_join(thread, NULL);
	}
	srt_stream_destroy(s);
	CHECK_INT(atomic_load(&nreleased), 10 * atomic_load(&ncalls)); /* inline: no calls */
	CHECK_INT(atomic_load(&nwrong), 0);
}

/* ---- calls in a function ----------------------------------------------------------------- */

typedef struct inside {
	srt_stream_t *own, *other;
	srt_buffer_t *x;
	srt_event_t *event;
} inside_t;

static int is_refused(srt_status_t status)
{
	return status == SRT_ERR_STATE &&
	       strstr(srt_error_last(), "must not submit to a stream or wait for one") != NULL;
}

static srt_status_t call_library(void *queue, const void *arg)
{
	const inside_t *in = arg;
	srt_stream_t *streams[] = { in->own, in->other };
	int nrefused = 0;

	(void)queue;
	for (int i = 0; i < 2; i++) {
		nrefused += is_refused(srt_buffer_zero(in->x, 0, 4, streams[i]));
		nrefused += is_refused(srt_stream_enqueue(streams[i], do_nothing, NULL, 0, NULL));
		nrefused += is_refused(srt_stream_sync(streams[i]));
		nrefused += is_refused(srt_event_record(in->event, streams[i]));
	}
	nrefused += is_refused(srt_stream_wait_event(in->own, in->event));
	nrefused += is_refused(srt_event_sync(in->event));
	if (nrefused != 10 || srt_buffer_nbytes(in->x) != 4)
		return srt_error_set(SRT_ERR_IO, "a call was not refused");
	return SRT_OK;
}

static void test_inside(srt_device_t *device)
{
	inside_t in = { .own = test_stream(device, "own"), .other = test_stream(device, "other") };

	in.x = test_buffer(device, 4, "x");
	CHECK_OK_OR_DIE(srt_event_create(device, &in.event));
	CHECK_OK(srt_event_record(in.event, in.other));
	CHECK_OK(srt_stream_enqueue(in.own, call_library, &in, sizeof(in), NULL));
	CHECK_OK(srt_stream_sync(in.own));
	CHECK_OK(srt_buffer_zero(in.x, 0, 4, in.own));
	CHECK_OK(srt_stream_sync(in.own));
	CHECK_OK(srt_stream_sync(in.other));
	srt_event_destroy(in.event);
	srt_buffer_destroy(in.x);
	srt_stream_destroy(in.own);
	srt_stream_destroy(in.other);
}

/* ---- destruction ------------------------------------------------------------------------- */

typedef struct late_call {
	srt_buffer_t *x;
	atomic_int *ncalls;
} late_call_t;

static srt_status_t use_buffer(void *queue, const void *arg)
{
	const late_call_t *call = arg;

	(void)queue;
	if (srt_buffer_host(call->x) != NULL)
		memset(srt_buffer_host(call->x), 1, 64);
	atomic_fetch_add(call->ncalls, 1);
	return SRT_OK;
}

/* The buffer is used by functions alone, so its destruction waits for their stream. */
static void test_destroy(srt_device_t *device)
{
	srt_stream_t *s = test_stream(device, "s");
	srt_buffer_t *x = test_buffer(device, 64, "x");
	atomic_bool gate = false;
	atomic_int ncalls = 0;
	pthread_t thread;

	CHECK_OR_DIE(!pthread_create(&thread, NULL, open_later, &gate));
	CHECK_OK(srt_stream_host_fn(s, await_gate, &gate));
	CHECK_OK(srt_stream_enqueue(s, use_buffer, &(late_call_t){ x, &ncalls },
				    sizeof(late_call_t), NULL));
	srt_buffer_destroy(x);
	CHECK_INT(atomic_load(&ncalls), 1);
	pthread_join(thread, NULL);
	CHECK_OK(srt_stream_enqueue(s, count_call, &(call_t){ &ncalls, SRT_OK, NULL },
				    sizeof(call_t), NULL));
	srt_stream_destroy(s); /* waits too */
	CHECK_INT(atomic_load(&ncalls), 2);
}

int main(void)
{
	static const char *const kinds[] = { "inline", "threads" }; /* of the cpu */

	for (size_t i = 0; i < (test_is_cpu() ? SRT_ARRAY_LEN(kinds) : 1); i++) {
		srt_device_t *device = test_device(2, kinds[i]);

		test_order(device);
		test_events(device);
		test_blocked(device);
		test_arguments(device);
		test_failure(device, "the function burst", "the function burst");
		test_failure(device, NULL,
			     "stream \"bad\": a function of srt_stream_enqueue() failed: "
			     "input/output error");
		test_release(device);
		test_release_at_destruction(device);
		test_inside(device);
		test_destroy(device);
		srt_device_close(device);
	}
	return check_done();
}
