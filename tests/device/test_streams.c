/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams and events of any device, on the cpu of both kinds: order, events between streams,
 * failure and its way across events, full queues, destruction with work pending. Run under
 * ThreadSanitizer too: the functions below touch shared memory that only the stream's order
 * protects.
 */
#include <time.h>

#include "tests/harness/device.h"

#define LONG_LIST 2000 /* more than a queue holds */

/* A list that host functions append to, in stream order. */
typedef struct list {
	int values[LONG_LIST];
	int n;
} list_t;

typedef struct append {
	list_t *list;
	int value;
} append_t;

static srt_status_t append(void *arg)
{
	append_t *a = arg;

	a->list->values[a->list->n++] = a->value;
	return SRT_OK;
}

static srt_status_t append_slowly(void *arg)
{
	nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
	return append(arg);
}

static srt_status_t fail_fn(void *arg)
{
	return srt_fail(SRT_ERR_DEVICE, "the %s burst", (const char *)arg);
}

static srt_status_t fail_silently(void *arg)
{
	(void)arg;
	return SRT_ERR_TIMEOUT;
}

static void test_order(srt_device_t *device)
{
	static append_t args[LONG_LIST];
	static list_t list;
	srt_stream_t *s = test_stream(device, "order");
	int wrong = 0;

	list.n = 0;
	for (int i = 0; i < LONG_LIST; i++) {
		args[i] = (append_t){ &list, i };
		CHECK_OK(srt_stream_host_fn(s, append, &args[i]));
	}
	CHECK_OK(srt_stream_sync(s));
	CHECK_INT(list.n, LONG_LIST);
	for (int i = 0; i < LONG_LIST; i++)
		wrong += list.values[i] != i;
	CHECK_INT(wrong, 0);
	srt_stream_destroy(s);
}

/* Two streams write one list; only the events keep them apart. */
static void test_events(srt_device_t *device)
{
	static append_t args[300];
	static list_t list;
	srt_stream_t *s[2] = { test_stream(device, "even"), test_stream(device, "odd") };
	srt_event_t *done[2];
	int wrong = 0, flag = 7;

	list.n = 0;
	for (int i = 0; i < 2; i++) {
		CHECK_OK_OR_DIE(srt_event_create(device, &done[i]));
		CHECK_OK(srt_event_query(done[i], &flag)); /* never recorded: nothing to wait for */
		CHECK_INT(flag, 1);
		CHECK_OK(srt_event_sync(done[i]));
	}
	CHECK_OK(srt_stream_wait_event(s[0], done[1]));
	for (int i = 0; i < 300; i++) {
		srt_stream_t *me = s[i % 2];

		args[i] = (append_t){ &list, i };
		/* producer: the other stream's append i-1; consumer: append i */
		CHECK_OK(srt_stream_wait_event(me, done[(i + 1) % 2]));
		CHECK_OK(srt_stream_host_fn(me, append, &args[i]));
		CHECK_OK(srt_event_record(done[i % 2], me));
	}
	CHECK_OK(srt_event_sync(done[1]));
	CHECK_INT(list.n, 300);
	for (int i = 0; i < 300; i++)
		wrong += list.values[i] != i;
	CHECK_INT(wrong, 0);
	CHECK_OK(srt_event_query(done[0], &flag));
	CHECK_INT(flag, 1);
	for (int i = 0; i < 2; i++) {
		srt_stream_destroy(s[i]);
		srt_event_destroy(done[i]);
	}
}

/* A wait means the record before it; recording again and destroying the event do not change
 * that. */
static void test_event_moves(srt_device_t *device)
{
	static list_t list;
	append_t first = { &list, 1 }, second = { &list, 2 };
	srt_stream_t *slow = test_stream(device, "slow"), *other = test_stream(device, "other");
	srt_stream_t *waiter = test_stream(device, "waiter");
	srt_event_t *event;

	list.n = 0;
	CHECK_OK_OR_DIE(srt_event_create(device, &event));
	CHECK_OK(srt_stream_host_fn(slow, append_slowly, &first));
	CHECK_OK(srt_event_record(event, slow));
	CHECK_OK(srt_stream_wait_event(waiter, event));
	CHECK_OK(srt_event_record(event, other));
	CHECK_OK(srt_event_sync(event)); /* of the idle stream */
	CHECK_OK(srt_stream_host_fn(waiter, append, &second));
	srt_event_destroy(event);
	CHECK_OK(srt_stream_sync(waiter));
	CHECK_INT(list.n, 2);
	CHECK_INT(list.values[0], 1);
	CHECK_INT(list.values[1], 2);
	srt_stream_destroy(slow);
	srt_stream_destroy(other);
	srt_stream_destroy(waiter);
}

