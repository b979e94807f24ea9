/* SPDX-License-Identifier: BSD-3-Clause */
/* A device for tests of one rank, without a context. */
#ifndef SRT_TESTS_DEVICE_H
#define SRT_TESTS_DEVICE_H

#include "backends/core.h"
#include "tests/check.h"

/* Opens the cpu device, or another backend's, with streams of a kind: "inline", "threads". */
static inline srt_device_t *test_device_of(const char *backend, int threads, const char *streams)
{
	srt_device_request_t request = {
		.selector = "", .local_size = 1, .threads = threads, .exact = 1
	};
	srt_device_t *device;

	setenv("SHARDRT_CPU_STREAMS", streams, 1);
	CHECK_OK_OR_DIE(srt_device_open(backend, &request, SRT_NUMERICS_EXACT, &device));
	return device;
}

static inline srt_device_t *test_device(int threads, const char *streams)
{
	return test_device_of("cpu", threads, streams);
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

#endif
