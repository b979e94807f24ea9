/* SPDX-License-Identifier: BSD-3-Clause */
/* See common.h. */
#include "tools/common.h"

#include <stdarg.h>
#include <string.h>

#include <shardrt/config.h>
#include <shardrt/log.h>

static const char *tool_name = "shardrt";

static void print_log(srt_log_level_t level, const char *message, void *arg)
{
	(void)arg;
	fprintf(stderr, "%s: %s: %s\n", tool_name, srt_log_level_name(level), message);
}

static void print_unknown(const char *name, const char *nearest, void *arg)
{
	(void)arg;
	if (nearest)
		tool_error("warning: %s is not a variable of libshardrt; is %s meant?", name,
			   nearest);
	else
		tool_error(
			"warning: %s is not a variable of libshardrt; shardrt-info -c lists them",
			name);
}

int tool_start(const char *name)
{
	const char *level, *rank;

	tool_name = name;
	if (srt_config_value("SHARDRT_LOG", &level, NULL) != SRT_OK) {
		tool_error("%s", srt_last_error());
		return TOOL_EXIT_USAGE;
	}
	for (int i = SRT_LOG_ERROR; i <= SRT_LOG_TRACE; i++) {
		if (!strcmp(level, srt_log_level_name((srt_log_level_t)i)))
			srt_log_set(print_log, (srt_log_level_t)i, NULL);
	}
	if (srt_config_value("SHARDRT_RANK", &rank, NULL) == SRT_OK && !strcmp(rank, "0"))
		srt_config_unknown(print_unknown, NULL);
	return 0;
}

void tool_error(const char *format, ...)
{
	char text[2048];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof text, format, ap);
	va_end(ap);
	/* One call, so that the lines of several ranks do not mix. */
	fprintf(stderr, "%s: %s\n", tool_name, text);
}

const char *tool_bytes(double nbytes, char text[32])
{
	static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	size_t u = 0;

	while (nbytes >= 1024 && u + 1 < sizeof unit / sizeof unit[0]) {
		nbytes /= 1024;
		u++;
	}
	snprintf(text, 32, u ? "%.1f %s" : "%.0f %s", nbytes, unit[u]);
	return text;
}
