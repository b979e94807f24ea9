/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/harness/device.h"

const char *test_backend(void)
{
	const char *name = getenv("SHARDRT_BACKEND");

	return name != NULL && name[0] ? name : "cpu";
}

bool test_is_cpu(void)
{
	return !strcmp(test_backend(), "cpu");
}

srt_status_t test_open_device(const char *backend, const char *selector, int local_rank,
			      srt_device_t **device)
{
	srt_device_request_t request = { .selector = selector,
					 .local_rank = local_rank,
					 .local_size = local_rank + 1,
					 .exact = 1 };

	return srt_device_open(backend, &request, SRT_NUMERICS_EXACT, device);
}

srt_device_t *test_device_of(const char *backend, int threads, const char *streams)
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

srt_device_t *test_cpu_device(int threads, const char *streams)
{
	return test_device_of("cpu", threads, streams);
}

srt_device_t *test_device(int threads, const char *streams)
{
	return test_device_of(test_backend(), threads, streams);
}

srt_buffer_t *test_buffer(srt_device_t *device, size_t nbytes, const char *name)
{
	srt_buffer_t *buffer;

	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, nbytes, name, &buffer));
	return buffer;
}

srt_stream_t *test_stream(srt_device_t *device, const char *name)
{
	srt_stream_t *stream;

	CHECK_OK_OR_DIE(srt_stream_create(device, 0, name, &stream));
	return stream;
}

void test_put(srt_stream_t *stream, srt_buffer_t *buffer, size_t offset, const void *host,
	      size_t nbytes)
{
	CHECK_OK_OR_DIE(srt_buffer_copy_from_host(buffer, offset, host, nbytes, stream));
}

void test_get(srt_stream_t *stream, void *host, srt_buffer_t *buffer, size_t offset, size_t nbytes)
{
	CHECK_OK_OR_DIE(srt_buffer_copy_to_host(host, buffer, offset, nbytes, stream));
}
