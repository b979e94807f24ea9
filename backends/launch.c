/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Work on streams: copies, zeroing and launches of portable kernels, with all places checked
 * against their buffers. The operations (runtime/ops_*.c), the engine and the collectives go
 * through here.
 */
#include <string.h>

#include "backends/work.h"

static srt_status_t check_range(const char *call, const srt_stream_t *stream,
				const srt_buffer_t *buffer, size_t offset, size_t nbytes)
{
	size_t end;

	if (!stream || !buffer)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: %s is NULL", call,
				stream ? "a buffer" : "stream");
	if (buffer->device != stream->device)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: buffer \"%s\" and stream \"%s\" belong to different devices",
				call, buffer->name, stream->name);
	if (!srt_add_size(offset, nbytes, &end) || end > buffer->nbytes)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: %zu bytes from byte %zu do not fit into buffer \"%s\" of %zu "
				"bytes",
				call, nbytes, offset, buffer->name, buffer->nbytes);
	return SRT_OK;
}

srt_status_t srt_copy(srt_stream_t *stream, srt_buffer_t *dst, size_t dst_offset, srt_buffer_t *src,
		      size_t src_offset, size_t nbytes)
{
	srt_work_t work;

	SRT_TRY(check_range("srt_copy to", stream, dst, dst_offset, nbytes));
	SRT_TRY(check_range("srt_copy from", stream, src, src_offset, nbytes));
	if (!nbytes)
		return SRT_OK;
	if (dst == src && dst_offset < src_offset + nbytes && src_offset < dst_offset + nbytes)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_copy: %zu bytes from byte %zu and from byte %zu of buffer "
				"\"%s\" overlap",
				nbytes, src_offset, dst_offset, dst->name);
	srt_work_init(&work, SRT_WORK_COPY);
	work.u.copy.dst = dst->impl;
	work.u.copy.src = src->impl;
	work.u.copy.dst_offset = dst_offset;
	work.u.copy.src_offset = src_offset;
	work.u.copy.nbytes = nbytes;
	return srt_work_issue(stream, &work);
}

/* Bytes from the offset to the end of the last row; false if they are more than can be. */
static bool rows_extent(size_t pitch, size_t width, size_t nrows, size_t *nbytes)
{
	return pitch >= width && srt_mul_size(pitch, nrows - 1, nbytes) &&
	       srt_add_size(*nbytes, width, nbytes);
}

srt_status_t srt_copy_rows(srt_stream_t *stream, srt_buffer_t *dst, srt_buffer_t *src,
			   const srt_copy_rows_t *rows)
{
	size_t dst_nbytes, src_nbytes;
	srt_work_t work;

	if (!stream)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "srt_copy_rows: stream is NULL");
	if (!rows->nrows || !rows->width)
		return SRT_OK;
	if (!rows_extent(rows->dst_pitch, rows->width, rows->nrows, &dst_nbytes) ||
	    !rows_extent(rows->src_pitch, rows->width, rows->nrows, &src_nbytes) ||
	    (dst == src && rows->dst_pitch != rows->src_pitch))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_copy_rows: %zu rows of %zu bytes with pitches of %zu and %zu",
				rows->nrows, rows->width, rows->src_pitch, rows->dst_pitch);
	SRT_TRY(check_range("srt_copy_rows to", stream, dst, rows->dst_offset, dst_nbytes));
	SRT_TRY(check_range("srt_copy_rows from", stream, src, rows->src_offset, src_nbytes));
	if (stream->device->backend->work->copy_rows) {
		srt_work_init(&work, SRT_WORK_COPY_ROWS);
		work.u.rows.dst = dst->impl;
		work.u.rows.src = src->impl;
		work.u.rows.rows = *rows;
		return srt_work_issue(stream, &work);
	}
	for (size_t i = 0; i < rows->nrows; i++)
		SRT_TRY(srt_copy(stream, dst, rows->dst_offset + i * rows->dst_pitch, src,
				 rows->src_offset + i * rows->src_pitch, rows->width));
	return SRT_OK;
}

