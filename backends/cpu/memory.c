/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of the CPU backend. All of it has a host address and is zero at first.
 *
 *   DEVICE, PINNED  small: the allocator, 64-byte aligned; large: an anonymous mapping that
 *                   asks for huge pages
 *   PEER            a memfd, mapped shared and filled in advance (the first touch of shared
 *                   pages is ten times slower than the second); its size is sealed, so that no
 *                   rank can cut it away under another's feet
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/cpu/cpu.h"
#include "base/base.h"

#define LARGE ((size_t)2 << 20)            /* a huge page */
#define CHECK_LIMIT_FROM ((size_t)8 << 20) /* below, the check costs more than it saves */

static size_t page_nbytes(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

static srt_status_t check_limit(size_t nbytes, const char *name)
{
	srt_cpu_memory_limit_t limit;

	if (nbytes < CHECK_LIMIT_FROM)
		return SRT_OK;
	srt_cpu_memory_limit(&limit);
	if (nbytes <= limit.available)
		return SRT_OK;
	return srt_fail(SRT_ERR_OUT_OF_MEMORY,
			"\"%s\" wants %zu bytes (%.1f GiB), but only %zu bytes are left "
			"of %s (%zu bytes); use a smaller model or more ranks on other "
			"machines",
			name, nbytes, (double)nbytes / 0x1p30, limit.available, limit.what,
			limit.limit);
}

static srt_status_t out_of_memory(size_t nbytes, const char *name, const char *call, int error)
{
	return srt_fail(SRT_ERR_OUT_OF_MEMORY, "\"%s\": %s for %zu bytes of memory failed: %s",
			name, call, nbytes, strerror(error));
}

static srt_status_t alloc_small(srt_cpu_mem_t *mem, const char *name)
{
	mem->host = aligned_alloc(SRT_CPU_ALIGN, srt_align_up(mem->nbytes, SRT_CPU_ALIGN));
	if (!mem->host)
		return out_of_memory(mem->nbytes, name, "aligned_alloc", ENOMEM);
	memset(mem->host, 0, mem->nbytes);
	return SRT_OK;
}

static srt_status_t alloc_large(srt_cpu_mem_t *mem, const char *name)
{
	size_t mapped = srt_align_up(mem->nbytes, page_nbytes());
	void *p = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return out_of_memory(mem->nbytes, name, "mmap", errno);
	/* Advice: without huge pages everything works, with more TLB misses. */
	madvise(p, mapped, MADV_HUGEPAGE);
	mem->host = p;
	mem->mapped = mapped;
	return SRT_OK;
}

static srt_status_t alloc_peer(srt_cpu_mem_t *mem, const char *name)
{
	size_t mapped = srt_align_up(mem->nbytes, page_nbytes());
	const char *call = "memfd_create";
	int error;
	void *p;

	mem->fd = memfd_create("shardrt", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (mem->fd < 0)
		return out_of_memory(mem->nbytes, name, call, errno);
	/* Takes the pages now: an error here instead of SIGBUS at the first use. */
	call = "fallocate";
	if (fallocate(mem->fd, 0, 0, (off_t)mapped))
		goto close_fd;
	call = "sealing";
	if (fcntl(mem->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		goto close_fd;
	call = "mmap";
	p = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, mem->fd, 0);
	if (p == MAP_FAILED)
		goto close_fd;
	mem->host = p;
	mem->mapped = mapped;
	return SRT_OK;

close_fd:
	error = errno;
	close(mem->fd);
	mem->fd = -1;
	return out_of_memory(mem->nbytes, name, call, error);
}

static srt_status_t mem_alloc(void *device, srt_mem_kind_t kind, size_t nbytes, const char *name,
			      void **out)
{
	srt_cpu_mem_t *mem;
	srt_status_t status;

	(void)device;
	if (nbytes > PTRDIFF_MAX - LARGE)
		return srt_fail(SRT_ERR_OUT_OF_MEMORY,
				"\"%s\" wants %zu bytes, more than an address space holds", name,
				nbytes);
	SRT_TRY(check_limit(nbytes, name));
	mem = srt_calloc(1, sizeof(*mem), "a buffer's description");
	if (!mem)
		return SRT_ERR_OUT_OF_MEMORY;
	mem->nbytes = nbytes;
	mem->fd = -1;
	if (kind == SRT_MEM_PEER)
		status = alloc_peer(mem, name);
	else if (nbytes >= LARGE)
		status = alloc_large(mem, name);
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

static srt_status_t mem_import(void *device, const srt_mem_handle_t *handle, void **out)
{
	size_t nbytes = (size_t)handle->nbytes;
	size_t mapped = srt_align_up(nbytes, page_nbytes());
	srt_cpu_mem_t *mem;
	struct stat st;
	void *p;

	(void)device;
	/* A peer's word is not enough: reading past the file's end is SIGBUS. */
	if (fstat(handle->fd, &st))
		return srt_fail(SRT_ERR_SYSTEM, "the descriptor is not usable: %s",
				strerror(errno));
	if (st.st_size < 0 || (uint64_t)st.st_size < handle->nbytes)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "it should hold %zu bytes and holds %lld",
				nbytes, (long long)st.st_size);
	mem = srt_calloc(1, sizeof(*mem), "a buffer's description");
	if (!mem)
		return SRT_ERR_OUT_OF_MEMORY;
	p = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, handle->fd, 0);
	if (p == MAP_FAILED) {
		int error = errno;

		free(mem);
		return srt_fail(SRT_ERR_OUT_OF_MEMORY, "mapping %zu bytes failed: %s", nbytes,
				strerror(error));
	}
	mem->host = p;
	mem->nbytes = nbytes;
	mem->mapped = mapped;
	mem->fd = handle->fd;
	*out = mem;
	return SRT_OK;
}

static srt_status_t mem_wrap(void *device, void *host, size_t nbytes, const char *name, void **out)
{
	srt_cpu_mem_t *mem = srt_calloc(1, sizeof(*mem), name);

	(void)device;
	if (!mem)
		return SRT_ERR_OUT_OF_MEMORY;
	*mem = (srt_cpu_mem_t){ .host = host, .nbytes = nbytes, .fd = -1, .wrapped = true };
	*out = mem;
	return SRT_OK;
}

/* No peer_begin and peer_end: the ranks' cores share their caches' view of memory, and the words
 * that order them are acquired and released. */
const srt_backend_mem_ops_t srt_cpu_mem_ops = {
	.alloc = mem_alloc,
	.free = mem_free,
	.host = mem_host,
	.export_handle = mem_export,
	.import_handle = mem_import,
	.wrap_host = mem_wrap,
};