static void test_poison(srt_device_t *device)
{
	static list_t list;
	append_t before = { &list, 1 }, after = { &list, 2 };
	srt_stream_t *bad = test_stream(device, "bad"), *next = test_stream(device, "next");
	srt_stream_t *clean = test_stream(device, "clean");
	srt_buffer_t *b = test_buffer(device, 1000, "b");
	srt_event_t *early, *late;
	unsigned char byte = 0, bytes[1000];

	list.n = 0;
	memset(bytes, 1, sizeof(bytes));
	CHECK_OK_OR_DIE(srt_event_create(device, &early));
	CHECK_OK_OR_DIE(srt_event_create(device, &late));
	CHECK_OK(srt_stream_host_fn(bad, append, &before));
	CHECK_OK(srt_event_record(early, bad));
	CHECK_OK(srt_stream_host_fn(bad, fail_fn, (void *)"boiler"));
	CHECK_OK(srt_stream_host_fn(bad, fail_fn, (void *)"second boiler"));
	CHECK_OK(srt_stream_host_fn(bad, append, &after));
	CHECK_OK(srt_buffer_copy_from_host(b, 0, bytes, 1, bad));
	CHECK_OK(srt_buffer_copy_from_host(b, 0, bytes, sizeof(bytes), bad));
	CHECK_OK(srt_event_record(late, bad));
	CHECK_STATUS(srt_stream_sync(bad), SRT_ERR_DEVICE);
	CHECK_STR(srt_error_last(), "the boiler burst");
	CHECK_STATUS(srt_stream_sync(bad), SRT_ERR_DEVICE); /* it stays */
	CHECK_INT(list.n, 1);                               /* what followed was skipped */
	CHECK_STATUS(srt_buffer_copy_to_host(&byte, b, 0, 1, bad), SRT_ERR_DEVICE);
	CHECK_OK(srt_buffer_copy_to_host(&byte, b, 0, 1, clean));
	CHECK_INT(byte, 0);

	/* The record before the failure is good, the one after it carries the failure over. */
	CHECK_OK(srt_event_sync(early));
	CHECK_OK(srt_stream_wait_event(clean, early));
	CHECK_OK(srt_stream_sync(clean));
	CHECK_STATUS(srt_event_sync(late), SRT_ERR_DEVICE);
	CHECK_STR(srt_error_last(), "the boiler burst");
	CHECK_OK(srt_stream_wait_event(next, late));
	CHECK_OK(srt_stream_host_fn(next, append, &after));
	CHECK_STATUS(srt_stream_sync(next), SRT_ERR_DEVICE);
	CHECK_STR(srt_error_last(), "the boiler burst");
	CHECK_INT(list.n, 1);
	/* The wait goes on, from stream to stream. */
	CHECK_OK(srt_event_record(early, next));
	CHECK_OK(srt_stream_wait_event(clean, early));
	CHECK_STATUS(srt_stream_sync(clean), SRT_ERR_DEVICE);
	srt_event_destroy(early);
	srt_event_destroy(late);
	srt_stream_destroy(bad);
	srt_stream_destroy(next);
	srt_stream_destroy(clean);
	srt_buffer_destroy(b);
}

/* A function that fails without a sentence still hands its status on. */
static void test_silent_failure(srt_device_t *device)
{
	srt_stream_t *s = test_stream(device, "silent");

	CHECK_OK(srt_stream_host_fn(s, fail_silently, NULL));
	CHECK_STATUS(srt_stream_sync(s), SRT_ERR_TIMEOUT);
	srt_stream_destroy(s);
}

static char logged[512];
static int nlogged;

static void keep_log(srt_log_level_t level, const char *message, void *arg)
{
	(void)level;
	(void)arg;
	nlogged++;
	snprintf(logged, sizeof(logged), "%s", message);
}

static void know_failure(void *arg, int status, const char *message)
{
	(void)arg;
	(void)status;
	(void)message;
}

/*
 * A failure that sync has returned, that came from another stream, or that its function reports
 * itself, is not logged again.
 *
 * Reliability: a stream of a communicator that has failed, when it is destroyed | a warning that no
 * call has returned the failure, though one has | no word
 *
 * Reliability: a stream that is destroyed with a failure that no wait has returned | no word | a
 * warning
 */
