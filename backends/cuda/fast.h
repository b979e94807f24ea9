/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Numerics mode fast: matrix products by cuBLASLt, those of attention too. Sums are fp32 in the
 * library's order, so results are outside the identity of bits; for fp32 operands SHARDRT_CUDA_FP32
 * says whether they may be rounded to TF32. What is not taken here is left to the exact kernels.
 */
#ifndef SRT_BACKENDS_CUDA_FAST_H
#define SRT_BACKENDS_CUDA_FAST_H

#include "backends/cuda/cuda.h"

/* What an algorithm depends on: all of it compared as bytes. */
typedef struct srt_cuda_product {
	int64_t m, n, k, batch;
	int64_t lda, ldb, ldc, stride_a, stride_b, stride_c;
	uint64_t workspace;       /* bytes that may be used */
	uint16_t align[4];        /* of c, a, b, bias, as places; bytes */
	uint8_t trans_a, trans_b; /* of our operands */
	uint8_t bias, accumulate; /* whether there are */
	uint8_t type, type_c;     /* srt_dtype_t; of A and B, of C */
	uint8_t zeroes[2];
} srt_cuda_product_t;

/* What does a product of numerics mode fast: cuBLASLt's own, and how much workspace it wants. */
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

/* A device's handle of cuBLASLt and the algorithms found so far. NULL: cannot be had, which the log
 * says. The context is current. */
srt_cuda_fast_t *srt_cuda_fast_open(srt_cuda_device_t *device);
void srt_cuda_fast_close(srt_cuda_fast_t *fast);

/* Prepares a matrix product in numerics mode fast. SRT_ERR_UNSUPPORTED without fail(): the exact
 * kernels have to do it. */
srt_status_t srt_cuda_fast_prepare(srt_cuda_stream_t *stream, const srt_command_t *command,
				   srt_cuda_fast_call_t *call);
/* Puts it into the driver's stream. */
srt_status_t srt_cuda_fast_multiply(srt_cuda_stream_t *stream, const srt_cuda_fast_call_t *call);

/* Frees what the stream has of cuBLASLt's, if anything. */
void srt_cuda_fast_stream_free(srt_cuda_stream_t *stream);

/* A product of attention (SRT_GPU_PRODUCT): the heads of an item are a strided batch. It takes no
 * workspace, as the scores are in the stream's scratch. SRT_ERR_UNSUPPORTED without fail(): the
 * kernels have to do it. */
srt_status_t srt_cuda_fast_heads(srt_cuda_stream_t *stream, const srt_command_t *product);

/* Bytes of a stream's scratch that cuBLASLt wants for the product; 0: none, or not for it. */
size_t srt_cuda_fast_scratch(srt_cuda_device_t *device, const srt_command_t *command);

#endif
