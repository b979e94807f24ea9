/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Matrix products of numerics mode fast, of SRT_F32 or SRT_BF16 tensors: oneDNN with bf16 operands
 * and fp32 sums, on processors that multiply bf16. oneDNN is loaded when a device is opened in that
 * mode, so programs do not link to it. Called by device.c and tuned.c.
 */
#ifndef SRT_BACKENDS_CPU_ONEDNN_H
#define SRT_BACKENDS_CPU_ONEDNN_H

#include <shardrt/status.h>

#include "backends/cpu/matmul.h"
#include "backends/cpu/pool.h"

typedef struct srt_cpu_onednn srt_cpu_onednn_t;

/* Loads oneDNN. NULL if the build, the processor or the installation does not support it; the last
 * error says why. */
srt_cpu_onednn_t *srt_cpu_onednn_open(void);
void srt_cpu_onednn_close(srt_cpu_onednn_t *dnn);

/* Whether oneDNN supports this product, and is worth the conversions. */
int srt_cpu_onednn_takes(const srt_cpu_matmul_t *mm);

/* Bytes of scratch for it, aligned to 64: floats rounded to bf16; 0 for tensors of bf16. */
size_t srt_cpu_onednn_scratch(const srt_cpu_matmul_t *mm);

/* Runs it on all threads of the pool. scratch: NULL if it needs none. */
srt_status_t srt_cpu_onednn_matmul(srt_cpu_onednn_t *dnn, srt_cpu_pool_t *pool,
				   const srt_cpu_matmul_t *mm, void *scratch);

#endif
