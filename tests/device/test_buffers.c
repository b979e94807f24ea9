/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Buffers, views and copies on any device: memory of all kinds is zero and keeps what is put there,
 * is counted, and what does not fit is refused with a sentence and without effect. A buffer is
 * freed when commands have passed it, and a device closes when its last object is destroyed.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "tests/harness/device.h"

static void test_buffers(srt_device_t *device, srt_stream_t *stream)
{
	static const size_t sizes[] = { 1, 63, 64, 4097, 3 << 20 };
	static const srt_mem_kind_t kinds[] = { SRT_MEM_DEVICE, SRT_MEM_PINNED, SRT_MEM_PEER };
	uint64_t made = srt_device_allocations(device);

	for (size_t k = 0; k < SRT_ARRAY_LEN(kinds); k++) {
		for (size_t i = 0; i < SRT_ARRAY_LEN(sizes); i++) {
			unsigned char *bytes = malloc(sizes[i]);
			srt_buffer_t *b = NULL;
			size_t nonzero = 0, wrong = 0;

			CHECK_OR_DIE(bytes != NULL);
			CHECK_OK_OR_DIE(srt_buffer_create(device, kinds[k], sizes[i], "x", &b));
			CHECK_INT(srt_buffer_nbytes(b), sizes[i]);
			CHECK_INT(srt_device_allocated(device), sizes[i]);
			CHECK_INT(srt_device_allocations(device), ++made);
			memset(bytes, 0xff, sizes[i]);
			test_get(stream, bytes, b, 0, sizes[i]);
			for (size_t j = 0; j < sizes[i]; j++)
				nonzero += bytes[j] != 0;
			CHECK_INT(nonzero, 0);
			for (size_t j = 0; j < sizes[i]; j++)
				bytes[j] = (unsigned char)(j * 7 + 1);
			test_put(stream, b, 0, bytes, sizes[i]);
			memset(bytes, 0, sizes[i]);
			test_get(stream, bytes, b, 0, sizes[i]);
			for (size_t j = 0; j < sizes[i]; j++)
				wrong += bytes[j] != (unsigned char)(j * 7 + 1);
			CHECK_INT(wrong, 0);
			CHECK(kinds[k] != SRT_MEM_PINNED || srt_buffer_host(b) != NULL);
			srt_buffer_destroy(b);
			free(bytes);
			CHECK_INT(srt_device_allocated(device), 0);
		}
	}
}

static void test_limits(srt_device_t *device)
{
	srt_buffer_t *b = NULL;

	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, 0, "empty", &b));
	CHECK_INT(srt_buffer_nbytes(b), 0);
	CHECK(srt_buffer_host(b) == NULL);
	srt_buffer_destroy(b);
	srt_buffer_destroy(NULL);
	CHECK_INT(srt_device_allocated(device), 0);
	b = NULL;
	CHECK_STATUS(srt_buffer_create(device, SRT_MEM_DEVICE, SIZE_MAX, "all of it", &b),
		     SRT_ERR_OUT_OF_MEMORY);
	CHECK_ERROR_HAS("\"all of it\"");
	CHECK_STATUS(srt_buffer_create(device, (srt_mem_kind_t)7, 8, "x", &b),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_buffer_create(NULL, SRT_MEM_DEVICE, 8, "x", &b), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_buffer_create(device, SRT_MEM_DEVICE, 8, NULL, NULL),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK(b == NULL);
	CHECK_INT(srt_device_allocated(device), 0);
}

