/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Encoding: text -> ids. The text between added tokens is normalized; each pre-tokenizing step
 * hands its pieces to the next one as it finds them, and the last one to the byte-pair encoding,
 * so no list of pieces is kept.
 *
 * A text of parts is cut into chunks, between which nothing is joined. Otherwise a chunk is encoded
 * as if the others were not cut off.
 */
#include <stdlib.h>
#include <string.h>

#include "models/tokenizer_impl.h"
#include "models/try.h"

/* What is before a piece. */
typedef enum {
	PLACE_INSIDE, /* something else of the text */
	PLACE_FIRST,  /* nothing: it begins where the whole text begins */
	PLACE_CUT     /* text from which it was cut off: no blank is put before it */
} place_t;

/* A piece of text. */
typedef struct {
	const char *text;
	size_t nbytes;
	place_t place;
} piece_t;

/* A call of encode. Each step has two buffers for the texts that it makes. */
typedef struct {
	const srt_tokenizer_t *t;
	srt_matcher_t *matcher;
	srt_bpe_encoder_t *bpe;
	srt_string_t buffers[SRT_TOKENIZER_STEPS][2];
	bool ends_in_text; /* the last id is not that of an added token */
} encoding_t;

static srt_status_t run_step(encoding_t *e, size_t step, piece_t piece);

/* ---- splits ---------------------------------------------------------------------------------- */

/* The parts of a split: matches and what is between them. `kept` waits for the part after it. */
typedef struct {
	encoding_t *e;
	const srt_tokenizer_step_t *split;
	size_t next_step;
	piece_t whole;
	size_t start, stop; /* kept */
	bool has, is_match;
} split_t;

static bool joins(srt_tokenizer_behavior_t behavior, bool previous, bool match)
{
	switch (behavior) {
	case SRT_SPLIT_CONTIGUOUS:
		return previous == match;
	case SRT_SPLIT_PREVIOUS:
		return match && !previous;
	case SRT_SPLIT_NEXT:
		return previous && !match;
	default:
		return false;
	}
}

static srt_status_t flush_part(split_t *s)
{
	const bool removed = s->split->behavior == SRT_SPLIT_REMOVED && s->is_match;
	const piece_t piece = { s->whole.text + s->start, s->stop - s->start,
				s->start == 0 ? s->whole.place : PLACE_INSIDE };

	return s->has && !removed ? run_step(s->e, s->next_step, piece) : SRT_OK;
}

static srt_status_t add_part(split_t *s, size_t start, size_t stop, bool match)
{
	match = match != s->split->invert;
	if (s->has && joins(s->split->behavior, s->is_match, match)) {
		s->stop = stop;
		s->is_match = match;
		return SRT_OK;
	}
	SRT_TRY(flush_part(s));
	s->has = true;
	s->start = start;
	s->stop = stop;
	s->is_match = match;
	return SRT_OK;
}

static srt_status_t split_piece(encoding_t *e, const srt_tokenizer_step_t *step, size_t next_step,
				piece_t piece)
{
	srt_matches_t m = srt_matches_begin(step->pattern, e->matcher, piece.text, piece.nbytes);
	split_t s = { .e = e, .split = step, .next_step = next_step, .whole = piece };
	size_t start, stop, done = 0;
	bool found;

	for (;;) {
		SRT_TRY(srt_matches_next(&m, &found, &start, &stop));
		if (!found)
			break;
		if (start > done)
			SRT_TRY(add_part(&s, done, start, false));
		SRT_TRY(add_part(&s, start, stop, true));
		done = stop;
	}
	if (done < piece.nbytes)
		SRT_TRY(add_part(&s, done, piece.nbytes, false));
	return flush_part(&s);
}

/* ---- the other steps ------------------------------------------------------------------------- */

/* The character of a byte in byte-level BPE: itself if it can be printed, else one from U+0100
 * on. */
static uint32_t char_of_byte(unsigned char b)
{
	if (b <= 0x20)
		return 0x100u + b;
	if (b >= 0x7f && b <= 0xa0)
		return 0x121u + b - 0x7f;
	return b == 0xad ? 0x143 : b;
}

