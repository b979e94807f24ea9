/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The getters of native handles (include/shardrt/native.h). Handles are void pointers: the library
 * includes no header of OpenCL or CUDA, and calls neither.
 */
#include <string.h>

#include "device/device.h"

/* Fails if the device belongs to another backend than the caller expects. */
static srt_status_t check_backend(const char *call, const srt_device_t *device, const char *backend)
{
	if (strcmp(device->backend->name, backend) == 0)
		return SRT_OK;
	return srt_fail(SRT_ERR_INVALID_ARGUMENT,
			"%s: a handle of \"%s\" is requested, but device \"%s\" belongs to backend "
			"\"%s\"",
			call, backend, device->caps.name, device->backend->name);
}

static srt_status_t no_handles(const char *call, const srt_device_t *device)
{
	return srt_fail(SRT_ERR_UNSUPPORTED, "%s: backend \"%s\" has no native handles", call,
			device->backend->name);
}

srt_status_t srt_device_native(srt_device_t *device, const char *backend,
			       srt_native_device_t *native)
{
	srt_native_device_t found = SRT_NATIVE_DEVICE_INIT;

	SRT_NOT_NULL(device);
	SRT_NOT_NULL(backend);
	SRT_NOT_NULL(native);
	SRT_TRY(srt_struct_check(native, "srt_native_device_t"));
	SRT_TRY(check_backend(__func__, device, backend));
	if (device->backend->device->native == NULL)
		return no_handles(__func__, device);
	found.backend = device->backend->name;
	device->backend->device->native(device->impl, &found.context, &found.device);
	return srt_struct_write(native, &found, sizeof(found), "srt_native_device_t");
}

srt_status_t srt_stream_native(srt_stream_t *stream, const char *backend, void **queue)
{
	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(backend);
	SRT_NOT_NULL(queue);
	SRT_TRY(check_backend(__func__, stream->device, backend));
	if (stream->device->backend->stream->native == NULL)
		return no_handles(__func__, stream->device);
	*queue = stream->device->backend->stream->native(stream->impl);
	return SRT_OK;
}

srt_status_t srt_buffer_native(srt_buffer_t *buffer, const char *backend, void **memory)
{
	const srt_backend_mem_ops_t *mem;
	srt_status_t status;

	SRT_NOT_NULL(buffer);
	SRT_NOT_NULL(backend);
	SRT_NOT_NULL(memory);
	SRT_TRY(check_backend(__func__, buffer->device, backend));
	mem = buffer->device->backend->mem;
	if (mem->native == NULL)
		return no_handles(__func__, buffer->device);
	if (buffer->impl == NULL) {
		*memory = NULL;
		return SRT_OK;
	}
	status = mem->native(buffer->device->impl, buffer->impl, memory);
	if (status != SRT_OK)
		srt_fail_prefix(status, "srt_buffer_native: buffer \"%s\": ", buffer->name);
	return status;
}

srt_status_t srt_buffer_wrap_native(srt_device_t *device, const char *backend, void *memory,
				    size_t nbytes, const char *name, srt_buffer_t **buffer)
{
	SRT_NOT_NULL(device);
	SRT_NOT_NULL(backend);
	SRT_NOT_NULL(memory);
	SRT_NOT_NULL(buffer);
	SRT_TRY(check_backend(__func__, device, backend));
	if (device->backend->mem->wrap_native == NULL)
		return no_handles(__func__, device);
	return srt_buffer_wrap_memory(device, SRT_MEM_DEVICE, device->backend->mem->wrap_native,
				      memory, nbytes, name, buffer);
}

srt_status_t srt_buffer_wrap(srt_device_t *device, void *host, size_t nbytes, const char *name,
			     srt_buffer_t **buffer)
{
	SRT_NOT_NULL(device);
	SRT_NOT_NULL(host);
	SRT_NOT_NULL(buffer);
	if ((uintptr_t)host % 16)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_buffer_wrap: the address %p of \"%s\" is not a multiple of 16",
				host, name != NULL ? name : "unnamed");
	return srt_buffer_wrap_host(device, host, nbytes, false, name != NULL ? name : "unnamed",
				    buffer);
}