static void test_views(srt_device_t *device)
{
	srt_buffer_t *b = test_buffer(device, 100, "weights");
	srt_view_t v = srt_view(b, 4, SRT_F32);

	CHECK_OK(srt_view_check(&v, 24, "x"));
	CHECK_OK(srt_view_check(&v, 0, "x"));
	CHECK_STATUS(srt_view_check(&v, 25, "x"), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("do not fit into buffer \"weights\" of 100 bytes");
	CHECK_STATUS(srt_view_check(&v, SIZE_MAX, "x"), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_view_check(&v, SIZE_MAX / 4, "x"), SRT_ERR_INVALID_ARGUMENT);
	v.offset = 6;
	CHECK_STATUS(srt_view_check(&v, 1, "x"), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("not a multiple of 4");
	v = srt_view(b, 6, SRT_BF16);
	CHECK_OK(srt_view_check(&v, 47, "x"));
	v = srt_view(b, 100, SRT_F64);
	CHECK_STATUS(srt_view_check(&v, 0, "x"), SRT_ERR_INVALID_ARGUMENT);
	v = srt_view(b, 104, SRT_F64);
	CHECK_STATUS(srt_view_check(&v, 0, "x"), SRT_ERR_INVALID_ARGUMENT);
	v = srt_view(b, 0, (srt_dtype_t)77);
	CHECK_STATUS(srt_view_check(&v, 1, "x"), SRT_ERR_INVALID_ARGUMENT);
	v = srt_view(b, 0, SRT_DTYPE_NONE);
	CHECK_STATUS(srt_view_check(&v, 1, "x"), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("dtype is none");
	v = srt_view(NULL, 0, SRT_F32);
	CHECK_STATUS(srt_view_check(&v, 0, "gamma"), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("gamma is absent");
	srt_buffer_destroy(b);
}

static void test_copies(srt_device_t *device)
{
	srt_buffer_t *a = test_buffer(device, 100, "a"), *b = test_buffer(device, 100, "b");
	srt_stream_t *stream = test_stream(device, "copies");
	unsigned char in[100], out[100];

	for (size_t i = 0; i < sizeof(in); i++)
		in[i] = (unsigned char)(i + 1);
	CHECK_OK(srt_buffer_copy_from_host(a, 0, in, 100, stream));
	CHECK_OK(srt_buffer_copy(b, 10, a, 20, 80, stream));
	CHECK_OK(srt_buffer_copy(b, 0, b, 50, 50, stream)); /* neighbours do not overlap */
	CHECK_OK(srt_buffer_zero(b, 5, 5, stream));
	CHECK_OK(srt_buffer_copy(b, 100, a, 100, 0, stream));
	CHECK_OK(srt_buffer_copy_to_host(out, b, 0, 100, stream));
	for (size_t i = 0; i < 40; i++)
		CHECK_INT(out[i], i >= 5 && i < 10 ? 0 : in[60 + i]);
	for (size_t i = 50; i < 90; i++)
		CHECK_INT(out[i], in[10 + i]);

	CHECK_STATUS(srt_buffer_copy(b, 0, b, 49, 50, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("overlap");
	CHECK_STATUS(srt_buffer_copy(b, 21, a, 0, 80, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("buffer \"b\"");
	CHECK_STATUS(srt_buffer_copy(b, 0, a, SIZE_MAX, 2, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_buffer_copy_from_host(b, 0, NULL, 1, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_buffer_copy_from_host(b, 0, in, 101, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_buffer_copy_to_host(out, b, 99, 2, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_buffer_copy_to_host(NULL, b, 0, 2, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_buffer_zero(b, 101, 0, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_buffer_zero(b, 0, 1, NULL), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_buffer_zero(NULL, 0, 1, stream), SRT_ERR_INVALID_ARGUMENT);
	/* Refused calls leave the stream alone. */
	CHECK_OK(srt_stream_sync(stream));
	srt_stream_destroy(stream);
	srt_buffer_destroy(a);
	srt_buffer_destroy(b);
}

/* Asynchronous both ways, at odd offsets, and from one pinned buffer to another. */
static void test_pinned(srt_device_t *device, srt_stream_t *stream)
{
	enum { N = 70001 };
	srt_buffer_t *b = test_buffer(device, N, "b"), *from, *to;
	unsigned char *p, *q;
	size_t wrong = 0;

	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_PINNED, N, "from", &from));
	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_PINNED, N, "to", &to));
	p = srt_buffer_host(from);
	q = srt_buffer_host(to);
	for (size_t i = 0; i < N; i++)
		p[i] = (unsigned char)(i * 13 + 5);
	CHECK_OK(srt_buffer_copy(b, 3, from, 1, N - 3, stream));
	CHECK_OK(srt_buffer_copy(b, 0, from, 0, 3, stream));
	CHECK_OK(srt_buffer_copy(to, 0, b, 0, N - 1, stream));
	CHECK_OK(srt_buffer_copy(to, N - 1, from, 7, 1, stream));
	CHECK_OK_OR_DIE(srt_stream_sync(stream));
	for (size_t i = 0; i < N; i++)
		wrong += q[i] != p[i < 3 ? i : i == N - 1 ? 7 : i - 2];
	CHECK_INT(wrong, 0);
	srt_buffer_destroy(to);
	srt_buffer_destroy(from);
	srt_buffer_destroy(b);
}

static void test_two_devices(srt_device_t *device)
{
	srt_device_t *other = test_device(1, "inline");
	srt_buffer_t *b = test_buffer(other, 8, "foreign");
	srt_stream_t *stream = test_stream(device, "s");
	srt_event_t *event;

	CHECK_OK_OR_DIE(srt_event_create(other, &event));
	CHECK_STATUS(srt_buffer_zero(b, 0, 8, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("different devices");
	CHECK_STATUS(srt_event_record(event, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("different devices");
	CHECK_STATUS(srt_event_record(NULL, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_event_sync(NULL), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_stream_sync(NULL), SRT_ERR_INVALID_ARGUMENT);
	srt_event_destroy(event);
	srt_event_destroy(NULL);
	srt_stream_destroy(stream);
	srt_stream_destroy(NULL);
	srt_buffer_destroy(b);
	srt_device_close(other);
}

static void sleep_ms(long ms)
{
	nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
}

static srt_status_t await_gate(void *gate)
{
	while (!atomic_load((atomic_bool *)gate))
		sleep_ms(1);
	return SRT_OK;
}

static void *open_later(void *gate)
{
	sleep_ms(50); /* the main thread is in srt_buffer_destroy() meanwhile */
	atomic_store((atomic_bool *)gate, true);
	return NULL;
}

static srt_status_t set_passed(void *passed)
{
	atomic_store((atomic_bool *)passed, true);
	return SRT_OK;
}

/*
 * Commands on the buffer wait for a host function; another stream that is blocked for longer
 * has nothing to do with the buffer.
 *
 * Reliability: a buffer destroyed with work in flight | SIGSEGV in a worker thread | waits for the
 * streams that use it
 */
static void test_destroy_in_flight(void)
{
	srt_device_t *device = test_device(2, "threads");
	srt_stream_t *stream = test_stream(device, "s"), *other = test_stream(device, "other");
	srt_buffer_t *used = test_buffer(device, 1 << 20, "used");
	srt_buffer_t *from = test_buffer(device, 1 << 20, "from");
	atomic_bool gate = false, other_gate = false, passed = false;
	pthread_t thread;

	if (stream->mode == SRT_STREAM_INLINE) {
		srt_buffer_destroy(used);
		srt_buffer_destroy(from);
	} else {
		CHECK_OK(srt_stream_host_fn(other, await_gate, &other_gate));
		CHECK_OK(srt_stream_host_fn(stream, await_gate, &gate));
		CHECK_OK(srt_buffer_zero(from, 0, 1 << 20, stream));
		CHECK_OK(srt_buffer_copy(used, 0, from, 0, 1 << 20, stream));
		CHECK_OK(srt_stream_host_fn(stream, set_passed, &passed));
		CHECK_INT(pthread_create(&thread, NULL, open_later, &gate), 0);
		srt_buffer_destroy(used);
		CHECK(atomic_load(&passed));
		CHECK(!atomic_load(&other_gate));
		srt_buffer_destroy(from);
		pthread_join(thread, NULL);
		atomic_store(&other_gate, true);
		CHECK_OK(srt_stream_sync(stream));
	}
	srt_stream_destroy(other);
	srt_stream_destroy(stream);
	srt_device_close(device);
}

static void count_warnings(srt_log_level_t level, const char *message, void *count)
{
	if (level == SRT_LOG_WARN && strstr(message, "stays open until then") != NULL)
		++*(int *)count;
}

static void test_close_first(void)
{
	srt_device_t *device = test_device(2, "threads");
	srt_stream_t *stream = test_stream(device, "s"), *waiting = test_stream(device, "waits");
	srt_buffer_t *b = test_buffer(device, 4096, "b");
	srt_event_t *event;
	int nwarnings = 0;

	CHECK_OK_OR_DIE(srt_event_create(device, &event));
	CHECK_OK(srt_buffer_zero(b, 0, 4096, stream));
	CHECK_OK(srt_event_record(event, stream));
	CHECK_OK(srt_stream_wait_event(waiting, event));
	CHECK_OK(srt_buffer_zero(b, 0, 4096, waiting));
	srt_log_set(count_warnings, SRT_LOG_WARN, &nwarnings);
	srt_device_close(device);
	srt_log_set(NULL, SRT_LOG_WARN, NULL);
	CHECK_INT(nwarnings, 1);
	srt_event_destroy(event);
	CHECK_OK(srt_buffer_copy(b, 0, b, 2048, 2048, waiting));
	CHECK_OK(srt_stream_sync(stream));
	srt_stream_destroy(stream);
	srt_buffer_destroy(b);
	srt_stream_destroy(waiting);
}

int main(void)
{
	srt_device_t *device = test_device(1, "inline");
	srt_stream_t *stream = test_stream(device, "s");

	test_buffers(device, stream);
	test_limits(device);
	test_views(device);
	test_copies(device);
	test_pinned(device, stream);
	test_two_devices(device);
	test_destroy_in_flight();
	test_close_first();
	srt_stream_destroy(stream);
	srt_device_close(device);
	return check_done();
}
