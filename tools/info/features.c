/* SPDX-License-Identifier: BSD-3-Clause */
/* The features of optional packages: whether this build has each on this machine. */
#include "tools/common.h"
#include "tools/info/info.h"

#include <stdio.h>
#include <stdlib.h>

#include <shardrt/version.h>

#define ROW "%s%-26s%-9s%-36s%s\n"

int info_features(const char *indent)
{
	static const char *const states[] = { "missing", "built", "found" };
	const size_t n = srt_feature_count();
	srt_feature_info_t *infos = calloc(n, sizeof(*infos));
	size_t found = 0;

	if (infos == NULL) {
		tool_error("no memory for the features");
		return 1;
	}
	for (size_t i = 0; i < n; i++)
		infos[i].size = sizeof(infos[i]);
	while (found < n && srt_feature_get_info((srt_feature_t)found, &infos[found]) == SRT_OK)
		found++;
	printf(ROW, indent, "feature", "state", "package", "command that needs it");
	for (size_t i = 0; i < found; i++)
		printf(ROW, indent, infos[i].name, states[infos[i].state], infos[i].packages,
		       infos[i].command);
	for (size_t i = 0; i < found; i++) {
		if (infos[i].state == SRT_FEATURE_MISSING)
			printf("%s# %s: %s\n", indent, infos[i].name, infos[i].why_missing);
	}
	free(infos);
	if (found == n)
		return 0;
	tool_error("%s", srt_error_last());
	return 1;
}
