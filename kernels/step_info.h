/* SPDX-License-Identifier: BSD-3-Clause */
/* The step state of a group, which kernels read, as programs see it: srt_step_info_t. */
#ifndef SRT_KERNELS_STEP_INFO_H
#define SRT_KERNELS_STEP_INFO_H

#include <shardrt/optimizer.h>

#include "kernels/args.h"

/* Fills a program's struct. */
srt_status_t srt_step_info_write(srt_step_info_t *info, const srt_k_step_state_t *state);

/* The state that goes on from a program's struct: found_inf is 0. */
srt_status_t srt_step_info_read(srt_k_step_state_t *state, const srt_step_info_t *info);

#endif
