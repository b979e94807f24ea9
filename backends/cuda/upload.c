/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Uploads from the caller's memory, which is the caller's again on return: in pieces through pinned
 * staging memory of the stream, of which the segments are used in turn. A segment that is left gets
 * an event; before it is written again, that is waited for. So nothing is waited for as long as
 * what is on its way fits, and large uploads copy into one segment while the device reads others.
 */
#include <string.h>

#include "backends/cuda/cuda.h"

#define SEGMENT_NBYTES ((size_t)1 << 18)
#define STAGING_NBYTES (SRT_CUDA_NSEGMENTS * SEGMENT_NBYTES)
#define STAGING_ALIGN ((size_t)64)

static srt_status_t staging_make(srt_cuda_stream_t *stream)
{
	srt_cuda_device_t *device = stream->device;
	srt_cuda_staging_t *staging = &stream->staging;
	srt_status_t status = SRT_OK;
	srt_cuda_scope_t scope;
	void *bytes = NULL;
	CUresult code;

	for (int i = 0; i < SRT_CUDA_NSEGMENTS && status == SRT_OK; i++)
		if (!staging->left[i])
			status = srt_ring_event_create(device, &staging->left[i]);
	if (status != SRT_OK)
		return status;
	scope = srt_cuda_enter(device);
	code = device->drv->cuMemHostAlloc(&bytes, STAGING_NBYTES, CU_MEMHOSTALLOC_PORTABLE);
	if (code == CUDA_SUCCESS)
		staging->bytes = bytes;
	else
		status = srt_cuda_fail(device->host, device->drv, code,
				       "stream \"%s\": %zu bytes of pinned memory for uploads",
				       stream->ring.name, STAGING_NBYTES);
	srt_cuda_leave(scope);
	return status;
}

void srt_cuda_staging_free(srt_cuda_stream_t *stream)
{
	srt_cuda_staging_t *staging = &stream->staging;

	for (int i = 0; i < SRT_CUDA_NSEGMENTS; i++)
		if (staging->left[i])
			srt_ring_event_destroy(staging->left[i]);
	if (staging->bytes)
		stream->device->drv->cuMemFreeHost(staging->bytes);
}

/* To the next segment, when the device has read it. */
static srt_status_t next_segment(srt_cuda_stream_t *stream)
{
	srt_cuda_staging_t *staging = &stream->staging;
	srt_status_t status = srt_ring_event_record(staging->left[staging->segment], stream);

	if (status != SRT_OK)
		return status;
	staging->segment = (staging->segment + 1) % SRT_CUDA_NSEGMENTS;
	staging->used = 0;
	/* A failure is the stream's: sync says it. */
	srt_ring_event_sync(staging->left[staging->segment]);
	return SRT_OK;
}

/* Room for one upload, or for a piece of one that is larger than a segment. */
static srt_status_t stage(srt_cuda_stream_t *stream, size_t nbytes, unsigned char **room)
{
	srt_cuda_staging_t *staging = &stream->staging;
	srt_status_t status = SRT_OK;

	if (!staging->bytes)
		status = staging_make(stream);
	if (status == SRT_OK && staging->used + nbytes > SEGMENT_NBYTES)
		status = next_segment(stream);
	if (status != SRT_OK)
		return status;
	*room = staging->bytes + (size_t)staging->segment * SEGMENT_NBYTES + staging->used;
	staging->used += (nbytes + STAGING_ALIGN - 1) & ~(STAGING_ALIGN - 1);
	return SRT_OK;
}

static srt_status_t run_store(srt_cuda_stream_t *stream, const srt_cuda_op_t *op)
{
	const srt_cuda_device_t *device = stream->device;
	const srt_cuda_mem_t *dst = op->u.store.dst;
	size_t nbytes = op->u.store.nbytes;
	srt_status_t status;
	CUresult code;

	if (dst->host) {
		status = srt_cuda_stream_finish(stream);
		if (status == SRT_OK)
			memcpy(dst->host + op->u.store.offset, op->u.store.bytes, nbytes);
		return status;
	}
	code = device->drv->cuMemcpyHtoDAsync(dst->address + op->u.store.offset, op->u.store.bytes,
					      nbytes, stream->queue);
	if (code == CUDA_SUCCESS)
		return SRT_OK;
	return srt_cuda_fail(device->host, device->drv, code,
			     "stream \"%s\": an upload of %zu bytes failed", stream->ring.name,
			     nbytes);
}

srt_status_t srt_cuda_from_host(void *s, void *dst, size_t offset, const void *src, size_t nbytes)
{
	srt_cuda_stream_t *stream = s;
	const unsigned char *from = src;
	srt_cuda_mem_t *to = dst;

	for (size_t done = 0; done < nbytes;) {
		size_t left = nbytes - done;
		size_t piece = left < SEGMENT_NBYTES ? left : SEGMENT_NBYTES;
		unsigned char *room;
		srt_status_t status = stage(stream, piece, &room);

		if (status != SRT_OK)
			return status;
		memcpy(room, from + done, piece);
		status = srt_cuda_stream_put(stream,
					     &(srt_cuda_op_t){
						     .run = run_store,
						     .ring.blocks = to->host != NULL,
						     .u.store = { to, offset + done, piece, room },
					     });
		if (status != SRT_OK)
			return status;
		done += piece;
	}
	return SRT_OK;
}
