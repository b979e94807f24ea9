/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Buffers and views. A view refers to a part of a buffer without owning it. The library allocates
 * device memory through srt_buffer_create() and host memory for devices through
 * srt_buffer_wrap_host(), so the device's counters are complete. A peer's mapped memory is not
 * counted.
 */
#include <stdlib.h>
#include <string.h>

#include "device/device.h"

static const char *kind_name(srt_mem_kind_t kind)
{
	switch (kind) {
	case SRT_MEM_DEVICE:
		return "device";
	case SRT_MEM_PINNED:
		return "pinned";
	case SRT_MEM_PEER:
		return "peer-visible";
	}
	return NULL;
}

static srt_status_t new_buffer(srt_device_t *device, srt_mem_kind_t kind, size_t nbytes,
			       const char *name, srt_buffer_t **buffer)
{
	srt_buffer_t *b = srt_calloc(1, sizeof(*b), "a buffer's description");

	if (b == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	b->name = srt_strdup(name != NULL ? name : "unnamed");
	if (b->name == NULL) {
		free(b);
		return SRT_ERR_OUT_OF_MEMORY;
	}
	b->device = device;
	b->kind = kind;
	b->nbytes = nbytes;
	atomic_init(&b->nholders, 1);
	srt_device_hold(device);
	*buffer = b;
	return SRT_OK;
}

static void count_allocation(srt_buffer_t *buffer)
{
	buffer->counted = true;
	atomic_fetch_add(&buffer->device->allocated, buffer->nbytes);
	atomic_fetch_add(&buffer->device->nallocations, 1);
}

static void delete_buffer(srt_buffer_t *buffer)
{
	srt_device_t *device = buffer->device;

	free(buffer->name);
	free(buffer);
	srt_device_release(device);
}

srt_status_t srt_buffer_create(srt_device_t *device, srt_mem_kind_t kind, size_t nbytes,
			       const char *name, srt_buffer_t **buffer)
{
	srt_status_t status;
	srt_buffer_t *b;

	SRT_NOT_NULL(device);
	SRT_NOT_NULL(buffer);
	if (kind_name(kind) == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "buffer \"%s\": memory kind %d unknown",
				name != NULL ? name : "unnamed", (int)kind);
	if (kind == SRT_MEM_PEER && !device->caps.peer_memory)
		kind = SRT_MEM_DEVICE;
	SRT_TRY(new_buffer(device, kind, nbytes, name, &b));
	if (nbytes) {
		status = device->backend->mem->alloc(device->impl, kind, nbytes, b->name, &b->impl);
		if (status != SRT_OK) {
			delete_buffer(b);
			return status;
		}
		count_allocation(b);
	}
	*buffer = b;
	return SRT_OK;
}

void srt_buffer_hold(srt_buffer_t *buffer)
{
	atomic_fetch_add(&buffer->nholders, 1);
}

void srt_buffer_destroy(srt_buffer_t *buffer)
{
	srt_buffer_t *original;

	if (buffer == NULL || srt_device_is_inherited(buffer->device) ||
	    atomic_fetch_sub(&buffer->nholders, 1) > 1)
		return;
	/* What functions of the program use is not known. */
	srt_device_drain(buffer->device,
			 atomic_load(&buffer->streams) | atomic_load(&buffer->device->enqueued_on));
	if (buffer->impl != NULL && !buffer->is_window)
		buffer->device->backend->mem->free(buffer->device->impl, buffer->impl);
	if (buffer->counted)
		atomic_fetch_sub(&buffer->device->allocated, buffer->nbytes);
	original = buffer->original;
	delete_buffer(buffer);
	srt_buffer_destroy(original);
}

size_t srt_buffer_nbytes(const srt_buffer_t *buffer)
{
	return buffer != NULL ? buffer->nbytes : 0;
}

void *srt_buffer_host(srt_buffer_t *buffer)
{
	if (buffer == NULL || buffer->impl == NULL || buffer->device->backend->mem->host == NULL)
		return NULL;
	return buffer->device->backend->mem->host(buffer->device->impl, buffer->impl);
}

void *srt_view_host(srt_view_t view)
{
	char *first =
		view.offset <= srt_buffer_nbytes(view.buffer) ? srt_buffer_host(view.buffer) : NULL;

	return first != NULL ? first + view.offset : NULL;
}

srt_view_t srt_view(srt_buffer_t *buffer, size_t offset_nbytes, srt_dtype_t dtype)
{
	return (srt_view_t){ .buffer = buffer, .offset = offset_nbytes, .dtype = dtype };
}

srt_status_t srt_window_check(const srt_buffer_t *buffer, size_t offset, size_t nbytes,
			      const char *what)
{
	if (!buffer->is_window)
		return SRT_OK;
	if (buffer->is_closed)
		return srt_fail(SRT_ERR_STATE,
				"%s: the view of %s is used outside of begin and end of its unit",
				what, buffer->name);
	if (offset < buffer->first || offset > buffer->nbytes || nbytes > buffer->nbytes - offset)
		return srt_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"%s: %zu bytes from byte %zu of the view of %s, which has %zu bytes", what,
			nbytes, offset - buffer->first, buffer->name,
			buffer->nbytes - buffer->first);
	return SRT_OK;
}

