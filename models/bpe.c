/* SPDX-License-Identifier: BSD-3-Clause */
/* The tables of a byte-pair encoding. See bpe.h. */
#include "models/bpe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/bpe_impl.h"
#include "models/try.h"

/* The most slots between the place of a hash and that of its entry. Half of the slots are empty, so
 * only a file that was made for this has more. */
#define PROBES 1024

/* The smallest power of two that is at least twice n, so that a probe ends soon. */
static size_t choose_slots(size_t n)
{
	size_t nslots = 16;

	while (nslots < 2 * n)
		nslots *= 2;
	return nslots;
}

srt_status_t srt_bpe_create(srt_bpe_t *bpe, size_t nids, size_t nmerges)
{
	bpe->nids = nids;
	bpe->nslots = choose_slots(nids);
	bpe->nmerges = choose_slots(nmerges);
	bpe->unk = -1;
	bpe->tokens = calloc(nids > 0 ? nids : 1, sizeof(*bpe->tokens));
	bpe->slots = malloc(bpe->nslots * sizeof(*bpe->slots));
	bpe->merges = malloc(bpe->nmerges * sizeof(*bpe->merges));
	bpe->joined = calloc(SRT_BPE_JOINED / 64, sizeof(*bpe->joined));
	if (bpe->tokens == NULL || bpe->slots == NULL || bpe->merges == NULL || bpe->joined == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY,
				      "no host memory for %zu tokens and %zu merges", nids,
				      nmerges);
	memset(bpe->slots, 0xff, bpe->nslots * sizeof(*bpe->slots));
	memset(bpe->merges, 0xff, bpe->nmerges * sizeof(*bpe->merges));
	return SRT_OK;
}

void srt_bpe_clear(srt_bpe_t *bpe)
{
	free(bpe->text.data);
	free(bpe->tokens);
	free(bpe->slots);
	free(bpe->merges);
	free(bpe->joined);
}

/* The slot of a text: the one that has it, or the empty one where it belongs. */
static size_t find_slot(const srt_bpe_t *bpe, const char *text, size_t nbytes)
{
	size_t slot = srt_bpe_hash(text, nbytes) & (bpe->nslots - 1);

	for (; bpe->slots[slot] >= 0; slot = (slot + 1) & (bpe->nslots - 1)) {
		const srt_bpe_token_t *token = &bpe->tokens[bpe->slots[slot]];

		if (token->nbytes == nbytes &&
		    memcmp(bpe->text.data + token->offset, text, nbytes) == 0)
			break;
	}
	return slot;
}

int32_t srt_bpe_find(const srt_bpe_t *bpe, const char *text, size_t nbytes)
{
	return nbytes > 0 ? bpe->slots[find_slot(bpe, text, nbytes)] : -1;
}

srt_status_t srt_bpe_add_token(srt_bpe_t *bpe, const char *text, size_t nbytes, int32_t id)
{
	const size_t slot = find_slot(bpe, text, nbytes);

	if (bpe->tokens[id].nbytes > 0 || bpe->slots[slot] >= 0)
		return srt_model_fail(SRT_ERR_FORMAT, "two tokens have the id %d or its text", id);
	if ((slot - srt_bpe_hash(text, nbytes)) % bpe->nslots > PROBES)
		return srt_model_fail(SRT_ERR_UNSUPPORTED, "too many tokens have the same hash");
	bpe->tokens[id] = (srt_bpe_token_t){ (uint32_t)bpe->text.nbytes, (uint32_t)nbytes };
	bpe->slots[slot] = id;
	return srt_string_append(&bpe->text, text, nbytes);
}

void srt_bpe_finish(srt_bpe_t *bpe)
{
	char name[8];

	for (int b = 0; b < 256; b++) {
		snprintf(name, sizeof(name), "<0x%02X>", (unsigned)b);
		bpe->byte_ids[b] = bpe->byte_fallback ? srt_bpe_find(bpe, name, 6) : -1;
	}
	bpe->cuts = true;
}

const srt_bpe_merge_t *srt_bpe_find_merge(const srt_bpe_t *bpe, int32_t left, int32_t right)
{
	const uint64_t pair = (uint64_t)left << 32 | (uint32_t)right;
	size_t slot = srt_bpe_hash_pair(pair) & (bpe->nmerges - 1);

	while (bpe->merges[slot].pair != pair && bpe->merges[slot].pair != UINT64_MAX)
		slot = (slot + 1) & (bpe->nmerges - 1);
	return &bpe->merges[slot];
}

/* Whether a token is what an unknown character becomes. */
static bool is_fallback(const srt_bpe_t *bpe, int32_t id)
{
	bool is = id == bpe->unk;

	for (int b = 0; b < 256 && bpe->byte_fallback; b++)
		is = is || id == bpe->byte_ids[b];
	return is;
}

/* Remembers the characters where a merge joins its parts. Tokens of unknown characters are not made
 * of the characters of their text: where a merge has one, nothing is known. */
static void add_joined(srt_bpe_t *bpe, const char *left, size_t nleft, const char *right,
		       size_t nright)
{
	size_t last = nleft - 1, first = 1;
	uint64_t hash;

	while (last > 0 && (left[last] & 0xc0) == 0x80)
		last--;
	while (first < nright && (right[first] & 0xc0) == 0x80)
		first++;
	hash = srt_bpe_hash_joined(srt_bpe_find(bpe, left + last, nleft - last),
				   srt_bpe_find(bpe, right, first));
	bpe->joined[hash / 64] |= (uint64_t)1 << hash % 64;
}

srt_status_t srt_bpe_add_merge(srt_bpe_t *bpe, const char *left, size_t nleft, const char *right,
			       size_t nright, uint32_t rank)
{
	const int32_t a = srt_bpe_find(bpe, left, nleft), b = srt_bpe_find(bpe, right, nright);
	srt_string_t both = { .nbytes = 0 };
	srt_bpe_merge_t *merge;
	uint64_t pair;
	int32_t id = -1;

	if (a >= 0 && b >= 0) {
		SRT_TRY(srt_string_reserve(&both, nleft + nright));
		memcpy(both.data, left, nleft);
		memcpy(both.data + nleft, right, nright);
		id = srt_bpe_find(bpe, both.data, nleft + nright);
		free(both.data);
	}
	if (id < 0)
		return srt_model_fail(SRT_ERR_FORMAT,
				      "merge %u has a part or a result that is not in the "
				      "vocabulary",
				      rank);
	if (is_fallback(bpe, a) || is_fallback(bpe, b))
		bpe->cuts = false;
	add_joined(bpe, left, nleft, right, nright);
	pair = (uint64_t)a << 32 | (uint32_t)b;
	merge = (srt_bpe_merge_t *)srt_bpe_find_merge(bpe, a, b);
	if (((size_t)(merge - bpe->merges) - srt_bpe_hash_pair(pair)) % bpe->nmerges > PROBES)
		return srt_model_fail(SRT_ERR_UNSUPPORTED, "too many merges have the same hash");
	*merge = (srt_bpe_merge_t){ pair, rank, id };
	return SRT_OK;
}
