/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loading NCCL. SHARDRT_NCCL_LIBRARY names the library; all functions of the list must be there,
 * and it must be of the header's major version, and new enough for nonblocking communicators.
 * Called by comm.c.
 */
#include "collectives/nccl/library.h"

#include <dlfcn.h>

#include "backends/cuda/loaded.h"

#define DEFAULT_LIBRARY "libnccl.so.2"
/* ncclConfig_t.blocking. */
#define NEEDED_VERSION NCCL_VERSION(2, 14, 0)

#define VERSION_FORMAT "%d.%d.%d"
#define VERSION_ARGS(v) (v) / 10000, (v) / 100 % 100, (v) % 100

static const srt_cuda_symbol_t functions[] = {
#define ROW(name) { #name, offsetof(srt_nccl_library_t, name) },
	SRT_NCCL_FUNCTIONS(ROW)
#undef ROW
};

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

static srt_status_t load(const srt_host_services_t *host, void *table)
{
	const char *path = srt_cuda_library_path(host, "SHARDRT_NCCL_LIBRARY", DEFAULT_LIBRARY);
	srt_nccl_library_t *library = table;
	srt_status_t status;
	const char *missing;
	void *handle;

	/* Sums in the switches change from run to run. The rest of NCCL's environment is the
	 * user's. */
	host->env_default("NCCL_NVLS_ENABLE", "0");
	/* It would make communicators blocking whatever we ask for: no deadline could end them. */
	host->env_set("NCCL_COMM_BLOCKING", "0");
	handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!handle)
		return host->fail(SRT_ERR_NOT_FOUND,
				  "there is no NCCL: %s; install it, or name its library in "
				  "SHARDRT_NCCL_LIBRARY",
				  dlerror());
	missing = srt_cuda_find_symbols(handle, functions, sizeof(functions) / sizeof(functions[0]),
					library);
	if (missing)
		status = host->fail(SRT_ERR_UNSUPPORTED,
				    "%s is too old or no NCCL: it has no function %s", path,
				    missing);
	else
		status = check_version(host, path, library);
	if (status != SRT_OK)
		dlclose(handle);
	return status;
}

srt_status_t srt_nccl_library(const srt_host_services_t *host, const srt_nccl_library_t **out)
{
	static srt_cuda_once_t once = SRT_CUDA_NOT_LOADED;
	static srt_nccl_library_t library;
	srt_status_t status = srt_cuda_load_once(&once, host, load, &library);

	if (status == SRT_OK)
		*out = &library;
	return status;
}
