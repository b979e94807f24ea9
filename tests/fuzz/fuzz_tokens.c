/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Input: the first bytes of a file of tokens. The file has as many bytes as the input, or a header
 * and the tokens that the input claims.
 */
#include "models/data/tokens.h"
#include "tests/fuzz/fuzz.h"

static void parse(const uint8_t *header, uint64_t file_nbytes)
{
	char why[256] = "";
	srt_tokens_t tokens = { .item = -1 };

	if (srt_tokens_find(header, file_nbytes, &tokens, why, sizeof(why)) == 0) {
		FUZZ_CHECK(tokens.item == 2 || tokens.item == 4);
		FUZZ_CHECK(tokens.first == 0 || tokens.first == SRT_TOKENS_HEADER_NBYTES);
		FUZZ_CHECK(file_nbytes == tokens.first + (uint64_t)tokens.item * tokens.ntokens);
		FUZZ_CHECK(why[0] == '\0');
		return;
	}
	FUZZ_CHECK(tokens.item == -1);
	FUZZ_CHECK(why[0] != '\0' && strlen(why) < sizeof(why) - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes)
{
	/* Exactly the input, so that ASan sees a read past its end. */
	uint8_t *bytes = malloc(nbytes > 0 ? nbytes : 1), header[SRT_TOKENS_HEADER_NBYTES] = { 0 };
	uint32_t count;

	FUZZ_CHECK(bytes != NULL);
	if (nbytes > 0)
		memcpy(bytes, input, nbytes);
	parse(bytes, nbytes);
	memcpy(header, bytes, nbytes < sizeof(header) ? nbytes : sizeof(header));
	memcpy(&count, header + 8, sizeof(count));
	parse(header, sizeof(header) + 2 * (uint64_t)count);
	parse(header, sizeof(header) + 4 * (uint64_t)count);
	parse(header, sizeof(header) + 2 * (uint64_t)count + 1);
	free(bytes);
	return 0;
}
