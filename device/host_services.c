/* SPDX-License-Identifier: BSD-3-Clause */
/* The services that backends get from the library (backend.h). */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/device.h"
#include "base/bytes.h"

#define SENTENCE_NBYTES 1024

static srt_status_t host_fail(srt_status_t status, const char *format, ...)
{
	char sentence[SENTENCE_NBYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(sentence, sizeof(sentence), format, args);
	va_end(args);
	return srt_fail(status, "%s", sentence);
}

static void host_log(srt_log_level_t level, const char *format, ...)
{
	char sentence[SENTENCE_NBYTES];
	va_list args;

	if (!srt_log_enabled(level))
		return;
	va_start(args, format);
	vsnprintf(sentence, sizeof(sentence), format, args);
	va_end(args);
	srt_log(level, "%s", sentence);
}

static void *host_alloc(size_t nbytes)
{
	size_t rounded;
	void *p;

	if (!srt_add_size(nbytes, 63, &rounded)) {
		srt_fail(SRT_ERR_OUT_OF_MEMORY, "%s of host memory are more than can exist",
			 srt_bytes(nbytes).text);
		return NULL;
	}
	rounded = srt_align_up(nbytes ? nbytes : 1, 64);
	p = aligned_alloc(64, rounded);
	if (p == NULL)
		srt_fail(SRT_ERR_OUT_OF_MEMORY, "out of host memory: %s requested",
			 srt_bytes(nbytes).text);
	return p;
}

static int host_cache_folder(const char *name, char *path, size_t path_nbytes)
{
	return srt_cache_folder(name, path, path_nbytes);
}

static const srt_host_services_t services = {
	.abi = SRT_BACKEND_ABI,
	.fail = host_fail,
	.log = host_log,
	.last_error = srt_error_last,
	.config = srt_config_string,
	.env_default = srt_config_set_default,
	.cache_folder = host_cache_folder,
	.cores = srt_available_cores,
	.alloc = host_alloc,
	.free = free,
};

const srt_host_services_t *srt_host_services(void)
{
	return &services;
}
