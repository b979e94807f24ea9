/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Byte-pair encoding of pieces: text -> ids. The possible merges of a segment are in a heap, so n
 * characters take n log n steps. Segments are short: pieces, or parts of long pieces between
 * characters that no merge joins. Ids of short segments are kept in a cache of fixed size.
 */
#include <stdlib.h>
#include <string.h>

#include "models/bpe_impl.h"
#include "models/try.h"

enum { CACHE_TEXT = 54, CACHE_IDS = 18, CACHE_MOST = 1 << 16 };

/* The ids of a short text. */
typedef struct {
	uint8_t nbytes, nids; /* nbytes 0: the entry is empty */
	char text[CACHE_TEXT];
	int32_t ids[CACHE_IDS];
} entry_t;

/* A symbol of a segment: a linked list. */
typedef struct {
	int32_t id; /* -1: it was merged into the one before it */
	int32_t previous, next;
} symbol_t;

struct srt_bpe_encoder {
	const srt_bpe_t *bpe;
	entry_t *cache; /* (nentries), a power of two */
	size_t nentries;
	int32_t *ids; /* the result */
	size_t nids, capacity;
	symbol_t *symbols;
	uint64_t *heap; /* rank << 32 | position of the left symbol; the smallest is first */
	size_t nsymbols, nheap, room;
};

srt_status_t srt_bpe_encoder_create(const srt_bpe_t *bpe, size_t nbytes,
				    srt_bpe_encoder_t **encoder)
{
	srt_bpe_encoder_t *e = calloc(1, sizeof(*e));
	size_t nentries = 16;

	while (nentries < CACHE_MOST && nentries < nbytes / 16)
		nentries *= 2;
	if (e != NULL)
		e->cache = calloc(nentries, sizeof(*e->cache));
	if (e == NULL || e->cache == NULL) {
		free(e);
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for an encoder");
	}
	e->bpe = bpe;
	e->nentries = nentries;
	*encoder = e;
	return SRT_OK;
}

void srt_bpe_encoder_destroy(srt_bpe_encoder_t *encoder)
{
	if (encoder == NULL)
		return;
	free(encoder->cache);
	free(encoder->ids);
	free(encoder->symbols);
	free(encoder->heap);
	free(encoder);
}

/* ---- ids ------------------------------------------------------------------------------------- */

static srt_status_t put_ids(srt_bpe_encoder_t *e, const int32_t *ids, size_t n)
{
	if (n > e->capacity - e->nids) {
		const size_t capacity = 2 * e->capacity + n + 64;
		int32_t *grown = realloc(e->ids, capacity * sizeof(*grown));

		if (grown == NULL)
			return srt_model_fail(SRT_ERR_OUT_OF_MEMORY,
					      "no host memory for %zu tokens", capacity);
		e->ids = grown;
		e->capacity = capacity;
	}
	if (n > 0)
		memcpy(e->ids + e->nids, ids, n * sizeof(*ids));
	e->nids += n;
	return SRT_OK;
}

srt_status_t srt_bpe_put(srt_bpe_encoder_t *encoder, int32_t id)
{
	return put_ids(encoder, &id, 1);
}

size_t srt_bpe_nids(const srt_bpe_encoder_t *encoder)
{
	return encoder->nids;
}

void srt_bpe_take(srt_bpe_encoder_t *encoder, int32_t **ids, size_t *nids)
{
	*nids = encoder->nids;
	*ids = encoder->nids > 0 ? encoder->ids : NULL;
	if (encoder->nids > 0)
		encoder->ids = NULL;
	encoder->nids = encoder->capacity = 0;
}

/* ---- symbols --------------------------------------------------------------------------------- */

/* Room for the symbols of nbytes of text and their merges: at most one symbol a byte, and as each
 * merge takes one symbol away and adds at most two entries, two entries a symbol. */
