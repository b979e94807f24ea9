/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The portable kernels as CUDA C for one element type: all .k files in one unit, which nvcc makes a
 * fatbin of for each K_DTYPE (local.mk); the names of their entries are k_NAME_DTYPE. A group is a
 * block of as many threads as the kernel's kind has in kernels/dialect.h.
 */
#include "kernels/activation.k"
#include "kernels/attention.k"
#include "kernels/batchnorm.k"
#include "kernels/bins.k"
#include "kernels/columns.k"
#include "kernels/coo.k"
#include "kernels/elementwise.k"
#include "kernels/embedding.k"
#include "kernels/layernorm.k"
#include "kernels/matmul.k"
#include "kernels/optim.k"
#include "kernels/random.k"
#include "kernels/reduce.k"
#include "kernels/rmsnorm.k"
#include "kernels/rows.k"
#include "kernels/scaler.k"
#include "kernels/strided.k"
