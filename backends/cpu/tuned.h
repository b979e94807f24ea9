/* SPDX-License-Identifier: BSD-3-Clause */
/* Slots of the work table that run the tuned matrix product and attention (see
 * backends/backend.h), and what their two files share. */
#ifndef SRT_BACKENDS_CPU_TUNED_H
#define SRT_BACKENDS_CPU_TUNED_H

#include "backends/cpu/cpu.h"

/* Host address of a place; NULL = absent. */
void *srt_cpu_tensor(const srt_place_t *place);
/* Into how many parts, of the size of the whole. */
int srt_cpu_tuned_parts(const srt_cpu_device_t *device, double multiplications);
/* Whether tuned versions take tensors of this dtype and have passed their self-test. */
bool srt_cpu_has_tuned(srt_cpu_stream_t *stream, srt_dtype_t dtype);

srt_status_t srt_cpu_put_matmul(void *stream, const srt_matmul_t *mm, srt_dtype_t dtype,
				const srt_place_t places[4], int exact);
srt_status_t srt_cpu_put_attention(void *stream, const srt_attention_t *shape, srt_dtype_t dtype,
				   const srt_place_t places[7], int exact);
srt_status_t srt_cpu_put_attention_backward(void *stream, const srt_attention_t *shape,
					    srt_dtype_t dtype, const srt_place_t places[12],
					    int exact);
/* What a stream keeps for them. */
size_t srt_cpu_matmul_memory(void *device, const srt_matmul_t *mm, srt_dtype_t dtype, int exact);
size_t srt_cpu_attention_memory(void *device, const srt_attention_t *shape, srt_dtype_t dtype,
				int backward, int masked, int exact);

#endif
