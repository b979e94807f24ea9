/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A launch: kernel id, dtype, grid, packed argument block, list of places. Plain data, so that it
 * can be copied. No device addresses and no tables of pointers: a tensor
 * argument is a place (memory object, byte offset), and the kernel adds the offset.
 */
#ifndef SRT_KERNELS_LAUNCH_H
#define SRT_KERNELS_LAUNCH_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/dtype.h>

#define SRT_LAUNCH_MAX_PLACES 12
#define SRT_LAUNCH_MAX_ARGS 256 /* bytes */

/* A backend's memory object and a byte offset in it; mem NULL = absent argument. */
typedef struct srt_place {
	void *mem;
	size_t offset;
} srt_place_t;

typedef struct srt_launch {
	uint16_t kernel; /* srt_kernel_id_t, kernels/table.h */
	uint16_t dtype;  /* srt_dtype_t of the tensors: selects the kernel's variant */
	uint16_t nplaces;
	uint16_t args_nbytes;
	int64_t ngroups;  /* grid, in groups of the kernel's lanes */
	const void *args; /* the kernel's packed struct */
	srt_place_t places[SRT_LAUNCH_MAX_PLACES];
} srt_launch_t;

#endif
