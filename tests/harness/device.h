/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A device for tests of one rank, without a context, and copies to and from its memory.
 *
 * A test of any device opens the one of SHARDRT_BACKEND (default cpu) and copies buffers by
 * test_put() and test_get() alone: on most devices they have no host address. A test of the cpu
 * backend names it.
 */
#ifndef SRT_TESTS_DEVICE_H
#define SRT_TESTS_DEVICE_H

#include "device/device.h"
#include "tests/harness/check.h"

/* The backend that the test runs on: tests/harness/run_test.sh runs it on each. */
const char *test_backend(void);
bool test_is_cpu(void);

/* Opens the device that the selector names for a rank of the node, by a backend. */
srt_status_t test_open_device(const char *backend, const char *selector, int local_rank,
			      srt_device_t **device);

/* Opens a device with streams of a kind, "inline" or "threads"; threads and kind are the cpu's. */
srt_device_t *test_device_of(const char *backend, int threads, const char *streams);

/* For tests of the cpu backend itself. */
srt_device_t *test_cpu_device(int threads, const char *streams);
srt_device_t *test_device(int threads, const char *streams);
srt_buffer_t *test_buffer(srt_device_t *device, size_t nbytes, const char *name);
srt_stream_t *test_stream(srt_device_t *device, const char *name);

/* Bytes from the host into a buffer, in stream order. */
void test_put(srt_stream_t *stream, srt_buffer_t *buffer, size_t offset, const void *host,
	      size_t nbytes);

/* Bytes of a buffer to the host, after the stream's commands so far. */
void test_get(srt_stream_t *stream, void *host, srt_buffer_t *buffer, size_t offset, size_t nbytes);

#endif