srt_status_t srt_copy_from_host(srt_stream_t *stream, srt_buffer_t *dst, size_t dst_offset,
				const void *src, size_t nbytes)
{
	SRT_TRY(check_range("srt_copy_from_host", stream, dst, dst_offset, nbytes));
	if (!nbytes)
		return SRT_OK;
	if (!src)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "srt_copy_from_host: source is NULL");
	return stream->device->backend->work->from_host(stream->impl, dst->impl, dst_offset, src,
							nbytes);
}

srt_status_t srt_copy_to_host(srt_stream_t *stream, void *dst, srt_buffer_t *src, size_t src_offset,
			      size_t nbytes)
{
	SRT_TRY(check_range("srt_copy_to_host", stream, src, src_offset, nbytes));
	if (!nbytes)
		return srt_stream_sync(stream);
	if (!dst)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "srt_copy_to_host: destination is NULL");
	return srt_device_waited(stream->device,
				 stream->device->backend->work->to_host(stream->impl, dst,
									src->impl, src_offset,
									nbytes));
}

srt_status_t srt_zero(srt_stream_t *stream, srt_buffer_t *dst, size_t dst_offset, size_t nbytes)
{
	srt_work_t work;

	SRT_TRY(check_range("srt_zero", stream, dst, dst_offset, nbytes));
	if (!nbytes)
		return SRT_OK;
	srt_work_init(&work, SRT_WORK_ZERO);
	work.u.zero.dst = dst->impl;
	work.u.zero.offset = dst_offset;
	work.u.zero.nbytes = nbytes;
	return srt_work_issue(stream, &work);
}

srt_status_t srt_place(const srt_stream_t *stream, const srt_view_t *view, srt_place_t *place)
{
	*place = (srt_place_t){ .mem = NULL };
	if (!view->buffer)
		return SRT_OK;
	SRT_TRY(srt_view_check(view, 0, "a tensor"));
	if (view->buffer->device != stream->device)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"buffer \"%s\" and stream \"%s\" belong to different devices",
				view->buffer->name, stream->name);
	*place = (srt_place_t){ .mem = view->buffer->impl, .offset = view->offset };
	return SRT_OK;
}

srt_status_t srt_launch(srt_stream_t *stream, srt_kernel_id_t kernel, srt_dtype_t dtype,
			int64_t ngroups, const void *args, size_t args_nbytes,
			const srt_view_t *views, int nviews)
{
	srt_launch_t *launch;
	srt_status_t status;
	srt_work_t work;

	if (!srt_kernel_info(kernel))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "there is no kernel number %d",
				(int)kernel);
	if (nviews < 0 || nviews > SRT_LAUNCH_MAX_PLACES || args_nbytes > SRT_LAUNCH_MAX_ARGS)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"kernel %d: %d places and %zu bytes of arguments; at most %d and "
				"%d are possible",
				(int)kernel, nviews, args_nbytes, SRT_LAUNCH_MAX_PLACES,
				SRT_LAUNCH_MAX_ARGS);
	srt_work_init(&work, SRT_WORK_LAUNCH);
	launch = &work.u.launch.launch;
	launch->kernel = (uint16_t)kernel;
	launch->dtype = (uint16_t)dtype;
	launch->nplaces = (uint16_t)nviews;
	launch->args_nbytes = (uint16_t)args_nbytes;
	launch->ngroups = ngroups;
	for (int i = 0; i < nviews; i++)
		SRT_TRY(srt_place(stream, &views[i], &launch->places[i]));
	if (ngroups <= 0)
		return SRT_OK;
	memcpy(work.u.launch.args, args, args_nbytes);
	status = srt_work_issue(stream, &work);
	if (status == SRT_ERR_UNSUPPORTED)
		return srt_fail(status, "the %s backend has no kernel \"%s\" for %s",
				stream->device->backend->name, srt_kernel_info(kernel)->name,
				srt_dtype_name(dtype));
	return srt_launched(stream, status);
}
