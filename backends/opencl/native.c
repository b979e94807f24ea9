/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Native handles: the program's own context as a device, its buffers as memory, and the handles of
 * the backend's objects. OpenCL counts references, so the backend retains what the program owns.
 */
#include <stdbool.h>

#include "backends/opencl/opencl.h"

#define MAX_DEVICES 64 /* of a context */

static bool has_device(cl_context context, cl_device_id id)
{
	cl_device_id ids[MAX_DEVICES];
	size_t nbytes = 0;

	if (clGetContextInfo(context, CL_CONTEXT_DEVICES, sizeof(ids), ids, &nbytes) != CL_SUCCESS)
		return false;
	for (size_t i = 0; i < nbytes / sizeof(ids[0]); i++) {
		if (ids[i] == id)
			return true;
	}
	return false;
}

srt_status_t srt_ocl_use_native(srt_ocl_device_t *device, const srt_native_device_t *native)
{
	const srt_host_services_t *host = device->host;
	cl_context context = native->context;
	cl_device_id id = native->device;
	const char *unusable;

	if (id == NULL || !has_device(context, id))
		return host
			->fail(SRT_ERR_INVALID_ARGUMENT,
			       "the option native of srt_context_create(): the OpenCL context has "
			       "no such device");
	unusable = srt_ocl_why_unusable(id);
	if (unusable != NULL)
		return host->fail(SRT_ERR_UNSUPPORTED,
				  "the option native of srt_context_create(): the OpenCL device "
				  "cannot be used: %s",
				  unusable);
	clRetainDevice(id);
	device->id = id;
	device->holds_id = true;
	clRetainContext(context);
	device->context = context;
	return SRT_OK;
}

void srt_ocl_device_native(void *dev, void **context, void **id)
{
	const srt_ocl_device_t *device = dev;

	*context = device->context;
	*id = device->id;
}

srt_status_t srt_ocl_mem_native(void *dev, void *memory, void **handle)
{
	const srt_ocl_device_t *device = dev;
	const srt_ocl_mem_t *mem = memory;

	if (mem->buffer == NULL)
		return device->host->fail(SRT_ERR_UNSUPPORTED,
					  "it is host memory without a cl_mem; srt_buffer_host() "
					  "returns its address");
	*handle = mem->buffer;
	return SRT_OK;
}

/* Whether kernels of the context can read and write nbytes. */
static const char *why_not(const srt_ocl_device_t *device, cl_mem buffer, size_t nbytes)
{
	cl_mem_object_type type = 0;
	cl_context context = NULL;
	cl_mem_flags flags = 0;
	size_t size = 0;

	if (clGetMemObjectInfo(buffer, CL_MEM_TYPE, sizeof(type), &type, NULL) != CL_SUCCESS ||
	    type != CL_MEM_OBJECT_BUFFER)
		return "it is not a buffer";
	clGetMemObjectInfo(buffer, CL_MEM_CONTEXT, sizeof(context), &context, NULL);
	clGetMemObjectInfo(buffer, CL_MEM_FLAGS, sizeof(flags), &flags, NULL);
	clGetMemObjectInfo(buffer, CL_MEM_SIZE, sizeof(size), &size, NULL);
	if (context != device->context)
		return "it belongs to another context than the device (option native of "
		       "srt_context_create())";
	if (flags & (CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY))
		return "kernels cannot read and write it (CL_MEM_READ_WRITE)";
	return size < nbytes ? "it is smaller" : NULL;
}

srt_status_t srt_ocl_wrap_native(void *dev, void *handle, size_t nbytes, const char *name,
				 void **out)
{
	srt_ocl_device_t *device = dev;
	const char *why = why_not(device, handle, nbytes);
	srt_ocl_mem_t *mem;

	if (why != NULL)
		return device->host->fail(SRT_ERR_INVALID_ARGUMENT,
					  "the cl_mem cannot become buffer \"%s\" of %zu bytes: %s",
					  name, nbytes, why);
	mem = device->host->alloc(sizeof(*mem));
	if (mem == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	clRetainMemObject(handle);
	*mem = (srt_ocl_mem_t){ .buffer = handle, .nbytes = nbytes, .fd = -1 };
	*out = mem;
	return SRT_OK;
}
