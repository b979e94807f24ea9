/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two devices in one process, any one and the cpu, with both kinds of the cpu's streams: aliases of
 * buffers, events from one device to the other and back, failures that follow them, destruction in
 * any order. And the host device of a context. Run under ThreadSanitizer too.
 */
#include <pthread.h>
#include <time.h>

#include <shardrt/shardrt.h>

#include "tests/harness/device.h"

#define N 4096
#define NBYTES (N * sizeof(float))
#define ROUNDS 300 /* more commands than a queue holds */

static srt_event_t *new_event(srt_device_t *device)
{
	srt_event_t *event;

	CHECK_OK_OR_DIE(srt_event_create(device, &event));
	return event;
}

static srt_buffer_t *new_pinned(srt_device_t *device, size_t nbytes, const char *name)
{
	srt_buffer_t *buffer;

	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_PINNED, nbytes, name, &buffer));
	return buffer;
}

static srt_status_t await_gate(void *gate)
{
	while (!atomic_load((atomic_bool *)gate))
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	return SRT_OK;
}

static srt_status_t set_passed(void *passed)
{
	atomic_store((atomic_bool *)passed, true);
	return SRT_OK;
}

/* By then the main thread most likely waits. If not, the test checks less and passes. */
static void *open_later(void *gate)
{
	nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	atomic_store((atomic_bool *)gate, true);
	return NULL;
}

static srt_status_t fail_fn(void *what)
{
	return srt_fail(SRT_ERR_DEVICE, "the %s burst", (const char *)what);
}

static void count_logs(srt_log_level_t level, const char *message, void *count)
{
	(void)level;
	(void)message;
	++*(int *)count;
}

/* ---- bytes up and down ------------------------------------------------------------------- */

/* A tensor of the device, and one of the host device with its alias on the device. */
typedef struct pair {
	srt_device_t *device, *host;
	srt_stream_t *stream, *host_stream;
	srt_buffer_t *x, *ones, *host_x, *host_ones, *alias;
	srt_event_t *down, *up;
} pair_t;

static void pair_create(pair_t *p, srt_device_t *device, srt_device_t *host)
{
	*p = (pair_t){ .device = device, .host = host };
	p->stream = test_stream(device, "device");
	p->host_stream = test_stream(host, "host");
	p->x = test_buffer(device, NBYTES, "x");
	p->ones = test_buffer(device, NBYTES, "ones");
	p->host_x = new_pinned(host, NBYTES, "x on the host");
	p->host_ones = new_pinned(host, NBYTES, "ones on the host");
	CHECK_OK_OR_DIE(srt_buffer_alias(device, p->host_x, &p->alias));
	p->down = new_event(device);
	p->up = new_event(host);
	CHECK_OK(srt_op_fill(srt_view(p->ones, 0, SRT_F32), 1, N, p->stream));
	CHECK_OK(srt_op_fill(srt_view(p->host_ones, 0, SRT_F32), 1, N, p->host_stream));
}

static void pair_destroy(pair_t *p)
{
	srt_stream_destroy(p->stream);
	srt_stream_destroy(p->host_stream);
	srt_event_destroy(p->down);
	srt_event_destroy(p->up);
	srt_buffer_destroy(p->host_x);
	srt_buffer_destroy(p->host_ones);
	srt_buffer_destroy(p->alias);
	srt_buffer_destroy(p->x);
	srt_buffer_destroy(p->ones);
}

/* The device adds 1, and the host device adds 2 to the same numbers. */
static void pair_round(pair_t *p)
{
	CHECK_OK(srt_op_axpy(srt_view(p->x, 0, SRT_F32), srt_view(p->ones, 0, SRT_F32), 1, N,
			     p->stream));
	CHECK_OK(srt_buffer_copy(p->alias, 0, p->x, 0, NBYTES, p->stream));
	CHECK_OK(srt_event_record(p->down, p->stream));
	CHECK_OK(srt_stream_wait_event(p->host_stream, p->down));
	CHECK_OK(srt_op_axpy(srt_view(p->host_x, 0, SRT_F32), srt_view(p->host_ones, 0, SRT_F32), 2,
			     N, p->host_stream));
	CHECK_OK(srt_event_record(p->up, p->host_stream));
	CHECK_OK(srt_stream_wait_event(p->stream, p->up));
	CHECK_OK(srt_buffer_copy(p->x, 0, p->alias, 0, NBYTES, p->stream));
}

