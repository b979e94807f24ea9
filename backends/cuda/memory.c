/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory. All of it is zero at first.
 *
 *   DEVICE  cuMemAlloc
 *   PINNED  page-locked host memory, which the device's copy engines access without the processor;
 *           it has a device address, so kernels can read it, slowly
 *
 * Wrapped host memory is like PINNED: the caller's memory is registered in place. If the driver
 * refuses (a limit on locked memory, pages of a file), the memory stays pageable, and the stream's
 * worker copies it in stream order.
 */
#include <string.h>

#include "backends/cuda/cuda.h"
#include "backends/common/host_memory.h"
#include "base/bytes.h"

#define ADDRESS_ALIGN 16 /* of the program's memory */

static srt_status_t alloc_failed(const srt_cuda_device_t *device, CUresult code, size_t nbytes,
				 const char *kind, const char *name)
{
	const srt_cuda_driver_t *drv = device->drv;
	size_t available = 0, total = 0;

	if (code != CUDA_ERROR_OUT_OF_MEMORY)
		return srt_cuda_fail(device->host, drv, code,
				     "\"%s\": allocating %s of %s memory of device \"%s\" "
				     "failed",
				     name, srt_bytes(nbytes).text, kind, device->name);
	drv->cuMemGetInfo(&available, &total);
	return device->host->fail(SRT_ERR_OUT_OF_MEMORY,
				  "\"%s\": device \"%s\" has no %s of %s memory for it (%s of its "
				  "%s are free): %s (%d)",
				  name, device->name, srt_bytes(nbytes).text, kind,
				  srt_bytes(available).text, srt_bytes(total).text,
				  srt_cuda_code_name(drv, code), (int)code);
}

static CUresult clear_memory(srt_cuda_device_t *device, CUdeviceptr address, size_t nbytes)
{
	CUresult code = device->drv->cuMemsetD8Async(address, 0, nbytes, device->stream);

	return code == CUDA_SUCCESS ? device->drv->cuStreamSynchronize(device->stream) : code;
}

static srt_status_t alloc_device(srt_cuda_device_t *device, srt_cuda_mem_t *mem, const char *name)
{
	CUresult code = device->drv->cuMemAlloc(&mem->address, mem->nbytes);

	if (code != CUDA_SUCCESS)
		return alloc_failed(device, code, mem->nbytes, "device", name);
	code = clear_memory(device, mem->address, mem->nbytes);
	if (code == CUDA_SUCCESS)
		return SRT_OK;
	device->drv->cuMemFree(mem->address);
	return alloc_failed(device, code, mem->nbytes, "device", name);
}