static void test_dropped_failure(srt_device_t *device)
{
	srt_stream_t *s = test_stream(device, "dropped"), *next;
	srt_event_t *event;

	srt_log_set(keep_log, SRT_LOG_WARN, NULL);
	CHECK_OK(srt_stream_host_fn(s, fail_fn, (void *)"boiler"));
	srt_stream_destroy(s);
	CHECK_INT(nlogged, 1);
	CHECK(strstr(logged, "\"dropped\"") != NULL && strstr(logged, "the boiler burst") != NULL);

	s = test_stream(device, "seen");
	next = test_stream(device, "next");
	CHECK_OK_OR_DIE(srt_event_create(device, &event));
	CHECK_OK(srt_stream_host_fn(s, fail_fn, (void *)"boiler"));
	CHECK_OK(srt_event_record(event, s));
	CHECK_OK(srt_stream_wait_event(next, event));
	CHECK_STATUS(srt_stream_sync(s), SRT_ERR_DEVICE);
	srt_stream_destroy(next);
	srt_stream_destroy(s);
	srt_event_destroy(event);
	CHECK_INT(nlogged, 1);

	s = test_stream(device, "reported");
	CHECK_OK(srt_stream_host_fn_or(s, fail_fn, know_failure, (void *)"boiler"));
	srt_stream_destroy(s);
	CHECK_INT(nlogged, 1);
	nlogged = 0;
	srt_log_set(NULL, SRT_LOG_WARN, NULL);
}

/* A long sentence is cut, not overrun. */
static srt_status_t fail_at_length(void *arg)
{
	char text[2000];

	(void)arg;
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	return srt_fail(SRT_ERR_IO, "%s", text);
}

static void test_long_sentence(srt_device_t *device)
{
	srt_stream_t *s = test_stream(device, "long");

	CHECK_OK(srt_stream_host_fn(s, fail_at_length, NULL));
	CHECK_STATUS(srt_stream_sync(s), SRT_ERR_IO);
	CHECK(strlen(srt_error_last()) > 100);
	srt_stream_destroy(s);
}

static void test_destroy_pending(srt_device_t *device)
{
	static append_t args[100];
	static list_t list;
	srt_stream_t *producer = test_stream(device, "producer");
	srt_stream_t *consumer = test_stream(device, "consumer");
	srt_event_t *event;

	list.n = 0;
	CHECK_OK_OR_DIE(srt_event_create(device, &event));
	args[0] = (append_t){ &list, 0 };
	CHECK_OK(srt_stream_host_fn(producer, append_slowly, &args[0]));
	CHECK_OK(srt_event_record(event, producer));
	CHECK_OK(srt_stream_wait_event(consumer, event));
	for (int i = 1; i < 100; i++) {
		args[i] = (append_t){ &list, i };
		CHECK_OK(srt_stream_host_fn(consumer, append, &args[i]));
	}
	srt_event_destroy(event);
	srt_stream_destroy(consumer); /* waits for its work, which waits for the producer's */
	CHECK_INT(list.n, 100);
	srt_stream_destroy(producer);
}

/* Uploads are copied by the call, whatever their size. */
static void test_uploads(srt_device_t *device)
{
	static const size_t sizes[] = { 1, 255, 256, 257, 5000 };
	srt_stream_t *s = test_stream(device, "uploads");
	srt_buffer_t *b = test_buffer(device, 5000, "b");
	unsigned char in[5000], out[5000];

	for (size_t i = 0; i < SRT_ARRAY_LEN(sizes); i++) {
		size_t wrong = 0;

		memset(in, (int)(i + 1), sizeof(in));
		CHECK_OK(srt_buffer_copy_from_host(b, 0, in, sizes[i], s));
		memset(in, 0xff, sizeof(in));
		CHECK_OK(srt_buffer_copy_to_host(out, b, 0, sizes[i], s));
		for (size_t j = 0; j < sizes[i]; j++)
			wrong += out[j] != i + 1;
		CHECK_INT(wrong, 0);
	}
	srt_stream_destroy(s);
	srt_buffer_destroy(b);
}

/* Many small launches, whose argument blocks live in the queue. */
static void test_launches(srt_device_t *device)
{
	srt_stream_t *s = test_stream(device, "launches");
	srt_buffer_t *b = test_buffer(device, 1000 * sizeof(float), "b");
	float y[1000];
	int wrong = 0;

	for (int i = 0; i < 1000; i++)
		CHECK_OK(srt_op_fill(srt_view(b, (size_t)i * sizeof(float), SRT_F32), (float)i,
				     1000 - i, s));
	test_get(s, y, b, 0, sizeof(y));
	for (int i = 0; i < 1000; i++)
		wrong += y[i] != (float)i;
	CHECK_INT(wrong, 0);
	srt_stream_destroy(s);
	srt_buffer_destroy(b);
}

int main(void)
{
	static const char *const kinds[] = { "inline", "threads" }; /* of the cpu */

	for (size_t i = 0; i < (test_is_cpu() ? SRT_ARRAY_LEN(kinds) : 1); i++) {
		srt_device_t *device = test_device(2, kinds[i]);

		if (test_is_cpu())
			CHECK_INT(device->caps.async_streams, i == 1);
		test_order(device);
		test_events(device);
		test_event_moves(device);
		test_poison(device);
		test_silent_failure(device);
		test_dropped_failure(device);
		test_long_sentence(device);
		test_destroy_pending(device);
		test_uploads(device);
		test_launches(device);
		srt_device_close(device);
	}
	return check_done();
}
