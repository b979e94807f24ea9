/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Log messages for the callback of the program; without one there is no log.
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

#define SRT_LOG_NBYTES 1024

static struct {
	pthread_mutex_t lock;
	srt_log_fn *fn;
	void *arg;
	atomic_int max_level; /* -1: silent; read without the lock */
} receiver = { PTHREAD_MUTEX_INITIALIZER, NULL, NULL, -1 };

void srt_log_set(srt_log_fn *fn, srt_log_level_t max_level, void *arg)
{
	pthread_mutex_lock(&receiver.lock);
	receiver.fn = fn;
	receiver.arg = arg;
	atomic_store(&receiver.max_level, fn ? (int)max_level : -1);
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
	return (int)level <= atomic_load_explicit(&receiver.max_level, memory_order_relaxed);
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
	if (!fn)
		return;
	va_start(ap, format);
	if (vsnprintf(message, sizeof message, format, ap) < 0)
		message[0] = '\0';
	va_end(ap);
	fn(level, message, arg);
}
