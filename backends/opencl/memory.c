/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory. All of it is zero at first.
 *
 *   DEVICE  a buffer; cleared at once, because drivers allocate the memory at the first use, and a
 *           failure there could not be reported with the buffer's name
 *   PINNED  host memory for copies: if the device has separate memory, a permanent mapping of a
 *           buffer in host memory (drivers pin it); else plain memory. Kernels do not access it.
 *   PEER    peer.c
 *
 * Wrapped host memory is like PINNED, but the caller owns it.
 */
#include <string.h>

#include "backends/common/host_memory.h"
#include "backends/opencl/opencl.h"
#include "base/bytes.h"

static srt_ocl_mem_t *mem_new(const srt_ocl_device_t *device, size_t nbytes)
{
	srt_ocl_mem_t *mem = device->host->alloc(sizeof(*mem));

	if (mem != NULL)
		*mem = (srt_ocl_mem_t){ .nbytes = nbytes, .fd = -1 };
	return mem;
}

static srt_status_t alloc_failed(const srt_ocl_device_t *device, cl_int code, size_t nbytes,
				 const char *name)
{
	return device->host->fail(SRT_ERR_OUT_OF_MEMORY,
				  "\"%s\": device \"%s\" has no %s for it: %s (%d)", name,
				  device->name, srt_bytes(nbytes).text, srt_ocl_code_name(code),
				  code);
}

/* Clears a new buffer, which makes the driver allocate its memory. */
static cl_int clear_buffer(srt_ocl_device_t *device, cl_mem buffer, size_t nbytes)
{
	const cl_uchar zero = 0;
	cl_int code;

	pthread_mutex_lock(&device->lock);
	code = clEnqueueFillBuffer(device->queue, buffer, &zero, sizeof(zero), 0, nbytes, 0, NULL,
				   NULL);
	if (code == CL_SUCCESS)
		code = clFinish(device->queue);
	pthread_mutex_unlock(&device->lock);
	return code;
}

static srt_status_t alloc_device(srt_ocl_device_t *device, srt_ocl_mem_t *mem, const char *name)
{
	cl_int code;

	if (mem->nbytes > device->max_alloc)
		return device->host->fail(SRT_ERR_OUT_OF_MEMORY,
					  "\"%s\" needs %s, but device \"%s\" allows %s in one "
					  "buffer",
					  name, srt_bytes(mem->nbytes).text, device->name,
					  srt_bytes((size_t)device->max_alloc).text);
	mem->buffer = clCreateBuffer(device->context, CL_MEM_READ_WRITE, mem->nbytes, NULL, &code);
	if (code != CL_SUCCESS)
		return alloc_failed(device, code, mem->nbytes, name);
	code = clear_buffer(device, mem->buffer, mem->nbytes);
	if (code == CL_SUCCESS)
		return SRT_OK;
	clReleaseMemObject(mem->buffer);
	return alloc_failed(device, code, mem->nbytes, name);
}

static srt_status_t alloc_pinned(srt_ocl_device_t *device, srt_ocl_mem_t *mem, const char *name)
{
	cl_int code;

	if (device->unified_memory) {
		mem->host = device->host->alloc(mem->nbytes);
		if (mem->host == NULL)
			return SRT_ERR_OUT_OF_MEMORY;
		memset(mem->host, 0, mem->nbytes);
		return SRT_OK;
	}
	mem->pinned = clCreateBuffer(device->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR,
				     mem->nbytes, NULL, &code);
	if (code != CL_SUCCESS)
		return alloc_failed(device, code, mem->nbytes, name);
	pthread_mutex_lock(&device->lock);
	mem->host =
		clEnqueueMapBuffer(device->queue, mem->pinned, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE,
				   0, mem->nbytes, 0, NULL, NULL, &code);
	pthread_mutex_unlock(&device->lock);
	if (code != CL_SUCCESS) {
		clReleaseMemObject(mem->pinned);
		return alloc_failed(device, code, mem->nbytes, name);
	}
	memset(mem->host, 0, mem->nbytes);
	return SRT_OK;
}

static void free_pinned(srt_ocl_device_t *device, srt_ocl_mem_t *mem)
{
	pthread_mutex_lock(&device->lock);
	clEnqueueUnmapMemObject(device->queue, mem->pinned, mem->host, 0, NULL, NULL);
	clFinish(device->queue);
	pthread_mutex_unlock(&device->lock);
	clReleaseMemObject(mem->pinned);
}

static srt_status_t mem_alloc(void *dev, srt_mem_kind_t kind, size_t nbytes, const char *name,
			      void **out)
{
	srt_ocl_device_t *device = dev;
	srt_ocl_mem_t *mem;
	srt_status_t status = SRT_OK;

	if (kind != SRT_MEM_DEVICE || device->unified_memory)
		status = srt_hostmem_check(device->host, nbytes, name);
	if (status != SRT_OK)
		return status;
	mem = mem_new(device, nbytes);
	if (mem == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	switch (kind) {
	case SRT_MEM_DEVICE:
		status = alloc_device(device, mem, name);
		break;
	case SRT_MEM_PINNED:
		status = alloc_pinned(device, mem, name);
		break;
	case SRT_MEM_PEER:
		status = srt_ocl_peer_alloc(device, mem, name);
		break;
	}
	if (status != SRT_OK) {
		device->host->free(mem);
		return status;
	}
	*out = mem;
	return SRT_OK;
}

static void mem_free(void *dev, void *memory)
{
	srt_ocl_device_t *device = dev;
	srt_ocl_mem_t *mem = memory;

	if (mem->buffer != NULL)
		clReleaseMemObject(mem->buffer);
	if (mem->mapped)
		srt_hostmem_free(&(srt_hostmem_t){ mem->host, mem->mapped, mem->fd });
	else if (mem->pinned != NULL)
		free_pinned(device, mem);
	else if (!mem->borrowed)
		device->host->free(mem->host);
	device->host->free(mem);
}

/* For a buffer over a mapping, the device's bytes are valid, not those of the mapping. */
static void *mem_host(void *device, void *memory)
{
	const srt_ocl_mem_t *mem = memory;

	(void)device;
	return mem->buffer != NULL ? NULL : mem->host;
}

static srt_status_t mem_wrap(void *dev, void *host, size_t nbytes, const char *name, void **out)
{
	srt_ocl_mem_t *mem = mem_new(dev, nbytes);

	(void)name;
	if (mem == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	mem->host = host;
	mem->borrowed = true;
	*out = mem;
	return SRT_OK;
}

/* OpenCL does not report the free memory of a device with separate memory. */
static size_t mem_available(void *dev)
{
	const srt_ocl_device_t *device = dev;
	srt_memory_limit_t limit;

	if (!device->unified_memory)
		return 0;
	srt_memory_limit(&limit);
	return limit.available == SIZE_MAX ? 0 : limit.available;
}

const srt_backend_mem_ops_t srt_ocl_mem_ops = {
	.alloc = mem_alloc,
	.free = mem_free,
	.host = mem_host,
	.available = mem_available,
	.export_handle = srt_ocl_peer_export,
	.import_handle = srt_ocl_peer_import,
	.wrap_host = mem_wrap,
	.native = srt_ocl_mem_native,
	.wrap_native = srt_ocl_wrap_native,
};
