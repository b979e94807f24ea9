/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Added tokens in a text: at each byte the longest one that begins there, by a binary search among
 * the sorted texts, one byte at a time.
 */
#include <stdlib.h>
#include <string.h>

#include "models/tokenizer_impl.h"

static int compare_added(const void *left, const void *right)
{
	const srt_added_t *a = left, *b = right;
	const size_t n = a->text.nbytes < b->text.nbytes ? a->text.nbytes : b->text.nbytes;
	const int order = memcmp(a->text.data, b->text.data, n);

	if (order != 0)
		return order;
	if (a->text.nbytes != b->text.nbytes)
		return a->text.nbytes < b->text.nbytes ? -1 : 1;
	return a->order < b->order ? -1 : a->order > b->order;
}

/* The first token of lo .. hi whose byte at `depth` is at least b; all are longer. */
static size_t lower_bound(const srt_added_set_t *set, size_t lo, size_t hi, size_t depth, int b)
{
	while (lo < hi) {
		const size_t mid = lo + (hi - lo) / 2;

		if ((unsigned char)set->tokens[mid].text.data[depth] < b)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

void srt_added_sort(srt_added_set_t *set)
{
	if (set->n > 0)
		qsort(set->tokens, set->n, sizeof(*set->tokens), compare_added);
	for (int b = 0; b <= 256; b++)
		set->first[b] = lower_bound(set, 0, set->n, 0, b);
}

/* The longest token at the start of a text, a special one within its first nspecial bytes; NULL if
 * there is none. */
static const srt_added_t *match_here(const srt_added_set_t *set, const char *text, size_t nbytes,
				     size_t nspecial)
{
	const srt_added_t *longest = NULL;
	const unsigned char b = (unsigned char)text[0];
	size_t lo = set->first[b], hi = set->first[b + 1];

	for (size_t depth = 1; lo < hi; depth++) {
		bool found = false; /* of equal texts the first one */

		for (; lo < hi && set->tokens[lo].text.nbytes == depth; lo++) {
			if (found || (set->tokens[lo].special && depth > nspecial))
				continue;
			longest = &set->tokens[lo];
			found = true;
		}
		if (depth == nbytes)
			break;
		lo = lower_bound(set, lo, hi, depth, (unsigned char)text[depth]);
		hi = lower_bound(set, lo, hi, depth, (unsigned char)text[depth] + 1);
	}
	return longest;
}

/* The start of the character before a position. */
static size_t step_back(const char *text, size_t at)
{
	do
		at--;
	while (at > 0 && (text[at] & 0xc0) == 0x80);
	return at;
}

static size_t skip_blanks(const char *text, size_t at, size_t nbytes)
{
	uint32_t c;

	while (at < nbytes) {
		const int n = srt_utf8_decode(text + at, nbytes - at, &c);

		if (n <= 0 || !srt_is_space(c))
			break;
		at += (size_t)n;
	}
	return at;
}

static size_t skip_blanks_back(const char *text, size_t at, size_t first)
{
	uint32_t c;

	while (at > first) {
		const size_t before = step_back(text, at);

		if (srt_utf8_decode(text + before, at - before, &c) <= 0 || !srt_is_space(c))
			break;
		at = before;
	}
	return at;
}

/* Whether the character that begins at `at` belongs to a word. */
static srt_status_t is_word(const srt_pattern_t *word, srt_matcher_t *matcher, const char *text,
			    size_t at, size_t nbytes, bool *is)
{
	uint32_t c;
	const int n = srt_utf8_decode(text + at, nbytes - at, &c);
	srt_matches_t m = srt_matches_begin(word, matcher, text + at, n > 0 ? (size_t)n : 0);
	size_t start, stop;

	return srt_matches_next(&m, is, &start, &stop);
}

/* Whether a token is a part of a longer word. */
static srt_status_t is_inside(const srt_pattern_t *word, srt_matcher_t *matcher, const char *text,
			      size_t nbytes, size_t start, size_t stop, bool *inside)
{
	*inside = false;
	if (start > 0)
		SRT_TRY(is_word(word, matcher, text, step_back(text, start), nbytes, inside));
	if (!*inside && stop < nbytes)
		SRT_TRY(is_word(word, matcher, text, stop, nbytes, inside));
	return SRT_OK;
}

/* Bytes from `at` in which special tokens are looked for; positions do not decrease. */
static size_t count_special(srt_added_parts_t *p, size_t at, size_t nbytes)
{
	if (p == NULL)
		return nbytes - at;
	while (p->end <= at && p->part < p->nparts)
		p->end += p->parts[p->part++].nbytes;
	return p->parts[p->part - 1].plain ? 0 : p->end - at;
}

srt_status_t srt_added_find(const srt_added_set_t *set, const srt_pattern_t *word,
			    srt_matcher_t *matcher, const char *text, size_t nbytes,
			    srt_added_parts_t *parts, size_t from, size_t covered,
			    srt_added_match_t *match, size_t *next)
{
	match->id = -1;
	for (size_t at = set->n > 0 ? from : nbytes; at < nbytes; at++) {
		const srt_added_t *token =
			match_here(set, text + at, nbytes - at, count_special(parts, at, nbytes));
		bool inside = false; /* a longer word, or the blanks of the last match */

		if (token == NULL)
			continue;
		*next = at + token->text.nbytes;
		if (at < covered)
			inside = true;
		else if (token->single_word)
			SRT_TRY(is_inside(word, matcher, text, nbytes, at, *next, &inside));
		if (inside) {
			at = *next - 1;
			continue;
		}
		match->id = token->id;
		match->start = token->lstrip ? skip_blanks_back(text, at, covered) : at;
		match->stop = token->rstrip ? skip_blanks(text, *next, nbytes) : *next;
		return SRT_OK;
	}
	return SRT_OK;
}
