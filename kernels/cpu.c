/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CPU form of the kernels for one element type and one instruction set: all .k files in one
 * translation unit, compiled once per set with SRT_ISA as its name, and the table of their entries.
 */
#include "kernels/cpu.h"

#include "kernels/attention.k"
#include "kernels/bins.k"
#include "kernels/columns.k"
#include "kernels/elementwise.k"
#include "kernels/embedding.k"
#include "kernels/layernorm.k"
#include "kernels/matmul.k"
#include "kernels/optim.k"
#include "kernels/random.k"
#include "kernels/reduce.k"
#include "kernels/rows.k"

#define TABLE_NAME_(dtype, isa) srt_kernels_cpu_##dtype##_##isa
#define TABLE_NAME(dtype, isa) TABLE_NAME_(dtype, isa)

extern srt_kernel_cpu_fn *const TABLE_NAME(K_DTYPE, SRT_ISA)[SRT_K_COUNT];

srt_kernel_cpu_fn *const TABLE_NAME(K_DTYPE, SRT_ISA)[SRT_K_COUNT] = {
#define K(NAME, name, access, args, grid) [SRT_K_##NAME] = K_NAME(name),
#include "kernels/kernels.def"
};
