/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Numerics mode fast: cuBLASLt computes matrix products, and kernels on tensor cores compute
 * attention. Sums are fp32 in another order, so results may differ in bits. SHARDRT_CUDA_FP32
 * controls whether fp32 operands of products may be rounded to TF32. The exact kernels run all
 * other products and attention.
 */
#ifndef SRT_BACKENDS_CUDA_FAST_H
#define SRT_BACKENDS_CUDA_FAST_H

#include "backends/cuda/cuda.h"

/* The inputs of the choice of an algorithm, compared as bytes. */
typedef struct srt_cuda_product {
	int64_t m, n, k, batch;
	int64_t lda, ldb, ldc, stride_a, stride_b, stride_c;
	uint64_t workspace;       /* maximum bytes */
	uint16_t align[4];        /* of c, a, b, bias, in the order of bindings; bytes */
	uint8_t trans_a, trans_b; /* of our operands */
	uint8_t bias, accumulate; /* 1: present */
	uint8_t type, type_c;     /* srt_dtype_t of the operands, and of C */
	uint8_t zeroes[2];
} srt_cuda_product_t;

/* An algorithm of cuBLASLt and the workspace that it needs. */
typedef struct srt_cuda_algorithm {
	uint64_t opaque[8];
	size_t workspace_nbytes;
} srt_cuda_algorithm_t;

/* One call of cuBLASLt: addresses of c, a, b and bias. */
typedef struct srt_cuda_fast_call {
	srt_cuda_product_t product;
	srt_cuda_algorithm_t algorithm;
	CUdeviceptr at[4], workspace;
	float alpha;
} srt_cuda_fast_call_t;

/* Creates a device's handle of cuBLASLt and its table of algorithms. NULL: not available; the
 * reason is logged. The context is current. */
srt_cuda_fast_t *srt_cuda_fast_open(srt_cuda_device_t *device);
void srt_cuda_fast_close(srt_cuda_fast_t *fast);

/* Submits a matrix product in numerics mode fast. SRT_ERR_UNSUPPORTED without fail(): the exact
 * kernels must run it. */
srt_status_t srt_cuda_fast_matmul(srt_cuda_stream_t *stream, const srt_command_t *command);

/* Frees the stream's objects of cuBLASLt, if any. */
void srt_cuda_fast_stream_free(srt_cuda_stream_t *stream);

/* fast_attention.c. Launches attention, either pass. SRT_ERR_UNSUPPORTED without fail(): the exact
 * kernels must run it. */
srt_status_t srt_cuda_fast_attention(srt_cuda_stream_t *stream, const srt_command_t *command);

/* Scratch bytes that cuBLASLt needs for the product; 0: none, or not supported. */
size_t srt_cuda_fast_scratch(srt_cuda_device_t *device, const srt_command_t *command);

#endif
