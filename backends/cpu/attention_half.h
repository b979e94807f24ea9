/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tuned attention (attention.h) of 16-bit tensors: each head is widened to floats in scratch and
 * computed in fp32; its results are rounded once on store. The statistics are floats. Called by the
 * backend's attention slots.
 */
#ifndef SRT_BACKENDS_CPU_ATTENTION_HALF_H
#define SRT_BACKENDS_CPU_ATTENTION_HALF_H

#include "backends/cpu/attention.h"
#include "backends/cpu/half.h"

typedef struct srt_cpu_attention_half {
	srt_cpu_half_t casts;
	srt_cpu_attention_t at; /* its float tensors except stats are NULL, replaced by these: */
	const uint16_t *q, *k, *v, *dout;
	uint16_t *out, *dq, *dk, *dv;
} srt_cpu_attention_half_t;

/* As the functions of attention.h. */
size_t srt_cpu_attention_half_scratch(const srt_cpu_gemm_t *gemm,
				      const srt_cpu_attention_half_t *half);
size_t srt_cpu_attention_half_backward_scratch(const srt_cpu_gemm_t *gemm,
					       const srt_cpu_attention_half_t *half);
void srt_cpu_attention_half(const srt_cpu_gemm_t *gemm, const srt_cpu_attention_half_t *half,
			    int part, int nparts, void *scratch);
void srt_cpu_attention_half_backward(const srt_cpu_gemm_t *gemm,
				     const srt_cpu_attention_half_t *half, int part, int nparts,
				     void *scratch);

#endif
