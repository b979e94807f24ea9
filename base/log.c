/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Log messages for the callback of the program, or for standard error.
 *
 * The callback is process-wide state, as the registry of backends: a program has one log. The lock
 * is not held during the callback, so that a callback may be slow and messages of several threads
 * may overlap.
 */
#include "base/base.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define SRT_LOG_NBYTES 1024

enum { SILENT = -1, OF_ENVIRONMENT = -2 };

static void print_message(srt_log_level_t level, const char *message, void *arg)
{
	(void)arg;
	fprintf(stderr, "libshardrt: %s: %s\n", srt_log_level_name(level), message);
}

static struct {
	pthread_mutex_t lock;
	srt_log_fn *fn;
	void *arg;
	atomic_int max_level; /* read without the lock */
} receiver = { PTHREAD_MUTEX_INITIALIZER, print_message, NULL, OF_ENVIRONMENT };

/* The level of SHARDRT_LOG. */
static int read_level(void)
{
	const char *name = "warn";

	srt_config_value("SHARDRT_LOG", &name, NULL); /* of an invalid value: the default */
	for (int level = SRT_LOG_ERROR; level <= SRT_LOG_TRACE; level++)
		if (!strcmp(name, srt_log_level_name((srt_log_level_t)level)))
			return level;
	return SILENT;
}

void srt_log_set(srt_log_fn *fn, srt_log_level_t max_level, void *arg)
{
	pthread_mutex_lock(&receiver.lock);
	receiver.fn = fn;
	receiver.arg = arg;
	atomic_store(&receiver.max_level, fn != NULL ? (int)max_level : SILENT);
	pthread_mutex_unlock(&receiver.lock);
}

const char *srt_log_level_name(srt_log_level_t level)
{
	static const char *const name[] = { "error", "warn", "info", "debug", "trace" };

	if ((unsigned)level >= SRT_ARRAY_LEN(name))
		return "?";
	return name[level];
}

bool srt_log_enabled(srt_log_level_t level)
{
	int most = atomic_load_explicit(&receiver.max_level, memory_order_relaxed);

	if (most == OF_ENVIRONMENT) {
		const int found = read_level();

		/* Else most is what srt_log_set() or another thread has set meanwhile. */
		if (atomic_compare_exchange_strong(&receiver.max_level, &most, found))
			most = found;
	}
	return (int)level <= most;
}

void srt_log(srt_log_level_t level, const char *format, ...)
{
	char message[SRT_LOG_NBYTES];
	srt_log_fn *fn;
	void *arg;
	va_list ap;

	if (!srt_log_enabled(level))
		return;
	pthread_mutex_lock(&receiver.lock);
	fn = receiver.fn;
	arg = receiver.arg;
	pthread_mutex_unlock(&receiver.lock);
	if (fn == NULL)
		return;
	va_start(ap, format);
	if (vsnprintf(message, sizeof message, format, ap) < 0)
		message[0] = '\0';
	va_end(ap);
	fn(level, message, arg);
}
