/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Input: a tokenizer.json, and after a zero byte a text. A tokenizer that is accepted encodes the
 * text and what is in every input, and decodes the ids.
 */
#include <shardrt/status.h>

#include "models/tokenizer_impl.h"
#include "tests/fuzz/fuzz.h"

/* The message, which names parts of the file, can be shown on a terminal. */
static void check_message(void)
{
	const char *message = srt_error_last();

	FUZZ_CHECK(message[0] != '\0');
	FUZZ_CHECK(srt_utf8_find_invalid(message, strlen(message)) == strlen(message));
	for (const char *c = message; *c != '\0'; c++)
		FUZZ_CHECK((unsigned char)*c >= 0x20 && *c != 0x7f);
}

static void check_decode(const srt_tokenizer_t *t, const int32_t *ids, size_t n)
{
	char *text;
	size_t nbytes;

	for (int skip = 0; skip < 2; skip++) {
		if (srt_tokenizer_decode(t, ids, n, skip, &text, &nbytes) != SRT_OK) {
			check_message();
			continue;
		}
		FUZZ_CHECK(text[nbytes] == '\0');
		FUZZ_CHECK(srt_utf8_find_invalid(text, nbytes) == nbytes);
		free(text);
	}
}

static void check_encode(const srt_tokenizer_t *t, const char *text, size_t nbytes)
{
	int32_t *ids;
	size_t n;

	if (srt_tokenizer_encode(t, text, nbytes, SRT_TOKENIZER_ADD_SPECIAL, &ids, &n) != SRT_OK) {
		check_message();
		return;
	}
	for (size_t i = 0; i < n; i++)
		FUZZ_CHECK(ids[i] >= 0 && ids[i] < srt_tokenizer_vocab_size(t));
	check_decode(t, ids, n);
	free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes)
{
	static const char sample[] = "ab  abc_d\xc3\xa9 e\xcc\x81 \xe4\xb8\xad 123<s>\r\n x";
	static const int32_t ids[] = { 0, 1, 2, 3, 4, 5, -1, 1 << 30, 6, 7, 8, 9 };
	char *text = fuzz_text(input, nbytes);
	const size_t length = strlen(text);
	srt_tokenizer_t *t = calloc(1, sizeof(*t));

	FUZZ_CHECK(t != NULL);
	if (srt_tokenizer_read(text, length, t) == SRT_OK) {
		check_encode(t, sample, sizeof(sample) - 1);
		if (length < nbytes)
			check_encode(t, text + length + 1, nbytes - length - 1);
		check_decode(t, ids, sizeof(ids) / sizeof(ids[0]));
		FUZZ_CHECK(srt_tokenizer_find(t, "a") < srt_tokenizer_vocab_size(t));
	} else {
		check_message();
	}
	srt_tokenizer_close(t);
	free(text);
	return 0;
}
