/* SPDX-License-Identifier: BSD-3-Clause */
/* The row of a family (families.c), which families_config.c reads a config.json by. */
#ifndef SRT_MODELS_FAMILIES_IMPL_H
#define SRT_MODELS_FAMILIES_IMPL_H

#include <shardrt/models/families.h>

/** Projections that attention_bias and mlp_bias are about. */
enum { FAMILY_BIAS_QKV = 1, FAMILY_BIAS_O = 2, FAMILY_BIAS_MLP = 4 };

/** The layers with a window: none, all, those from max_window_layers on if use_sliding_window, all
 * but each sliding_window_pattern-th. */
typedef enum family_windows {
	FAMILY_WINDOW_NONE = 0,
	FAMILY_WINDOW_ALL,
	FAMILY_WINDOW_LAST,
	FAMILY_WINDOW_PATTERN
} family_windows_t;

/** Sizes that each config.json has. */
enum { FAMILY_WIDTH, FAMILY_LAYERS, FAMILY_HEADS, FAMILY_CONTEXT, FAMILY_FFN, FAMILY_SIZES };

/** Keys that only one family has. */
typedef enum family_keys {
	FAMILY_KEYS_NONE = 0,
	FAMILY_KEYS_GEMMA3,
	FAMILY_KEYS_GPT_NEOX,
	FAMILY_KEYS_GPT2
} family_keys_t;

struct srt_family {
	const char *name;
	srt_decoder_config_t config;         /* what no key changes, and values of missing keys */
	const char *act_key;                 /* NULL: hidden_act */
	const char *eps_key;                 /* NULL: rms_norm_eps */
	const char *size_keys[FAMILY_SIZES]; /* NULL: those of Llama */
	int biases;
	family_windows_t windows;
	int has_padding; /* pad_token_id is the embedding's padding_idx */
	int transposed;  /* matrices of blocks, in files */
	int interleaved; /* rows of the joint projection are by head, in files */
	family_keys_t keys;
};

#endif
