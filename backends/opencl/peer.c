/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that peers map: a memfd mapping with a buffer over it (CL_MEM_USE_HOST_PTR). A driver may
 * keep such a buffer's bytes elsewhere, and must update the mapping only while a region is mapped.
 * So a region is mapped and unmapped at once when another process will use or has written it:
 *
 *   own, before peers read       map for reading: the mapping is brought up to date
 *   imported, before we read     map to be overwritten: the unmapping passes the bytes of the
 *                                mapping to the device
 *
 * and no region stays mapped while kernels use other regions. OpenCL does not guarantee that a
 * driver does this: a device that fails the start-up probe (probe.c) does not have peer memory, and
 * collectives stage.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "backends/common/host_memory.h"
#include "backends/opencl/opencl.h"
#include "base/bytes.h"

static srt_status_t wrap_mapping(srt_ocl_device_t *device, srt_ocl_mem_t *mem)
{
	cl_int code;

	mem->buffer = clCreateBuffer(device->context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR,
				     mem->nbytes, mem->host, &code);
	if (code == CL_SUCCESS)
		return SRT_OK;
	mem->buffer = NULL;
	return srt_ocl_fail(device->host, code, "a buffer over %zu bytes of shared memory",
			    mem->nbytes);
}

static void take_mapping(srt_ocl_mem_t *mem, const srt_hostmem_t *shared)
{
	mem->host = shared->addr;
	mem->mapped = shared->mapped;
	mem->fd = shared->fd;
}

srt_status_t srt_ocl_peer_alloc(srt_ocl_device_t *device, srt_ocl_mem_t *mem, const char *name)
{
	srt_hostmem_t shared;
	srt_status_t status;

	if (mem->nbytes > device->max_alloc)
		return device->host->fail(SRT_ERR_OUT_OF_MEMORY,
					  "\"%s\" needs %s, but device \"%s\" allows %s in one "
					  "buffer",
					  name, srt_bytes(mem->nbytes).text, device->name,
					  srt_bytes((size_t)device->max_alloc).text);
	status = srt_hostmem_create(device->host, mem->nbytes, name, &shared);
	if (status != SRT_OK)
		return status;
	take_mapping(mem, &shared);
	status = wrap_mapping(device, mem);
	if (status != SRT_OK)
		srt_hostmem_free(&shared);
	return status;
}

srt_status_t srt_ocl_peer_export(void *device, void *memory, srt_mem_handle_t *handle)
{
	const srt_ocl_mem_t *mem = memory;

	(void)device;
	*handle = (srt_mem_handle_t){ .fd = mem->fd, .nbytes = mem->nbytes };
	return SRT_OK;
}

srt_status_t srt_ocl_peer_import(void *dev, const srt_mem_handle_t *handle, void **out)
{
	srt_ocl_device_t *device = dev;
	srt_ocl_mem_t *mem = device->host->alloc(sizeof(*mem));
	srt_hostmem_t shared;
	srt_status_t status;

	if (mem == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	*mem = (srt_ocl_mem_t){ .nbytes = (size_t)handle->nbytes, .imported = true };
	/* A driver may write to the memory of a buffer. */
	status = srt_hostmem_import(device->host, handle, PROT_READ | PROT_WRITE, &shared);
	if (status != SRT_OK)
		goto free_mem;
	take_mapping(mem, &shared);
	status = wrap_mapping(device, mem);
	if (status != SRT_OK)
		goto unmap;
	close(handle->fd);
	*out = mem;
	return SRT_OK;

unmap:
	srt_hostmem_free(&shared); /* the caller keeps the descriptor */
free_mem:
	device->host->free(mem);
	return status;
}

/* ---- turns ------------------------------------------------------------------------------ */

/* Maps and unmaps a region. Not blocking: in stream order. */
srt_status_t srt_ocl_run_peer_begin(srt_ocl_stream_t *stream, const srt_command_t *command)
{
	const srt_ocl_mem_t *mem = command->bindings[0].mem;
	const cl_map_flags flags = mem->imported ? CL_MAP_WRITE_INVALIDATE_REGION : CL_MAP_READ;
	cl_int code;
	void *p;

	p = clEnqueueMapBuffer(stream->queue, mem->buffer, CL_FALSE, flags,
			       command->bindings[0].offset, command->bytes.nbytes, 0, NULL, NULL,
			       &code);
	if (code == CL_SUCCESS)
		code = clEnqueueUnmapMemObject(stream->queue, mem->buffer, p, 0, NULL, NULL);
	return srt_ocl_queued(stream, code, "showing peers", command->bytes.nbytes);
}
