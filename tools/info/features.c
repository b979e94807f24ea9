/* SPDX-License-Identifier: BSD-3-Clause */
/* The features of optional packages: whether this build has each on this machine. */
#include "tools/common.h"
#include "tools/info/info.h"

#include <stdio.h>

#include <shardrt/version.h>

#define ROW "%s%-26s%-9s%-36s%s\n"

void info_features(const char *indent)
{
	static const char *const states[] = { "missing", "built", "found" };
	const int n = (int)srt_feature_count();
	srt_feature_info_t info;

	printf(ROW, indent, "feature", "state", "package", "command that needs it");
	for (int i = 0; i < n; i++) {
		if (srt_feature_get_info((srt_feature_t)i, &info) == SRT_OK)
			printf(ROW, indent, info.name, states[info.state], info.packages,
			       info.command);
	}
	for (int i = 0; i < n; i++) {
		if (srt_feature_get_info((srt_feature_t)i, &info) == SRT_OK &&
		    info.state == SRT_FEATURE_MISSING)
			printf("%s# %s: %s\n", indent, info.name, info.why_missing);
	}
}
