/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Uploads from the caller's memory, which the caller may reuse on return. Chunks pass through
 * pinned staging memory of the stream, whose segments are used in turn. An event is recorded after
 * a segment's last chunk; the next write to the segment waits for the event. So the caller waits
 * only when the uploads in flight fill the staging memory, and a large upload fills one segment
 * while the device reads others. An inline stream reads the caller's memory directly.
 */
#include <string.h>

#include "device/stream_queue.h"

#define SEGMENT_NBYTES ((size_t)1 << 18)
#define STAGING_ALIGN ((size_t)64)

static srt_status_t make_staging(srt_stream_t *stream)
{
	srt_device_t *device = stream->device;
	srt_upload_staging_t *staging = &stream->staging;
	const srt_backend_mem_ops_t *mem = device->backend->mem;

	for (int i = 0; i < SRT_STAGING_NSEGMENTS; i++)
		if (staging->left[i] == NULL)
			SRT_TRY(srt_event_create(device, &staging->left[i]));
	SRT_TRY(mem->alloc(device->impl, SRT_MEM_PINNED, SRT_STAGING_NSEGMENTS * SEGMENT_NBYTES,
			   "staging of uploads", &staging->mem));
	staging->bytes = mem->host(device->impl, staging->mem);
	return SRT_OK;
}

void srt_staging_free(srt_stream_t *stream)
{
	srt_upload_staging_t *staging = &stream->staging;

	for (int i = 0; i < SRT_STAGING_NSEGMENTS; i++)
		srt_event_destroy(staging->left[i]);
	if (staging->mem != NULL)
		stream->device->backend->mem->free(stream->device->impl, staging->mem);
}

/* Changes to the next segment after the device has read it. */
static srt_status_t advance_segment(srt_stream_t *stream)
{
	srt_upload_staging_t *staging = &stream->staging;

	SRT_TRY(srt_event_record(staging->left[staging->segment], stream));
	staging->segment = (staging->segment + 1) % SRT_STAGING_NSEGMENTS;
	staging->used = 0;
	/* The stream stores a failure, and sync returns it. */
	srt_event_sync(staging->left[staging->segment]);
	return SRT_OK;
}

/* Reserves staging memory for one chunk: an upload, or a part of one larger than a segment. */
static srt_status_t reserve_staging(srt_stream_t *stream, size_t nbytes, unsigned char **staged)
{
	srt_upload_staging_t *staging = &stream->staging;

	if (staging->bytes == NULL)
		SRT_TRY(make_staging(stream));
	if (staging->used + nbytes > SEGMENT_NBYTES)
		SRT_TRY(advance_segment(stream));
	*staged = staging->bytes + (size_t)staging->segment * SEGMENT_NBYTES + staging->used;
	staging->used += srt_align_up(nbytes, STAGING_ALIGN);
	return SRT_OK;
}

static srt_status_t queue_upload(srt_stream_t *stream, srt_buffer_t *dst, size_t offset,
				 const void *bytes, size_t nbytes)
{
	srt_stream_set_add(&dst->streams, stream);
	return srt_queue_put(stream, &(srt_command_t){
					     .kind = SRT_COMMAND_UPLOAD,
					     .nbindings = 1,
					     .bindings = { { dst->impl, offset } },
					     .bytes = { .nbytes = nbytes, .host = bytes },
				     });
}

srt_status_t srt_buffer_copy_from_host(srt_buffer_t *dst, size_t dst_offset, const void *src,
				       size_t nbytes, srt_stream_t *stream)
{
	const unsigned char *from = src;

	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(dst);
	if (nbytes > 0)
		SRT_NOT_NULL(src);
	SRT_TRY(srt_check_range("srt_buffer_copy_from_host", stream, dst, dst_offset, nbytes));
	if (!nbytes)
		return SRT_OK;
	if (stream->mode == SRT_STREAM_INLINE && stream->ring == NULL)
		return queue_upload(stream, dst, dst_offset, src, nbytes);
	for (size_t done = 0; done < nbytes;) {
		size_t left = nbytes - done;
		size_t chunk = left < SEGMENT_NBYTES ? left : SEGMENT_NBYTES;
		unsigned char *staged;

		SRT_TRY(reserve_staging(stream, chunk, &staged));
		memcpy(staged, from + done, chunk);
		SRT_TRY(queue_upload(stream, dst, dst_offset + done, staged, chunk));
		done += chunk;
	}
	return SRT_OK;
}

srt_status_t srt_buffer_copy_to_host(void *dst, srt_buffer_t *src, size_t src_offset, size_t nbytes,
				     srt_stream_t *stream)
{
	const srt_backend_t *backend;
	const unsigned char *host;
	srt_status_t status;
	srt_scope_t scope;

	SRT_NOT_NULL(stream);
	if (nbytes > 0)
		SRT_NOT_NULL(dst);
	SRT_NOT_NULL(src);
	SRT_TRY(srt_check_range("srt_buffer_copy_to_host", stream, src, src_offset, nbytes));
	SRT_TRY(srt_stream_sync(stream));
	if (!nbytes)
		return SRT_OK;
	backend = stream->device->backend;
	host = backend->mem->host(stream->device->impl, src->impl);
	if (host != NULL) {
		memcpy(dst, host + src_offset, nbytes);
		return SRT_OK;
	}
	scope = srt_driver_enter(stream->device);
	status = backend->stream->read(stream->impl, dst, src->impl, src_offset, nbytes);
	srt_driver_leave(scope);
	return srt_device_waited(stream->device, status);
}
