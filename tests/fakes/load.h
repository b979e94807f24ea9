/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loads the fakes of the CUDA driver and of cuBLASLt (tests/fakes/fake_cuda/,
 * tests/fakes/fake_cublaslt/) from the build, for tests of the fakes and of the CUDA backend.
 */
#ifndef SRT_TESTS_FAKES_LOAD_H
#define SRT_TESTS_FAKES_LOAD_H

#include <stdbool.h>

#include "backends/cuda/driver.h"
#include "tests/fakes/fake_cublaslt/fake_cublaslt.h"
#include "tests/fakes/fake_cuda/fake_cuda.h"
#include "tests/harness/check.h"

/* Tests run in the top of the build folder. */
#define FAKE_CUDA_PATH "tests/fakes/fake_cuda/.libs/libfake_cuda.so"
#define FAKE_CUBLASLT_PATH "tests/fakes/fake_cublaslt/.libs/libfake_cublaslt.so"

/* The driver's functions, as d.cuMemAlloc(), and one that the backend does not call; what tests ask
 * of the fakes, as f->count() and lt->count(). NULL until loaded. */
extern srt_cuda_driver_t d;
extern __typeof__(cuLaunchHostFunc) *launch_host_func;
extern const fake_cuda_api_t *f;
extern const fake_cublaslt_api_t *lt;

void fake_cuda_load(void);

/* Both fakes, for the backend too. Portable kernels are those compiled for the processor: other
 * tests run their CUDA text. */
void fake_cublaslt_load(void);

/* SRT_TEST_CUDA=device: the machine's driver, device and cuBLASLt instead of the fakes. A test that
 * asks for this runs only its parts that compare numbers. */
bool on_device(void);

#define CHECK_CUDA(call, expected) CHECK_INT(call, expected)
#define CHECK_CUDA_OK(call) CHECK_INT(call, CUDA_SUCCESS)

#endif
