/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The portable kernels as functions of this processor: instruction sets and entries. Used by the
 * cpu backend and the tests; a backend that is a module does not have them.
 */
#ifndef SRT_KERNELS_CPU_H
#define SRT_KERNELS_CPU_H

#include "kernels/table.h"

/* Instruction sets that the CPU form is built for. */
typedef enum srt_cpu_isa {
	SRT_ISA_BASELINE, /* what the compiler makes without being asked */
	SRT_ISA_AVX2,     /* AVX2 + FMA */
	SRT_ISA_AVX512,   /* F, VL, BW, DQ */
	SRT_ISA_NEON,     /* aarch64; its kernels are those of baseline */
	SRT_ISA_COUNT
} srt_cpu_isa_t;

/* "baseline", "avx2", "avx512", "neon" */
const char *srt_cpu_isa_name(srt_cpu_isa_t isa);

/* Whether the kernels were built for it and this processor (and its OS) runs it. */
int srt_cpu_isa_usable(srt_cpu_isa_t isa);

/* The CPU form of a kernel: runs groups group_begin <= g < group_end. Threads split the groups; the
 * bits do not depend on how. places: host addresses, NULL = absent; args: the kernel's struct. */
typedef void srt_kernel_cpu_fn(unsigned char *const *places, const void *args, int64_t group_begin,
			       int64_t group_end);

/* The entry for an instruction set that is usable; NULL when there is no kernel for the dtype. */
srt_kernel_cpu_fn *srt_kernel_cpu(srt_kernel_id_t kernel, srt_dtype_t dtype, srt_cpu_isa_t isa);

#endif