int srt_byte_of_char(uint32_t c)
{
	if (c >= 0x100 && c <= 0x120)
		return (int)(c - 0x100);
	if (c >= 0x121 && c <= 0x142)
		return (int)(c - 0x121 + 0x7f);
	if (c == 0x143)
		return 0xad;
	return c <= 0xff && char_of_byte((unsigned char)c) == c ? (int)c : -1;
}

/* The piece with a text before it, in a buffer. */
static srt_status_t prepend(srt_string_t *buffer, const char *text, size_t nbytes, piece_t *piece)
{
	buffer->nbytes = 0;
	SRT_TRY(srt_string_append(buffer, text, nbytes));
	SRT_TRY(srt_string_append(buffer, piece->text, piece->nbytes));
	piece->text = buffer->data;
	piece->nbytes = buffer->nbytes;
	return SRT_OK;
}

/* Makes the characters of the bytes of a piece. */
static srt_status_t map_bytes(encoding_t *e, size_t step, piece_t piece)
{
	srt_string_t *out = &e->buffers[step][1];

	out->nbytes = 0;
	SRT_TRY(srt_string_reserve(out, 2 * piece.nbytes));
	for (size_t i = 0; i < piece.nbytes; i++)
		out->nbytes += (size_t)srt_utf8_encode(char_of_byte((unsigned char)piece.text[i]),
						       out->data + out->nbytes);
	piece.text = out->data;
	piece.nbytes = out->nbytes;
	return run_step(e, step + 1, piece);
}

/* Cuts a piece by the step's expression, if it has one. */
static srt_status_t byte_level(encoding_t *e, size_t step, piece_t piece)
{
	const srt_tokenizer_step_t *s = &e->t->pre.step[step];
	srt_matches_t m;
	size_t start = 0, stop = 0, done = 0;
	bool found = true;

	if (s->add_blank && piece.place != PLACE_CUT && piece.text[0] != ' ')
		SRT_TRY(prepend(&e->buffers[step][0], " ", 1, &piece));
	if (s->pattern == NULL)
		return map_bytes(e, step, piece);
	m = srt_matches_begin(s->pattern, e->matcher, piece.text, piece.nbytes);
	while (done < piece.nbytes) {
		SRT_TRY(srt_matches_next(&m, &found, &start, &stop));
		if (!found)
			start = stop = piece.nbytes;
		if (start > done)
			SRT_TRY(map_bytes(e, step,
					  (piece_t){ piece.text + done, start - done,
						     done == 0 ? piece.place : PLACE_INSIDE }));
		if (stop > start)
			SRT_TRY(map_bytes(e, step,
					  (piece_t){ piece.text + start, stop - start,
						     start == 0 ? piece.place : PLACE_INSIDE }));
		done = stop;
	}
	return SRT_OK;
}

/* Blanks become the step's character; with `split`, the text is cut before each of them. */
static srt_status_t metaspace(encoding_t *e, size_t step, piece_t piece)
{
	const srt_tokenizer_step_t *s = &e->t->pre.step[step];
	const size_t n = s->text.nbytes;
	srt_string_t *out = &e->buffers[step][1];

	out->nbytes = 0;
	for (size_t i = 0; i < piece.nbytes; i++) {
		const char *c = &piece.text[i];

		SRT_TRY(*c == ' ' ? srt_string_append(out, s->text.data, n) :
				    srt_string_append(out, c, 1));
	}
	piece.text = out->data;
	piece.nbytes = out->nbytes;
	if (s->prepend != SRT_PREPEND_NEVER && piece.place != PLACE_CUT &&
	    (s->prepend == SRT_PREPEND_ALWAYS || piece.place == PLACE_FIRST) &&
	    (piece.nbytes < n || memcmp(piece.text, s->text.data, n) != 0))
		SRT_TRY(prepend(&e->buffers[step][0], s->text.data, n, &piece));
	return s->split ? split_piece(e, s, step + 1, piece) : run_step(e, step + 1, piece);
}

/* Hands a piece to a step, or after the last one to the byte-pair encoding. */
static srt_status_t run_step(encoding_t *e, size_t step, piece_t piece)
{
	if (piece.nbytes == 0)
		return SRT_OK;
	if (step == e->t->pre.n) {
		e->ends_in_text = true;
		return srt_bpe_encode(e->bpe, piece.text, piece.nbytes);
	}
	switch (e->t->pre.step[step].kind) {
	case SRT_STEP_BYTE_LEVEL:
		return byte_level(e, step, piece);
	case SRT_STEP_METASPACE:
		return metaspace(e, step, piece);
	default:
		return split_piece(e, &e->t->pre.step[step], step + 1, piece);
	}
}

