/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams: scratch of the tuned kernels, used by one command after the other, and nothing else. The
 * stream queue has the rest.
 */
#include <stdlib.h>

#include "backends/cpu/tuned.h"
#include "backends/common/host_memory.h"
#include "base/base.h"

static void drop_scratch(srt_cpu_stream_t *stream)
{
	stream->device->host->free(stream->scratch);
	atomic_fetch_sub(&stream->device->scratch_nbytes, stream->scratch_nbytes);
	stream->scratch = NULL;
	stream->scratch_nbytes = 0;
}

void *srt_cpu_stream_scratch(srt_cpu_stream_t *stream, size_t nbytes)
{
	const srt_host_services_t *host = stream->device->host;

	if (!nbytes)
		return stream; /* NULL means failure */
	if (nbytes <= stream->scratch_nbytes)
		return stream->scratch;
	drop_scratch(stream);
	stream->scratch = host->alloc(nbytes);
	if (!stream->scratch)
		return NULL;
	stream->scratch_nbytes = nbytes;
	atomic_fetch_add(&stream->device->scratch_nbytes, nbytes);
	atomic_fetch_add(&stream->device->nscratch, 1);
	return stream->scratch;
}

static srt_status_t stream_reserve(void *s, size_t nbytes)
{
	srt_cpu_stream_t *stream = s;

	SRT_TRY(srt_hostmem_check(stream->device->host, nbytes,
				  "scratch of matrix products and attention"));
	return !nbytes || srt_cpu_stream_scratch(stream, nbytes) ?
		       SRT_OK :
		       srt_fail_prefix(SRT_ERR_OUT_OF_MEMORY,
				       "scratch of matrix products and attention: ");
}

static void scratch_usage(void *dev, size_t *nbytes, uint64_t *nallocations)
{
	srt_cpu_device_t *device = dev;

	*nbytes = atomic_load(&device->scratch_nbytes);
	*nallocations = atomic_load(&device->nscratch);
}

static srt_status_t stream_create(void *device, int priority, const char *name, void **out)
{
	srt_cpu_stream_t *stream = srt_calloc(1, sizeof(*stream), "a stream");

	(void)priority;
	(void)name;
	if (!stream)
		return SRT_ERR_OUT_OF_MEMORY;
	stream->device = device;
	*out = stream;
	return SRT_OK;
}

static void stream_destroy(void *s)
{
	drop_scratch(s);
	free(s);
}

const srt_backend_stream_ops_t srt_cpu_stream_ops = {
	.create = stream_create,
	.destroy = stream_destroy,
	.submit = srt_cpu_submit,
	.reserve = stream_reserve,
	.scratch = srt_cpu_scratch,
	.scratch_usage = scratch_usage,
};
