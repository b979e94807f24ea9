/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sets environment variables before the process's first call of OpenCL. Only PoCL reads these
 * variables; values that the user has set are not changed:
 *
 *   POCL_CACHE_DIR          processes that share a folder race: each locks the first free folder of
 *                           pocl/0, pocl/1, ... in the user's cache
 *   POCL_MAX_PTHREAD_COUNT  the ranks of a node share its cores
 *   POCL_SIGFPE_HANDLER     PoCL must not handle the program's signals
 *   POCL_WORK_GROUP_SPECIALIZATION
 *                           our work-groups are fixed; PoCL would compile versions of a kernel for
 *                           small and large grids, which our cache does not contain
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "backends/opencl/opencl.h"

#define MAX_FOLDERS 1024
#define PATH_NBYTES 1024

/* Locks the folder until the process ends; false if another process has locked it. */
static bool use_folder(const char *path)
{
	char lock[PATH_NBYTES + 8];
	int fd;

	snprintf(lock, sizeof(lock), "%s/.lock", path);
	fd = open(lock, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return false;
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return true; /* the descriptor stays open: it holds the lock */
	close(fd);
	return false;
}

static void set_cache_folder(const srt_host_services_t *host)
{
	/* Without another job, a rank uses the same folder as in its last run. */
	int first = atoi(host->config("SHARDRT_LOCAL_RANK"));

	for (int i = 0; i < MAX_FOLDERS; i++) {
		char name[32], path[PATH_NBYTES];

		snprintf(name, sizeof(name), "pocl/%d", (first + i) % MAX_FOLDERS);
		if (!host->cache_folder(name, path, sizeof(path)))
			return;
		if (use_folder(path)) {
			host->env_default("POCL_CACHE_DIR", path);
			return;
		}
	}
}

int srt_ocl_rank_threads(const srt_host_services_t *host)
{
	int threads = atoi(host->config("SHARDRT_THREADS"));
	int local_size = atoi(host->config("SHARDRT_LOCAL_SIZE"));

	if (threads == 0)
		threads = host->cores() / (local_size > 0 ? local_size : 1);
	return threads > 0 ? threads : 1;
}

void srt_ocl_environment(const srt_host_services_t *host)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static bool done;
	char threads[16];

	pthread_mutex_lock(&lock);
	if (!done) {
		set_cache_folder(host);
		snprintf(threads, sizeof(threads), "%d", srt_ocl_rank_threads(host));
		host->env_default("POCL_MAX_PTHREAD_COUNT", threads);
		host->env_default("POCL_SIGFPE_HANDLER", "0");
		host->env_default("POCL_WORK_GROUP_SPECIALIZATION", "0");
		done = true;
	}
	pthread_mutex_unlock(&lock);
}