/* ---- added tokens ---------------------------------------------------------------------------- */

/* What to do with a text between added tokens. */
typedef srt_status_t (*gap_t)(encoding_t *e, piece_t piece);

static srt_status_t put_id(encoding_t *e, int32_t id)
{
	e->ends_in_text = false;
	return srt_bpe_put(e->bpe, id);
}

/* Puts the ids of the added tokens of a text, and hands on what is between them.
 * @param parts of the text, NULL: special tokens are looked for in all of it. */
static srt_status_t split_added(encoding_t *e, const srt_added_set_t *set, piece_t piece,
				srt_added_parts_t *parts, gap_t gap)
{
	srt_added_match_t match;
	size_t covered = 0, next = 0;

	for (;;) {
		SRT_TRY(srt_added_find(set, e->t->word, e->matcher, piece.text, piece.nbytes, parts,
				       next, covered, &match, &next));
		if (match.id < 0)
			match.start = piece.nbytes;
		if (match.start > covered)
			SRT_TRY(gap(e, (piece_t){ piece.text + covered, match.start - covered,
						  covered == 0 ? piece.place : PLACE_INSIDE }));
		if (match.id < 0)
			return SRT_OK;
		SRT_TRY(put_id(e, match.id));
		covered = match.stop;
	}
}

static srt_status_t pre_tokenize(encoding_t *e, piece_t piece)
{
	return run_step(e, 0, piece);
}

static srt_status_t normalize(encoding_t *e, piece_t piece)
{
	srt_string_t text = { .nbytes = 0 };
	srt_status_t status;

	if (e->t->normalizer.n == 0)
		return split_added(e, &e->t->normalized, piece, NULL, pre_tokenize);
	status = srt_string_append(&text, piece.text, piece.nbytes);
	if (status == SRT_OK)
		status = srt_tokenizer_normalize(&e->t->normalizer, e->matcher,
						 piece.place == PLACE_CUT, &text);
	piece.text = text.data;
	piece.nbytes = text.nbytes;
	if (status == SRT_OK)
		status = split_added(e, &e->t->normalized, piece, NULL, pre_tokenize);
	free(text.data);
	return status;
}

/* ---- the calls ------------------------------------------------------------------------------- */

/* Encodes parts of a text that follow each other, without an id or a cut between them. */
static srt_status_t encode_chunk(encoding_t *e, const char *text, size_t nbytes,
				 const srt_tokenizer_part_t *parts, size_t nparts, bool first)
{
	srt_added_parts_t cursor = { .parts = parts, .nparts = nparts };
	const piece_t chunk = { text, nbytes,
				first           ? PLACE_FIRST :
				e->ends_in_text ? PLACE_CUT :
						  PLACE_INSIDE };

	return split_added(e, &e->t->raw, chunk, &cursor, normalize);
}

/* @param text of the parts, joined. */
static srt_status_t encode_parts(encoding_t *e, const char *text, unsigned flags,
				 srt_tokenizer_part_t *parts, size_t nparts)
{
	const srt_tokenizer_t *t = e->t;
	const bool special = (flags & SRT_TOKENIZER_ADD_SPECIAL) != 0;
	bool first = true;
	size_t at = 0;

	for (size_t i = 0; special && i < t->nprefix; i++)
		SRT_TRY(put_id(e, t->prefix[i]));
	for (size_t i = 0, next; i < nparts; i = next) {
		size_t nbytes = parts[i].nbytes;

		parts[i].first = srt_bpe_nids(e->bpe);
		next = i + 1;
		if (parts[i].text == NULL) {
			SRT_TRY(put_id(e, parts[i].id));
			first = false;
			continue;
		}
		for (; next < nparts && parts[next].text != NULL && !parts[next].cut; next++)
			nbytes += parts[next].nbytes;
		SRT_TRY(encode_chunk(e, text + at, nbytes, parts + i, next - i, first));
		at += nbytes;
		first = first && nbytes == 0;
	}
	return SRT_OK;
}

