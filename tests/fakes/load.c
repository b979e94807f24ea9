/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/fakes/load.h"

#include <dlfcn.h>

srt_cuda_driver_t d;
__typeof__(cuLaunchHostFunc) *launch_host_func;
const fake_cuda_api_t *f;
const fake_cublaslt_api_t *lt;

static void *open_library(const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (library == NULL)
		fprintf(stderr, "%s\n", dlerror());
	CHECK_OR_DIE(library != NULL);
	return library;
}

static void *find_symbol(void *library, const char *name)
{
	void *p = dlsym(library, name);

	if (p == NULL)
		fprintf(stderr, "no %s in the fake\n", name);
	CHECK_OR_DIE(p != NULL);
	return p;
}

#define NAME_OF_(name) #name
#define NAME_OF(name) NAME_OF_(name)

void fake_cuda_load(void)
{
	void *library = open_library(FAKE_CUDA_PATH);
	fake_cuda_api_fn *api;

#define LOAD(name) *(void **)&d.name = find_symbol(library, NAME_OF(name));
	SRT_CUDA_FUNCTIONS(LOAD)
#undef LOAD
	*(void **)&launch_host_func = find_symbol(library, "cuLaunchHostFunc");
	*(void **)&api = find_symbol(library, FAKE_CUDA_API_SYMBOL);
	f = api();
}

void fake_cublaslt_load(void)
{
	fake_cublaslt_api_fn *api;

	setenv("SHARDRT_CUDA_DRIVER", FAKE_CUDA_PATH, 1);
	setenv("SHARDRT_CUBLASLT_LIBRARY", FAKE_CUBLASLT_PATH, 1);
	fake_cuda_load();
	f->set("kernels", 1);
	*(void **)&api = find_symbol(open_library(FAKE_CUBLASLT_PATH), FAKE_CUBLASLT_API_SYMBOL);
	lt = api(*(void **)&launch_host_func);
}

bool on_device(void)
{
	const char *value = getenv("SRT_TEST_CUDA");

	CHECK_OR_DIE(value == NULL || !value[0] || !strcmp(value, "device"));
	return value != NULL && value[0];
}
