/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams: a stream of the CPU has only scratch for the tuned kernels, which one command after the
 * other uses. The stream queue does the rest.
 */
#include <stdlib.h>

#include "backends/cpu/tuned.h"
#include "base/base.h"

static srt_status_t stream_reserve(void *s, size_t nbytes)
{
	srt_cpu_stream_t *stream = s;

	return srt_scratch_reserve(&stream->scratch, nbytes);
}

static void scratch_usage(void *dev, size_t *nbytes, uint64_t *nallocations)
{
	srt_cpu_device_t *device = dev;

	*nbytes = atomic_load(&device->scratch.nbytes);
	*nallocations = atomic_load(&device->scratch.nallocations);
}

static srt_status_t stream_create(void *dev, int priority, const char *name, void **out)
{
	srt_cpu_device_t *device = dev;
	srt_cpu_stream_t *stream = srt_calloc(1, sizeof(*stream), "a stream");

	(void)priority;
	(void)name;
	if (stream == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	stream->device = device;
	stream->scratch.owner = &device->scratch;
	*out = stream;
	return SRT_OK;
}

static void stream_destroy(void *s)
{
	srt_cpu_stream_t *stream = s;

	srt_scratch_free(&stream->scratch);
	free(stream);
}

const srt_backend_stream_ops_t srt_cpu_stream_ops = {
	.create = stream_create,
	.destroy = stream_destroy,
	.submit = srt_cpu_submit,
	.reserve = stream_reserve,
	.scratch = srt_cpu_scratch,
	.scratch_usage = scratch_usage,
};
