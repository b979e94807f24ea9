/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One file of a text (text.h): open, with what is to be known of it, and its tokens on demand. It
 * stays open, so that it is there when its name is replaced.
 */
#ifndef SRT_MODELS_DATA_TEXT_FILE_H
#define SRT_MODELS_DATA_TEXT_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <shardrt/models/tokenizer.h>
#include <shardrt/status.h>

typedef struct srt_text_file {
	int fd;
	int are_tokens; /* a file of tokens, else of bytes */
	size_t nbytes;
	struct timespec written; /* the file's time of the last write */
	size_t first;            /* byte of the first token */
	size_t ntokens;
	int item;    /* bytes of a token: 1, 2 or 4 */
	int largest; /* byte of a text */
	uint64_t hash;
	char *path;
} srt_text_file_t;

/** "text" or "tokens", for messages. */
const char *srt_text_file_kind(int are_tokens);
/** FNV-1a by words of eight bytes, from `hash` on. */
uint64_t srt_text_hash_bytes(uint64_t hash, const void *bytes, size_t nbytes);
/** What it begins with. */
#define SRT_TEXT_HASH_INIT UINT64_C(14695981039346656037)

/** As srt_text_load() or srt_text_load_tokens(). To be closed also after a failure. */
srt_status_t srt_text_file_open(const char *path, int are_tokens, srt_text_file_t *file);
/** Opens a text and replaces it by its tokens, which are encoded once and kept in memory: later
 * changes of the file are not seen. To be closed also after a failure.
 * @return as srt_text_load() and srt_tokenizer_encode(), with the path. */
srt_status_t srt_text_file_encode(const char *path, const srt_tokenizer_t *tokenizer,
				  srt_text_file_t *file);
/** Frees what the file has. */
void srt_text_file_close(srt_text_file_t *file);
/** As srt_text_check_unchanged(). */
srt_status_t srt_text_file_check_unchanged(srt_text_file_t *file);
/**
 * Reads n tokens from token `start` and checks them against a vocabulary.
 * @param[out] ids n of them; NULL: they are only checked.
 * @return as srt_text_batch().
 */
srt_status_t srt_text_file_read(const srt_text_file_t *file, size_t start, size_t n, int64_t vocab,
				int32_t *ids);

#endif