static srt_status_t reserve_symbols(srt_bpe_encoder_t *e, size_t nbytes)
{
	if (nbytes <= e->room)
		return SRT_OK;
	free(e->symbols);
	free(e->heap);
	e->room = nbytes + 64;
	e->symbols = malloc(e->room * sizeof(*e->symbols));
	e->heap = malloc(2 * e->room * sizeof(*e->heap));
	if (e->symbols == NULL || e->heap == NULL) {
		e->room = 0;
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY,
				      "no host memory to encode a piece of %zu bytes", nbytes);
	}
	return SRT_OK;
}

static void add_symbol(srt_bpe_encoder_t *e, int32_t id)
{
	const int32_t at = (int32_t)e->nsymbols++;

	e->symbols[at] = (symbol_t){ id, at - 1, at + 1 };
}

/* Whether each byte of an unknown character has a token. */
static bool has_bytes(const srt_bpe_t *bpe, const char *c, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (bpe->byte_ids[(unsigned char)c[i]] < 0)
			return false;
	return true;
}

/* Bytes of the character at the start of a valid text. */
static size_t char_nbytes(const char *text)
{
	const unsigned char b = (unsigned char)*text;

	return b < 0x80 ? 1 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
}

/* The symbols of a segment. An unknown token waits for the next known one: bytes that follow it
 * come before it, as in the Python package. */
static void add_symbols(srt_bpe_encoder_t *e, const char *text, size_t nbytes)
{
	const srt_bpe_t *bpe = e->bpe;
	bool waits = false;
	size_t n;

	e->nsymbols = 0;
	for (size_t i = 0; i < nbytes; i += n) {
		int32_t id;

		n = char_nbytes(text + i);
		id = srt_bpe_find(bpe, text + i, n);
		if (id < 0 && has_bytes(bpe, text + i, n)) {
			for (size_t k = 0; k < n; k++)
				add_symbol(e, bpe->byte_ids[(unsigned char)text[i + k]]);
			continue;
		}
		if (id < 0 && bpe->unk < 0)
			continue; /* the character vanishes: its neighbours may be merged */
		if (waits && (id >= 0 || !bpe->fuse_unk))
			add_symbol(e, bpe->unk);
		waits = id < 0;
		if (id >= 0)
			add_symbol(e, id);
	}
	if (waits)
		add_symbol(e, bpe->unk);
}

/* ---- merging --------------------------------------------------------------------------------- */

static void push_heap(srt_bpe_encoder_t *e, uint64_t key)
{
	uint64_t *heap = e->heap;
	size_t i = e->nheap++;

	for (; i > 0 && heap[(i - 1) / 2] > key; i = (i - 1) / 2)
		heap[i] = heap[(i - 1) / 2];
	heap[i] = key;
}

