/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counter-based random bits on the host: windows of text (text.c), draws of a sample (generate.c),
 * the seed of a step's dropout (layer_dropout.c).
 */
#ifndef SRT_MODELS_HASH_H
#define SRT_MODELS_HASH_H

#include <stdint.h>

/** The counter-based hash: 64 well-mixed bits of three numbers. */
uint64_t srt_counter_hash(uint64_t a, uint64_t b, uint64_t c);

#endif
