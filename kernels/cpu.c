/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CPU form of the kernels for one element type and one instruction set: all .k files in one
 * translation unit, compiled once per pair (K_DTYPE, SRT_ISA), and the table of their entries. What
 * a type has no use for (types F32 in kernels.def) has no entry, and the compiler drops it.
 */
#include "kernels/cpu.h"

#include "kernels/all.h"

#define TABLE_NAME_(dtype, isa) srt_kernels_cpu_##dtype##_##isa
#define TABLE_NAME(dtype, isa) TABLE_NAME_(dtype, isa)

extern srt_kernel_cpu_fn *const TABLE_NAME(K_DTYPE, SRT_ISA)[SRT_K_COUNT];

srt_kernel_cpu_fn *const TABLE_NAME(K_DTYPE, SRT_ISA)[SRT_K_COUNT] = {
#define ENTRY_ALL(name) K_NAME(name)
#if T_IS_F32
#define ENTRY_F32(name) K_NAME(name)
#else
#define ENTRY_F32(name) 0
#endif
#define K(NAME, name, types, access, args, grid) [SRT_K_##NAME] = ENTRY_##types(name),
#include "kernels/kernels.def"
};
