/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tuned kernels as CUDA C for one element type, which nvcc makes a fatbin of for each K_DTYPE
 * (local.mk); the names of their entries are k_NAME_DTYPE. Launched by tuned.c. Those of
 * fast_attention.h are for 16-bit types, from compute capability 8.0 on.
 */
#include "kernels/gpu/gpu_attention.k"
#include "kernels/gpu/gpu_matmul.k"

#if !T_IS_F32 && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800)
#include "backends/cuda/warp.h"

#define HEAD_DIM 64
#define NAME_D(name) name##_64
#include "backends/cuda/fast_attention.h"
#undef HEAD_DIM
#undef NAME_D

#define HEAD_DIM 128
#define NAME_D(name) name##_128
#include "backends/cuda/fast_attention.h"
#endif
