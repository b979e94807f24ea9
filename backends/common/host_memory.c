/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Free host memory, and host memory that peers can map. Linux overcommits address space and kills a
 * process that touches more memory than the machine or its cgroup has. So large allocations are
 * checked against the free memory first, from /proc/meminfo and the limits of the process's cgroup
 * (version 1 and 2) and all its parents.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/common/host_memory.h"
#include "base/bytes.h"
#include "base/cgroup.h"
#include "base/memfd.h"

#define CHECK_LIMIT_FROM ((size_t)8 << 20) /* smaller allocations are not checked */

/* Reads a number from a file of one line; SIZE_MAX for "max", a missing file or other text. */
static size_t read_number(const char *path)
{
	unsigned long long value;
	size_t result = SIZE_MAX;
	FILE *f = fopen(path, "re");

	if (f == NULL)
		return SIZE_MAX;
	if (fscanf(f, "%llu", &value) == 1 && value < SIZE_MAX)
		result = (size_t)value;
	fclose(f);
	return result;
}

/*
 * Page cache, which the kernel drops before it kills a process. It includes active file pages: a
 * large build leaves gigabytes of them. Version 1 has rows of the group alone and with its
 * children.
 */
static size_t read_reclaimable(const char *path)
{
	char key[64];
	unsigned long long value;
	size_t own = 0, total = 0;
	FILE *f = fopen(path, "re");

	if (f == NULL)
		return 0;
	while (fscanf(f, "%63s %llu", key, &value) == 2) {
		if (strcmp(key, "inactive_file") == 0 || strcmp(key, "active_file") == 0)
			own += (size_t)value;
		if (strcmp(key, "total_inactive_file") == 0 ||
		    strcmp(key, "total_active_file") == 0)
			total += (size_t)value;
	}
	fclose(f);
	return own > total ? own : total;
}

/* A cgroup is known by its folder. */
static void set_id(srt_memory_limit_t *limit, const char *folder)
{
	struct stat info;
	uint64_t id[2];

	if (stat(folder, &info) != 0)
		return;
	id[0] = (uint64_t)info.st_dev;
	id[1] = (uint64_t)info.st_ino;
	memcpy(limit->id, id, sizeof(limit->id));
}

static void apply_level(void *arg, const char *folder, bool v2)
{
	srt_memory_limit_t *limit = arg;
	char path[SRT_CGROUP_PATH_NBYTES + 64];
	size_t max, used, reclaimable, available;

	snprintf(path, sizeof(path), "%s/%s", folder, v2 ? "memory.max" : "memory.limit_in_bytes");
	max = read_number(path);
	/* Version 1 reports no limit as a number near 2^63. */
	if (max >= (size_t)1 << 62)
		return;
	snprintf(path, sizeof(path), "%s/%s", folder,
		 v2 ? "memory.current" : "memory.usage_in_bytes");
	used = read_number(path);
	if (used == SIZE_MAX)
		return;
	snprintf(path, sizeof(path), "%s/memory.stat", folder);
	reclaimable = read_reclaimable(path);
	used -= reclaimable < used ? reclaimable : used;
	available = used < max ? max - used : 0;
	if (available < limit->available) {
		limit->available = available;
		limit->limit = max;
		limit->what = "the memory limit of the cgroup";
		set_id(limit, folder);
	}
}

static void apply_machine(srt_memory_limit_t *limit)
{
	char line[256];
	unsigned long long kib, total = 0;
	FILE *f = fopen("/proc/meminfo", "re");

	if (f == NULL)
		return;
	while (fgets(line, sizeof(line), f) != NULL) {
		if (sscanf(line, "MemTotal: %llu kB", &kib) == 1)
			total = kib;
		if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) {
			limit->available = (size_t)kib * 1024;
			limit->limit = (size_t)total * 1024;
		}
	}
	fclose(f);
}

void srt_memory_limit(srt_memory_limit_t *limit)
{
	*limit = (srt_memory_limit_t){
		.available = SIZE_MAX,
		.limit = SIZE_MAX,
		.what = "the machine's memory",
		.id = "host memory",
	};
	apply_machine(limit);
	srt_cgroup_visit("", "memory", apply_level, limit);
}

srt_status_t srt_hostmem_check(const srt_host_services_t *host, size_t nbytes, const char *name)
{
	srt_memory_limit_t limit;

	if (nbytes > PTRDIFF_MAX / 2)
		return host->fail(SRT_ERR_OUT_OF_MEMORY,
				  "\"%s\" needs %s, more than an address space has", name,
				  srt_bytes(nbytes).text);
	if (nbytes < CHECK_LIMIT_FROM)
		return SRT_OK;
	srt_memory_limit(&limit);
	if (nbytes <= limit.available)
		return SRT_OK;
	return host->fail(SRT_ERR_OUT_OF_MEMORY,
			  "\"%s\" needs %s, but only %s are free of %s, %s; use a smaller model "
			  "or more ranks on other machines",
			  name, srt_bytes(nbytes).text, srt_bytes(limit.available).text, limit.what,
			  srt_bytes(limit.limit).text);
}

static size_t whole_pages(size_t nbytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (nbytes + page - 1) & ~(page - 1);
}

srt_status_t srt_hostmem_create(const srt_host_services_t *host, size_t nbytes, const char *name,
				srt_hostmem_t *mem)
{
	size_t mapped = whole_pages(nbytes);
	const char *call = "memfd_create";
	int fd, error;
	void *p;

	fd = memfd_create("shardrt", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		goto fail;
	call = "fallocate";
	if (!srt_memfd_allocate(fd, mapped))
		goto fail;
	call = "sealing";
	if (!srt_memfd_seal(fd))
		goto fail;
	call = "mmap";
	/* Not MAP_POPULATE: pages are cleared and mapped at their first use, not at the start. */
	p = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		goto fail;
	*mem = (srt_hostmem_t){ .addr = p, .mapped = mapped, .fd = fd };
	return SRT_OK;

fail:
	error = errno;
	if (fd >= 0)
		close(fd);
	return host->fail(SRT_ERR_OUT_OF_MEMORY, "\"%s\": %s for %s of memory failed: %s", name,
			  call, srt_bytes(nbytes).text, strerror(error));
}

srt_status_t srt_hostmem_import(const srt_host_services_t *host, const srt_mem_handle_t *handle,
				int protection, srt_hostmem_t *mem)
{
	size_t nbytes = (size_t)handle->nbytes;
	size_t mapped = whole_pages(nbytes);
	void *p;

	if (!srt_memfd_is_sealed(handle->fd, nbytes))
		return host->fail(SRT_ERR_INVALID_ARGUMENT,
				  "the descriptor is not sealed memory of at least %s",
				  srt_bytes(nbytes).text);
	p = mmap(NULL, mapped, protection, MAP_SHARED, handle->fd, 0);
	if (p == MAP_FAILED)
		return host->fail(SRT_ERR_OUT_OF_MEMORY, "mapping %s failed: %s",
				  srt_bytes(nbytes).text, strerror(errno));
	*mem = (srt_hostmem_t){ .addr = p, .mapped = mapped, .fd = -1 };
	return SRT_OK;
}

void srt_hostmem_free(srt_hostmem_t *mem)
{
	munmap(mem->addr, mem->mapped);
	if (mem->fd >= 0)
		close(mem->fd);
}
