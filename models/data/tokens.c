/* SPDX-License-Identifier: BSD-3-Clause */
/* See tokens.h. */
#include "models/data/tokens.h"

#include <inttypes.h>
#include <stdio.h>

#define MAGIC 20240520
#define VERSION 1

static uint32_t read_u32(const unsigned char *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

int srt_tokens_parse_header(const unsigned char *header, uint64_t file_nbytes, uint64_t *ntokens,
			    char *why, size_t nwhy)
{
	uint32_t magic, version, count;

	if (file_nbytes < SRT_TOKENS_HEADER_NBYTES) {
		snprintf(why, nwhy,
			 "it has %" PRIu64 " bytes, but the header of a file of tokens has %d",
			 file_nbytes, SRT_TOKENS_HEADER_NBYTES);
		return -1;
	}
	magic = read_u32(header);
	version = read_u32(header + 4);
	count = read_u32(header + 8);
	if (magic != MAGIC) {
		snprintf(
			why, nwhy,
			"it begins with %" PRIu32
			", not with %d: it is not a file of GPT-2 tokens as llm.c writes it (files "
			"without a header are not accepted)",
			magic, MAGIC);
		return -1;
	}
	if (version != VERSION) {
		snprintf(why, nwhy,
			 "it is a file of tokens of version %" PRIu32 ", but only %d is accepted",
			 version, VERSION);
		return -1;
	}
	if (file_nbytes - SRT_TOKENS_HEADER_NBYTES != (uint64_t)count * 2) {
		snprintf(why, nwhy,
			 "its header has %" PRIu32 " tokens of 2 bytes, but %" PRIu64
			 " bytes follow it",
			 count, file_nbytes - SRT_TOKENS_HEADER_NBYTES);
		return -1;
	}
	*ntokens = count;
	return 0;
}
