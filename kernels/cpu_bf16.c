/* SPDX-License-Identifier: BSD-3-Clause */
#define K_DTYPE bf16
#include "kernels/cpu.c"
