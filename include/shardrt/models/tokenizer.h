/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tokenizers of Hugging Face (tokenizer.json): byte-level BPE, and BPE with byte fallback. Of
 * libshardrt-models, whose interface may change in every version.
 *
 * The ids and texts are those of the Python package tokenizers 0.23, and the ids of added tokens
 * those of the file. It may have
 *
 *     normalizers      NFC, NFD, NFKC, NFKD, Prepend, Replace
 *     pre-tokenizers   ByteLevel, Digits, Metaspace, Punctuation, Split
 *     post-processors  ByteLevel, TemplateProcessing
 *     decoders         ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip
 *
 * and sequences of them. What else a file asks for is refused by name. Regular expressions are
 * translated for PCRE2, and normal forms are made by utf8proc: characters that are newer than their
 * tables of Unicode are not letters.
 *
 * A tokenizer does not change after it was opened: threads may use it concurrently.
 */
#ifndef SHARDRT_MODELS_TOKENIZER_H
#define SHARDRT_MODELS_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/export.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** An open tokenizer. Opaque. */
typedef struct srt_tokenizer srt_tokenizer_t;

/** Flags of srt_tokenizer_encode(). */
typedef enum srt_tokenizer_flags {
	/* the tokens of the file's template, such as a token of the beginning, are added */
	SRT_TOKENIZER_ADD_SPECIAL = 1
} srt_tokenizer_flags_t;

/**
 * Opens a tokenizer.
 * @param path of a tokenizer.json of at most 64 MiB, or of the folder that has it.
 * @param[out] tokenizer owned by the caller, freed by srt_tokenizer_close(); set on success only.
 * @return SRT_ERR_NOT_FOUND without such a file, SRT_ERR_IO if it cannot be read, SRT_ERR_FORMAT
 *         if it is malformed or contradicts itself, SRT_ERR_UNSUPPORTED for what is not
 *         implemented, or needs a package that the library was built without: jansson always,
 *         PCRE2 for regular expressions, utf8proc for Unicode normalization;
 *         SRT_ERR_INVALID_ARGUMENT for NULL, SRT_ERR_OUT_OF_MEMORY. Thread-safe.
 */
SRT_API srt_status_t srt_tokenizer_open(const char *path, srt_tokenizer_t **tokenizer);

/** Frees the tokenizer. NULL is allowed. */
SRT_API void srt_tokenizer_close(srt_tokenizer_t *tokenizer);

/**
 * Encodes a text. Added tokens in the text, such as <|im_end|>, become their ids; a character that
 * the tokenizer has no token for vanishes, as in the Python package.
 * @param text nbytes of UTF-8, at most 2^31 - 1 bytes; without a terminating zero.
 * @param flags of srt_tokenizer_flags_t, 0 for none.
 * @param[out] ids nids ids, which the caller frees by free(); NULL if nids is 0. Set on success
 *        only.
 * @return SRT_ERR_INVALID_ARGUMENT for NULL, for a text that is too long or not UTF-8, with the
 *         position; SRT_ERR_FORMAT if a regular expression of the file needs too many steps,
 *         SRT_ERR_OUT_OF_MEMORY. Thread-safe.
 */
SRT_API srt_status_t srt_tokenizer_encode(const srt_tokenizer_t *tokenizer, const char *text,
					  size_t nbytes, unsigned flags, int32_t **ids,
					  size_t *nids);

/** A part of a text whose parts are from several hands, such as a chat of users and a template. */
typedef struct srt_tokenizer_part {
	const char *text; /* nbytes of UTF-8; NULL: the part is the token `id` */
	size_t nbytes;
	int32_t id;
	int plain;    /* special tokens in this part are text; other added tokens are found */
	int cut;      /* no token has text before the part and of it */
	size_t first; /* set for parts with `cut` and for tokens: the index of its first id */
} srt_tokenizer_part_t;

/**
 * Encodes a text of several parts, as srt_tokenizer_encode() encodes all of it: words may begin in
 * one part and end in the next one that is not cut off. A special token is found within one part.
 * @param flags SRT_TOKENIZER_ADD_SPECIAL adds the tokens of the file's template before the text
 *        alone.
 * @return as srt_tokenizer_encode(); SRT_ERR_UNSUPPORTED for plain parts and a tokenizer that looks
 *         for special tokens after it has normalized a text.
 */
SRT_API srt_status_t srt_tokenizer_encode_parts(const srt_tokenizer_t *tokenizer,
						srt_tokenizer_part_t *parts, size_t nparts,
						unsigned flags, int32_t **ids, size_t *nids);

/**
 * Decodes ids. The text is valid UTF-8: bytes that are not become U+FFFD. Ids without a token are
 * skipped.
 * @param ids nids ids.
 * @param skip_special not 0: special tokens are left out.
 * @param[out] text nbytes bytes and a terminating zero, which the caller frees by free(). Set on
 *        success only.
 * @return SRT_ERR_INVALID_ARGUMENT for NULL, SRT_ERR_FORMAT as srt_tokenizer_encode(),
 *         SRT_ERR_OUT_OF_MEMORY. Thread-safe.
 */
SRT_API srt_status_t srt_tokenizer_decode(const srt_tokenizer_t *tokenizer, const int32_t *ids,
					  size_t nids, int skip_special, char **text,
					  size_t *nbytes);

/** One more than the largest id of a token: what a model's vocabulary must be at least. 0 for
 * NULL. Thread-safe. */
SRT_API int64_t srt_tokenizer_vocab_size(const srt_tokenizer_t *tokenizer);

/**
 * Looks for a token.
 * @param token as it is written in the file: "<|im_end|>", or "\u0120the" for " the" of byte-level
 *        BPE. @return its id; -1 if there is none, or for NULL. Thread-safe.
 */
SRT_API int32_t srt_tokenizer_find(const srt_tokenizer_t *tokenizer, const char *token);

#ifdef __cplusplus
}
#endif
#endif
