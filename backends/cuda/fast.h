/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Numerics mode fast: cuBLASLt computes matrix products, including those of attention. Sums are
 * fp32 in the library's order, so results may differ in bits. SHARDRT_CUDA_FP32 controls whether
 * fp32 operands may be rounded to TF32. The exact kernels run all other products.
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
	uint8_t type, type_c;     /* srt_dtype_t; of A and B, of C */
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

/* Prepares a matrix product in numerics mode fast. SRT_ERR_UNSUPPORTED without fail(): the exact
 * kernels must run it. */
srt_status_t srt_cuda_fast_prepare(srt_cuda_stream_t *stream, const srt_command_t *command,
				   srt_cuda_fast_call_t *call);
/* Submits it to the driver's stream. */
srt_status_t srt_cuda_fast_multiply(srt_cuda_stream_t *stream, const srt_cuda_fast_call_t *call);

/* Frees the stream's objects of cuBLASLt, if any. */
void srt_cuda_fast_stream_free(srt_cuda_stream_t *stream);

/* A product of attention (SRT_GPU_PRODUCT): the heads of an item are a strided batch. It takes no
 * workspace, because the scores are in the stream's scratch. SRT_ERR_UNSUPPORTED without fail():
 * the kernels must run it. */
srt_status_t srt_cuda_fast_heads(srt_cuda_stream_t *stream, const srt_command_t *product);

/* Scratch bytes that cuBLASLt needs for the product; 0: none, or not supported. */
size_t srt_cuda_fast_scratch(srt_cuda_device_t *device, const srt_command_t *command);

#endif
