/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The program texts that the device's compiler compiles, one per kernel family: kernels/embed.awk
 * generates them at build time from the .k files of kernels/, with includes expanded.
 */
#ifndef SRT_BACKENDS_OPENCL_SOURCE_H
#define SRT_BACKENDS_OPENCL_SOURCE_H

typedef struct srt_ocl_source {
	const char *name; /* of the file without its ending: "rows" */
	const char *text;
} srt_ocl_source_t;

/* Ends with a NULL name. */
extern const srt_ocl_source_t srt_ocl_sources[];
/* Portable kernels: the name of their source, by srt_kernel_id_t. */
extern const char *const srt_ocl_source_of[];

#endif
