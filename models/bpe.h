/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Byte-pair encoding: the ids of a piece of text are those of its characters; then the pair of
 * neighbours whose merge has the lowest rank becomes one token, the first such pair first, until
 * none is left.
 */
#ifndef SRT_MODELS_BPE_H
#define SRT_MODELS_BPE_H

#include "models/string.h"

/** Ids are below this. */
#define SRT_BPE_IDS (1 << 20)
/** The longest piece in bytes. */
#define SRT_BPE_NBYTES INT32_MAX

/** A token: a part of the joined texts. */
typedef struct srt_bpe_token {
	uint32_t offset, nbytes; /* nbytes 0: there is no token of this id */
} srt_bpe_token_t;

/** A merge in the hash table. */
typedef struct srt_bpe_merge {
	uint64_t pair; /* left << 32 | right; UINT64_MAX: the slot is empty */
	uint32_t rank;
	int32_t id;
} srt_bpe_merge_t;

/** Vocabulary and merges. All zero at first; filled by the functions below, then constant. */
typedef struct srt_bpe {
	srt_string_t text;       /* all tokens, joined */
	srt_bpe_token_t *tokens; /* (nids) */
	size_t nids;
	int32_t *slots; /* (nslots) ids by a hash of their text, -1 in empty slots */
	size_t nslots;
	srt_bpe_merge_t *merges; /* (nmerges) by a hash of the pair */
	size_t nmerges;
	uint64_t *joined;      /* a set of hashes of pairs of characters that a merge may join */
	int32_t byte_ids[256]; /* tokens <0xNN>, -1 for none */
	int32_t unk;           /* token of unknown characters, -1 for none */
	bool byte_fallback, fuse_unk, ignore_merges;
	bool cuts; /* long pieces are cut where no merge joins */
} srt_bpe_t;

/** Allocates tables for ids below nids and for nmerges merges. @return SRT_ERR_OUT_OF_MEMORY. */
srt_status_t srt_bpe_create(srt_bpe_t *bpe, size_t nids, size_t nmerges);

/** Frees what it has; not bpe. */
void srt_bpe_clear(srt_bpe_t *bpe);

/** Adds a token. @return SRT_ERR_FORMAT if its id or text is there already, SRT_ERR_UNSUPPORTED if
 * the file was made so that searches take long. */
srt_status_t srt_bpe_add_token(srt_bpe_t *bpe, const char *text, size_t nbytes, int32_t id);

/** Adds a merge of two tokens, after all tokens. A pair that is there gets the new rank.
 * @return SRT_ERR_FORMAT if a part or the result is not a token, SRT_ERR_UNSUPPORTED as above. */
srt_status_t srt_bpe_add_merge(srt_bpe_t *bpe, const char *left, size_t nleft, const char *right,
			       size_t nright, uint32_t rank);

/** Derives what depends on tokens and options; after them and before the merges. */
void srt_bpe_finish(srt_bpe_t *bpe);

/** Id of a text; -1 for none. */
int32_t srt_bpe_find(const srt_bpe_t *bpe, const char *text, size_t nbytes);

/** Encodes pieces, one after the other, with a cache. Opaque. */
typedef struct srt_bpe_encoder srt_bpe_encoder_t;

/** Makes an encoder.
 * @param bpe must outlive it. @param nbytes of text that it will have, about: the cache is small
 *        for a short text, and has 8 MiB at most. @return SRT_ERR_OUT_OF_MEMORY. */
srt_status_t srt_bpe_encoder_create(const srt_bpe_t *bpe, size_t nbytes,
				    srt_bpe_encoder_t **encoder);

/** Frees the encoder. NULL is allowed. */
void srt_bpe_encoder_destroy(srt_bpe_encoder_t *encoder);

/** Appends the ids of a piece of valid UTF-8. @return SRT_ERR_OUT_OF_MEMORY. */
srt_status_t srt_bpe_encode(srt_bpe_encoder_t *encoder, const char *text, size_t nbytes);

/** Appends one id. @return SRT_ERR_OUT_OF_MEMORY. */
srt_status_t srt_bpe_put(srt_bpe_encoder_t *encoder, int32_t id);

/** The number of ids so far. */
size_t srt_bpe_nids(const srt_bpe_encoder_t *encoder);

/** Hands over the ids, which the caller frees by free(); NULL if there are none. */
void srt_bpe_take(srt_bpe_encoder_t *encoder, int32_t **ids, size_t *nids);

#endif
