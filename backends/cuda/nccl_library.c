/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loads NCCL. SHARDRT_NCCL_LIBRARY names the library. It must have all functions of the list, the
 * major version of the header, and at least NEEDED_VERSION. Called by nccl_comm.c.
 */
#include "backends/cuda/nccl_library.h"

#include "backends/cuda/library.h"

/* In earlier versions ncclGroupEnd() connects and launches on the caller's thread even if the
 * communicator is nonblocking, and no abort could end that. */
#define NEEDED_VERSION NCCL_VERSION(2, 23, 4)

#define VERSION_FORMAT "%d.%d.%d"
#define VERSION_ARGS(v) (v) / 10000, (v) / 100 % 100, (v) % 100

static const srt_cuda_library_function_t functions[] = {
#define ROW(name) { #name, offsetof(srt_nccl_library_t, name) },
	SRT_NCCL_FUNCTIONS(ROW)
#undef ROW
};

static srt_status_t start_nccl(const srt_host_services_t *host, const char *path, void *table)
{
	srt_nccl_library_t *library = table;

	/* Sums in NVLink switches differ from run to run. The user sets the rest of NCCL's
	 * environment. */
	host->env_default("NCCL_NVLS_ENABLE", "0");
	if (library->ncclGetVersion(&library->version) != ncclSuccess)
		return host->fail(SRT_ERR_UNSUPPORTED, "%s does not report its version", path);
	if (library->version < NEEDED_VERSION || library->version / 10000 != NCCL_MAJOR)
		return host->fail(SRT_ERR_UNSUPPORTED,
				  "%s is NCCL " VERSION_FORMAT "; " VERSION_FORMAT
				  " or newer is required, of major version %d",
				  path, VERSION_ARGS(library->version),
				  VERSION_ARGS(NEEDED_VERSION), NCCL_MAJOR);
	return SRT_OK;
}

srt_status_t srt_nccl_library(const srt_host_services_t *host, const srt_nccl_library_t **out)
{
	static srt_nccl_library_t table;
	static srt_cuda_library_t library = {
		.what = "NCCL",
		.package = "NCCL",
		.variable = "SHARDRT_NCCL_LIBRARY",
		.standard = "libnccl.so.2",
		.functions = functions,
		.nfunctions = sizeof(functions) / sizeof(functions[0]),
		.table = &table,
		.start = start_nccl,
		.lock = PTHREAD_MUTEX_INITIALIZER,
	};
	srt_status_t status = srt_cuda_library_load(&library, host);

	if (status == SRT_OK)
		*out = &table;
	return status;
}
