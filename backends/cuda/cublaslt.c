/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loading cuBLASLt, and failing with its codes. SHARDRT_CUBLASLT_LIBRARY names the library; without
 * it, it is the one of the toolkit's major version. Called by fast.c.
 */
#include "backends/cuda/cublaslt.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>

#define SENTENCE_NBYTES 512
#define AS_TEXT_(name) #name
#define AS_TEXT(name) AS_TEXT_(name)
#define DEFAULT_LIBRARY "libcublasLt.so." AS_TEXT(CUBLAS_VER_MAJOR)

static const struct {
	const char *symbol;
	size_t offset; /* of its member */
} functions[] = {
#define ROW(name) { AS_TEXT(name), offsetof(srt_cublaslt_t, name) },
	SRT_CUBLASLT_FUNCTIONS(ROW)
#undef ROW
};

/* A program that runs with more rights than its user must not load what its user names. */
static const char *library_name(const srt_host_services_t *host)
{
	const char *name = getauxval(AT_SECURE) ? "" : host->config("SHARDRT_CUBLASLT_LIBRARY");

	return name[0] ? name : DEFAULT_LIBRARY;
}

static srt_status_t find_functions(const srt_host_services_t *host, void *library, const char *path,
				   srt_cublaslt_t *lt)
{
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		void *address = dlsym(library, functions[i].symbol);

		if (!address)
			return host->fail(SRT_ERR_UNSUPPORTED, "%s has no function %s", path,
					  functions[i].symbol);
		memcpy((char *)lt + functions[i].offset, &address, sizeof(address));
	}
	return SRT_OK;
}

static srt_status_t load(const srt_host_services_t *host, srt_cublaslt_t *lt)
{
	const char *path = library_name(host);
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	srt_status_t status;
	size_t version;

	if (!library)
		return host->fail(SRT_ERR_NOT_FOUND, "there is no cuBLASLt: %s", dlerror());
	status = find_functions(host, library, path, lt);
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
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static srt_cublaslt_t functions_of_it;
	static bool loaded;
	srt_status_t status = SRT_OK;

	pthread_mutex_lock(&lock);
	if (!loaded)
		status = load(host, &functions_of_it);
	loaded = loaded || status == SRT_OK;
	pthread_mutex_unlock(&lock);
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
