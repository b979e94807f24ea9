/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loading NCCL. SHARDRT_NCCL_LIBRARY names the library; all functions of the list must be there,
 * and it must be of the header's major version, and new enough for nonblocking communicators.
 * Called by comm.c.
 */
#include "collectives/nccl/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>

#define DEFAULT_LIBRARY "libnccl.so.2"
/* ncclConfig_t.blocking. */
#define NEEDED_VERSION NCCL_VERSION(2, 14, 0)

#define VERSION_FORMAT "%d.%d.%d"
#define VERSION_ARGS(v) (v) / 10000, (v) / 100 % 100, (v) % 100

static const struct {
	const char *symbol;
	size_t offset; /* of its member */
} functions[] = {
#define ROW(name) { #name, offsetof(srt_nccl_library_t, name) },
	SRT_NCCL_FUNCTIONS(ROW)
#undef ROW
};

/* A program that runs with more rights than its user must not load what its user names. */
static const char *library_name(const srt_host_services_t *host)
{
	return getauxval(AT_SECURE) ? DEFAULT_LIBRARY : host->config("SHARDRT_NCCL_LIBRARY");
}

static srt_status_t find_functions(const srt_host_services_t *host, void *handle, const char *path,
				   srt_nccl_library_t *library)
{
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		void *address = dlsym(handle, functions[i].symbol);

		if (!address)
			return host->fail(SRT_ERR_UNSUPPORTED,
					  "%s is too old or no NCCL: it has no function %s", path,
					  functions[i].symbol);
		/* ISO C casts no object to a function; POSIX says they are of one size. */
		memcpy((char *)library + functions[i].offset, &address, sizeof(address));
	}
	return SRT_OK;
}

static srt_status_t check_version(const srt_host_services_t *host, const char *path,
				  srt_nccl_library_t *library)
{
	if (library->ncclGetVersion(&library->version) != ncclSuccess)
		return host->fail(SRT_ERR_UNSUPPORTED, "%s does not say its version", path);
	if (library->version < NEEDED_VERSION || library->version / 10000 != NCCL_MAJOR)
		return host->fail(SRT_ERR_UNSUPPORTED,
				  "%s is NCCL " VERSION_FORMAT ", and this needs " VERSION_FORMAT
				  " or newer, of major version %d",
				  path, VERSION_ARGS(library->version),
				  VERSION_ARGS(NEEDED_VERSION), NCCL_MAJOR);
	return SRT_OK;
}

static srt_status_t load(const srt_host_services_t *host, srt_nccl_library_t *library)
{
	const char *path = library_name(host);
	srt_status_t status;
	void *handle;

	/* Sums in the switches change from run to run. The rest of NCCL's environment is the
	 * user's. */
	host->env_default("NCCL_NVLS_ENABLE", "0");
	handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!handle)
		return host->fail(SRT_ERR_NOT_FOUND,
				  "there is no NCCL: %s; install it, or name its library in "
				  "SHARDRT_NCCL_LIBRARY",
				  dlerror());
	status = find_functions(host, handle, path, library);
	if (status == SRT_OK)
		status = check_version(host, path, library);
	if (status != SRT_OK)
		dlclose(handle);
	return status;
}

srt_status_t srt_nccl_library(const srt_host_services_t *host, const srt_nccl_library_t **out)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static srt_nccl_library_t library;
	static bool loaded;
	srt_status_t status = SRT_OK;

	pthread_mutex_lock(&lock);
	if (!loaded)
		status = load(host, &library);
	loaded = loaded || status == SRT_OK;
	pthread_mutex_unlock(&lock);
	if (status == SRT_OK)
		*out = &library;
	return status;
}
