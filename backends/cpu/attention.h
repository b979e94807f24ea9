/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tuned attention of the CPU backend, equal bit for bit to docs/numerics.md, "Attention": exact row
 * maximum first, row sum in the row shape, chains over rising positions, masked terms skipped, no
 * online rescaling. All of it is in fp32: tensors of 16 bits are widened as they are packed, a few
 * rows or one head at a time, and results are rounded once.
 *
 * Pure functions on host memory, like matmul.h: the bits depend neither on nparts nor on the
 * instruction set. Called by the backend's attention slots.
 */
#ifndef SRT_BACKENDS_CPU_ATTENTION_H
#define SRT_BACKENDS_CPU_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

#include "backends/cpu/matmul.h"

/* An attention on host memory. */
typedef struct srt_cpu_attention {
	srt_k_attention_t shape;
	srt_dtype_t dtype; /* of the tensors but stats: SRT_F32, SRT_F16, SRT_BF16 */
	const void *q, *k, *v;
	const int32_t *lengths;    /* (batch) keys of each item, or NULL */
	const unsigned char *mask; /* (batch,keys), 0 hides a key; or NULL. Not with `first` */
	const int32_t *first;      /* (batch,queries) first key of each query, or NULL */
	void *out;    /* (batch,queries,heads*head_dim); of SRT_F32 read by the backward pass */
	float *stats; /* (batch,heads,queries,2) row maximum, row sum; read by the backward pass */
	const void *dout;   /* backward: as out */
	void *dq, *dk, *dv; /* backward; NULL = not computed */
} srt_cpu_attention_t;

/* Bytes of scratch, aligned to 64, that each part that runs at a time needs. */
size_t srt_cpu_attention_scratch(const srt_cpu_gemm_t *gemm, const srt_cpu_attention_t *at);
size_t srt_cpu_attention_backward_scratch(const srt_cpu_gemm_t *gemm,
					  const srt_cpu_attention_t *at);

/* Compute part `part` of `nparts` (0 <= part < nparts); parts beyond batch * heads, backward
 * batch * kv_heads, are empty. */
void srt_cpu_attention(const srt_cpu_gemm_t *gemm, const srt_cpu_attention_t *at, int part,
		       int nparts, void *scratch);
void srt_cpu_attention_backward(const srt_cpu_gemm_t *gemm, const srt_cpu_attention_t *at, int part,
				int nparts, void *scratch);

#endif
