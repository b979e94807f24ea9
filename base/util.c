/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Time, cores, the cache folder, and host memory; an error names the use of the memory. Memory is
 * freed with free(). Called by all layers.
 */
#include "base/base.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

double srt_now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct {
	pthread_mutex_t mutex;
	double called_s, awake_s;
} awake_clock = { PTHREAD_MUTEX_INITIALIZER, 0, 1 }; /* 0 is free for the meaning "never" */

double srt_awake_s(void)
{
	double step_s, result;

	pthread_mutex_lock(&awake_clock.mutex);
	step_s = srt_now_s() - awake_clock.called_s;
	awake_clock.called_s += step_s;
	awake_clock.awake_s += step_s < SRT_AWAKE_STEP_S ? step_s : SRT_AWAKE_STEP_S;
	result = awake_clock.awake_s;
	pthread_mutex_unlock(&awake_clock.mutex);
	return result;
}

void srt_cond_wait_s(pthread_cond_t *cond, pthread_mutex_t *mutex, double seconds)
{
	const double until_s = srt_now_s() + seconds;
	struct timespec until = { .tv_sec = (time_t)until_s };

	until.tv_nsec = (long)((until_s - (double)until.tv_sec) * 1e9);
	pthread_cond_timedwait(cond, mutex, &until);
}

int srt_available_cores(void)
{
	cpu_set_t set;
	long online;

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		return CPU_COUNT(&set);
	/* More processors than cpu_set_t holds. */
	online = sysconf(_SC_NPROCESSORS_ONLN);
	return online > 0 ? (int)online : 1;
}

/* mkdir -p, private to the user. */
static int make_folders(char *path)
{
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(path, 0700) && errno != EEXIST) {
			*slash = '/';
			return -1;
		}
		*slash = '/';
	}
	return mkdir(path, 0700) && errno != EEXIST ? -1 : 0;
}

bool srt_cache_folder(const char *name, char *path, size_t path_nbytes)
{
	size_t used;

	if (!srt_config_cache_dir(path, path_nbytes)) {
		srt_log(SRT_LOG_DEBUG,
			"nothing is cached: neither SHARDRT_CACHE_DIR nor HOME is set");
		return false;
	}
	used = strlen(path);
	if ((size_t)snprintf(path + used, path_nbytes - used, "/%s", name) >= path_nbytes - used)
		return false;
	if (make_folders(path) == 0 && access(path, W_OK | X_OK) == 0)
		return true;
	srt_log(SRT_LOG_DEBUG, "nothing is cached: cannot write to folder %s: %s", path,
		strerror(errno));
	return false;
}

static void fail_memory(size_t n, size_t size, const char *what)
{
	srt_fail(SRT_ERR_OUT_OF_MEMORY, "out of host memory for %s (%zu x %zu bytes)", what, n,
		 size);
}

void *srt_calloc(size_t n, size_t size, const char *what)
{
	/* Never NULL for an empty array: NULL means failure. */
	void *p = n && size ? calloc(n, size) : calloc(1, 1);

	if (!p)
		fail_memory(n, size, what);
	return p;
}

void *srt_realloc(void *p, size_t n, size_t size, const char *what)
{
	size_t nbytes;
	void *q = NULL;

	if (srt_mul_size(n, size, &nbytes))
		q = realloc(p, nbytes ? nbytes : 1);
	if (!q)
		fail_memory(n, size, what);
	return q;
}

void *srt_grow(void *array, size_t n, size_t *room, size_t size, const char *what)
{
	/* Twice the size of an array in memory cannot overflow. */
	size_t more = *room ? 2 * *room : 16;
	void *grown;

	if (array && n <= *room)
		return array;
	if (more < n)
		more = n;
	grown = srt_realloc(array, more, size, what);
	if (grown)
		*room = more;
	return grown;
}

char *srt_strdup(const char *s)
{
	size_t nbytes = strlen(s) + 1;
	char *copy = malloc(nbytes);

	if (!copy) {
		fail_memory(nbytes, 1, "a string");
		return NULL;
	}
	return memcpy(copy, s, nbytes);
}

char *srt_asprintf(const char *format, ...)
{
	char *s = NULL;
	va_list ap;
	int n;

	va_start(ap, format);
	n = vasprintf(&s, format, ap);
	va_end(ap);
	if (n < 0) {
		fail_memory(strlen(format), 1, "a string");
		return NULL;
	}
	return s;
}
