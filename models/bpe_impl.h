/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of bpe.h share: hashes, which decide places in tables and never a result. */
#ifndef SRT_MODELS_BPE_IMPL_H
#define SRT_MODELS_BPE_IMPL_H

#include <string.h>

#include "models/bpe.h"

/** Bits of the set of joined characters. */
#define SRT_BPE_JOINED (1 << 20)

/** A hash of two numbers. */
static inline uint64_t srt_bpe_hash_pair(uint64_t pair)
{
	pair *= 0x9e3779b97f4a7c15u;
	return pair ^ pair >> 32;
}

/** A hash of a text. */
static inline uint64_t srt_bpe_hash(const char *text, size_t nbytes)
{
	uint64_t hash = nbytes, word = 0;

	for (; nbytes >= 8; text += 8, nbytes -= 8) {
		memcpy(&word, text, 8);
		hash = srt_bpe_hash_pair(hash ^ word);
	}
	word = 0;
	memcpy(&word, text, nbytes);
	return srt_bpe_hash_pair(srt_bpe_hash_pair(hash ^ word));
}

/** The bit of a pair of characters in srt_bpe_t.joined, by their ids. */
static inline uint64_t srt_bpe_hash_joined(int32_t left, int32_t right)
{
	return srt_bpe_hash_pair((uint64_t)(uint32_t)left << 32 | (uint32_t)right) % SRT_BPE_JOINED;
}

/** The slot of a merge: its pair is UINT64_MAX if there is none. */
const srt_bpe_merge_t *srt_bpe_find_merge(const srt_bpe_t *bpe, int32_t left, int32_t right);

#endif
