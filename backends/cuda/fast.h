/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Numerics mode fast: matrix products by cuBLASLt, and attention of 16-bit tensors by kernels of
 * ours, on the tensor cores. Sums are fp32 in an order of their own, so results are outside the
 * identity of bits; for fp32 operands SHARDRT_CUDA_FP32 says whether they may be rounded to TF32.
 * What is not taken here is left to the exact kernels.
 */
#ifndef SRT_BACKENDS_CUDA_FAST_H
#define SRT_BACKENDS_CUDA_FAST_H

#include "backends/cuda/cuda.h"

/* A device's handle of cuBLASLt and the algorithms found so far. NULL: cannot be had, which the log
 * says. The context is current. */
srt_cuda_fast_t *srt_cuda_fast_open(srt_cuda_device_t *device);
void srt_cuda_fast_close(srt_cuda_fast_t *fast);

/* The slot of backend.h. SRT_ERR_UNSUPPORTED without fail(): the exact kernels have to do it.
 * Nothing is allocated while the stream is being recorded. */
srt_status_t srt_cuda_fast_matmul(srt_cuda_stream_t *stream, const srt_matmul_t *mm,
				  srt_dtype_t dtype, const srt_place_t places[4]);

/* Frees what the stream has of cuBLASLt's, if anything. */
void srt_cuda_fast_stream_free(srt_cuda_stream_t *stream);

/* fast_attention.c: the slots, likewise. */
srt_status_t srt_cuda_fast_attention(srt_cuda_stream_t *stream, const srt_attention_t *shape,
				     srt_dtype_t dtype, const srt_place_t places[7]);
srt_status_t srt_cuda_fast_attention_backward(srt_cuda_stream_t *stream,
					      const srt_attention_t *shape, srt_dtype_t dtype,
					      const srt_place_t places[12]);
void srt_cuda_fast_kernels_free(srt_cuda_device_t *device);

/* fast_trial.c. Before the first attention on tensor cores in a type on a stream that is not the
 * trial's: tries it. SRT_ERR_UNSUPPORTED without fail() where the results are not near the portable
 * kernels', which the log says once; with SHARDRT_CUDA_TUNED=tiled that is an error, every time.
 * A trial that cannot be made is an error too, and made again by the next call. Thread-safe. */
srt_status_t srt_cuda_fast_try(srt_cuda_stream_t *stream, srt_dtype_t dtype);

/* Bytes of a stream's scratch that cuBLASLt wants for the product; 0: none, or not for it. */
size_t srt_cuda_fast_matmul_memory(srt_cuda_device_t *device, const srt_matmul_t *mm,
				   srt_dtype_t dtype);

#endif
