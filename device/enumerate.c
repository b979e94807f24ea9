/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The public list of backends (include/shardrt/backend.h): name, module, and why one is unusable.
 * Probes for devices without opening one. Called by shardrt-info.
 */
#include <stdio.h>
#include <string.h>

#include "device/device.h"

size_t srt_backend_count(void)
{
	size_t n = 0;

	while (srt_backend_name(n))
		n++;
	return n;
}

static const char *backend_name(size_t i)
{
	const char *name = srt_backend_name(i);

	if (!name)
		srt_fail(SRT_ERR_INVALID_ARGUMENT, "there is no backend number %zu, only %zu", i,
			 srt_backend_count());
	return name;
}

srt_status_t srt_backend_get_info(size_t i, srt_backend_info_t *info)
{
	const char *name = backend_name(i);
	const srt_backend_t *backend = NULL;
	srt_error_text_t before;
	srt_status_t status;

	SRT_NOT_NULL(info);
	if (!name)
		return SRT_ERR_INVALID_ARGUMENT;
	srt_error_save(&before);
	*info = (srt_backend_info_t){ .name = name, .module = "" };
	status = srt_backend_lookup(name, &backend);
	if (status == SRT_OK) {
		info->module = srt_backend_module_path(backend);
		status = srt_backend_probe(backend, &info->ndevices);
	}
	if (status != SRT_OK)
		info->ndevices = 0;
	if (info->ndevices < 1)
		snprintf(info->why_none, sizeof(info->why_none), "%s", srt_last_error());
	srt_error_restore(&before); /* this call has not failed */
	return SRT_OK;
}

srt_status_t srt_backend_get_device(size_t i, int number, srt_device_description_t *description)
{
	const char *name = backend_name(i);
	srt_device_description_t found = { .accelerator = 0 };
	const srt_backend_t *backend;
	int ndevices;

	SRT_NOT_NULL(description);
	if (!name)
		return SRT_ERR_INVALID_ARGUMENT;
	SRT_TRY(srt_backend_lookup(name, &backend));
	SRT_TRY(srt_backend_probe(backend, &ndevices));
	if (number < 0 || number >= ndevices)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"there is no device number %d of backend \"%s\", which has %d",
				number, name, ndevices);
	if (backend->device->describe)
		SRT_TRY(backend->device->describe(srt_host_services(), number, &found));
	*description = found;
	return SRT_OK;
}
