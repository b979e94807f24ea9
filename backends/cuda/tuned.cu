/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tuned kernels as CUDA C for one element type, which nvcc makes a fatbin of for each K_DTYPE
 * (local.mk); the names of their entries are k_NAME_DTYPE. Launched by tuned.c.
 */
#include "kernels/gpu/gpu_attention.k"
#include "kernels/gpu/gpu_matmul.k"
