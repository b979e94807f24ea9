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

	while (srt_backend_name(n) != NULL)
		n++;
	return n;
}

static const char *backend_name(size_t i)
{
	const char *name = srt_backend_name(i);

	if (name == NULL)
		srt_fail(SRT_ERR_INVALID_ARGUMENT, "there is no backend number %zu, only %zu", i,
			 srt_backend_count());
	return name;
}

/* With SHARDRT_BACKEND=cpu no driver is loaded or asked. */
static bool is_unwanted(const char *name)
{
	return strcmp(srt_config_string("SHARDRT_BACKEND"), "cpu") == 0 &&
	       strcmp(name, "cpu") != 0 && !srt_backend_is_loaded(name);
}

/* Fills the struct of this library's header. */
static void look_for_devices(const char *name, srt_backend_info_t *info)
{
	const srt_backend_t *backend = NULL;
	const srt_probe_t *probe = NULL;
	srt_error_text_t before;
	srt_status_t status;

	*info = (srt_backend_info_t)SRT_BACKEND_INFO_INIT;
	info->name = name;
	info->module = "";
	if (is_unwanted(name)) {
		snprintf(info->why_none, sizeof(info->why_none),
			 "its driver is not asked with SHARDRT_BACKEND=cpu");
		return;
	}
	srt_backend_probe_apart(name, &probe);
	if (probe != NULL) {
		info->module = probe->module;
		info->ndevices = probe->ndevices;
		memcpy(info->why_none, probe->why_none, sizeof(info->why_none));
		return;
	}
	srt_error_save(&before);
	status = srt_backend_lookup(name, &backend);
	if (status == SRT_OK) {
		info->module = srt_backend_module_path(backend);
		status = srt_backend_probe(backend, &info->ndevices);
	}
	if (status != SRT_OK)
		info->ndevices = 0;
	if (info->ndevices < 1)
		snprintf(info->why_none, sizeof(info->why_none), "%s", srt_error_last());
	srt_error_restore(&before); /* this call has not failed */
}

srt_status_t srt_backend_get_info(size_t i, srt_backend_info_t *info)
{
	const char *name = backend_name(i);
	srt_backend_info_t full;

	SRT_NOT_NULL(info);
	if (name == NULL)
		return SRT_ERR_INVALID_ARGUMENT;
	look_for_devices(name, &full);
	return srt_struct_write(info, &full, sizeof(full), "srt_backend_info_t");
}

srt_status_t srt_backend_get_device(size_t i, int number, srt_device_description_t *description)
{
	const srt_backend_t *backend;
	srt_backend_info_t info = SRT_BACKEND_INFO_INIT;
	srt_device_description_t full;
	const srt_probe_t *probe;

	SRT_NOT_NULL(description);
	SRT_TRY(srt_struct_check(description, "srt_device_description_t"));
	SRT_TRY(srt_backend_get_info(i, &info));
	if (number < 0 || number >= info.ndevices)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"there is no device number %d of backend \"%s\", which has %d%s%s",
				number, info.name, info.ndevices, info.ndevices ? "" : ": ",
				info.why_none);
	srt_backend_probe_apart(info.name, &probe);
	if (probe != NULL) {
		full = probe->devices[number];
	} else {
		SRT_TRY(srt_backend_lookup(info.name, &backend));
		SRT_TRY(srt_backend_describe(backend, number, &full));
	}
	return srt_struct_write(description, &full, sizeof(full), "srt_device_description_t");
}