srt_status_t srt_view_check(const srt_view_t *view, size_t nelem, const char *what)
{
	const srt_buffer_t *b = view->buffer;
	size_t nbytes, end, size = srt_dtype_bits(view->dtype) / 8;

	if (b == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s is absent", what);
	if (!size)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s in buffer \"%s\": dtype is %s (%d)",
				what, b->name, srt_dtype_name(view->dtype), (int)view->dtype);
	if (view->offset % size)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s in buffer \"%s\": offset %zu is not a multiple of %zu bytes, "
				"the size of %s",
				what, b->name, view->offset, size, srt_dtype_name(view->dtype));
	if (!srt_mul_size(nelem, size, &nbytes))
		nbytes = SIZE_MAX;
	SRT_TRY(srt_window_check(b, view->offset, nbytes, what));
	if (!srt_add_size(view->offset, nbytes, &end) || end > b->nbytes)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: %zu elements of %s from byte %zu do not fit into buffer "
				"\"%s\" of %zu bytes",
				what, nelem, srt_dtype_name(view->dtype), view->offset, b->name,
				b->nbytes);
	return SRT_OK;
}

srt_status_t srt_buffer_export(srt_buffer_t *buffer, srt_mem_handle_t *handle)
{
	const srt_backend_mem_ops_t *mem = buffer->device->backend->mem;

	if (buffer->kind != SRT_MEM_PEER || buffer->imported)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"buffer \"%s\" is not peer-visible memory of this rank, so it "
				"cannot be exported",
				buffer->name);
	if (buffer->impl == NULL) {
		*handle = (srt_mem_handle_t){ .fd = -1 };
		return SRT_OK;
	}
	if (mem->export_handle == NULL)
		return srt_fail(SRT_ERR_UNSUPPORTED, "backend \"%s\" cannot export memory",
				buffer->device->backend->name);
	return mem->export_handle(buffer->device->impl, buffer->impl, handle);
}

srt_status_t srt_buffer_import(srt_device_t *device, const srt_mem_handle_t *handle,
			       const char *name, srt_buffer_t **buffer)
{
	const srt_backend_mem_ops_t *mem = device->backend->mem;
	srt_buffer_t *b;
	srt_status_t status;

	if (handle->nbytes > SIZE_MAX)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"memory \"%s\" of a peer is larger than this process can map",
				name);
	if (mem->import_handle == NULL)
		return srt_fail(SRT_ERR_UNSUPPORTED, "backend \"%s\" cannot map a peer's memory",
				device->backend->name);
	SRT_TRY(new_buffer(device, SRT_MEM_PEER, (size_t)handle->nbytes, name, &b));
	b->imported = true;
	if (handle->nbytes) {
		status = mem->import_handle(device->impl, handle, &b->impl);
		if (status != SRT_OK) {
			srt_fail_prefix(status, "memory \"%s\" of a peer: ", b->name);
			delete_buffer(b);
			return status;
		}
	}
	*buffer = b;
	return SRT_OK;
}

srt_status_t srt_buffer_wrap_memory(srt_device_t *device, srt_mem_kind_t kind, srt_wrap_fn *wrap,
				    void *memory, size_t nbytes, const char *name,
				    srt_buffer_t **buffer)
{
	srt_buffer_t *b;
	srt_status_t status;

	if (!nbytes)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"memory \"%s\" of the program has 0 bytes; use srt_buffer_create() "
				"for an empty buffer",
				name != NULL ? name : "unnamed");
	SRT_TRY(new_buffer(device, kind, nbytes, name, &b));
	status = wrap(device->impl, memory, nbytes, b->name, &b->impl);
	if (status != SRT_OK) {
		delete_buffer(b);
		return status;
	}
	*buffer = b;
	return SRT_OK;
}

srt_status_t srt_buffer_wrap_host(srt_device_t *device, void *host, size_t nbytes, bool own,
				  const char *name, srt_buffer_t **buffer)
{
	const srt_backend_mem_ops_t *mem = device->backend->mem;

	if (mem->wrap_host == NULL)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"backend \"%s\" cannot copy to and from host memory that it has "
				"not made (\"%s\")",
				device->backend->name, name);
	SRT_TRY(srt_buffer_wrap_memory(device, SRT_MEM_PINNED, mem->wrap_host, host, nbytes, name,
				       buffer));
	if (own)
		count_allocation(*buffer);
	return SRT_OK;
}

srt_status_t srt_buffer_window(srt_buffer_t *buffer, size_t first, size_t nbytes, const char *name,
			       srt_buffer_t **window)
{
	SRT_TRY(new_buffer(buffer->device, buffer->kind, first + nbytes, name, window));
	(*window)->impl = buffer->impl;
	(*window)->first = first;
	(*window)->is_window = true;
	(*window)->original = buffer;
	srt_buffer_hold(buffer);
	return SRT_OK;
}

srt_status_t srt_buffer_alias(srt_device_t *device, srt_buffer_t *buffer, srt_buffer_t **alias)
{
	void *host;

	SRT_NOT_NULL(device);
	SRT_NOT_NULL(buffer);
	SRT_NOT_NULL(alias);
	if (buffer->device == device) {
		srt_buffer_hold(buffer);
		*alias = buffer;
		return SRT_OK;
	}
	host = srt_buffer_host(buffer);
	if (host == NULL && buffer->nbytes > 0)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"srt_buffer_alias: buffer \"%s\" of device \"%s\" has no host "
				"address; allocate it on the host device",
				buffer->name, buffer->device->caps.name);
	if (host != NULL)
		SRT_TRY(srt_buffer_wrap_host(device, host, buffer->nbytes, false, buffer->name,
					     alias));
	else
		SRT_TRY(new_buffer(device, SRT_MEM_PINNED, 0, buffer->name, alias));
	srt_buffer_hold(buffer);
	(*alias)->original = buffer;
	return SRT_OK;
}
