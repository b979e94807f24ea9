/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The portable kernels as CUDA C for one element type: all .k files in one unit, which nvcc makes a
 * fatbin of for each K_DTYPE (local.mk); the names of their entries are k_NAME_DTYPE. A group is a
 * block of as many threads as the kernel's kind has in kernels/dialect/dialect.h.
 */
#include "kernels/all.h"