static uint64_t pop_heap(srt_bpe_encoder_t *e)
{
	uint64_t *heap = e->heap;
	const uint64_t top = heap[0], key = heap[--e->nheap];
	size_t i = 0;

	for (size_t child = 1; child < e->nheap; child = 2 * i + 1) {
		if (child + 1 < e->nheap && heap[child + 1] < heap[child])
			child++;
		if (heap[child] >= key)
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = key;
	return top;
}

/* The merge of a symbol and its neighbour; NULL if there is none. */
static const srt_bpe_merge_t *merge_at(const srt_bpe_encoder_t *e, int32_t at)
{
	const symbol_t *s = &e->symbols[at];
	const srt_bpe_merge_t *merge;

	if (s->id < 0 || s->next >= (int32_t)e->nsymbols)
		return NULL;
	merge = srt_bpe_find_merge(e->bpe, s->id, e->symbols[s->next].id);
	return merge->pair != UINT64_MAX ? merge : NULL;
}

static void offer_merge(srt_bpe_encoder_t *e, int32_t at)
{
	const srt_bpe_merge_t *merge = merge_at(e, at);

	if (merge != NULL)
		push_heap(e, (uint64_t)merge->rank << 32 | (uint32_t)at);
}

/* Merges the symbols of a segment until no merge is left, and closes the gaps. */
static void merge_symbols(srt_bpe_encoder_t *e)
{
	symbol_t *symbols = e->symbols;
	size_t n = 0;

	e->nheap = 0;
	for (size_t i = 0; i + 1 < e->nsymbols; i++)
		offer_merge(e, (int32_t)i);
	while (e->nheap > 0) {
		const uint64_t top = pop_heap(e);
		const int32_t at = (int32_t)(uint32_t)top;
		const srt_bpe_merge_t *merge = merge_at(e, at);
		symbol_t *s = &symbols[at];

		if (merge == NULL || merge->rank != top >> 32)
			continue; /* a merge has changed one of the two since */
		symbols[s->next].id = -1;
		s->id = merge->id;
		s->next = symbols[s->next].next;
		if (s->next < (int32_t)e->nsymbols)
			symbols[s->next].previous = at;
		if (s->previous >= 0)
			offer_merge(e, s->previous);
		offer_merge(e, at);
	}
	for (size_t i = 0; i < e->nsymbols; i++)
		if (symbols[i].id >= 0)
			symbols[n++].id = symbols[i].id;
	e->nsymbols = n;
}

/* ---- segments and pieces --------------------------------------------------------------------- */

static srt_status_t encode_segment(srt_bpe_encoder_t *e, const char *text, size_t nbytes)
{
	const bool fits = nbytes <= CACHE_TEXT;
	entry_t *entry = &e->cache[fits ? srt_bpe_hash(text, nbytes) & (e->nentries - 1) : 0];
	const size_t from = e->nids;

	if (fits && entry->nbytes == nbytes && memcmp(entry->text, text, nbytes) == 0)
		return put_ids(e, entry->ids, entry->nids);
	SRT_TRY(reserve_symbols(e, nbytes));
	add_symbols(e, text, nbytes);
	merge_symbols(e);
	for (size_t i = 0; i < e->nsymbols; i++)
		SRT_TRY(srt_bpe_put(e, e->symbols[i].id));
	if (fits && e->nsymbols <= CACHE_IDS) {
		entry->nbytes = (uint8_t)nbytes;
		entry->nids = (uint8_t)e->nsymbols;
		memcpy(entry->text, text, nbytes);
		if (e->nsymbols > 0)
			memcpy(entry->ids, e->ids + from, e->nsymbols * sizeof(*entry->ids));
	}
	return SRT_OK;
}

/* Whether no merge joins two characters, given by their ids, -1 if unknown. Neighbours that are
 * both unknown stay together: they may become one unknown token. */
static bool may_cut(const srt_bpe_t *bpe, int32_t left, int32_t right)
{
	uint64_t hash;

	if (left < 0 || right < 0)
		return left >= 0 || right >= 0;
	hash = srt_bpe_hash_joined(left, right);
	return (bpe->joined[hash / 64] >> hash % 64 & 1) == 0;
}

srt_status_t srt_bpe_encode(srt_bpe_encoder_t *encoder, const char *text, size_t nbytes)
{
	const srt_bpe_t *bpe = encoder->bpe;
	const int32_t whole = bpe->ignore_merges ? srt_bpe_find(bpe, text, nbytes) : -1;
	int32_t left = -1;
	size_t start = 0, n;

	if (nbytes == 0)
		return SRT_OK;
	if (whole >= 0)
		return srt_bpe_put(encoder, whole);
	if (nbytes <= CACHE_TEXT || !bpe->cuts)
		return encode_segment(encoder, text, nbytes);
	for (size_t i = 0; i < nbytes; i += n) {
		int32_t right;

		n = char_nbytes(text + i);
		right = srt_bpe_find(bpe, text + i, n);
		if (right < 0 && bpe->unk < 0 && !has_bytes(bpe, text + i, n))
			continue;
		if (i > start && may_cut(bpe, left, right)) {
			SRT_TRY(encode_segment(encoder, text + start, i - start));
			start = i;
		}
		left = right;
	}
	return encode_segment(encoder, text + start, nbytes - start);
}
