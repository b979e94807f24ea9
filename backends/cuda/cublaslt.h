/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cuBLASLt, loaded at run time for numerics mode fast: a table with a pointer to each function that
 * the backend calls, like the driver's table in driver.h. cublasLt.h is included for types only.
 * The library creates the descriptors, not its inline Init functions: these use the size in the
 * header, and a later version of the library may need more. Used by fast.c and fast_algorithm.c.
 */
#ifndef SRT_BACKENDS_CUDA_CUBLASLT_H
#define SRT_BACKENDS_CUDA_CUBLASLT_H

#include <cublasLt.h>

#include "device/backend.h"

#define SRT_CUBLASLT_FUNCTIONS(F)                                                                  \
	F(cublasLtGetVersion)                                                                      \
	F(cublasLtGetStatusName)                                                                   \
	F(cublasLtGetStatusString)                                                                 \
	F(cublasLtCreate)                                                                          \
	F(cublasLtDestroy)                                                                         \
	F(cublasLtMatmulDescCreate)                                                                \
	F(cublasLtMatmulDescDestroy)                                                               \
	F(cublasLtMatmulDescSetAttribute)                                                          \
	F(cublasLtMatrixLayoutCreate)                                                              \
	F(cublasLtMatrixLayoutDestroy)                                                             \
	F(cublasLtMatrixLayoutSetAttribute)                                                        \
	F(cublasLtMatmulPreferenceCreate)                                                          \
	F(cublasLtMatmulPreferenceDestroy)                                                         \
	F(cublasLtMatmulPreferenceSetAttribute)                                                    \
	F(cublasLtMatmulAlgoGetHeuristic)                                                          \
	F(cublasLtMatmulAlgoConfigGetAttribute)                                                    \
	F(cublasLtMatmul)

/* The functions, as lt->cublasLtMatmul(...). */
typedef struct srt_cublaslt {
#define SRT_CUBLASLT_MEMBER(name) __typeof__(name) *name;
	SRT_CUBLASLT_FUNCTIONS(SRT_CUBLASLT_MEMBER)
#undef SRT_CUBLASLT_MEMBER
} srt_cublaslt_t;

/* Loads the library once; it is never unloaded. Fails if it is not installed, or its major version
 * differs from the toolkit's, so its descriptors may differ. Thread-safe. */
srt_status_t srt_cublaslt(const srt_host_services_t *host, const srt_cublaslt_t **lt);

/* Fails with "<sentence>: CUBLAS_STATUS_NOT_SUPPORTED (15), ..."; out of memory or device by the
 * code. */
srt_status_t srt_cublaslt_fail(const srt_host_services_t *host, const srt_cublaslt_t *lt,
			       cublasStatus_t code, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

#endif
