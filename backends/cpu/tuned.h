/* SPDX-License-Identifier: BSD-3-Clause */
/* Slots of the work table that run the tuned matrix product and attention; see
 * backends/backend.h. */
#ifndef SRT_BACKENDS_CPU_TUNED_H
#define SRT_BACKENDS_CPU_TUNED_H

#include "backends/backend.h"
#include "backends/cpu/attention.h"
#include "backends/cpu/matmul.h"

srt_status_t srt_cpu_put_matmul(void *stream, const srt_matmul_t *mm, srt_dtype_t dtype,
				const srt_place_t places[4], int exact);
srt_status_t srt_cpu_put_attention(void *stream, const srt_attention_t *shape, srt_dtype_t dtype,
				   const srt_place_t places[7], int exact);
srt_status_t srt_cpu_put_attention_backward(void *stream, const srt_attention_t *shape,
					    srt_dtype_t dtype, const srt_place_t places[12],
					    int exact);

#endif
