/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tuned kernels' CUDA text for one element type (K_DTYPE), as backends/cuda/tuned.cu is for
 * nvcc.
 */
#include "tests/fakes/fake_cuda/shim.h"
#if !T_IS_F32
#include "tests/fakes/fake_cuda/warp.h"
#endif

#include "backends/cuda/tuned.cu"
