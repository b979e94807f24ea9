/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How much memory is left. Linux hands out address space freely and kills a process that touches
 * more than the machine or its cgroup has, so large allocations are compared with this first.
 * Reads /proc/meminfo and the limits of the process's cgroup (version 1 and 2) and all its
 * parents.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"

#define PATH_NBYTES 512

/* A number from a file of one line; SIZE_MAX for "max", a missing file or anything else. */
static size_t read_number(const char *path)
{
	unsigned long long value;
	size_t result = SIZE_MAX;
	FILE *f = fopen(path, "re");

	if (!f)
		return SIZE_MAX;
	if (fscanf(f, "%llu", &value) == 1 && value < SIZE_MAX)
		result = (size_t)value;
	fclose(f);
	return result;
}

/* Page cache that the kernel drops before it kills anybody. */
static size_t read_reclaimable(const char *path)
{
	char key[64];
	unsigned long long value;
	size_t result = 0;
	FILE *f = fopen(path, "re");

	if (!f)
		return 0;
	while (fscanf(f, "%63s %llu", key, &value) == 2)
		if (strcmp(key, "inactive_file") == 0 || strcmp(key, "total_inactive_file") == 0)
			result = (size_t)value;
	fclose(f);
	return result;
}

static void apply_level(srt_cpu_memory_limit_t *limit, const char *folder, bool v2)
{
	char path[PATH_NBYTES + 64];
	size_t max, used, reclaimable, available;

	snprintf(path, sizeof(path), "%s/%s", folder, v2 ? "memory.max" : "memory.limit_in_bytes");
	max = read_number(path);
	/* Version 1 says "none" with a number near 2^63. */
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
	}
}

/* The cgroup's folder and all above it, up to where the hierarchy is mounted. */
static void apply_hierarchy(srt_cpu_memory_limit_t *limit, const char *mount, const char *cgroup,
			    bool v2)
{
	char folder[PATH_NBYTES];
	size_t root = strlen(mount);
	int n = snprintf(folder, sizeof(folder), "%s%s", mount, cgroup);

	if (n < 0 || (size_t)n >= sizeof(folder))
		return;
	for (;;) {
		char *slash;

		apply_level(limit, folder, v2);
		slash = strrchr(folder, '/');
		if (strlen(folder) <= root || !slash || (size_t)(slash - folder) < root)
			return;
		*slash = '\0';
	}
}

static bool lists_memory(const char *controllers)
{
	const char *at = strstr(controllers, "memory");

	return at && (at == controllers || at[-1] == ',') && (at[6] == '\0' || at[6] == ',');
}

static void apply_cgroups(srt_cpu_memory_limit_t *limit)
{
	char line[PATH_NBYTES];
	FILE *f = fopen("/proc/self/cgroup", "re");

	if (!f)
		return;
	/* hierarchy:controllers:path */
	while (fgets(line, sizeof(line), f)) {
		char *controllers = strchr(line, ':');
		char *path = controllers ? strchr(controllers + 1, ':') : NULL;

		if (!path)
			continue;
		*path++ = '\0';
		controllers++;
		path[strcspn(path, "\n")] = '\0';
		if (!controllers[0])
			apply_hierarchy(limit, "/sys/fs/cgroup", path, true);
		else if (lists_memory(controllers))
			apply_hierarchy(limit, "/sys/fs/cgroup/memory", path, false);
	}
	fclose(f);
}

static void apply_machine(srt_cpu_memory_limit_t *limit)
{
	char line[256];
	unsigned long long kib, total = 0;
	FILE *f = fopen("/proc/meminfo", "re");

	if (!f)
		return;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "MemTotal: %llu kB", &kib) == 1)
			total = kib;
		if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) {
			limit->available = (size_t)kib * 1024;
			limit->limit = (size_t)total * 1024;
		}
	}
	fclose(f);
}

void srt_cpu_memory_limit(srt_cpu_memory_limit_t *limit)
{
	*limit = (srt_cpu_memory_limit_t){
		.available = SIZE_MAX,
		.limit = SIZE_MAX,
		.what = "the machine's memory",
	};
	apply_machine(limit);
	apply_cgroups(limit);
}
