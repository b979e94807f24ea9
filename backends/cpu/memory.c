/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of the CPU backend. All of it has a host address and is zero at first.
 *
 *   DEVICE          small: the allocator, 64-byte aligned; large: an anonymous mapping that
 *                   asks for huge pages
 *   PINNED          an anonymous mapping: another device can map its pages (srt_buffer_alias())
 *   PEER            a memfd (backends/common/host_memory.h)
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backends/cpu/cpu.h"
#include "backends/common/host_memory.h"
#include "base/base.h"
#include "base/bytes.h"

#define LARGE ((size_t)2 << 20) /* a huge page */

static size_t page_nbytes(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

static srt_status_t out_of_memory(size_t nbytes, const char *name, const char *call, int error)
{
	return srt_fail(SRT_ERR_OUT_OF_MEMORY, "\"%s\": %s for %s of memory failed: %s", name, call,
			srt_bytes(nbytes).text, strerror(error));
}

static srt_status_t alloc_small(srt_cpu_mem_t *mem, const char *name)
{
	mem->host = aligned_alloc(SRT_CPU_ALIGN, srt_align_up(mem->nbytes, SRT_CPU_ALIGN));
	if (mem->host == NULL)
		return out_of_memory(mem->nbytes, name, "aligned_alloc", ENOMEM);
	memset(mem->host, 0, mem->nbytes);
	return SRT_OK;
}

static srt_status_t alloc_mapped(srt_cpu_mem_t *mem, const char *name)
{
	size_t mapped = srt_align_up(mem->nbytes, page_nbytes());
	void *p = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return out_of_memory(mem->nbytes, name, "mmap", errno);
	/* A hint: without huge pages there are more TLB misses. */
	if (mem->nbytes >= LARGE)
		madvise(p, mapped, MADV_HUGEPAGE);
	mem->host = p;
	mem->mapped = mapped;
	return SRT_OK;
}

static srt_status_t alloc_peer(const srt_cpu_device_t *device, srt_cpu_mem_t *mem, const char *name)
{
	srt_hostmem_t shared;

	SRT_TRY(srt_hostmem_create(device->host, mem->nbytes, name, &shared));
	mem->host = shared.addr;
	mem->mapped = shared.mapped;
	mem->fd = shared.fd;
	return SRT_OK;
}

static srt_status_t mem_alloc(void *dev, srt_mem_kind_t kind, size_t nbytes, const char *name,
			      void **out)
{
	const srt_cpu_device_t *device = dev;
	srt_cpu_mem_t *mem;
	srt_status_t status;

	SRT_TRY(srt_hostmem_check(device->host, nbytes, name));
	mem = srt_calloc(1, sizeof(*mem), "a buffer's description");
	if (mem == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	mem->nbytes = nbytes;
	mem->fd = -1;
	if (kind == SRT_MEM_PEER)
		status = alloc_peer(device, mem, name);
	else if (kind == SRT_MEM_PINNED || nbytes >= LARGE)
		status = alloc_mapped(mem, name);
	else
		status = alloc_small(mem, name);
	if (status != SRT_OK) {
		free(mem);
		return status;
	}
	*out = mem;
	return SRT_OK;
}

static void mem_free(void *device, void *memory)
{
	srt_cpu_mem_t *mem = memory;

	(void)device;
	if (mem->mapped)
		munmap(mem->host, mem->mapped);
	else if (!mem->wrapped)
		free(mem->host);
	if (mem->fd >= 0)
		close(mem->fd);
	free(mem);
}

void *srt_cpu_tensor(const srt_binding_t *binding)
{
	const srt_cpu_mem_t *mem = binding->mem;

	return mem != NULL ? mem->host + binding->offset : NULL;
}

void *srt_cpu_stream_scratch(srt_cpu_stream_t *stream, size_t nbytes)
{
	if (!nbytes)
		return stream; /* NULL means failure */
	if (srt_scratch_provide(&stream->scratch, nbytes) != SRT_OK)
		return NULL;
	return ((srt_cpu_mem_t *)srt_scratch_mem(&stream->scratch))->host;
}

static void *mem_host(void *device, void *memory)
{
	(void)device;
	return ((srt_cpu_mem_t *)memory)->host;
}

static srt_status_t mem_export(void *device, void *memory, srt_mem_handle_t *handle)
{
	const srt_cpu_mem_t *mem = memory;

	(void)device;
	*handle = (srt_mem_handle_t){ .fd = mem->fd, .nbytes = mem->nbytes };
	return SRT_OK;
}

static srt_status_t mem_import(void *dev, const srt_mem_handle_t *handle, void **out)
{
	const srt_cpu_device_t *device = dev;
	srt_cpu_mem_t *mem = srt_calloc(1, sizeof(*mem), "a buffer's description");
	srt_hostmem_t shared;
	srt_status_t status;

	if (mem == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_hostmem_import(device->host, handle, PROT_READ | PROT_WRITE, &shared);
	if (status != SRT_OK) {
		free(mem);
		return status;
	}
	mem->host = shared.addr;
	mem->nbytes = (size_t)handle->nbytes;
	mem->mapped = shared.mapped;
	mem->fd = -1;
	close(handle->fd);
	*out = mem;
	return SRT_OK;
}

static srt_status_t mem_wrap(void *device, void *host, size_t nbytes, const char *name, void **out)
{
	srt_cpu_mem_t *mem = srt_calloc(1, sizeof(*mem), name);

	(void)device;
	if (mem == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	*mem = (srt_cpu_mem_t){ .host = host, .nbytes = nbytes, .fd = -1, .wrapped = true };
	*out = mem;
	return SRT_OK;
}

static size_t mem_available(void *device)
{
	srt_memory_limit_t limit;

	(void)device;
	srt_memory_limit(&limit);
	return limit.available == SIZE_MAX ? 0 : limit.available;
}

/* There is no peer_begin: caches of a node are coherent, and the flags that order the ranks use
 * acquire and release. */
const srt_backend_mem_ops_t srt_cpu_mem_ops = {
	.alloc = mem_alloc,
	.free = mem_free,
	.host = mem_host,
	.available = mem_available,
	.export_handle = mem_export,
	.import_handle = mem_import,
	.wrap_host = mem_wrap,
};
