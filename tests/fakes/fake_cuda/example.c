/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CUDA text of examples/cuda_relu.cu, as nvcc compiles it, so that examples/cuda_kernel.c runs
 * on the fake driver. Its parameters are plain values, without the offsets of the dialect.
 */
#include "tests/fakes/fake_cuda/shim.h"

#undef __global__
#define __global__ static
#include "examples/cuda_relu.cu"

#define PARAM(i, type) (*(type *)q[i])
#define ROW(entry, ...)                                                                            \
	static const fake_kernel_t entry##_kernel = {                                              \
		#entry, entry##_run, 1024, 0, 0, __VA_ARGS__                                       \
	};                                                                                         \
	static const fake_kernel_t *const entry##_row                                              \
		__attribute__((section("fake_kernels"), used)) = &entry##_kernel;

FAKE_FN void relu_run(void **q)
{
	relu(PARAM(0, float *), PARAM(1, const float *), PARAM(2, unsigned));
}
ROW(relu, 3, { 8, 8, 4 })

FAKE_FN void relu_backward_run(void **q)
{
	relu_backward(PARAM(0, float *), PARAM(1, const float *), PARAM(2, const float *),
		      PARAM(3, unsigned));
}
ROW(relu_backward, 4, { 8, 8, 8, 4 })
