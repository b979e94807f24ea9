/* SPDX-License-Identifier: BSD-3-Clause */
/* The tuned matrix product and attention, as commands (work.c), and functions of both files. */
#ifndef SRT_BACKENDS_CPU_TUNED_H
#define SRT_BACKENDS_CPU_TUNED_H

#include "backends/cpu/cpu.h"

/* The number of parts for a command of this size. */
int srt_cpu_tuned_parts(const srt_cpu_device_t *device, double multiplications);
/* Whether tuned versions support this dtype and have passed their self-test. */
bool srt_cpu_has_tuned(srt_cpu_stream_t *stream, srt_dtype_t dtype);

/* tuned.c. Whether there is a tuned version for the command; runs it. */
bool srt_cpu_can_matmul(srt_cpu_stream_t *stream, const srt_command_t *command);
srt_status_t srt_cpu_run_matmul(srt_cpu_stream_t *stream, const srt_command_t *command);
/* Slot of backend.h. */
size_t srt_cpu_scratch(void *device, const srt_command_t *command);

/* tuned_attention.c. The same for both passes of attention. */
bool srt_cpu_can_attention(srt_cpu_stream_t *stream, const srt_command_t *command);
srt_status_t srt_cpu_run_attention(srt_cpu_stream_t *stream, const srt_command_t *command);
/* Bytes of a stream's scratch that they need. */
size_t srt_cpu_attention_memory(const srt_cpu_device_t *device, const srt_command_t *command);

#endif
