/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The program texts that are compiled on the device, one per kernel family: kernels/embed.awk makes
 * them at build time of the .k files of kernels/, with all includes in place.
 */
#ifndef SRT_BACKENDS_OPENCL_SOURCE_H
#define SRT_BACKENDS_OPENCL_SOURCE_H

typedef struct srt_ocl_source {
	const char *name; /* of the file without its ending: "rows" */
	const char *text;
} srt_ocl_source_t;

/* Ends with a NULL name. */
extern const srt_ocl_source_t srt_ocl_sources[];
/* Portable kernels: the name of the source that has them, by srt_kernel_id_t. */
extern const char *const srt_ocl_source_of[];

#endif
