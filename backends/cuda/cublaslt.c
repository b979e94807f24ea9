/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loading cuBLASLt, and failing with its codes. SHARDRT_CUBLASLT_LIBRARY names the library; without
 * it, it is the one of the toolkit's major version. Called by fast.c.
 */
#include "backends/cuda/cublaslt.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>

#include "backends/cuda/loaded.h"

#define SENTENCE_NBYTES 512
#define AS_TEXT_(name) #name
#define AS_TEXT(name) AS_TEXT_(name)
#define DEFAULT_LIBRARY "libcublasLt.so." AS_TEXT(CUBLAS_VER_MAJOR)

static const srt_cuda_symbol_t functions[] = {
#define ROW(name) { AS_TEXT(name), offsetof(srt_cublaslt_t, name) },
	SRT_CUBLASLT_FUNCTIONS(ROW)
#undef ROW
};

static srt_status_t load(const srt_host_services_t *host, void *table)
{
	const char *path = srt_cuda_library_path(host, "SHARDRT_CUBLASLT_LIBRARY", DEFAULT_LIBRARY);
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	srt_cublaslt_t *lt = table;
	srt_status_t status = SRT_OK;
	const char *missing;
	size_t version;

	if (!library)
		return host->fail(SRT_ERR_NOT_FOUND, "there is no cuBLASLt: %s", dlerror());
	missing = srt_cuda_find_symbols(library, functions,
					sizeof(functions) / sizeof(functions[0]), lt);
	if (missing)
		status = host->fail(SRT_ERR_UNSUPPORTED, "%s has no function %s", path, missing);
	version = status == SRT_OK ? lt->cublasLtGetVersion() : 0;
	if (status == SRT_OK && version / 10000 != CUBLAS_VER_MAJOR)
		status = host->fail(SRT_ERR_UNSUPPORTED,
				    "%s is version %zu of cuBLASLt; one of " AS_TEXT(
					    CUBLAS_VER_MAJOR) "xxxx is needed",
				    path, version);
	if (status != SRT_OK)
		dlclose(library);
	return status;
}

srt_status_t srt_cublaslt(const srt_host_services_t *host, const srt_cublaslt_t **lt)
{
	static srt_cuda_once_t once = SRT_CUDA_NOT_LOADED;
	static srt_cublaslt_t functions_of_it;
	srt_status_t status = srt_cuda_load_once(&once, host, load, &functions_of_it);

	if (status == SRT_OK)
		*lt = &functions_of_it;
	return status;
}

srt_status_t srt_cublaslt_fail(const srt_host_services_t *host, const srt_cublaslt_t *lt,
			       cublasStatus_t code, const char *format, ...)
{
	char sentence[SENTENCE_NBYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(sentence, sizeof(sentence), format, args);
	va_end(args);
	return host->fail(code == CUBLAS_STATUS_ALLOC_FAILED ? SRT_ERR_OUT_OF_MEMORY :
							       SRT_ERR_DEVICE,
			  "%s: %s (%d), %s", sentence, lt->cublasLtGetStatusName(code), (int)code,
			  lt->cublasLtGetStatusString(code));
}
