/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The header of a file of tokens, as llm.c writes it: 256 32-bit integers, little-endian, of which
 * the first three are 20240520, 1 and the number of tokens; then the tokens, 16 bits each.
 */
#ifndef SRT_MODELS_DATA_TOKENS_H
#define SRT_MODELS_DATA_TOKENS_H

#include <stddef.h>
#include <stdint.h>

/** Bytes of the header. */
#define SRT_TOKENS_HEADER_NBYTES 1024

/**
 * Checks a header.
 * @param header the file's first bytes: SRT_TOKENS_HEADER_NBYTES, or all if there are fewer.
 * @param file_nbytes of the file.
 * @param[out] ntokens set on success only. @param[out] why the error message, nwhy bytes.
 * @return 0, or -1: another magic number or version, or a file size that does not match
 *         the number of tokens.
 */
int srt_tokens_parse_header(const unsigned char *header, uint64_t file_nbytes, uint64_t *ntokens,
			    char *why, size_t nwhy);

#endif
