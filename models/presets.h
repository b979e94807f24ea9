/* SPDX-License-Identifier: BSD-3-Clause */
/* What the presets of families.c have, for GPTs of other sizes. */
#ifndef SRT_MODELS_PRESETS_H
#define SRT_MODELS_PRESETS_H

#include <shardrt/models/families.h>

/** The names of the presets' parameters: "blocks.0.attn.qkv.weight". */
extern const srt_decoder_names_t srt_decoder_preset_names;

/** What GPT-2 has but for sizes, qkv_bias and a tied head: members of a description. */
#define SRT_DECODER_GPT2                                                                           \
	.norm = SRT_DECODER_LAYERNORM, .norm_eps = 1e-5f, .act = SRT_GLU_GELU_TANH, .o_bias = 1,   \
	.ffn_bias = 1

/** SRT_DECODER_GPT2 with the presets' names. */
#define SRT_DECODER_GPT .names = &srt_decoder_preset_names, SRT_DECODER_GPT2

#endif
