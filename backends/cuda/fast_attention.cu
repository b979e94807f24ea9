/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attention of numerics mode fast for f16 and bf16 (K_DTYPE), on tensor cores: fast_attention.h for
 * each head_dim. nvcc makes a fatbin of it for each type; fast_attention.c launches.
 */
#include "kernels/args.h"

#include "backends/cuda/warp.h"

#define HEAD_DIM 64
#define NAME_D(name) name##_64
#include "backends/cuda/fast_attention.h"
#undef HEAD_DIM
#undef NAME_D

#define HEAD_DIM 128
#define NAME_D(name) name##_128
#include "backends/cuda/fast_attention.h"