static void pair_check(pair_t *p, int nrounds)
{
	static float x[N], host_x[N];
	int wrong = 0;

	test_get(p->stream, x, p->x, 0, NBYTES);
	test_get(p->host_stream, host_x, p->host_x, 0, NBYTES);
	for (int i = 0; i < N; i++)
		wrong += x[i] != (float)(3 * nrounds) || host_x[i] != (float)(3 * nrounds);
	CHECK_INT(wrong, 0);
}

/* Only the events order the two devices. */
static void test_rounds(srt_device_t *device, srt_device_t *host)
{
	pair_t p;

	pair_create(&p, device, host);
	for (int i = 0; i < ROUNDS; i++)
		pair_round(&p);
	pair_check(&p, ROUNDS);
	pair_destroy(&p);
}

static void test_steady(srt_device_t *device, srt_device_t *host)
{
	uint64_t nallocations[2] = { 0 };
	int ngens[2] = { 0 }, nrounds = 0;
	pair_t p;

	pair_create(&p, device, host);
	for (; nrounds < 20; nrounds++) {
		pair_round(&p);
		pair_check(&p, nrounds + 1);
		if (nrounds >= 2) {
			CHECK_INT(srt_device_allocations(device), nallocations[0]);
			CHECK_INT(srt_device_allocations(host), nallocations[1]);
			CHECK_INT(device->ngens, ngens[0]);
			CHECK_INT(host->ngens, ngens[1]);
		}
		nallocations[0] = srt_device_allocations(device);
		nallocations[1] = srt_device_allocations(host);
		ngens[0] = device->ngens;
		ngens[1] = host->ngens;
	}
	pair_destroy(&p);
}

/* ---- aliases ----------------------------------------------------------------------------- */

static void test_alias(srt_device_t *device, srt_device_t *host)
{
	srt_buffer_t *mine = test_buffer(device, NBYTES, "mine"), *empty = new_pinned(host, 0, "");
	srt_buffer_t *pinned = new_pinned(device, 100, "pinned");
	const uint64_t nallocations = srt_device_allocations(device);
	const size_t allocated = srt_device_allocated(device);
	srt_buffer_t *alias = NULL;

	CHECK_OK(srt_buffer_alias(device, mine, &alias));
	CHECK(alias == mine);
	srt_buffer_destroy(alias);
	CHECK_INT(srt_device_allocated(device), allocated);
	if (!device->caps.host_memory) {
		CHECK_STATUS(srt_buffer_alias(host, mine, &alias), SRT_ERR_UNSUPPORTED);
		CHECK_ERROR_HAS("\"mine\"");
		CHECK_ERROR_HAS("no host address");
	}
	CHECK_OK_OR_DIE(srt_buffer_alias(device, empty, &alias));
	CHECK_INT(srt_buffer_nbytes(alias), 0);
	srt_buffer_destroy(empty);
	srt_buffer_destroy(alias);
	/* The other way, of an alias too. */
	CHECK_OK_OR_DIE(srt_buffer_alias(host, pinned, &alias));
	CHECK_INT(srt_buffer_nbytes(alias), 100);
	CHECK(srt_buffer_host(alias) == srt_buffer_host(pinned));
	srt_buffer_destroy(pinned);
	CHECK_OK_OR_DIE(srt_buffer_alias(device, alias, &pinned));
	srt_buffer_destroy(alias);
	((char *)srt_buffer_host(pinned))[99] = 1;
	CHECK_INT(srt_device_allocations(device), nallocations);
	CHECK_INT(srt_device_allocated(device), allocated);
	srt_buffer_destroy(pinned);
	srt_buffer_destroy(mine);
}

