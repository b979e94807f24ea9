/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Numerics mode fast: matrix products by cuBLASLt, those of attention too. Sums are fp32 in the
 * library's order, so results are outside the identity of bits; for fp32 operands SHARDRT_CUDA_FP32
 * says whether they may be rounded to TF32. What is not taken here is left to the exact kernels.
 */
#ifndef SRT_BACKENDS_CUDA_FAST_H
#define SRT_BACKENDS_CUDA_FAST_H

#include "backends/cuda/cuda.h"

/* A device's handle of cuBLASLt and the algorithms found so far. NULL: cannot be had, which the log
 * says. The context is current. */
srt_cuda_fast_t *srt_cuda_fast_open(srt_cuda_device_t *device);
void srt_cuda_fast_close(srt_cuda_fast_t *fast);

/* A matrix product, in numerics mode fast. SRT_ERR_UNSUPPORTED without fail(): the exact kernels
 * have to do it. */
srt_status_t srt_cuda_fast_matmul(srt_cuda_stream_t *stream, const srt_command_t *command);

/* Frees what the stream has of cuBLASLt's, if anything. */
void srt_cuda_fast_stream_free(srt_cuda_stream_t *stream);

/* A product of attention (backends/gpu), at the addresses of c, a and b, for the `run` of an
 * operation: the heads of an item are a strided batch. It takes no workspace, as the scores are in
 * the stream's scratch. SRT_ERR_UNSUPPORTED without fail(): the kernels have to do it. */
srt_status_t srt_cuda_fast_product(srt_cuda_stream_t *stream, const srt_gpu_matmul_t *args,
				   srt_dtype_t dtype, const CUdeviceptr addresses[3]);

/* Bytes of a stream's scratch that cuBLASLt wants for the product; 0: none, or not for it. */
size_t srt_cuda_fast_matmul_memory(srt_cuda_device_t *device, const srt_command_t *command);

#endif
