/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the libraries that are loaded at run time have in common: a path that the user may give, a
 * table of functions, one load in a process. Their sentences are their own: driver.c, cublaslt.c,
 * collectives/nccl/library.c.
 */
#ifndef SRT_BACKENDS_CUDA_LOADED_H
#define SRT_BACKENDS_CUDA_LOADED_H

#include <pthread.h>
#include <stdbool.h>

#include "backends/backend.h"

/* A function of a library, and where its pointer goes: bytes from the start of a table. */
typedef struct srt_cuda_symbol {
	const char *name;
	size_t offset;
} srt_cuda_symbol_t;

/* Whether a library has been loaded. Static, begins as SRT_CUDA_NOT_LOADED. */
typedef struct srt_cuda_once {
	pthread_mutex_t lock;
	bool loaded;
} srt_cuda_once_t;
#define SRT_CUDA_NOT_LOADED                                                                        \
	{                                                                                          \
		.lock = PTHREAD_MUTEX_INITIALIZER                                                  \
	}

/* Loads a library and fills its table; changes nothing that matters if it fails. */
typedef srt_status_t srt_cuda_load_fn(const srt_host_services_t *host, void *table);

/* The path that the configuration variable gives, or else `standard`; always that in a program that
 * runs with more rights than its user, who must not say what it loads. */
const char *srt_cuda_library_path(const srt_host_services_t *host, const char *variable,
				  const char *standard);

/* Finds n functions. NULL, or the name of the first one that the library lacks. */
const char *srt_cuda_find_symbols(void *library, const srt_cuda_symbol_t *symbols, size_t n,
				  void *table);

/* Loads unless an earlier call has; a failure leaves it to the next one. Thread-safe. */
srt_status_t srt_cuda_load_once(srt_cuda_once_t *once, const srt_host_services_t *host,
				srt_cuda_load_fn *load, void *table);

#endif
