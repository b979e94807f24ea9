/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tuned matrix product and attention of the OpenCL backend: which form a device gets, and what
 * their launchers share. The kernels are the .cl files of this folder, and kernels/gpu for devices
 * that are GPUs; all are equal to the portable ones bit for bit.
 */
#ifndef SRT_BACKENDS_OPENCL_TUNED_H
#define SRT_BACKENDS_OPENCL_TUNED_H

#include "backends/gpu/gpu.h"
#include "backends/opencl/opencl.h"
#include "backends/opencl/tuned_args.h"

/* The kernels of this folder; each stream keeps its kernel objects behind those of the portable
 * ones, and those of kernels/gpu of each type behind these. */
typedef enum srt_ocl_tuned_kernel {
	SRT_OCL_MATMUL_PACK,
	SRT_OCL_MATMUL_TILES,
	SRT_OCL_ATTENTION,
	SRT_OCL_ATTENTION_BACKWARD,
	SRT_OCL_TUNED_COUNT
} srt_ocl_tuned_kernel_t;

#define SRT_OCL_GPU_SLOT (SRT_OCL_NDTYPES * SRT_K_COUNT + SRT_OCL_TUNED_COUNT)

/* An argument of a kernel: a buffer and a byte offset in it; NULL = absent. */
typedef struct srt_ocl_at {
	cl_mem buffer;
	cl_ulong offset;
} srt_ocl_at_t;

/* Chooses the device's form by SHARDRT_OPENCL_TUNED and its type; once, at open. */
srt_status_t srt_ocl_tuning_choose(srt_ocl_device_t *device);
/* Whether the device's form takes a command: of its type (the vector form has floats alone; 16-bit
 * kernels of the tiled one are tested before their first launch), sizes and mask. */
bool srt_ocl_can_tuned(srt_ocl_stream_t *stream, const srt_command_t *command);
srt_status_t srt_ocl_run_tuned(srt_ocl_stream_t *stream, const srt_command_t *command);
/* Slot of backend.h. */
size_t srt_ocl_command_scratch(void *device, const srt_command_t *command);

/* matmul.c, attention.c: the vector form, and its scratch. */
srt_status_t srt_ocl_vector_matmul(srt_ocl_stream_t *stream, const srt_command_t *command);
srt_status_t srt_ocl_vector_attention(srt_ocl_stream_t *stream, const srt_command_t *command);
size_t srt_ocl_vector_matmul_scratch(const srt_ocl_device_t *device, const srt_k_matmul_t *mm);
size_t srt_ocl_vector_attention_scratch(const srt_ocl_device_t *device,
					const srt_command_t *command);

/* tiled.c: the form of GPUs. stream: NULL for questions. */
srt_gpu_t srt_ocl_gpu(const srt_ocl_device_t *device, srt_ocl_stream_t *stream);

/* A place, `floats` further on. */
srt_ocl_at_t srt_ocl_at(const srt_binding_t *place, int64_t floats);
/* Scratch of the stream, `floats` from its start. */
srt_ocl_at_t srt_ocl_scratch_at(const srt_ocl_stream_t *stream, int64_t floats);

/* At least so many floats of scratch on the stream: contents undefined, overwritten by the next
 * user in the stream's order. */
srt_status_t srt_ocl_scratch(srt_ocl_stream_t *stream, int64_t floats);
void srt_ocl_scratch_free(srt_ocl_stream_t *stream);

/* Puts a kernel with its arguments into the queue: places, then the struct. */
srt_status_t srt_ocl_tuned_enqueue(srt_ocl_stream_t *stream, cl_kernel kernel, const char *name,
				   const srt_ocl_at_t *places, int nplaces, const void *args,
				   size_t args_nbytes, const size_t global[3],
				   const size_t local[3]);
/* Puts a kernel of this folder into the queue; groups: the grid in work-groups. */
srt_status_t srt_ocl_tuned_launch(srt_ocl_stream_t *stream, srt_ocl_tuned_kernel_t kernel,
				  const srt_ocl_at_t *places, int nplaces, const void *args,
				  size_t args_nbytes, const int64_t groups[3]);

#endif
