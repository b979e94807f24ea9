/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cores that this process may use: those of its affinity mask, and not more than the CPU quotas of
 * its cgroups, which containers set (docker --cpus, Kubernetes limits). A quota is time per period;
 * more running threads than quota / period use it up early and then all stand still.
 */
#include "base/base.h"
#include "base/cgroup.h"

#include <sched.h>
#include <stdio.h>
#include <unistd.h>

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
	char path[SRT_CGROUP_PATH_NBYTES + 64];
	FILE *f;
	bool ok;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "re");
	if (f == NULL)
		return false;
	ok = fgets(line, (int)nbytes, f) != NULL;
	fclose(f);
	return ok;
}

/* Lowers *ncores to the quota of one level of a hierarchy. */
static void apply_level(void *arg, const char *folder, bool v2)
{
	int *ncores = arg;
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

int srt_limit_cores(int ncores, const char *root)
{
	srt_cgroup_visit(root, "cpu", apply_level, &ncores);
	return ncores;
}

int srt_available_cores(void)
{
	return srt_limit_cores(count_affinity(), "");
}
