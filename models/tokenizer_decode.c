/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Decoding: ids -> text. The decoding steps turn one list of strings into another; the text is the
 * last list, joined.
 */
#include <stdlib.h>
#include <string.h>

#include "models/tokenizer_impl.h"
#include "models/try.h"

/* Strings, joined. */
typedef struct {
	srt_string_t text;
	size_t *ends; /* (n) where each ends */
	size_t n, capacity;
} list_t;

/* Ends a string at the end of the text. */
static srt_status_t end_string(list_t *list)
{
	if (list->n == list->capacity) {
		const size_t capacity = 2 * list->capacity + 64;
		size_t *grown = realloc(list->ends, capacity * sizeof(*grown));

		if (grown == NULL)
			return srt_model_fail(SRT_ERR_OUT_OF_MEMORY,
					      "no host memory to decode %zu tokens", capacity);
		list->ends = grown;
		list->capacity = capacity;
	}
	list->ends[list->n++] = list->text.nbytes;
	return SRT_OK;
}

static void clear_list(list_t *list)
{
	free(list->text.data);
	free(list->ends);
	*list = (list_t){ .n = 0 };
}

/* String i. */
static const char *get_string(const list_t *list, size_t i, size_t *nbytes)
{
	const size_t start = i > 0 ? list->ends[i - 1] : 0;

	*nbytes = list->ends[i] - start;
	return list->text.data + start;
}