static srt_status_t check_text(const char *text, size_t nbytes)
{
	size_t invalid;

	if (nbytes > SRT_BPE_NBYTES)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "a text of %zu bytes is too long to be encoded at once: %d "
				      "are possible",
				      nbytes, SRT_BPE_NBYTES);
	invalid = srt_utf8_find_invalid(text, nbytes);
	if (invalid < nbytes)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "the text is not UTF-8: byte %zu is 0x%02x", invalid,
				      (unsigned char)text[invalid]);
	return SRT_OK;
}

/* @param suffix whether the tokens of the file's template after the text are added, too. */
static srt_status_t encode(const srt_tokenizer_t *t, const char *text, size_t nbytes,
			   srt_tokenizer_part_t *parts, size_t nparts, unsigned flags, bool suffix,
			   int32_t **ids, size_t *nids)
{
	encoding_t e = { .t = t };
	srt_status_t status;

	SRT_TRY(check_text(text, nbytes));
	SRT_TRY(srt_matcher_create(&e.matcher));
	status = srt_bpe_encoder_create(&t->bpe, nbytes, &e.bpe);
	if (status == SRT_OK)
		status = encode_parts(&e, text, flags, parts, nparts);
	for (size_t i = 0; suffix && i < t->nsuffix && status == SRT_OK; i++)
		status = put_id(&e, t->suffix[i]);
	if (status == SRT_OK)
		srt_bpe_take(e.bpe, ids, nids);
	for (size_t i = 0; i < t->pre.n; i++) {
		free(e.buffers[i][0].data);
		free(e.buffers[i][1].data);
	}
	srt_bpe_encoder_destroy(e.bpe);
	srt_matcher_destroy(e.matcher);
	return status;
}

srt_status_t srt_tokenizer_encode(const srt_tokenizer_t *tokenizer, const char *text, size_t nbytes,
				  unsigned flags, int32_t **ids, size_t *nids)
{
	srt_tokenizer_part_t whole = { .text = text != NULL ? text : "", .nbytes = nbytes };

	if (tokenizer == NULL || (text == NULL && nbytes > 0) || ids == NULL || nids == NULL)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "srt_tokenizer_encode: tokenizer, text, ids or nids is NULL");
	return encode(tokenizer, whole.text, nbytes, &whole, 1, flags,
		      (flags & SRT_TOKENIZER_ADD_SPECIAL) != 0, ids, nids);
}

/* Special tokens that are looked for in the normal form of a text, where parts are not known. */
static srt_status_t check_plain(const srt_tokenizer_t *t, const srt_tokenizer_part_t *parts,
				size_t nparts)
{
	bool plain = false;

	for (size_t i = 0; i < nparts; i++)
		plain = plain || parts[i].plain;
	for (size_t i = 0; plain && i < t->normalized.n; i++)
		if (t->normalized.tokens[i].special)
			return srt_model_fail(
				SRT_ERR_UNSUPPORTED,
				"the tokenizer looks for its special token %d in the normal form "
				"of a text, where it cannot be told whether it is of a template or "
				"of a user",
				t->normalized.tokens[i].id);
	return SRT_OK;
}

srt_status_t srt_tokenizer_encode_parts(const srt_tokenizer_t *tokenizer,
					srt_tokenizer_part_t *parts, size_t nparts, unsigned flags,
					int32_t **ids, size_t *nids)
{
	srt_string_t text = { .nbytes = 0 };
	srt_status_t status = SRT_OK;

	if (tokenizer == NULL || (parts == NULL && nparts > 0) || ids == NULL || nids == NULL)
		return srt_model_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"srt_tokenizer_encode_parts: tokenizer, parts, ids or nids is NULL");
	SRT_TRY(check_plain(tokenizer, parts, nparts));
	for (size_t i = 0; i < nparts && status == SRT_OK; i++) {
		if (parts[i].text == NULL)
			parts[i].nbytes = 0;
		status = srt_string_append(&text, parts[i].text, parts[i].nbytes);
	}
	if (status == SRT_OK)
		status = encode(tokenizer, text.data, text.nbytes, parts, nparts, flags, false, ids,
				nids);
	free(text.data);
	return status;
}
