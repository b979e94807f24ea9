/* SPDX-License-Identifier: BSD-3-Clause */
/* The kinds of tokenizers that readers of GGUF know, for gguf_tokenizer.c. Needs jansson. */
#ifndef SRT_MODELS_GGUF_PRE_H
#define SRT_MODELS_GGUF_PRE_H

#include <jansson.h>

#include "models/tokenizer_impl.h"

/** The kind of a tokenizer; strings are static. */
typedef struct srt_gguf_pre {
	const char *model; /* tokenizer.ggml.model: "gpt2" is byte-level, "llama" with fallback */
	const char *pre;   /* tokenizer.ggml.pre: how a text is cut */
	bool add_space;    /* llama: a blank is put before a text */
} srt_gguf_pre_t;

/**
 * Finds the kind by the steps of a tokenizer.json.
 * @param root of the file, which srt_tokenizer_open() has accepted as t.
 * @return SRT_ERR_UNSUPPORTED, with the step that readers do not have.
 */
srt_status_t srt_gguf_find_pre(const json_t *root, const srt_tokenizer_t *t, srt_gguf_pre_t *pre);

#endif
