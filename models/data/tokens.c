/* SPDX-License-Identifier: BSD-3-Clause */
/* See tokens.h. */
#include "models/data/tokens.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAGIC_GPT2 20240520
#define MAGIC_LLAMA3 20240801

static const struct {
	uint32_t magic, version;
	int item;
} formats[] = {
	{ MAGIC_GPT2, 1, 2 },
	{ MAGIC_GPT2, 2, 4 },
	{ MAGIC_LLAMA3, 7, 4 },
};

static uint32_t read_u32(const unsigned char *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Whether all bytes are of ASCII text or of UTF-8. */
static int is_text(const unsigned char *head, size_t nbytes)
{
	for (size_t i = 0; i < nbytes; i++)
		if (head[i] < 0x20 && head[i] != '\n' && head[i] != '\t' && head[i] != '\r')
			return 0;
	return 1;
}

/* Tokens of 16 bits without a header. */
static int find_plain(const unsigned char *head, uint64_t file_nbytes, srt_tokens_t *tokens,
		      char *why, size_t nwhy)
{
	const size_t n = file_nbytes < SRT_TOKENS_HEADER_NBYTES ? (size_t)file_nbytes :
								  SRT_TOKENS_HEADER_NBYTES;

	if (is_text(head, n)) {
		snprintf(why, nwhy,
			 "it is text, not a file of tokens as llm.c or nanoGPT writes it: --text "
			 "takes a text");
		return -1;
	}
	if (file_nbytes % 2 != 0) {
		snprintf(why, nwhy,
			 "it has %" PRIu64 " bytes and not the header of llm.c: as tokens of 16 "
			 "bits, which nanoGPT writes, it would have an even number",
			 file_nbytes);
		return -1;
	}
	*tokens = (srt_tokens_t){ .ntokens = file_nbytes / 2, .item = 2 };
	return 0;
}

int srt_tokens_find(const unsigned char *head, uint64_t file_nbytes, srt_tokens_t *tokens,
		    char *why, size_t nwhy)
{
	const uint32_t magic = file_nbytes >= 4 ? read_u32(head) : 0;
	uint32_t version, count;
	int item = 0;

	if (magic != MAGIC_GPT2 && magic != MAGIC_LLAMA3)
		return find_plain(head, file_nbytes, tokens, why, nwhy);
	if (file_nbytes < SRT_TOKENS_HEADER_NBYTES) {
		snprintf(why, nwhy,
			 "it has %" PRIu64 " bytes, but the header of a file of tokens has %d",
			 file_nbytes, SRT_TOKENS_HEADER_NBYTES);
		return -1;
	}
	version = read_u32(head + 4);
	count = read_u32(head + 8);
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		if (formats[i].magic == magic && formats[i].version == version)
			item = formats[i].item;
	if (item == 0) {
		snprintf(why, nwhy,
			 "it is a file of tokens of version %" PRIu32 ", but only %s accepted",
			 version, magic == MAGIC_GPT2 ? "1 and 2 are" : "7 is");
		return -1;
	}
	if (file_nbytes - SRT_TOKENS_HEADER_NBYTES != (uint64_t)count * (uint64_t)item) {
		snprintf(why, nwhy,
			 "its header has %" PRIu32 " tokens of %d bytes, but %" PRIu64
			 " bytes follow it",
			 count, item, file_nbytes - SRT_TOKENS_HEADER_NBYTES);
		return -1;
	}
	*tokens =
		(srt_tokens_t){ .ntokens = count, .first = SRT_TOKENS_HEADER_NBYTES, .item = item };
	return 0;
}

static void write_u32(uint32_t v, unsigned char *p)
{
	for (int i = 0; i < 4; i++)
		p[i] = (unsigned char)(v >> 8 * i);
}

void srt_tokens_make_header(uint64_t ntokens, int item, unsigned char *head)
{
	memset(head, 0, SRT_TOKENS_HEADER_NBYTES);
	write_u32(item == 2 ? MAGIC_GPT2 : MAGIC_LLAMA3, head);
	write_u32(item == 2 ? 1 : 7, head + 4);
	write_u32((uint32_t)ntokens, head + 8);
}
