/* SPDX-License-Identifier: BSD-3-Clause */
/* See why.h. */
#include "tools/why.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shardrt/config.h>

#include "tools/common.h"

static void set_text(tool_why_t *why, int status, const char *format, va_list arguments)
{
	vsnprintf(why->text, sizeof(why->text), format, arguments);
	tool_make_printable(why->text); /* it may have bytes of a file or an option */
	why->status = status;
}

int tool_why_usage(tool_why_t *why, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	set_text(why, TOOL_EXIT_USAGE, format, ap);
	va_end(ap);
	return -1;
}

int tool_why_failure(tool_why_t *why, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	set_text(why, EXIT_FAILURE, format, ap);
	va_end(ap);
	return -1;
}

/* Whether an errno means a wrong path or limit, so that another start would end in the same way. */
static bool is_lasting(int error)
{
	switch (error) {
	case ENOENT:
	case ENOTDIR:
	case EISDIR:
	case ELOOP:
	case ENAMETOOLONG:
	case EACCES:
	case EPERM:
	case EFBIG:
		return true;
	default:
		return false;
	}
}

bool tool_is_started_again(void)
{
	const char *count = "0";

	srt_config_value("SHARDRT_RESTART_COUNT", &count, NULL);
	return strcmp(count, "0") != 0;
}

int tool_why_system(tool_why_t *why, int error, const char *format, ...)
{
	const bool is_usage = is_lasting(error) && !tool_is_started_again();
	size_t length;
	va_list ap;

	va_start(ap, format);
	set_text(why, is_usage ? TOOL_EXIT_USAGE : EXIT_FAILURE, format, ap);
	va_end(ap);
	length = strlen(why->text);
	snprintf(why->text + length, sizeof(why->text) - length, ": %s", strerror(error));
	return -1;
}
