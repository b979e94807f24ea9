/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tuned matrix product and attention of the OpenCL backend: which form a device gets, and what
 * their launchers share. The kernels are the .cl files of this folder; all are equal to the
 * portable ones bit for bit.
 */
#ifndef SRT_BACKENDS_OPENCL_TUNED_H
#define SRT_BACKENDS_OPENCL_TUNED_H

#include "backends/opencl/opencl.h"
#include "backends/opencl/tuned_args.h"

/* The tuned kernels; each stream keeps its kernel objects behind those of the portable ones. */
typedef enum srt_ocl_tuned_kernel {
	SRT_OCL_MATMUL_PACK,
	SRT_OCL_MATMUL_TILES,
	SRT_OCL_MATMUL_TILED,
	SRT_OCL_ATTENTION,
	SRT_OCL_ATTENTION_BACKWARD,
	SRT_OCL_TUNED_COUNT
} srt_ocl_tuned_kernel_t;

/* An argument of a kernel: a buffer and a byte offset in it; NULL = absent. */
typedef struct srt_ocl_at {
	cl_mem buffer;
	cl_ulong offset;
} srt_ocl_at_t;

/* Chooses the device's form by SHARDRT_OPENCL_TUNED and its type; once, at open. */
srt_status_t srt_ocl_tuning_choose(srt_ocl_device_t *device);
/* Tries the form against the portable kernels. If it fails, the device has the portable form, or
 * cannot be opened if SHARDRT_OPENCL_TUNED names the form. */
srt_status_t srt_ocl_tuned_check(srt_ocl_device_t *device);
/* Whether kernels see all of the places; else the portable launch says what is wrong. */
bool srt_ocl_tuned_can(const srt_place_t *places, int nplaces);

/* A place, `floats` further on. */
srt_ocl_at_t srt_ocl_at(const srt_place_t *place, int64_t floats);
/* Scratch of the stream, `floats` from its start. */
srt_ocl_at_t srt_ocl_scratch_at(const srt_ocl_stream_t *stream, int64_t floats);

/* At least so many floats of scratch on the stream: contents undefined, overwritten by the next
 * user in the stream's order. */
srt_status_t srt_ocl_scratch(srt_ocl_stream_t *stream, int64_t floats);
void srt_ocl_scratch_free(srt_ocl_stream_t *stream);

/* Puts a tuned kernel into the queue; groups: the grid in work-groups. */
srt_status_t srt_ocl_tuned_launch(srt_ocl_stream_t *stream, srt_ocl_tuned_kernel_t kernel,
				  const srt_ocl_at_t *places, int nplaces, const void *args,
				  size_t args_nbytes, const int64_t groups[3]);

/* Slots of backend.h. */
srt_status_t srt_ocl_put_matmul(void *stream, const srt_matmul_t *mm, srt_dtype_t dtype,
				const srt_place_t places[4], int exact);
srt_status_t srt_ocl_put_attention(void *stream, const srt_attention_t *shape, srt_dtype_t dtype,
				   const srt_place_t places[7], int exact);
srt_status_t srt_ocl_put_attention_backward(void *stream, const srt_attention_t *shape,
					    srt_dtype_t dtype, const srt_place_t places[12],
					    int exact);

#endif
