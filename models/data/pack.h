/* SPDX-License-Identifier: BSD-3-Clause */
/* Items of different lengths in rows of one capacity. */
#ifndef SRT_MODELS_DATA_PACK_H
#define SRT_MODELS_DATA_PACK_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/status.h>

/**
 * First fit: each item goes to the first row that has room for it. In about n log n steps.
 * @param lengths (n) from 1 to capacity, in the order in which they are placed.
 * @param[out] row (n) where each item is. @param[out] nrows
 * @return SRT_ERR_OUT_OF_MEMORY.
 */
srt_status_t srt_pack_first_fit(const int64_t *lengths, size_t n, int64_t capacity, size_t *row,
				size_t *nrows);

#endif
