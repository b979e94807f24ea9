/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fake cuBLASLt of the build (tests/fakes/fake_cublaslt/) and the fake driver under it,
 * loaded, and what tests ask of it, as lt->count(). For tests of numerics mode fast on cuda.
 */
#ifndef SRT_TESTS_FAKE_CUBLASLT_H
#define SRT_TESTS_FAKE_CUBLASLT_H

#include "tests/device/fake_cuda.h"
#include "tests/fakes/fake_cublaslt/fake_cublaslt.h"

#define FAKE_CUBLASLT_PATH "tests/fakes/fake_cublaslt/.libs/libfake_cublaslt.so"

static const fake_cublaslt_api_t *lt;

/* For the backend too. Portable kernels are those compiled for the processor: their text is other
 * tests'. */
static inline void fake_cublaslt_load(void)
{
	fake_cublaslt_api_fn *api;
	void *library, *launch;

	setenv("SHARDRT_CUDA_DRIVER", FAKE_CUDA_PATH, 1);
	setenv("SHARDRT_CUBLASLT_LIBRARY", FAKE_CUBLASLT_PATH, 1);
	fake_cuda_load();
	f->set("kernels", 1);
	library = dlopen(FAKE_CUBLASLT_PATH, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		fprintf(stderr, "%s\n", dlerror());
	CHECK_OR_DIE(library != NULL);
	*(void **)&api = fake_symbol(library, FAKE_CUBLASLT_API_SYMBOL);
	*(void **)&launch = *(void **)&launch_host_func;
	lt = api(launch);
}

#endif
