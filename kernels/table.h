/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The portable kernels by number: what a launcher, a backend and the tests need to know of each.
 * Made from kernels/kernels.def; argument structs in kernels/args.h; meaning in docs/numerics.md.
 */
#ifndef SRT_KERNELS_TABLE_H
#define SRT_KERNELS_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shardrt/dtype.h>
#include <shardrt/ops.h>
#include <shardrt/optimizer.h>
#include <shardrt/status.h>

#include "kernels/args.h"
#include "kernels/command.h"

typedef enum srt_kernel_id {
#define K(NAME, name, types, access, args, grid) SRT_K_##NAME,
#include "kernels/kernels.def"
	SRT_K_COUNT
} srt_kernel_id_t;

/* Changes whenever a kernel's bits change; written to the hash line, logs and checkpoints. */
#define SRT_NUMERICS_VERSION 2

/* Digest of the kernels' sources, as they were when this was built: a module's must be the
 * library's. */
extern const char srt_kernels_digest[];

/* One kernel. */
typedef struct srt_kernel_info {
	const char *name;   /* "softmax" */
	const char *access; /* per place: R, W, X (both); lower case = may be absent */
	uint16_t nplaces;   /* strlen(access) */
	uint16_t args_nbytes;
	uint16_t dtypes; /* that it exists for: bits 1 << srt_dtype_t */
} srt_kernel_info_t;

/* Description of a kernel, NULL for a number outside the table. */
const srt_kernel_info_t *srt_kernel_info(srt_kernel_id_t kernel);

/* Whether there is such a kernel and it exists for the dtype. */
int srt_kernel_has(srt_kernel_id_t kernel, srt_dtype_t dtype);

/* The name of a dtype that kernels exist for, as in the names of their entries: "f32", "f16",
 * "bf16". */
const char *srt_kernel_dtype_name(srt_dtype_t dtype);

/* Number of groups of a launch with these arguments; 0 when a size is 0: nothing to launch. */
int64_t srt_kernel_grid(srt_kernel_id_t kernel, const void *args);

/* The portable kernels of a command of a kind that backends may have tuned versions of, in the
 * order of their launch; returns how many there are. */
#define SRT_COMMAND_MAX_KERNELS 3
int srt_command_expand(const srt_command_t *command,
		       srt_command_t kernels[SRT_COMMAND_MAX_KERNELS]);

/* Whether a command of attention has as many heads of keys as of queries, offset 0, and no first
 * keys: what each tuned version supports. */
bool srt_command_is_plain_attention(const srt_command_t *command);

/* 64-bit FNV-1a of a tensor's name: the key of its random numbers. */
uint64_t srt_kernel_name_hash(const char *name);

/* x = hi + lo with two floats, to 48 bits. */
void srt_kernel_split(double x, float *hi, float *lo);

/* The attention kernels' struct for a shape whose distances of rows are set. */
srt_k_attention_t srt_kernel_attention_args(const srt_attention_t *shape);

#endif
