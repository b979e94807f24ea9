/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loads cuBLASLt, and reports its error codes. SHARDRT_CUBLASLT_LIBRARY names the library; the
 * default is the library of the toolkit's major version. Called by fast.c.
 */
#include "backends/cuda/cublaslt.h"

#include <stdarg.h>
#include <stdio.h>

#include "backends/cuda/library.h"

#define SENTENCE_NBYTES 512
#define AS_TEXT_(name) #name
#define AS_TEXT(name) AS_TEXT_(name)

static const srt_cuda_library_function_t functions[] = {
#define ROW(name) { AS_TEXT(name), offsetof(srt_cublaslt_t, name) },
	SRT_CUBLASLT_FUNCTIONS(ROW)
#undef ROW
};

static srt_status_t check_version(const srt_host_services_t *host, const char *path, void *table)
{
	const srt_cublaslt_t *lt = table;
	size_t version = lt->cublasLtGetVersion();

	if (version / 10000 == CUBLAS_VER_MAJOR)
		return SRT_OK;
	return host->fail(SRT_ERR_UNSUPPORTED,
			  "%s is version %zu of cuBLASLt; one of " AS_TEXT(
				  CUBLAS_VER_MAJOR) "xxxx is needed",
			  path, version);
}

srt_status_t srt_cublaslt(const srt_host_services_t *host, const srt_cublaslt_t **lt)
{
	static srt_cublaslt_t table;
	static srt_cuda_library_t library = {
		.what = "cuBLASLt",
		.package = "the CUDA toolkit's libraries",
		.variable = "SHARDRT_CUBLASLT_LIBRARY",
		.standard = "libcublasLt.so." AS_TEXT(CUBLAS_VER_MAJOR),
		.functions = functions,
		.nfunctions = sizeof(functions) / sizeof(functions[0]),
		.table = &table,
		.start = check_version,
		.lock = PTHREAD_MUTEX_INITIALIZER,
	};
	srt_status_t status = srt_cuda_library_load(&library, host);

	if (status == SRT_OK)
		*lt = &table;
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
