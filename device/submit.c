/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Commands for streams: copies, zeroing and kernels, with all bindings checked against their
 * buffers. The operations (runtime/ops/), the engine and the collectives go through here.
 */
#include <string.h>

#include "device/stream_queue.h"

srt_status_t srt_check_range(const char *call, const srt_stream_t *stream,
			     const srt_buffer_t *buffer, size_t offset, size_t nbytes)
{
	size_t end;

	if (stream == NULL || buffer == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: %s is NULL", call,
				stream != NULL ? "a buffer" : "stream");
	if (buffer->device != stream->device)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: buffer \"%s\" and stream \"%s\" belong to different devices",
				call, buffer->name, stream->name);
	SRT_TRY(srt_window_check(buffer, offset, nbytes, call));
	if (!srt_add_size(offset, nbytes, &end) || end > buffer->nbytes)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: %zu bytes from byte %zu do not fit into buffer \"%s\" of %zu "
				"bytes",
				call, nbytes, offset, buffer->name, buffer->nbytes);
	return SRT_OK;
}

/* Submits one row, or rows of which both sides are device memory. */
static srt_status_t submit_copy(srt_stream_t *stream, srt_buffer_t *dst, srt_buffer_t *src,
				const srt_copy_rows_t *rows)
{
	srt_stream_set_add(&dst->streams, stream);
	srt_stream_set_add(&src->streams, stream);
	return srt_queue_put(stream, &(srt_command_t){
					     .kind = SRT_COMMAND_COPY,
					     .nbindings = 2,
					     .bindings = { { dst->impl, rows->dst_offset },
							   { src->impl, rows->src_offset } },
					     .copy = { rows->dst_pitch, rows->src_pitch,
						       rows->width, rows->nrows },
				     });
}

srt_status_t srt_buffer_copy(srt_buffer_t *dst, size_t dst_offset, srt_buffer_t *src,
			     size_t src_offset, size_t nbytes, srt_stream_t *stream)
{
	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(dst);
	SRT_NOT_NULL(src);
	SRT_TRY(srt_check_range("srt_buffer_copy to", stream, dst, dst_offset, nbytes));
	SRT_TRY(srt_check_range("srt_buffer_copy from", stream, src, src_offset, nbytes));
	if (!nbytes)
		return SRT_OK;
	if (dst == src && dst_offset < src_offset + nbytes && src_offset < dst_offset + nbytes)
		return srt_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"srt_buffer_copy: %zu bytes from byte %zu and from byte %zu of buffer "
			"\"%s\" overlap",
			nbytes, src_offset, dst_offset, dst->name);
	return submit_copy(stream, dst, src,
			   &(srt_copy_rows_t){ dst_offset, src_offset, nbytes, nbytes, nbytes, 1 });
}

/* Bytes from the offset to the end of the last row; false if they overflow. */
static bool rows_extent(size_t pitch, size_t width, size_t nrows, size_t *nbytes)
{
	return pitch >= width && srt_mul_size(pitch, nrows - 1, nbytes) &&
	       srt_add_size(*nbytes, width, nbytes);
}

srt_status_t srt_copy_rows(srt_stream_t *stream, srt_buffer_t *dst, srt_buffer_t *src,
			   const srt_copy_rows_t *rows)
{
	size_t dst_nbytes, src_nbytes;

	if (stream == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "srt_copy_rows: stream is NULL");
	if (!rows->nrows || !rows->width)
		return SRT_OK;
	if (!rows_extent(rows->dst_pitch, rows->width, rows->nrows, &dst_nbytes) ||
	    !rows_extent(rows->src_pitch, rows->width, rows->nrows, &src_nbytes) ||
	    (dst == src && rows->dst_pitch != rows->src_pitch))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_copy_rows: %zu rows of %zu bytes with pitches of %zu and %zu",
				rows->nrows, rows->width, rows->src_pitch, rows->dst_pitch);
	SRT_TRY(srt_check_range("srt_copy_rows to", stream, dst, rows->dst_offset, dst_nbytes));
	SRT_TRY(srt_check_range("srt_copy_rows from", stream, src, rows->src_offset, src_nbytes));
	if (dst->kind != SRT_MEM_PINNED && src->kind != SRT_MEM_PINNED)
		return submit_copy(stream, dst, src, rows);
	for (size_t i = 0; i < rows->nrows; i++)
		SRT_TRY(srt_buffer_copy(dst, rows->dst_offset + i * rows->dst_pitch, src,
					rows->src_offset + i * rows->src_pitch, rows->width,
					stream));
	return SRT_OK;
}

