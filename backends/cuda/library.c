/* SPDX-License-Identifier: BSD-3-Clause */
/* See library.h. */
#include "backends/cuda/library.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/auxv.h>

static const char *library_path(const srt_cuda_library_t *library, const srt_host_services_t *host)
{
	const char *path = getauxval(AT_SECURE) ? "" : host->config(library->variable);

	return path[0] ? path : library->standard;
}

/* NULL, or the name of the first function that the library lacks. */
static const char *find_functions(const srt_cuda_library_t *library, void *handle)
{
	for (size_t i = 0; i < library->nfunctions; i++) {
		void *address = dlsym(handle, library->functions[i].name);

		if (address == NULL)
			return library->functions[i].name;
		/* ISO C has no cast from an object to a function pointer; POSIX allows it. */
		memcpy((char *)library->table + library->functions[i].offset, &address,
		       sizeof(address));
	}
	return NULL;
}

static srt_status_t open_library(srt_cuda_library_t *library, const srt_host_services_t *host)
{
	const char *path = library_path(library, host), *missing;
	/* Threads of the library may outlive a failed start. */
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	srt_status_t status;

	if (handle == NULL)
		return host->fail(SRT_ERR_NOT_FOUND,
				  "there is no %s: %s; install %s, or name its library in %s",
				  library->what, dlerror(), library->package, library->variable);
	missing = find_functions(library, handle);
	if (missing != NULL)
		status = host->fail(SRT_ERR_UNSUPPORTED,
				    "%s is too old or no %s: it has no function %s; install a "
				    "newer version of %s",
				    path, library->what, missing, library->package);
	else
		status = library->start(host, path, library->table);
	if (status == SRT_OK)
		library->handle = handle;
	else
		dlclose(handle);
	return status;
}

srt_status_t srt_cuda_library_load(srt_cuda_library_t *library, const srt_host_services_t *host)
{
	srt_status_t status = SRT_OK;

	pthread_mutex_lock(&library->lock);
	if (library->handle == NULL)
		status = open_library(library, host);
	pthread_mutex_unlock(&library->lock);
	return status;
}
