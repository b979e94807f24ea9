/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The portable kernels by number: what a launcher, a backend and the tests need to know of each.
 * Made from kernels/kernels.def; argument structs in kernels/args.h; meaning in docs/numerics.md.
 */
#ifndef SRT_KERNELS_TABLE_H
#define SRT_KERNELS_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/dtype.h>
#include <shardrt/status.h>

#include "kernels/args.h"
#include "kernels/launch.h"

typedef enum srt_kernel_id {
#define K(NAME, name, access, args, grid) SRT_K_##NAME,
#include "kernels/kernels.def"
	SRT_K_COUNT
} srt_kernel_id_t;

/* Changes whenever a kernel's bits change; stands in the hash line, logs and checkpoints. */
#define SRT_NUMERICS_VERSION 1

/* One kernel. */
typedef struct srt_kernel_info {
	const char *name;   /* "softmax" */
	const char *access; /* per place: R, W, X (both); lower case = may be absent */
	uint16_t nplaces;   /* strlen(access) */
	uint16_t args_nbytes;
} srt_kernel_info_t;

/* Description of a kernel, NULL for a number outside the table. */
const srt_kernel_info_t *srt_kernel_info(srt_kernel_id_t kernel);

/* Number of groups of a launch with these arguments; 0 when a size is 0: nothing to launch. */
int64_t srt_kernel_grid(srt_kernel_id_t kernel, const void *args);

/* Instruction sets that the CPU form is built for. */
typedef enum srt_cpu_isa {
	SRT_ISA_BASELINE, /* what the compiler makes without being asked */
	SRT_ISA_AVX2,     /* AVX2 + FMA */
	SRT_ISA_AVX512,   /* F, VL, BW, DQ */
	SRT_ISA_COUNT
} srt_cpu_isa_t;

/* "baseline", "avx2", "avx512" */
const char *srt_cpu_isa_name(srt_cpu_isa_t isa);

/* Whether the kernels were built for it and this processor (and its OS) runs it. */
int srt_cpu_isa_usable(srt_cpu_isa_t isa);

/* The CPU form of a kernel: runs groups group_begin <= g < group_end. Threads split the groups; the
 * bits do not depend on how. places: host addresses, NULL = absent; args: the kernel's struct. */
typedef void srt_kernel_cpu_fn(unsigned char *const *places, const void *args, int64_t group_begin,
			       int64_t group_end);

/* The entry for an instruction set that is usable; NULL when there is no kernel for the dtype. */
srt_kernel_cpu_fn *srt_kernel_cpu(srt_kernel_id_t kernel, srt_dtype_t dtype, srt_cpu_isa_t isa);

/* 64-bit FNV-1a of a tensor's name: the key of its random numbers. */
uint64_t srt_kernel_name_hash(const char *name);

/* x = hi + lo with two floats, to 48 bits. */
void srt_kernel_split(double x, float *hi, float *lo);

#endif
