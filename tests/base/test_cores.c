/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Usable cores: the affinity mask, and the CPU quotas of cgroups of both versions at all levels,
 * from a folder that has the files of /proc and /sys. The levels that the limits of memory are read
 * from (backends/common/host_memory.c).
 */
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/cgroup.h"
#include "tests/harness/check.h"

static char root[] = "test_cores-XXXXXX";

/* Writes a file below the root, with its folders. */
static void write_file(const char *name, const char *text)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	for (char *slash = strchr(path, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(path, 0700);
		*slash = '/';
	}
	f = fopen(path, "w");
	CHECK_OR_DIE(f != NULL && fputs(text, f) >= 0 && fclose(f) == 0);
}

static void test_affinity(void)
{
	cpu_set_t before, one;
	int cpu = 0;

	CHECK_OR_DIE(sched_getaffinity(0, sizeof(before), &before) == 0);
	CHECK(srt_available_cores() >= 1 && srt_available_cores() <= CPU_COUNT(&before));
	while (!CPU_ISSET(cpu, &before))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	CHECK_OR_DIE(sched_setaffinity(0, sizeof(one), &one) == 0);
	CHECK_INT(srt_available_cores(), 1);
	CHECK_OR_DIE(sched_setaffinity(0, sizeof(before), &before) == 0);
}

/*
 * Reliability: a CPU quota of a container | threads for all cores of the machine | threads for the
 * quota
 */
static void test_version_2(void)
{
	CHECK_INT(srt_limit_cores(64, root), 64); /* no files */
	write_file("proc/self/cgroup", "0::/pod/box\n");
	CHECK_INT(srt_limit_cores(64, root), 64);
	write_file("sys/fs/cgroup/pod/box/cpu.max", "max 100000\n");
	CHECK_INT(srt_limit_cores(64, root), 64);
	write_file("sys/fs/cgroup/pod/box/cpu.max", "200000 100000\n");
	CHECK_INT(srt_limit_cores(64, root), 2);
	CHECK_INT(srt_limit_cores(1, root), 1);
	write_file("sys/fs/cgroup/pod/box/cpu.max", "150000 100000\n");
	CHECK_INT(srt_limit_cores(64, root), 2);
	write_file("sys/fs/cgroup/pod/box/cpu.max", "1000 100000\n");
	CHECK_INT(srt_limit_cores(64, root), 1);
	/* a parent's quota counts, and that of the root, which a container may see as its own */
	write_file("sys/fs/cgroup/pod/box/cpu.max", "900000 100000\n");
	write_file("sys/fs/cgroup/pod/cpu.max", "350000 50000\n");
	CHECK_INT(srt_limit_cores(64, root), 7);
	write_file("sys/fs/cgroup/cpu.max", "300000 100000\n");
	CHECK_INT(srt_limit_cores(64, root), 3);
	write_file("sys/fs/cgroup/cpu.max", "nonsense\n");
	CHECK_INT(srt_limit_cores(64, root), 7);
	write_file("sys/fs/cgroup/cpu.max", "5 0\n");
	CHECK_INT(srt_limit_cores(64, root), 7);
}

static void test_version_1(void)
{
	write_file("proc/self/cgroup", "4:memory:/box\n3:cpuset:/\n2:cpu,cpuacct:/box\n");
	write_file("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "-1\n");
	write_file("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
	CHECK_INT(srt_limit_cores(64, root), 64);
	write_file("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "410000\n");
	CHECK_INT(srt_limit_cores(64, root), 5);
	write_file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
	write_file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "25000\n");
	CHECK_INT(srt_limit_cores(64, root), 2);
	/* not for other controllers */
	write_file("proc/self/cgroup", "3:cpuset:/box\n2:cpuacct:/box\n");
	CHECK_INT(srt_limit_cores(64, root), 64);
}

static char visited[512];

static void note_level(void *arg, const char *folder, bool v2)
{
	size_t n = strlen(visited);

	CHECK(arg == &visited && strncmp(folder, root, strlen(root)) == 0);
	snprintf(visited + n, sizeof(visited) - n, "%d:%s ", v2 ? 2 : 1, folder + strlen(root));
}

static void check_levels(const char *groups, const char *expected)
{
	write_file("proc/self/cgroup", groups);
	visited[0] = '\0';
	srt_cgroup_visit(root, "memory", note_level, &visited);
	CHECK_MSG(strcmp(visited, expected) == 0, "levels: %s, not %s", visited, expected);
}

static void test_levels(void)
{
	check_levels("0::/pod/box\n",
		     "2:/sys/fs/cgroup/pod/box 2:/sys/fs/cgroup/pod 2:/sys/fs/cgroup ");
	check_levels("9:cpu,memory:/box\n8:memoryless:/other\n0::/pod\n",
		     "1:/sys/fs/cgroup/memory/box 1:/sys/fs/cgroup/memory "
		     "2:/sys/fs/cgroup/pod 2:/sys/fs/cgroup ");
	check_levels("9:memory_hugetlb,memory:/box\n",
		     "1:/sys/fs/cgroup/memory/box 1:/sys/fs/cgroup/memory ");
	check_levels("nonsense\n9:memory\n7:cpuset:/\n", "");
}

int main(void)
{
	char command[64];

	CHECK_OR_DIE(mkdtemp(root));
	test_affinity();
	test_version_2();
	test_version_1();
	test_levels();
	snprintf(command, sizeof(command), "rm -rf %s", root);
	CHECK_INT(system(command), 0);
	return check_done();
}