/* The memory lives as long as the original and its aliases. */
static void test_alias_destroyed(srt_device_t *device, srt_device_t *host)
{
	srt_stream_t *stream = test_stream(device, "s");
	srt_buffer_t *b = test_buffer(device, NBYTES, "b"), *original, *alias;
	const size_t allocated = srt_device_allocated(host);
	unsigned char bytes[NBYTES];
	size_t wrong = 0;

	for (int original_first = 0; original_first < 2; original_first++) {
		original = new_pinned(host, NBYTES, "original");
		memset(srt_buffer_host(original), 5 + original_first, NBYTES);
		CHECK_OK_OR_DIE(srt_buffer_alias(device, original, &alias));
		CHECK_OK(srt_buffer_copy(b, 0, alias, 0, NBYTES, stream));
		if (original_first) {
			srt_buffer_destroy(original);
			CHECK_INT(srt_device_allocated(host), allocated + NBYTES);
			CHECK_OK(srt_buffer_copy(b, 0, alias, 0, NBYTES, stream));
			srt_buffer_destroy(alias);
		} else {
			srt_buffer_destroy(alias); /* waits for the stream */
			memset(srt_buffer_host(original), 0, NBYTES);
			srt_buffer_destroy(original);
		}
		CHECK_INT(srt_device_allocated(host), allocated);
		test_get(stream, bytes, b, 0, NBYTES);
		for (size_t i = 0; i < NBYTES; i++)
			wrong += bytes[i] != 5 + original_first;
	}
	CHECK_INT(wrong, 0);
	srt_buffer_destroy(b);
	srt_stream_destroy(stream);
}

/* ---- events ------------------------------------------------------------------------------ */

