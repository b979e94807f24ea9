/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Time and host memory with errors that say what the memory was for.
 * Memory is freed with free(). Called by all layers.
 */
#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double srt_now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail_memory(size_t n, size_t size, const char *what)
{
	srt_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for %s (%zu x %zu bytes)", what, n, size);
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
