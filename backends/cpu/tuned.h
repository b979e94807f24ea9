/* SPDX-License-Identifier: BSD-3-Clause */
/* The slot of the work table that runs the tuned matrix product; see backends/backend.h. */
#ifndef SRT_BACKENDS_CPU_TUNED_H
#define SRT_BACKENDS_CPU_TUNED_H

#include "backends/backend.h"
#include "backends/cpu/matmul.h"

srt_status_t srt_cpu_put_matmul(void *stream, const srt_matmul_t *mm, srt_dtype_t dtype,
				const srt_place_t places[4], int exact);

#endif
