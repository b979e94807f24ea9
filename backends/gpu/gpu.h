/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tuned matrix product and attention of GPUs (kernels/gpu), for the backends that compile them.
 * A plan splits a command into steps of launches; the backend launches them. Results equal the
 * portable kernels' bit for bit for every choice here. Each module links a copy.
 */
#ifndef SRT_BACKENDS_GPU_GPU_H
#define SRT_BACKENDS_GPU_GPU_H

#include <stdbool.h>

#include "device/backend.h"
#include "kernels/gpu/args.h"

/* The kernels: a product for each shape of tiles, then the others. */
typedef enum srt_gpu_kernel {
#define SRT_GPU_TILE_KERNEL(rows, columns, ...) SRT_GPU_MATMUL_##rows##X##columns,
	SRT_GPU_TILES(SRT_GPU_TILE_KERNEL)
#undef SRT_GPU_TILE_KERNEL
		SRT_GPU_TILE_COUNT,
	SRT_GPU_MATMUL_SUMS = SRT_GPU_TILE_COUNT,
	SRT_GPU_WEIGHTS,
	SRT_GPU_GRADIENTS,
	SRT_GPU_HEADS,
	SRT_GPU_KERNEL_COUNT
} srt_gpu_kernel_t;

typedef struct srt_gpu_kernel_info {
	const char *source; /* its file in kernels/gpu, without the .k */
	const char *name;   /* of the entry: k_NAME_DTYPE */
	int nitems;         /* of a work-group; 0: SRT_K_LANES, in the backend's form of lanes */
} srt_gpu_kernel_info_t;

extern const srt_gpu_kernel_info_t srt_gpu_kernels[SRT_GPU_KERNEL_COUNT];

/* The `mem` of a binding to the stream's scratch. */
extern char srt_gpu_scratch[];

/* The inputs of a plan. */
typedef struct srt_gpu {
	int nunits;    /* multiprocessors */
	int max_items; /* maximum of a work-group: larger shapes of tiles are not used */
	/* For tests: 1 + the shape of tiles to use, 1 + whether to cut k; 0 = the fastest. */
	int tile, cut;
	/* The lowest four bits of the binding's address. */
	unsigned (*low_bits)(const srt_binding_t *binding);
} srt_gpu_t;

/* The steps of a command. The caller provides scratch_nbytes of scratch, aligned to 16, submits
 * the launches of a step in order, and requests the next step. The scratch's contents are
 * undefined before the plan and after it. */
#define SRT_GPU_MAX_LAUNCHES 8
typedef struct srt_gpu_plan {
	srt_gpu_t gpu;
	bool is_portable; /* one step: the portable kernels */
	const srt_command_t *command;
	size_t scratch_nbytes;
	int nlaunches;
	srt_command_t launches[SRT_GPU_MAX_LAUNCHES]; /* SRT_COMMAND_TUNED: srt_gpu_kernel_t, or
						       * SRT_COMMAND_KERNEL */

	/* The plan of a product. */
	srt_gpu_kernel_t tile;
	bool is_cut;
	int64_t ngroups;
	int64_t next;       /* block of k, head or number of the next step */
	int64_t next_query; /* of attention */
} srt_gpu_plan_t;

/* Whether the kernels support the command's sizes; else the portable ones run it. */
bool srt_gpu_can(const srt_command_t *command);
/* Begins the plan of a command that srt_gpu_can() accepts; gpu NULL: of any command, by the
 * portable kernels. Of the bindings it only reads which are absent. */
void srt_gpu_plan(srt_gpu_plan_t *plan, const srt_gpu_t *gpu, const srt_command_t *command);
/* Fills in the launches of the next step; false after the last step. */
bool srt_gpu_next(srt_gpu_plan_t *plan);

/* Bytes of an element. */
static inline int64_t srt_gpu_nbytes(srt_dtype_t dtype)
{
	return dtype == SRT_F32 ? 4 : 2;
}

/* ---- for what makes plans ----------------------------------------------------------------- */

/* Appends a launch. kernel: srt_gpu_kernel_t, or a backend's number after these. */
srt_command_t *srt_gpu_add(srt_gpu_plan_t *plan, int kernel, const srt_binding_t *bindings,
			   int nbindings, const void *args, size_t args_nbytes, int64_t ngroups);
/* The binding with nbytes added to its offset. */
srt_binding_t srt_gpu_at(const srt_binding_t *binding, int64_t nbytes);

/* Floats of scratch that a command takes at most, unless its smallest step needs more. */
int64_t srt_gpu_scratch_floats(const srt_gpu_t *gpu);

/* Sets the fastest kernel of a product, and its grid. */
void srt_gpu_choose(const srt_gpu_t *gpu, srt_command_t *product);

/* attention.c: srt_gpu_plan() and srt_gpu_next() of both passes. */
void srt_gpu_attention_plan(srt_gpu_plan_t *plan);
bool srt_gpu_attention_next(srt_gpu_plan_t *plan);

#endif
