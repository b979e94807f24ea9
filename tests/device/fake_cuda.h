/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fake CUDA driver of the build (tests/fakes/fake_cuda/), loaded: its functions, as
 * d.cuMemAlloc(), and what tests ask of it, as f->count(). For tests of the fake and of the
 * backend over it.
 */
#ifndef SRT_TESTS_FAKE_CUDA_H
#define SRT_TESTS_FAKE_CUDA_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>

#include "backends/cuda/driver.h"
#include "tests/fakes/fake_cuda/fake_cuda.h"
#include "tests/harness/check.h"

#define FAKE_CUDA_PATH "tests/fakes/fake_cuda/.libs/libfake_cuda.so"

/*
 * SRT_TEST_CUDA=device: instead of the fakes the machine's driver, its device and its cuBLASLt, of
 * which a test that asks here runs the parts that compare numbers. f and d are not there then.
 */
static inline bool on_device(void)
{
	const char *value = getenv("SRT_TEST_CUDA");

	CHECK_OR_DIE(!value || !value[0] || !strcmp(value, "device"));
	return value && value[0];
}

static srt_cuda_driver_t d;
static __typeof__(cuLaunchHostFunc) *launch_host_func; /* the backend does not call it */
static const fake_cuda_api_t *f;

static inline void *fake_symbol(void *library, const char *name)
{
	void *p = dlsym(library, name);

	if (!p)
		fprintf(stderr, "no %s in " FAKE_CUDA_PATH "\n", name);
	CHECK_OR_DIE(p != NULL);
	return p;
}

#define FAKE_SYMBOL_(name) #name
#define FAKE_SYMBOL(name) FAKE_SYMBOL_(name)

/* Tests run in the top of the build. */
static inline void fake_cuda_load(void)
{
	void *library = dlopen(FAKE_CUDA_PATH, RTLD_NOW | RTLD_LOCAL);
	fake_cuda_api_fn *api;

	if (!library)
		fprintf(stderr, "%s\n", dlerror());
	CHECK_OR_DIE(library != NULL);
#define LOAD(name) *(void **)&d.name = fake_symbol(library, FAKE_SYMBOL(name));
	SRT_CUDA_FUNCTIONS(LOAD)
#undef LOAD
	*(void **)&launch_host_func = fake_symbol(library, "cuLaunchHostFunc");
	*(void **)&api = fake_symbol(library, FAKE_CUDA_API_SYMBOL);
	f = api();
}

#define CHECK_CUDA(call, expected) CHECK_INT(call, expected)
#define CHECK_CUDA_OK(call) CHECK_INT(call, CUDA_SUCCESS)

#endif
