/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tuned matrix product and attention of GPUs (kernels/gpu), for the backends that compile them:
 * what is launched, and in which order. A backend gives its stream as srt_gpu_t and its command.
 * Results are the portable kernels' bit for bit, whatever is chosen here. Part of each backend's
 * module.
 */
#ifndef SRT_BACKENDS_GPU_GPU_H
#define SRT_BACKENDS_GPU_GPU_H

#include <stdbool.h>

#include "device/backend.h"
#include "kernels/gpu/args.h"

/* The kernels: a product for each shape of tiles, then what else there is. */
typedef enum srt_gpu_kernel {
#define SRT_GPU_TILE_KERNEL(rows, columns, ...) SRT_GPU_MATMUL_##rows##X##columns,
	SRT_GPU_TILES(SRT_GPU_TILE_KERNEL)
#undef SRT_GPU_TILE_KERNEL
		SRT_GPU_TILE_COUNT,
	SRT_GPU_MATMUL_SUMS = SRT_GPU_TILE_COUNT,
	SRT_GPU_WEIGHTS,
	SRT_GPU_GRADIENTS,
	SRT_GPU_KERNEL_COUNT
} srt_gpu_kernel_t;

typedef struct srt_gpu_kernel_info {
	const char *source; /* its file in kernels/gpu, without the .k */
	const char *name;   /* of the entry: k_NAME_DTYPE */
	int nplaces;
	int nitems; /* of a work-group; 0: SRT_K_LANES, in the backend's form of them */
} srt_gpu_kernel_info_t;

extern const srt_gpu_kernel_info_t srt_gpu_kernels[SRT_GPU_KERNEL_COUNT];

/* The `mem` of a place in the stream's scratch. */
extern char srt_gpu_scratch[];

/* A stream, as the operations see it. */
typedef struct srt_gpu {
	void *stream;
	int nunits;    /* multiprocessors */
	int max_items; /* of a work-group: shapes of tiles with more are not taken */
	/* For tests: 1 + the shape of tiles to take, 1 + whether to cut k; 0 = what is fastest. */
	int tile, cut;
	/* The lowest four bits of the place's address. */
	unsigned (*low_bits)(const srt_binding_t *place);
	/* At least so many bytes of scratch, aligned to 16: contents undefined, overwritten by
	 * the next user in the stream's order. */
	srt_status_t (*scratch)(void *stream, size_t nbytes);
	srt_status_t (*launch)(void *stream, srt_gpu_kernel_t kernel, srt_dtype_t dtype,
			       const srt_binding_t *places, const void *args, size_t args_nbytes,
			       int64_t ngroups);
	/* Attention's products in numerics mode fast, or NULL: the kernels'. places: c, a, b.
	 * SRT_ERR_UNSUPPORTED without fail(): the kernels have to do this one. */
	srt_status_t (*product)(void *stream, const srt_gpu_matmul_t *args, srt_dtype_t dtype,
				const srt_binding_t *places);
} srt_gpu_t;

/* Whether a command's sizes are within what the kernels count; else the portable ones do it. */
bool srt_gpu_can(const srt_command_t *command);

/* Commands of the two kinds of attention and of the product, which srt_gpu_can() takes. With
 * gpu->product attention takes no lengths and no mask. */
srt_status_t srt_gpu_matmul(const srt_gpu_t *gpu, const srt_command_t *command);
srt_status_t srt_gpu_attention(const srt_gpu_t *gpu, const srt_command_t *command);

/* Bytes of scratch that a command takes; of gpu, nunits, max_items, tile and cut are looked at.
 * fast: with gpu->product. */
size_t srt_gpu_command_scratch(const srt_gpu_t *gpu, const srt_command_t *command, bool fast);
/* Of attention, for srt_gpu_command_scratch(). */
size_t srt_gpu_attention_scratch(const srt_command_t *command, bool fast);

/* For attention: one launch of a product; args without what is chosen here. Places: c, a, b, bias,
 * start, lengths. */
srt_status_t srt_gpu_product(const srt_gpu_t *gpu, const srt_gpu_matmul_t *args, srt_dtype_t dtype,
			     const srt_binding_t places[6]);

/* Of an element. */
static inline int64_t srt_gpu_nbytes(srt_dtype_t dtype)
{
	return dtype == SRT_F32 ? 4 : 2;
}

/* A place, so many bytes further on. */
srt_binding_t srt_gpu_at(const srt_binding_t *place, int64_t nbytes);

#endif