/* Appends bytes, each invalid part as U+FFFD. */
static srt_status_t append_lossy(srt_string_t *out, const char *text, size_t nbytes)
{
	uint32_t c;

	for (size_t i = 0; i < nbytes;) {
		const int n = srt_utf8_decode(text + i, nbytes - i, &c);

		SRT_TRY(n > 0 ? srt_string_append(out, text + i, (size_t)n) :
				srt_string_append(out, "\xef\xbf\xbd", 3));
		i += (size_t)(n > 0 ? n : -n);
	}
	return SRT_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* The bytes of the characters of a token; its own bytes if one of them is of no byte. */
static srt_status_t append_bytes(srt_string_t *out, const char *text, size_t nbytes)
{
	const size_t from = out->nbytes;
	uint32_t c;
	int n;

	SRT_TRY(srt_string_reserve(out, nbytes));
	for (size_t i = 0; i < nbytes; i += (size_t)n) {
		int byte = -1;

		n = srt_utf8_decode(text + i, nbytes - i, &c);
		if (n > 0)
			byte = srt_byte_of_char(c);
		if (byte < 0) {
			out->nbytes = from;
			return srt_string_append(out, text, nbytes);
		}
		out->data[out->nbytes++] = (char)byte;
	}
	return SRT_OK;
}

static srt_status_t decode_byte_level(const srt_tokenizer_step_t *step, srt_matcher_t *matcher,
				      const list_t *in, list_t *out)
{
	srt_string_t bytes = { .nbytes = 0 };
	srt_status_t status = SRT_OK;

	(void)step, (void)matcher;
	for (size_t i = 0; i < in->n && status == SRT_OK; i++) {
		size_t nbytes;
		const char *text = get_string(in, i, &nbytes);

		status = append_bytes(&bytes, text, nbytes);
	}
	if (status == SRT_OK)
		status = append_lossy(&out->text, bytes.data, bytes.nbytes);
	free(bytes.data);
	return status == SRT_OK ? end_string(out) : status;
}

/* The byte of a token <0xNN>; -1 for another one. */
static int read_byte_token(const char *text, size_t nbytes)
{
	char digits[3] = "";
	char *end;
	long value;

	if (nbytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
		return -1;
	memcpy(digits, text + 3, 2);
	if (strspn(digits, "0123456789abcdefABCDEF") != 2)
		return -1;
	value = strtol(digits, &end, 16);
	return (int)value;
}

/* Bytes of neighbouring tokens become a text; one U+FFFD for each if they are not UTF-8. */
static srt_status_t flush_bytes(srt_string_t *bytes, list_t *out)
{
	const size_t n = bytes->nbytes;

	bytes->nbytes = 0;
	if (n == 0)
		return SRT_OK;
	if (srt_utf8_find_invalid(bytes->data, n) == n) {
		SRT_TRY(srt_string_append(&out->text, bytes->data, n));
		return end_string(out);
	}
	for (size_t i = 0; i < n; i++) {
		SRT_TRY(srt_string_append(&out->text, "\xef\xbf\xbd", 3));
		SRT_TRY(end_string(out));
	}
	return SRT_OK;
}

static srt_status_t decode_byte_fallback(const srt_tokenizer_step_t *step, srt_matcher_t *matcher,
					 const list_t *in, list_t *out)
{
	srt_string_t bytes = { .nbytes = 0 };
	srt_status_t status = SRT_OK;

	(void)step, (void)matcher;
	for (size_t i = 0; i < in->n && status == SRT_OK; i++) {
		size_t nbytes;
		const char *text = get_string(in, i, &nbytes);
		const int byte = read_byte_token(text, nbytes);
		const char b = (char)byte;

		if (byte >= 0) {
			status = srt_string_append(&bytes, &b, 1);
			continue;
		}
		status = flush_bytes(&bytes, out);
		if (status == SRT_OK)
			status = srt_string_append(&out->text, text, nbytes);
		if (status == SRT_OK)
			status = end_string(out);
	}
	if (status == SRT_OK)
		status = flush_bytes(&bytes, out);
	free(bytes.data);
	return status;
}

static srt_status_t decode_replace(const srt_tokenizer_step_t *step, srt_matcher_t *matcher,
				   const list_t *in, list_t *out)
{
	for (size_t i = 0; i < in->n; i++) {
		size_t nbytes;
		const char *text = get_string(in, i, &nbytes);

		SRT_TRY(srt_tokenizer_replace(step, matcher, text, nbytes, &out->text));
		SRT_TRY(end_string(out));
	}
	return SRT_OK;
}

/* The step's character is a blank, or nothing in the first token if encoding put one there. */
static srt_status_t decode_metaspace(const srt_tokenizer_step_t *step, srt_matcher_t *matcher,
				     const list_t *in, list_t *out)
{
	srt_tokenizer_step_t replace = *step;
	char blank[] = " ";

	for (size_t i = 0; i < in->n; i++) {
		size_t nbytes;
		const char *text = get_string(in, i, &nbytes);

		replace.text = (srt_string_t){ .data = blank, .nbytes = 1 };
		if (i == 0 && step->prepend != SRT_PREPEND_NEVER)
			replace.text.nbytes = 0;
		SRT_TRY(srt_tokenizer_replace(&replace, matcher, text, nbytes, &out->text));
		SRT_TRY(end_string(out));
	}
	return SRT_OK;
}

static srt_status_t decode_fuse(const srt_tokenizer_step_t *step, srt_matcher_t *matcher,
				const list_t *in, list_t *out)
{
	(void)step, (void)matcher;
	SRT_TRY(srt_string_append(&out->text, in->text.data, in->text.nbytes));
	return end_string(out);
}

static srt_status_t decode_strip(const srt_tokenizer_step_t *step, srt_matcher_t *matcher,
				 const list_t *in, list_t *out)
{
	const size_t n = step->text.nbytes;

	(void)matcher;
	for (size_t i = 0; i < in->n; i++) {
		size_t nbytes;
		const char *text = get_string(in, i, &nbytes);

		for (size_t k = 0; k < step->start && nbytes >= n; k++) {
			if (memcmp(text, step->text.data, n) != 0)
				break;
			text += n;
			nbytes -= n;
		}
		for (size_t k = 0; k < step->stop && nbytes >= n; k++) {
			if (memcmp(text + nbytes - n, step->text.data, n) != 0)
				break;
			nbytes -= n;
		}
		SRT_TRY(srt_string_append(&out->text, text, nbytes));
		SRT_TRY(end_string(out));
	}
	return SRT_OK;
}

static srt_status_t (*const decoders[])(const srt_tokenizer_step_t *step, srt_matcher_t *matcher,
					const list_t *in, list_t *out) = {
	[SRT_STEP_REPLACE] = decode_replace,     [SRT_STEP_BYTE_LEVEL] = decode_byte_level,
	[SRT_STEP_METASPACE] = decode_metaspace, [SRT_STEP_BYTE_FALLBACK] = decode_byte_fallback,
	[SRT_STEP_FUSE] = decode_fuse,           [SRT_STEP_STRIP] = decode_strip,
};

/* ---- the call -------------------------------------------------------------------------------- */

/* Lists the texts of the tokens. Without a decoder a blank is between them. */
static srt_status_t list_tokens(const srt_tokenizer_t *t, const int32_t *ids, size_t nids,
				bool skip_special, list_t *list)
{
	for (size_t i = 0; i < nids; i++) {
		const int32_t id = ids[i];
		const srt_bpe_token_t *token;

		if (id < 0 || (size_t)id >= t->nids || (skip_special && t->special[id]))
			continue;
		token = &t->bpe.tokens[id];
		if (t->added[id].data == NULL && token->nbytes == 0)
			continue;
		if (!t->has_decoder && list->n > 0)
			SRT_TRY(srt_string_append(&list->text, " ", 1));
		SRT_TRY(t->added[id].data != NULL ?
				srt_string_append(&list->text, t->added[id].data,
						  t->added[id].nbytes) :
				srt_string_append(&list->text, t->bpe.text.data + token->offset,
						  token->nbytes));
		SRT_TRY(end_string(list));
	}
	return SRT_OK;
}

static srt_status_t run_decoder(const srt_tokenizer_t *t, list_t *list)
{
	srt_matcher_t *matcher;
	srt_status_t status = srt_matcher_create(&matcher);

	SRT_TRY(status);
	for (size_t i = 0; i < t->decoder.n && status == SRT_OK; i++) {
		list_t out = { .n = 0 };

		status =
			decoders[t->decoder.step[i].kind](&t->decoder.step[i], matcher, list, &out);
		clear_list(list);
		*list = out;
	}
	srt_matcher_destroy(matcher);
	return status;
}

srt_status_t srt_tokenizer_decode(const srt_tokenizer_t *tokenizer, const int32_t *ids, size_t nids,
				  int skip_special, char **text, size_t *nbytes)
{
	list_t list = { .n = 0 };
	srt_status_t status;

	if (tokenizer == NULL || (ids == NULL && nids > 0) || text == NULL || nbytes == NULL)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "srt_tokenizer_decode: tokenizer, ids, text or nbytes is "
				      "NULL");
	status = list_tokens(tokenizer, ids, nids, skip_special != 0, &list);
	if (status == SRT_OK)
		status = run_decoder(tokenizer, &list);
	if (status == SRT_OK)
		status = srt_string_append(&list.text, "", 1);
	if (status == SRT_OK) {
		*text = list.text.data;
		*nbytes = list.text.nbytes - 1;
		list.text.data = NULL;
	}
	clear_list(&list);
	return status;
}
