/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by fast.c and fast_algorithm.c: the description of a product for cuBLASLt. */
#ifndef SRT_BACKENDS_CUDA_FAST_PRODUCT_H
#define SRT_BACKENDS_CUDA_FAST_PRODUCT_H

#include "backends/cuda/cublaslt.h"
#include "backends/cuda/fast.h"

/* The table of algorithms. */
#define SRT_CUDA_FAST_NSETS 128
#define SRT_CUDA_FAST_NWAYS 8

typedef struct srt_cuda_fast_entry {
	srt_cuda_product_t problem;
	srt_cuda_algorithm_t algorithm;
	uint8_t used, can; /* can = 0: cuBLASLt has no algorithm */
} srt_cuda_fast_entry_t;

/* Objects of the library, written again for each product. */
typedef struct srt_cuda_descriptors {
	cublasLtMatmulDesc_t product;
	cublasLtMatrixLayout_t a, b, c; /* of our operands */
	cublasLtMatmulPreference_t preference;
} srt_cuda_descriptors_t;

struct srt_cuda_fast {
	srt_cuda_device_t *device;
	const srt_cublaslt_t *lt;
	cublasLtHandle_t handle;
	bool tf32;
	size_t workspace_nbytes; /* of a stream */

	pthread_mutex_t lock;
	srt_cuda_descriptors_t descriptors; /* for the heuristic; each stream has others */
	srt_cuda_fast_entry_t entries[SRT_CUDA_FAST_NSETS][SRT_CUDA_FAST_NWAYS];
	uint8_t oldest[SRT_CUDA_FAST_NSETS];
};

/* Creates the descriptors; after a failure there are none. */
cublasStatus_t srt_cuda_descriptors_make(const srt_cublaslt_t *lt, srt_cuda_descriptors_t *d);
void srt_cuda_descriptors_free(const srt_cublaslt_t *lt, srt_cuda_descriptors_t *d);

/* Writes the product into the descriptors. bias: its address, or one with the same alignment. */
cublasStatus_t srt_cuda_fast_describe(const srt_cuda_fast_t *fast, const srt_cuda_product_t *p,
				      const srt_cuda_descriptors_t *d, uint64_t bias);

/* Finds the algorithm for a product; SRT_ERR_UNSUPPORTED without fail() if there is none. Does not
 * use the device. */
srt_status_t srt_cuda_fast_choose(srt_cuda_fast_t *fast, const srt_cuda_product_t *p,
				  srt_cuda_algorithm_t *algorithm);

#endif
