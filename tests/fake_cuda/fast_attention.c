/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attention of numerics mode fast for one element type (K_DTYPE), as
 * backends/cuda/fast_attention.cu is for nvcc.
 */
#include "tests/fake_cuda/warp.h"

#include "backends/cuda/fast_attention.cu"
