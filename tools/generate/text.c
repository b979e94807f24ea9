/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The text of tokens as they come; see generate.h. The decoders of a tokenizer look at neighbouring
 * tokens, so a token is decoded after those before it: what they have in common is cut off.
 */
#include <stdlib.h>
#include <string.h>

#include "models/try.h"
#include "tools/generate/generate.h"

/* U+FFFD, to which a part of a character is decoded too. */
#define REPLACEMENT "\xef\xbf\xbd"

void generate_text_start(generate_text_t *text, size_t nprompt)
{
	text->to = nprompt;
}

/* Appends bytes, which are the tokens. */
static srt_status_t add_bytes(generate_text_t *t, const int32_t *ids, size_t n)
{
	for (; t->to < n; t->to++) {
		const char byte = (char)ids[t->to];

		SRT_TRY(srt_string_append(&t->text, &byte, 1));
	}
	return SRT_OK;
}

/* Appends what the tokens add to the text of those before, unless it ends within a character. */
static srt_status_t add_decoded(const srt_tokenizer_t *tokenizer, generate_text_t *t,
				const int32_t *ids, size_t n, bool last)
{
	const size_t nreplacement = strlen(REPLACEMENT);
	char *before, *now;
	size_t nbefore, nnow;
	srt_status_t status;
	bool is_whole;

	SRT_TRY(srt_tokenizer_decode(tokenizer, ids + t->from, t->to - t->from, 1, &before,
				     &nbefore));
	free(before);
	SRT_TRY(srt_tokenizer_decode(tokenizer, ids + t->from, n - t->from, 1, &now, &nnow));
	is_whole = nnow < nreplacement ||
		   memcmp(now + nnow - nreplacement, REPLACEMENT, nreplacement) != 0;
	status = SRT_OK;
	if (nnow > nbefore && (is_whole || last)) {
		status = srt_string_append(&t->text, now + nbefore, nnow - nbefore);
		t->from = t->to;
		t->to = n;
	}
	free(now);
	return status;
}

/* The first --stop in the text, where bytes from `from` on are new; the text's end: none. */
static size_t find_stop(const tool_texts_t *stop, const srt_string_t *text, size_t from)
{
	size_t first = text->nbytes;

	for (int i = 0; i < stop->n; i++) {
		const size_t n = strlen(stop->text[i]);

		for (size_t at = from > n ? from - n : 0; at + n <= text->nbytes && at < first;
		     at++)
			if (memcmp(text->data + at, stop->text[i], n) == 0)
				first = at;
	}
	return first;
}

/* Whether a --stop begins with the bytes of the text from `at` on. */
static bool may_stop(const tool_texts_t *stop, const srt_string_t *text, size_t at)
{
	for (int i = 0; i < stop->n; i++)
		if (strlen(stop->text[i]) > text->nbytes - at &&
		    memcmp(text->data + at, stop->text[i], text->nbytes - at) == 0)
			return true;
	return false;
}

/* The end of the last whole character. Bytes that are no UTF-8 are whole. */
static size_t find_whole(const srt_string_t *text)
{
	const size_t n = text->nbytes;

	for (size_t back = 1; back <= 3 && back <= n; back++) {
		const unsigned char c = (unsigned char)text->data[n - back];

		if (c >= 0xc0)
			return back < (c >= 0xf0 ? 4u : c >= 0xe0 ? 3u : 2u) ? n - back : n;
		if (c < 0x80)
			return n;
	}
	return n;
}

srt_status_t generate_text_add(const generate_run_t *run, generate_text_t *t, const int32_t *ids,
			       size_t n, bool last)
{
	const tool_texts_t *stop = &run->opt.stop;
	const size_t had = t->text.nbytes;
	size_t end;

	if (t->stopped)
		return SRT_OK;
	SRT_TRY(run->tokenizer != NULL ? add_decoded(run->tokenizer, t, ids, n, last) :
					 add_bytes(t, ids, n));
	end = find_stop(stop, &t->text, had);
	t->stopped = end < t->text.nbytes;
	t->text.nbytes = end;
	if (!last && !t->stopped) {
		size_t at = t->shown;

		end = find_whole(&t->text);
		while (at < end && !may_stop(stop, &t->text, at))
			at++;
		end = at;
	}
	t->shown = end;
	return SRT_OK;
}
