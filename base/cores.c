/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cores that this process may use: those of its affinity mask, and not more than the CPU quotas of
 * its cgroups, which containers set (docker --cpus, Kubernetes limits). A quota is time per period;
 * more running threads than quota / period use it up early and then all stand still.
 */
#include "base/base.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PATH_NBYTES 4096

static int count_affinity(void)
{
	cpu_set_t set;
	long online;

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		return CPU_COUNT(&set);
	/* More processors than cpu_set_t holds. */
	online = sysconf(_SC_NPROCESSORS_ONLN);
	return online > 0 ? (int)online : 1;
}

/* A file with one line; false if there is none. */
static bool read_line(const char *folder, const char *name, char *line, size_t nbytes)
{
	char path[PATH_NBYTES + 64];
	FILE *f;
	bool ok;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "re");
	if (!f)
		return false;
	ok = fgets(line, (int)nbytes, f) != NULL;
	fclose(f);
	return ok;
}

/* Lowers *ncores to the quota of one level of a hierarchy. */
static void apply_level(const char *folder, bool v2, int *ncores)
{
	long long quota = 0, period = 0, n;
	char line[64];

	if (v2) {
		/* "200000 100000", or "max 100000" for no limit */
		if (!read_line(folder, "cpu.max", line, sizeof(line)) ||
		    sscanf(line, "%lld %lld", &quota, &period) != 2)
			return;
	} else {
		/* -1: no limit */
		if (!read_line(folder, "cpu.cfs_quota_us", line, sizeof(line)) ||
		    sscanf(line, "%lld", &quota) != 1 ||
		    !read_line(folder, "cpu.cfs_period_us", line, sizeof(line)) ||
		    sscanf(line, "%lld", &period) != 1)
			return;
	}
	if (quota <= 0 || period <= 0)
		return;
	n = quota / period + (quota % period != 0);
	if (n < *ncores)
		*ncores = (int)n;
}

/* Applies the quotas of the cgroup's folder and its parents, up to the hierarchy's mount. A
 * container may see its own cgroup as the mount; then only that is found. */
static void apply_hierarchy(const char *mount, const char *cgroup, bool v2, int *ncores)
{
	char folder[PATH_NBYTES];
	size_t root = strlen(mount);
	int n = snprintf(folder, sizeof(folder), "%s%s", mount, cgroup);

	if (n < 0 || (size_t)n >= sizeof(folder))
		return;
	for (;;) {
		char *slash;

		apply_level(folder, v2, ncores);
		slash = strrchr(folder, '/');
		if (strlen(folder) <= root || !slash || (size_t)(slash - folder) < root)
			return;
		*slash = '\0';
	}
}

static bool lists_cpu(const char *controllers)
{
	for (const char *at = controllers; (at = strstr(at, "cpu")) != NULL; at += 3) {
		if ((at == controllers || at[-1] == ',') && (at[3] == '\0' || at[3] == ','))
			return true;
	}
	return false;
}

int srt_limit_cores(int ncores, const char *root)
{
	char line[PATH_NBYTES], path[PATH_NBYTES];
	FILE *f;

	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	f = fopen(path, "re");
	/* hierarchy:controllers:path */
	while (f && fgets(line, sizeof(line), f)) {
		char *controllers = strchr(line, ':');
		char *cgroup = controllers ? strchr(controllers + 1, ':') : NULL;
		bool v2;

		if (!cgroup)
			continue;
		*cgroup++ = '\0';
		controllers++;
		cgroup[strcspn(cgroup, "\n")] = '\0';
		v2 = !controllers[0];
		if (!v2 && !lists_cpu(controllers))
			continue;
		snprintf(path, sizeof(path), "%s/sys/fs/cgroup%s", root, v2 ? "" : "/cpu");
		apply_hierarchy(path, cgroup, v2, &ncores);
	}
	if (f)
		fclose(f);
	return ncores;
}

int srt_available_cores(void)
{
	return srt_limit_cores(count_affinity(), "");
}
