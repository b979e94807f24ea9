/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tuned matrix product and attention of the OpenCL backend: the form of a device, and the
 * launches of a command in that form. The kernels are the .cl files of this folder, and kernels/gpu
 * for GPUs; all are equal to the portable ones bit for bit.
 */
#ifndef SRT_BACKENDS_OPENCL_TUNED_H
#define SRT_BACKENDS_OPENCL_TUNED_H

#include "backends/gpu/gpu.h"
#include "backends/opencl/opencl.h"
#include "backends/opencl/tuned_args.h"

/* The kernels of SRT_COMMAND_TUNED: srt_gpu_kernel_t's, then those of this folder. */
typedef enum srt_ocl_tuned_kernel {
	SRT_OCL_MATMUL_PACK = SRT_GPU_KERNEL_COUNT,
	SRT_OCL_MATMUL_TILES,
	SRT_OCL_ATTENTION,
	SRT_OCL_ATTENTION_BACKWARD,
	SRT_OCL_TUNED_COUNT
} srt_ocl_tuned_kernel_t;

/* A product in the vector form; sizes in elements. */
typedef struct srt_ocl_product {
	const srt_k_matmul_t *mm;
	int64_t mr, nr; /* of a tile */
	bool packs_a, needs_sum;
	int64_t most_items, most_rows, most_columns; /* of a step */
	int64_t b_item, a_item, sum_item;            /* floats of scratch of one batch item */
	int64_t a, sum;                              /* offsets in scratch; B is at 0 */
	/* The part of the next step. */
	int64_t item, nitems, i, rows, j, columns, k, depth;
} srt_ocl_product_t;

/* The steps of a command. */
typedef struct srt_ocl_plan {
	srt_ocl_form_t form;
	const srt_ocl_tuning_t *tuning;
	srt_gpu_plan_t gpu;        /* its command, scratch and launches in all forms */
	srt_ocl_product_t product; /* of the vector form */
} srt_ocl_plan_t;

/* Chooses the device's form by SHARDRT_OPENCL_TUNED and its type; once, at open. */
srt_status_t srt_ocl_tuning_choose(srt_ocl_device_t *device);

/* Begins the plan of a product or attention, and provides its scratch. It uses the device's form if
 * that supports the command's type, sizes and mask; else the portable kernels. The vector form
 * supports floats only; 16-bit kernels of the tiled form are tested before their first launch. */
srt_status_t srt_ocl_plan(srt_ocl_stream_t *stream, const srt_command_t *command,
			  srt_ocl_plan_t *plan);
/* Fills in plan->gpu.launches with the next step; false after the last step. */
bool srt_ocl_next(srt_ocl_plan_t *plan);
/* Slot of backend.h. */
size_t srt_ocl_command_scratch(void *device, const srt_command_t *command);

/* launch.c. Submits a kernel to the queue: SRT_COMMAND_KERNEL or SRT_COMMAND_TUNED. */
srt_status_t srt_ocl_launch(srt_ocl_stream_t *stream, const srt_command_t *command);

/* ---- for matmul.c and attention.c: the vector form ---------------------------------------- */

/* matmul.c. Begins a product; returns the bytes of scratch. */
size_t srt_ocl_vector_matmul_plan(srt_ocl_product_t *product, const srt_ocl_tuning_t *tuning,
				  const srt_k_matmul_t *mm);
bool srt_ocl_vector_matmul_next(srt_ocl_plan_t *plan);
/* attention.c. The bytes of scratch; the launch. */
size_t srt_ocl_vector_attention_plan(const srt_ocl_tuning_t *tuning, const srt_command_t *command);
void srt_ocl_vector_attention_add(srt_ocl_plan_t *plan, const srt_ocl_tuning_t *tuning);

#endif
