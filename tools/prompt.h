/* SPDX-License-Identifier: BSD-3-Clause */
/* The tokens of a prompt. */
#ifndef SRT_TOOLS_PROMPT_H
#define SRT_TOOLS_PROMPT_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/models/tokenizer.h>

#include "tools/why.h"

/**
 * Encodes a prompt: by a tokenizer, with the tokens of its template, such as one at the beginning;
 * without one, bytes are the tokens.
 * @param name of the prompt, for messages. @param vocab of the model.
 * @param[out] ids (nids), nids >= 1, freed by the caller; set on success only.
 * @return 0, or -1 with *why: it has no tokens, or one that the model does not have, or the text is
 *         not UTF-8.
 */
int tool_encode_prompt(const srt_tokenizer_t *tokenizer, const char *name, const char *text,
		       size_t nbytes, int64_t vocab, int32_t **ids, size_t *nids, tool_why_t *why);

/** The tokens that may be drawn, srt_sampling_t.vocab: without a tokenizer those that are bytes. */
int64_t tool_drawn_vocab(const srt_tokenizer_t *tokenizer, int64_t vocab);

#endif
