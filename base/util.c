/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cache folder, threads, host memory, distances of words, UTF-8, and rows cut for ranks. Memory
 * is freed with free(); an error names its use. Called by all layers.
 */
#include "base/base.h"
#include "base/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

/* mkdir -p, private to the user. */
static int make_folders(char *path)
{
	for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(path, 0700) && errno != EEXIST) {
			*slash = '/';
			return -1;
		}
		*slash = '/';
	}
	return mkdir(path, 0700) && errno != EEXIST ? -1 : 0;
}

/* Only the user may write to a folder whose files are loaded as code. */
static bool is_private_folder(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	bool ok;

	if (fd < 0)
		return false;
	ok = fstat(fd, &st) == 0 && st.st_uid == geteuid() && !(st.st_mode & (S_IWGRP | S_IWOTH));
	close(fd);
	return ok;
}

bool srt_cache_folder(const char *name, char *path, size_t path_nbytes)
{
	size_t used;

	/* In a set-user-ID program or one with capabilities the environment is another user's. */
	if (getauxval(AT_SECURE)) {
		srt_log(SRT_LOG_DEBUG, "nothing is cached: the program runs with raised rights");
		return false;
	}
	if (!srt_config_cache_dir(path, path_nbytes)) {
		srt_log(SRT_LOG_DEBUG,
			"nothing is cached: neither SHARDRT_CACHE_DIR nor HOME is set");
		return false;
	}
	used = strlen(path);
	if ((size_t)snprintf(path + used, path_nbytes - used, "/%s", name) >= path_nbytes - used)
		return false;
	if (make_folders(path) != 0 || access(path, W_OK | X_OK) != 0) {
		srt_log(SRT_LOG_DEBUG, "nothing is cached: cannot write to folder %s: %s", path,
			strerror(errno));
		return false;
	}
	if (!is_private_folder(path)) {
		srt_log(SRT_LOG_DEBUG,
			"nothing is cached: %s is not a folder of this user, or not one that only this "
			"user may write to (chmod go-w)",
			path);
		return false;
	}
	return true;
}

/* What a thread needs that computes and calls drivers. The default is less with a low limit of
 * stacks (ulimit -s) and in musl. */
#define STACK_NBYTES ((size_t)1 << 20)

int srt_thread_create(pthread_t *thread, void *(*run)(void *arg), void *arg)
{
	pthread_attr_t attributes;
	size_t stack_nbytes = 0;
	sigset_t all, old;
	int err = pthread_attr_init(&attributes);

	if (err != 0)
		return err;
	pthread_attr_getstacksize(&attributes, &stack_nbytes);
	if (stack_nbytes < STACK_NBYTES)
		pthread_attr_setstacksize(&attributes, STACK_NBYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(thread, &attributes, run, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attributes);
	return err;
}

static void fail_memory(size_t n, size_t size, const char *what)
{
	size_t nbytes;

	if (srt_mul_size(n, size, &nbytes))
		srt_fail(SRT_ERR_OUT_OF_MEMORY, "out of host memory for %s: %s", what,
			 srt_bytes(nbytes).text);
	else
		srt_fail(SRT_ERR_OUT_OF_MEMORY,
			 "out of host memory for %s: %zu times %s are more than can exist", what, n,
			 srt_bytes(size).text);
}

void *srt_calloc(size_t n, size_t size, const char *what)
{
	/* Never NULL for an empty array: NULL means failure. */
	void *p = n && size ? calloc(n, size) : calloc(1, 1);

	if (p == NULL)
		fail_memory(n, size, what);
	return p;
}

void *srt_realloc(void *p, size_t n, size_t size, const char *what)
{
	size_t nbytes;
	void *q = NULL;

	if (srt_mul_size(n, size, &nbytes))
		q = realloc(p, nbytes ? nbytes : 1);
	if (q == NULL)
		fail_memory(n, size, what);
	return q;
}

void *srt_grow(void *array, size_t n, size_t *room, size_t size, const char *what)
{
	/* Twice the size of an array in memory cannot overflow. */
	size_t more = *room ? 2 * *room : 16;
	void *grown;

	if (array != NULL && n <= *room)
		return array;
	if (more < n)
		more = n;
	grown = srt_realloc(array, more, size, what);
	if (grown != NULL)
		*room = more;
	return grown;
}

char *srt_strdup(const char *s)
{
	size_t nbytes = strlen(s) + 1;
	char *copy = malloc(nbytes);

	if (copy == NULL) {
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

size_t srt_count_edits(const char *a, size_t na, const char *b)
{
	size_t row[64];
	size_t nb = strlen(b);

	if (na >= SRT_ARRAY_LEN(row) || nb >= SRT_ARRAY_LEN(row))
		return SIZE_MAX;
	for (size_t j = 0; j <= nb; j++)
		row[j] = j;
	for (size_t i = 1; i <= na; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= nb; j++) {
			size_t best = diagonal + (a[i - 1] != b[j - 1]);

			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			diagonal = row[j];
			row[j] = best;
		}
	}
	return row[nb];
}

size_t srt_utf8_length(const char *text)
{
	static const uint32_t least[5] = { 0, 0, 0x80, 0x800, 0x10000 };
	const unsigned char *s = (const unsigned char *)text;
	size_t n = s[0] < 0x80     ? 1 :
		   s[0] >> 5 == 6  ? 2 :
		   s[0] >> 4 == 14 ? 3 :
		   s[0] >> 3 == 30 ? 4 :
				     0;
	uint32_t code = n < 2 ? s[0] : s[0] & (0x7fU >> n);

	for (size_t i = 1; i < n; i++) {
		if (s[i] >> 6 != 2)
			return 0;
		code = code << 6 | (s[i] & 0x3f);
	}
	if (n == 0 || code < least[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
		return 0;
	return n;
}

void srt_shard_rows(int64_t nrows, int nranks, int rank, int64_t *offset, int64_t *size)
{
	int64_t chunk = nrows / nranks + (nrows % nranks != 0);
	/* Compare by division: chunk * rank may pass INT64_MAX for ranks without rows. */
	int64_t first = chunk > 0 && rank > nrows / chunk ? nrows : chunk * rank;

	*offset = first;
	*size = nrows - first < chunk ? nrows - first : chunk;
}