static void test_never_recorded(srt_device_t *from, srt_device_t *to)
{
	srt_stream_t *stream = test_stream(to, "s");
	srt_event_t *event = new_event(from);

	CHECK_OK(srt_stream_wait_event(stream, event));
	CHECK(stream->mode == SRT_STREAM_WORKER || stream->ring == NULL);
	CHECK_OK(srt_stream_sync(stream));
	CHECK_STATUS(srt_event_record(event, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("different devices");
	srt_event_destroy(event);
	srt_stream_destroy(stream);
}

/* Neither the wait, nor one for a stream that waits, blocks the caller. The wait is for the record
 * before it, whatever happens to the event. */
static void test_pending(srt_device_t *from, srt_device_t *to)
{
	srt_stream_t *slow = test_stream(from, "slow"), *idle = test_stream(from, "idle");
	srt_stream_t *waiter = test_stream(to, "waiter"), *next = test_stream(to, "next");
	srt_event_t *event = new_event(from), *second = new_event(to);
	srt_buffer_t *b = test_buffer(to, 4, "b");
	atomic_bool gate = false, passed = false;
	char bytes[4] = "abc";
	int done = 1;

	if (slow->mode != SRT_STREAM_INLINE) {
		CHECK_OK(srt_stream_host_fn(slow, await_gate, &gate));
		CHECK_OK(srt_event_record(event, slow));
		CHECK_OK(srt_stream_wait_event(waiter, event));
		CHECK_OK(srt_event_record(event, idle));
		CHECK_OK(srt_event_sync(event));
		srt_event_destroy(event);
		event = NULL;
		CHECK_OK(srt_buffer_copy_from_host(b, 0, bytes, 4, waiter));
		memset(bytes, 0, sizeof(bytes)); /* the call copied them */
		CHECK_OK(srt_event_record(second, waiter));
		CHECK_OK(srt_stream_wait_event(next, second));
		CHECK_OK(srt_stream_host_fn(next, set_passed, &passed));
		CHECK_OK(srt_event_query(second, &done));
		CHECK_INT(done, 0);
		CHECK(!atomic_load(&passed));
		atomic_store(&gate, true);
		CHECK_OK(srt_stream_sync(next));
		CHECK(atomic_load(&passed));
		test_get(waiter, bytes, b, 0, sizeof(bytes));
		CHECK_STR(bytes, "abc");
	}
	srt_event_destroy(event);
	srt_event_destroy(second);
	srt_stream_destroy(next);
	srt_stream_destroy(waiter);
	srt_stream_destroy(idle);
	srt_stream_destroy(slow);
	srt_buffer_destroy(b);
}

/* ---- failures ---------------------------------------------------------------------------- */

static void test_failure(srt_device_t *from, srt_device_t *to)
{
	srt_stream_t *bad = test_stream(from, "bad"), *next = test_stream(to, "next");
	srt_stream_t *clean = test_stream(to, "clean");
	srt_event_t *early = new_event(from), *late = new_event(from);
	atomic_bool passed = false;

	CHECK_OK(srt_event_record(early, bad));
	CHECK_OK(srt_stream_host_fn(bad, fail_fn, (void *)"boiler"));
	CHECK_OK(srt_event_record(late, bad));
	CHECK_OK(srt_stream_wait_event(clean, early));
	CHECK_OK(srt_stream_sync(clean)); /* recorded before the failure */
	CHECK_OK(srt_stream_wait_event(next, late));
	CHECK_OK(srt_stream_host_fn(next, set_passed, &passed));
	CHECK_STATUS(srt_stream_sync(next), SRT_ERR_DEVICE);
	CHECK_STR(srt_error_last(), "the boiler burst");
	CHECK(!atomic_load(&passed));
	CHECK_STATUS(srt_stream_sync(bad), SRT_ERR_DEVICE);
	srt_event_destroy(early);
	srt_event_destroy(late);
	srt_stream_destroy(bad);
	srt_stream_destroy(next);
	srt_stream_destroy(clean);
}

/* A device that fails as a whole: a stream of the other device that waits for it fails, the other
 * device does not. */
static void test_device_failure(srt_device_t *from, srt_device_t *to)
{
	srt_stream_t *bad = test_stream(from, "bad"), *next = test_stream(to, "next");
	srt_stream_t *clean = test_stream(to, "clean");
	srt_event_t *event = new_event(from);
	srt_buffer_t *b = test_buffer(from, 64, "b");
	int nlogs = 0;

	srt_log_set(count_logs, SRT_LOG_ERROR, &nlogs);
	CHECK_OK(srt_buffer_zero(b, 0, 64, bad));
	srt_device_fail(from, SRT_ERR_PEER_DEAD, "rank 1 is gone");
	CHECK_OK(srt_event_record(event, bad));
	CHECK_OK(srt_stream_wait_event(next, event));
	CHECK_STATUS(srt_stream_sync(next), SRT_ERR_PEER_DEAD);
	CHECK_STR(srt_error_last(), "rank 1 is gone");
	CHECK_OK(srt_stream_sync(clean));
	CHECK_OK(srt_device_check(to));
	CHECK_INT(nlogs, 1);
	srt_log_set(NULL, SRT_LOG_WARN, NULL);
	srt_buffer_destroy(b);
	srt_event_destroy(event);
	srt_stream_destroy(bad);
	srt_stream_destroy(next);
	srt_stream_destroy(clean);
}

/* ---- destruction ------------------------------------------------------------------------- */

/* The waiting stream is destroyed first: it waits for the other device. */
static void test_destroy_waiter(srt_device_t *from, srt_device_t *to)
{
	srt_stream_t *slow = test_stream(from, "slow"), *waiter = test_stream(to, "waiter");
	srt_event_t *event = new_event(from);
	atomic_bool gate = false, passed = false;
	pthread_t thread;

	CHECK_OR_DIE(!pthread_create(&thread, NULL, open_later, &gate));
	CHECK_OK(srt_stream_host_fn(slow, await_gate, &gate));
	CHECK_OK(srt_event_record(event, slow));
	CHECK_OK(srt_stream_wait_event(waiter, event));
	CHECK_OK(srt_stream_host_fn(waiter, set_passed, &passed));
	srt_event_destroy(event);
	srt_stream_destroy(waiter);
	CHECK(atomic_load(&passed) && atomic_load(&gate));
	srt_stream_destroy(slow);
	pthread_join(thread, NULL);
}

/* Closes `from`, for whose event a stream of `to` waits, after earlier work. Nothing of `from` is
 * left, so there is no warning. */
static void test_close(srt_device_t *from, srt_device_t *to)
{
	srt_stream_t *stream = test_stream(from, "s"), *waiter = test_stream(to, "waiter");
	srt_event_t *event = new_event(from);
	srt_buffer_t *b = test_buffer(from, 64, "b");
	atomic_bool gate = false, passed = false;
	pthread_t thread;
	int nwarnings = 0;

	CHECK_OR_DIE(!pthread_create(&thread, NULL, open_later, &gate));
	CHECK_OK(srt_buffer_zero(b, 0, 64, stream));
	CHECK_OK(srt_event_record(event, stream));
	CHECK_OK(srt_stream_host_fn(waiter, await_gate, &gate));
	CHECK_OK(srt_stream_wait_event(waiter, event));
	CHECK_OK(srt_stream_host_fn(waiter, set_passed, &passed));
	srt_buffer_destroy(b);
	srt_stream_destroy(stream);
	srt_event_destroy(event);
	srt_log_set(count_logs, SRT_LOG_WARN, &nwarnings);
	srt_device_close(from);
	srt_log_set(NULL, SRT_LOG_WARN, NULL);
	CHECK_INT(nwarnings, 0);
	CHECK_OK(srt_stream_sync(waiter));
	CHECK(atomic_load(&passed));
	srt_stream_destroy(waiter);
	pthread_join(thread, NULL);
}

/* ---- the host device of a context -------------------------------------------------------- */

/* On a thread, where nothing is checked. */
static void *ask_host(void *context)
{
	srt_device_t *host = NULL;

	return srt_context_host(context, &host) == SRT_OK ? host : NULL;
}

static void test_context(void)
{
	const srt_context_options_t options = { .size = sizeof(options), .threads = 2 };
	srt_context_t *context;
	srt_device_t *device, *host = NULL;
	pthread_t threads[4];
	int nwarnings = 0;

	CHECK_OK_OR_DIE(srt_context_create(&options, &context));
	device = srt_context_device(context);
	for (size_t i = 0; i < SRT_ARRAY_LEN(threads); i++)
		CHECK_OR_DIE(!pthread_create(&threads[i], NULL, ask_host, context));
	CHECK_OK_OR_DIE(srt_context_host(context, &host));
	for (size_t i = 0; i < SRT_ARRAY_LEN(threads); i++) {
		void *theirs = NULL;

		pthread_join(threads[i], &theirs);
		CHECK(theirs == host);
	}
	CHECK_INT(host == device, device->caps.host_memory);
	CHECK_STR(host->backend->name, "cpu");
	CHECK_INT(host->caps.threads, 2);
	CHECK_INT(host->numerics, device->numerics);
	test_rounds(device, host);
	srt_log_set(count_logs, SRT_LOG_WARN, &nwarnings);
	srt_context_destroy(context);
	srt_log_set(NULL, SRT_LOG_WARN, NULL);
	CHECK_INT(nwarnings, 0);
}

static void test_both_ways(srt_device_t *device, srt_device_t *host)
{
	test_rounds(device, host);
	test_steady(device, host);
	test_alias(device, host);
	test_alias_destroyed(device, host);
	for (int i = 0; i < 2; i++) {
		srt_device_t *from = i ? host : device, *to = i ? device : host;

		test_never_recorded(from, to);
		test_pending(from, to);
		test_failure(from, to);
		test_destroy_waiter(from, to);
	}
}

/* The device or the host device is closed, or fails, first. */
static void test_ends(const char *kind, const char *host_kind)
{
	for (int i = 0; i < 4; i++) {
		srt_device_t *device = test_device(2, kind);
		srt_device_t *host = test_cpu_device(2, host_kind);
		srt_device_t *from = i % 2 ? host : device, *to = i % 2 ? device : host;

		if (i < 2) {
			test_close(from, to);
		} else {
			test_device_failure(from, to);
			srt_device_close(from);
		}
		srt_device_close(to);
	}
}

int main(void)
{
	static const char *const kinds[] = { "inline", "threads" }; /* of the cpu */

	for (size_t i = 0; i < (test_is_cpu() ? SRT_ARRAY_LEN(kinds) : 1); i++) {
		for (size_t j = 0; j < SRT_ARRAY_LEN(kinds); j++) {
			srt_device_t *device = test_device(2, kinds[i]);
			srt_device_t *host = test_cpu_device(2, kinds[j]);

			test_both_ways(device, host);
			srt_device_close(device);
			srt_device_close(host);
			test_ends(kinds[i], kinds[j]);
		}
	}
	unsetenv("SHARDRT_CPU_STREAMS");
	test_context();
	return check_done();
}
