/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The portable kernels' CUDA text for one element type (K_DTYPE), as backends/cuda/portable.cu is
 * for nvcc.
 */
#include "tests/fakes/fake_cuda/shim.h"

#include "backends/cuda/portable.cu"
