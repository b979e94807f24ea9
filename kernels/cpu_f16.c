/* SPDX-License-Identifier: BSD-3-Clause */
#define K_DTYPE f16
#include "kernels/cpu.c"
