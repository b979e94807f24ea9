/* SPDX-License-Identifier: BSD-3-Clause */
/* See loaded.h. */
#include "backends/cuda/loaded.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/auxv.h>

const char *srt_cuda_library_path(const srt_host_services_t *host, const char *variable,
				  const char *standard)
{
	const char *path = getauxval(AT_SECURE) ? "" : host->config(variable);

	return path[0] ? path : standard;
}

const char *srt_cuda_find_symbols(void *library, const srt_cuda_symbol_t *symbols, size_t n,
				  void *table)
{
	for (size_t i = 0; i < n; i++) {
		void *address = dlsym(library, symbols[i].name);

		if (!address)
			return symbols[i].name;
		/* ISO C casts no object to a function; POSIX says they are of one size. */
		memcpy((char *)table + symbols[i].offset, &address, sizeof(address));
	}
	return NULL;
}

srt_status_t srt_cuda_load_once(srt_cuda_once_t *once, const srt_host_services_t *host,
				srt_cuda_load_fn *load, void *table)
{
	srt_status_t status = SRT_OK;

	pthread_mutex_lock(&once->lock);
	if (!once->loaded)
		status = load(host, table);
	once->loaded = once->loaded || status == SRT_OK;
	pthread_mutex_unlock(&once->lock);
	return status;
}
