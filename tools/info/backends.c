/* SPDX-License-Identifier: BSD-3-Clause */
/* The backends that SHARDRT_BACKEND can name: the devices of each, or why it has none. */
#include "tools/common.h"
#include "tools/info/info.h"

#include <stdio.h>
#include <string.h>

#include <shardrt/backend.h>
#include <shardrt/config.h>

static void print_backend(size_t i, const srt_backend_info_t *info)
{
	printf("    %s: %s%s", info->name, info->ndevices ? "" : "no device: ", info->why_none);
	if (info->ndevices)
		printf("%d device%s", info->ndevices, info->ndevices == 1 ? "" : "s");
	if (*info->module)
		printf(" (module %s)", info->module);
	printf("\n");
	for (int k = 0; k < info->ndevices; k++) {
		srt_device_description_t description = SRT_DEVICE_DESCRIPTION_INIT;

		if (srt_backend_get_device(i, k, &description) == SRT_OK)
			printf("        %d: %s%s\n", k, description.name,
			       description.accelerator ? ", accelerator" : "");
		else
			printf("        %d: %s\n", k, srt_error_last());
	}
}

void info_backends(void)
{
	size_t n = srt_backend_count();

	printf("backends:\n");
	for (size_t i = 0; i < n; i++) {
		srt_backend_info_t info = SRT_BACKEND_INFO_INIT;

		if (srt_backend_get_info(i, &info) == SRT_OK)
			print_backend(i, &info);
	}
}

int info_backend_is_unusable(char *why, size_t why_nbytes)
{
	const char *name = "";
	srt_backend_info_t info = SRT_BACKEND_INFO_INIT;
	size_t n = srt_backend_count();

	if (srt_config_value("SHARDRT_BACKEND", &name, NULL) != SRT_OK)
		return 0;
	if (strcmp(name, "xpu") == 0)
		name = "opencl";
	for (size_t i = 0; i < n; i++) {
		if (srt_backend_get_info(i, &info) != SRT_OK || strcmp(info.name, name) != 0)
			continue;
		snprintf(why, why_nbytes, "backend \"%s\" has no usable device: %s", name,
			 info.why_none);
		return info.ndevices < 1 && *info.module;
	}
	return 0;
}
