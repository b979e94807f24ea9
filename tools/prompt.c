/* SPDX-License-Identifier: BSD-3-Clause */
/* See prompt.h. */
#include "tools/prompt.h"

#include <inttypes.h>
#include <stdlib.h>

#include <shardrt/status.h>

#define NBYTE 256

/* The bytes as tokens. @return NULL without memory. */
static int32_t *copy_bytes(const char *text, size_t nbytes)
{
	int32_t *ids = malloc((nbytes + 1) * sizeof(*ids));

	for (size_t i = 0; ids != NULL && i < nbytes; i++)
		ids[i] = (unsigned char)text[i];
	return ids;
}

/* Whether the model has all tokens. */
static int check_ids(const char *name, const char *unit, const int32_t *ids, size_t nids,
		     int64_t vocab, tool_why_t *why)
{
	if (nids == 0)
		return tool_why_usage(why, "%s is empty: it has no token to begin with", name);
	for (size_t i = 0; i < nids; i++)
		if (ids[i] >= vocab)
			return tool_why_usage(why,
					      "%s has a %s of value %d, but the vocabulary has 0 "
					      ".. %" PRId64,
					      name, unit, (int)ids[i], vocab - 1);
	return 0;
}

int tool_encode_prompt(const srt_tokenizer_t *tokenizer, const char *name, const char *text,
		       size_t nbytes, int64_t vocab, int32_t **ids, size_t *nids, tool_why_t *why)
{
	int32_t *found = NULL;
	size_t n = nbytes;

	if (tokenizer == NULL) {
		found = copy_bytes(text, nbytes);
		if (found == NULL)
			return tool_why_failure(why, "no memory for the tokens of %s", name);
	} else if (srt_tokenizer_encode(tokenizer, text, nbytes, SRT_TOKENIZER_ADD_SPECIAL, &found,
					&n) != SRT_OK) {
		return tool_why_usage(why, "%s: %s", name, srt_error_last());
	}
	if (check_ids(name, tokenizer != NULL ? "token" : "byte", found, n, vocab, why) != 0) {
		free(found);
		return -1;
	}
	*ids = found;
	*nids = n;
	return 0;
}

int64_t tool_drawn_vocab(const srt_tokenizer_t *tokenizer, int64_t vocab)
{
	return tokenizer == NULL && vocab > NBYTE ? NBYTE : vocab;
}
