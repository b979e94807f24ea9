/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A library of NVIDIA that is loaded at run time, once in a process: its path, which the user can
 * set, and a table of its functions. See driver.c, cublaslt.c, backends/cuda/nccl_library.c.
 */
#ifndef SRT_BACKENDS_CUDA_LIBRARY_H
#define SRT_BACKENDS_CUDA_LIBRARY_H

#include <pthread.h>
#include <stddef.h>

#include "device/backend.h"

/* A function of a library, and the offset of its pointer in the table, in bytes. */
typedef struct srt_cuda_library_function {
	const char *name;
	size_t offset;
} srt_cuda_library_function_t;

/* Checks the version, or initialises. `path` is for messages. */
typedef srt_status_t srt_cuda_library_start_fn(const srt_host_services_t *host, const char *path,
					       void *table);

typedef struct srt_cuda_library {
	const char *what;     /* "NCCL" */
	const char *package;  /* the package that contains it */
	const char *variable; /* of the configuration: the path */
	const char *standard; /* the path if the variable is empty */
	const srt_cuda_library_function_t *functions;
	size_t nfunctions;
	void *table;                      /* of pointers; valid once it is loaded */
	srt_cuda_library_start_fn *start; /* after all functions were found */
	pthread_mutex_t lock;
	void *handle; /* NULL: not loaded */
} srt_cuda_library_t;

/* Loads the library once; after a failure the next call tries again. A set-user-ID program loads
 * the standard path only. Thread-safe. */
srt_status_t srt_cuda_library_load(srt_cuda_library_t *library, const srt_host_services_t *host);

#endif