static srt_status_t submit_bytes(srt_stream_t *stream, srt_command_kind_t kind,
				 srt_buffer_t *buffer, size_t offset, size_t nbytes)
{
	srt_stream_set_add(&buffer->streams, stream);
	return srt_queue_put(stream, &(srt_command_t){
					     .kind = kind,
					     .nbindings = 1,
					     .bindings = { { buffer->impl, offset } },
					     .bytes.nbytes = nbytes,
				     });
}

srt_status_t srt_buffer_zero(srt_buffer_t *dst, size_t dst_offset, size_t nbytes,
			     srt_stream_t *stream)
{
	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(dst);
	SRT_TRY(srt_check_range("srt_buffer_zero", stream, dst, dst_offset, nbytes));
	return nbytes ? submit_bytes(stream, SRT_COMMAND_ZERO, dst, dst_offset, nbytes) : SRT_OK;
}

srt_status_t srt_buffer_peer_begin(srt_buffer_t *buffer, size_t offset, size_t nbytes,
				   srt_stream_t *stream)
{
	if (!buffer->device->caps.peer_begin || nbytes == 0)
		return SRT_OK;
	return submit_bytes(stream, SRT_COMMAND_PEER_BEGIN, buffer, offset, nbytes);
}

/* ---- kernels ----------------------------------------------------------------------------- */

/* Converts a view to a binding; a view whose buffer is NULL becomes an absent binding. */
static srt_status_t bind_view(const srt_stream_t *stream, const srt_view_t *view,
			      srt_binding_t *binding)
{
	srt_buffer_t *buffer = view->buffer;

	if (buffer == NULL)
		return SRT_OK;
	SRT_TRY(srt_view_check(view, 0, "a tensor"));
	if (buffer->device != stream->device)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"buffer \"%s\" and stream \"%s\" belong to different devices",
				buffer->name, stream->name);
	if (buffer->kind == SRT_MEM_PINNED && !stream->device->caps.host_memory)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"buffer \"%s\" is pinned host memory, which kernels of device "
				"\"%s\" do not see; copy it to device memory first",
				buffer->name, stream->device->caps.name);
	srt_stream_set_add(&buffer->streams, stream);
	*binding = (srt_binding_t){ .mem = buffer->impl, .offset = view->offset };
	return SRT_OK;
}

srt_status_t srt_command_bind(srt_stream_t *stream, srt_command_t *command, const srt_view_t *views,
			      int nviews)
{
	srt_device_t *device = stream->device;

	if (nviews < 0 || nviews > SRT_COMMAND_MAX_BINDINGS)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"kernel %d: %d bindings; at most %d are possible", command->kernel,
				nviews, SRT_COMMAND_MAX_BINDINGS);
	command->nbindings = (uint16_t)nviews;
	command->exact = device->numerics == SRT_NUMERICS_EXACT;
	for (int i = 0; i < nviews; i++)
		SRT_TRY(bind_view(stream, &views[i], &command->bindings[i]));
	if (command->ngroups <= 0)
		return SRT_OK;
	if (!srt_kernel_has((srt_kernel_id_t)command->kernel, (srt_dtype_t)command->dtype))
		return srt_fail(SRT_ERR_UNSUPPORTED, "there is no kernel \"%s\" for %s",
				srt_kernel_info((srt_kernel_id_t)command->kernel)->name,
				srt_dtype_name((srt_dtype_t)command->dtype));
	atomic_fetch_add_explicit(&device->nlaunches, 1, memory_order_relaxed);
	return SRT_OK;
}

srt_status_t srt_launch(srt_stream_t *stream, srt_kernel_id_t kernel, srt_dtype_t dtype,
			int64_t ngroups, const void *args, size_t args_nbytes,
			const srt_view_t *views, int nviews)
{
	srt_command_t command = { .kind = SRT_COMMAND_KERNEL };

	if (srt_kernel_info(kernel) == NULL || args_nbytes > sizeof(command.args))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"there is no kernel number %d with %zu bytes of arguments",
				(int)kernel, args_nbytes);
	command.kernel = (uint16_t)kernel;
	command.dtype = (uint16_t)dtype;
	command.args_nbytes = (uint16_t)args_nbytes;
	command.ngroups = ngroups;
	memcpy(command.args, args, args_nbytes);
	SRT_TRY(srt_command_bind(stream, &command, views, nviews));
	return ngroups > 0 ? srt_queue_put(stream, &command) : SRT_OK;
}
