/* SPDX-License-Identifier: BSD-3-Clause */
#define K_DTYPE f32
#include "kernels/cpu.c"
