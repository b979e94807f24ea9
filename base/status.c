/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Status texts and the calling thread's last error.
 *
 * The message is in a fixed buffer per thread, so that an error never needs memory. A longer
 * message is cut and ends with "...". Called by every layer through srt_fail().
 */
#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <shardrt/version.h>

#define SRT_ERROR_NBYTES (int)sizeof(srt_error_text_t)

static _Thread_local char last_error[SRT_ERROR_NBYTES];

const char *srt_status_string(srt_status_t status)
{
	static const char *const text[SRT_STATUS_COUNT] = {
#define SRT_STATUS_TEXT(name, value, words) [name] = words,
		SRT_STATUS_TABLE(SRT_STATUS_TEXT)
#undef SRT_STATUS_TEXT
	};

	if ((unsigned)status >= SRT_STATUS_COUNT)
		return "unknown status";
	return text[status];
}

const char *srt_error_last(void)
{
	return last_error;
}

/* Replaces the last error; `n` is the result of vsnprintf() into `text`. */
static void set_last_error(const char *text, int n)
{
	size_t used = strlen(text);

	memcpy(last_error, text, used + 1);
	if (n >= SRT_ERROR_NBYTES)
		memcpy(last_error + SRT_ERROR_NBYTES - 4, "...", 4);
}

srt_status_t srt_fail(srt_status_t status, const char *format, ...)
{
	char text[SRT_ERROR_NBYTES] = ""; /* an argument may be the last error itself */
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(text, sizeof text, format, ap);
	va_end(ap);
	set_last_error(text, n);
	return status;
}

srt_status_t srt_fail_prefix(srt_status_t status, const char *format, ...)
{
	char text[SRT_ERROR_NBYTES] = "";
	size_t used;
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(text, sizeof text, format, ap);
	va_end(ap);
	used = strlen(text);
	if (n >= 0 && used + 1 < sizeof text)
		n += snprintf(text + used, sizeof text - used, "%s", last_error);
	set_last_error(text, n);
	return status;
}

srt_status_t srt_error_set(srt_status_t status, const char *message)
{
	SRT_NOT_NULL(message);
	return srt_fail(status, "%s", message);
}

void srt_error_save(srt_error_text_t *saved)
{
	memcpy(saved->text, last_error, sizeof(saved->text));
}

void srt_error_restore(const srt_error_text_t *saved)
{
	memcpy(last_error, saved->text, sizeof(last_error));
}

srt_status_t srt_check_not_null(const void *pointer, const char *call, const char *argument)
{
	if (pointer == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: %s is NULL", call, argument);
	return SRT_OK;
}