static srt_status_t alloc_pinned(srt_cuda_device_t *device, srt_cuda_mem_t *mem, const char *name)
{
	const srt_cuda_driver_t *drv = device->drv;
	srt_status_t status = srt_hostmem_check(device->host, mem->nbytes, name);
	void *host = NULL;
	CUresult code;

	if (status != SRT_OK)
		return status;
	code = drv->cuMemHostAlloc(&host, mem->nbytes,
				   CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
	if (code != CUDA_SUCCESS)
		return alloc_failed(device, code, mem->nbytes, "pinned host", name);
	code = drv->cuMemHostGetDevicePointer(&mem->address, host, 0);
	if (code != CUDA_SUCCESS) {
		drv->cuMemFreeHost(host);
		return alloc_failed(device, code, mem->nbytes, "pinned host", name);
	}
	memset(host, 0, mem->nbytes);
	mem->host = host;
	return SRT_OK;
}

static srt_cuda_mem_t *mem_new(const srt_cuda_device_t *device, size_t nbytes)
{
	srt_cuda_mem_t *mem = device->host->alloc(sizeof(*mem));

	if (mem != NULL)
		*mem = (srt_cuda_mem_t){ .nbytes = nbytes };
	return mem;
}

static srt_status_t mem_alloc(void *dev, srt_mem_kind_t kind, size_t nbytes, const char *name,
			      void **out)
{
	srt_cuda_device_t *device = dev;
	srt_cuda_mem_t *mem = mem_new(device, nbytes);
	srt_status_t status;
	srt_cuda_scope_t scope;

	if (mem == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	scope = srt_cuda_enter(device);
	switch (kind) {
	case SRT_MEM_DEVICE:
		status = alloc_device(device, mem, name);
		break;
	case SRT_MEM_PINNED:
		status = alloc_pinned(device, mem, name);
		break;
	default:
		status = device->host->fail(SRT_ERR_UNSUPPORTED, "\"%s\": memory kind %d unknown",
					    name, (int)kind);
		break;
	}
	srt_cuda_leave(scope);
	if (status != SRT_OK) {
		device->host->free(mem);
		return status;
	}
	*out = mem;
	return SRT_OK;
}

static void mem_free(void *dev, void *memory)
{
	srt_cuda_device_t *device = dev;
	const srt_cuda_driver_t *drv = device->drv;
	srt_cuda_mem_t *mem = memory;
	srt_cuda_scope_t scope = srt_cuda_enter(device);

	if (!mem->wrapped && mem->host != NULL)
		drv->cuMemFreeHost(mem->host);
	else if (!mem->wrapped)
		drv->cuMemFree(mem->address);
	else if (mem->host != NULL && mem->address)
		drv->cuMemHostUnregister(mem->host);
	srt_cuda_leave(scope);
	device->host->free(mem);
}

static void *mem_host(void *device, void *memory)
{
	const srt_cuda_mem_t *mem = memory;

	(void)device;
	return mem->host;
}

/* Registers the caller's memory and returns its device address; 0 if the driver refuses. */
static CUdeviceptr lock_host(srt_cuda_device_t *device, void *host, size_t nbytes, const char *name)
{
	const srt_cuda_driver_t *drv = device->drv;
	CUdeviceptr address = 0;
	CUresult code;

	code = drv->cuMemHostRegister(host, nbytes,
				      CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
	if (code == CUDA_SUCCESS) {
		code = drv->cuMemHostGetDevicePointer(&address, host, 0);
		if (code == CUDA_SUCCESS)
			return address;
		drv->cuMemHostUnregister(host);
	}
	device->host->log(SRT_LOG_INFO,
			  "\"%s\": CUDA device \"%s\" does not lock %s of host memory (%s): "
			  "copies of it are slower",
			  name, device->name, srt_bytes(nbytes).text,
			  srt_cuda_code_name(drv, code));
	return 0;
}

static srt_status_t mem_wrap(void *dev, void *host, size_t nbytes, const char *name, void **out)
{
	srt_cuda_device_t *device = dev;
	srt_cuda_mem_t *mem = mem_new(device, nbytes);
	srt_cuda_scope_t scope;

	if (mem == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	mem->host = host;
	mem->wrapped = true;
	scope = srt_cuda_enter(device);
	mem->address = lock_host(device, host, nbytes, name);
	srt_cuda_leave(scope);
	*out = mem;
	return SRT_OK;
}

static srt_status_t mem_native(void *dev, void *m, void **handle)
{
	const srt_cuda_device_t *device = dev;
	const srt_cuda_mem_t *mem = m;

	if (!mem->address)
		return device->host->fail(SRT_ERR_UNSUPPORTED,
					  "it is host memory that the driver refused to register; "
					  "srt_buffer_host() returns its address");
	*handle = (void *)(uintptr_t)mem->address;
	return SRT_OK;
}

static srt_status_t mem_wrap_native(void *dev, void *handle, size_t nbytes, const char *name,
				    void **out)
{
	srt_cuda_device_t *device = dev;
	srt_cuda_mem_t *mem;

	if ((uintptr_t)handle % ADDRESS_ALIGN)
		return device->host->fail(SRT_ERR_INVALID_ARGUMENT,
					  "the address %p of \"%s\" is not a multiple of %d",
					  handle, name, ADDRESS_ALIGN);
	mem = mem_new(device, nbytes);
	if (mem == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	mem->address = (CUdeviceptr)(uintptr_t)handle;
	mem->wrapped = true;
	*out = mem;
	return SRT_OK;
}

static size_t mem_available(void *dev)
{
	srt_cuda_device_t *device = dev;
	srt_cuda_scope_t scope = srt_cuda_enter(device);
	size_t available = 0, total = 0;

	if (device->drv->cuMemGetInfo(&available, &total) != CUDA_SUCCESS)
		available = 0;
	srt_cuda_leave(scope);
	return available;
}

const srt_backend_mem_ops_t srt_cuda_mem_ops = {
	.alloc = mem_alloc,
	.free = mem_free,
	.host = mem_host,
	.available = mem_available,
	.wrap_host = mem_wrap,
	.native = mem_native,
	.wrap_native = mem_wrap_native,
};
