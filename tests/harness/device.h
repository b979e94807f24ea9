/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A device for tests of one rank, without a context, and the way to its memory.
 *
 * A test that is about any device opens the one of SHARDRT_BACKEND (default cpu) and reaches
 * buffers through test_put() and test_get() alone: on most devices they have no host address. A
 * test that is about the cpu backend asks for it by name.
 */
#ifndef SRT_TESTS_DEVICE_H
#define SRT_TESTS_DEVICE_H

#include "device/device.h"
#include "tests/harness/check.h"

/* The backend that the test runs on: tests/harness/run_test.sh runs it on each. */
static inline const char *test_backend(void)
{
	const char *name = getenv("SHARDRT_BACKEND");

	return name && name[0] ? name : "cpu";
}

static inline bool test_is_cpu(void)
{
	return !strcmp(test_backend(), "cpu");
}

/* Opens what the selector means to a rank of the node, by a backend that is there. */
static inline srt_status_t test_open_device(const char *backend, const char *selector,
					    int local_rank, srt_device_t **device)
{
	srt_device_request_t request = { .selector = selector,
					 .local_rank = local_rank,
					 .local_size = local_rank + 1,
					 .exact = 1 };

	return srt_device_open(backend, &request, SRT_NUMERICS_EXACT, device);
}

/* Opens a device with streams of a kind, "inline" or "threads"; threads and kind are the cpu's. */
static inline srt_device_t *test_device_of(const char *backend, int threads, const char *streams)
{
	srt_device_request_t request = { .selector = srt_config_string("SHARDRT_DEVICE"),
					 .local_size = 1,
					 .threads = threads,
					 .exact = 1 };
	srt_device_t *device;

	setenv("SHARDRT_CPU_STREAMS", streams, 1);
	CHECK_OK_OR_DIE(srt_device_open(backend, &request, SRT_NUMERICS_EXACT, &device));
	return device;
}

/* For tests of the cpu backend itself. */
static inline srt_device_t *test_cpu_device(int threads, const char *streams)
{
	return test_device_of("cpu", threads, streams);
}

static inline srt_device_t *test_device(int threads, const char *streams)
{
	return test_device_of(test_backend(), threads, streams);
}

static inline srt_buffer_t *test_buffer(srt_device_t *device, size_t nbytes, const char *name)
{
	srt_buffer_t *buffer;

	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, nbytes, name, &buffer));
	return buffer;
}

static inline srt_stream_t *test_stream(srt_device_t *device, const char *name)
{
	srt_stream_t *stream;

	CHECK_OK_OR_DIE(srt_stream_create(device, 0, name, &stream));
	return stream;
}

/* Bytes from the host into a buffer, in stream order. */
static inline void test_put(srt_stream_t *stream, srt_buffer_t *buffer, size_t offset,
			    const void *host, size_t nbytes)
{
	CHECK_OK_OR_DIE(srt_copy_from_host(stream, buffer, offset, host, nbytes));
}

/* Bytes of a buffer to the host, when the stream's work so far has ended. */
static inline void test_get(srt_stream_t *stream, void *host, srt_buffer_t *buffer, size_t offset,
			    size_t nbytes)
{
	CHECK_OK_OR_DIE(srt_copy_to_host(stream, host, buffer, offset, nbytes));
}

#endif
