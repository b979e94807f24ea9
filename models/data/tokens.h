/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files of tokens. As llm.c writes them: a header of 256 32-bit integers, little-endian, of which
 * the first three are a magic number, a version and the number of tokens; then the tokens.
 *
 *     20240520, version 1     16 bits (GPT-2)
 *     20240520, version 2     32 bits
 *     20240801, version 7     32 bits (Llama 3)
 *
 * As nanoGPT writes them: 16 bits each, without a header. Such a file is known by what it is not:
 * no text, and no header of the others.
 */
#ifndef SRT_MODELS_DATA_TOKENS_H
#define SRT_MODELS_DATA_TOKENS_H

#include <stddef.h>
#include <stdint.h>

/** Bytes of a header. */
#define SRT_TOKENS_HEADER_NBYTES 1024

/** Where the tokens of a file are. */
typedef struct srt_tokens {
	uint64_t ntokens;
	size_t first; /* byte of the first token */
	int item;     /* bytes of a token: 2 or 4 */
} srt_tokens_t;

/**
 * Finds the tokens of a file.
 * @param head the file's first bytes: SRT_TOKENS_HEADER_NBYTES, or all if there are fewer.
 * @param file_nbytes of the file.
 * @param[out] tokens set on success only. @param[out] why the error message, nwhy bytes.
 * @return 0, or -1: a version that is not known, a file size that does not match the number of
 *         tokens, or a file of another kind.
 */
int srt_tokens_find(const unsigned char *head, uint64_t file_nbytes, srt_tokens_t *tokens,
		    char *why, size_t nwhy);

/** Makes the header of llm.c for ntokens (below 2^32) tokens of 16 or 32 bits (Llama 3).
 * @param item bytes of a token: 2 or 4. @param[out] head SRT_TOKENS_HEADER_NBYTES. */
void srt_tokens_make_header(uint64_t ntokens, int item, unsigned char *head);

#endif
