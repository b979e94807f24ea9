/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Encoding: text -> ids. The text between added tokens is normalized; each pre-tokenizing step
 * hands its pieces to the next one as it finds them, and the last one to the byte-pair encoding,
 * so no list of pieces is kept.
 */
#include <stdlib.h>
#include <string.h>

#include "models/tokenizer_impl.h"
#include "models/try.h"

/* A piece of text. */
typedef struct {
	const char *text;
	size_t nbytes;
	bool first; /* it begins where the whole text begins */
} piece_t;

/* A call of encode. Each step has two buffers for the texts that it makes. */
typedef struct {
	const srt_tokenizer_t *t;
	srt_matcher_t *matcher;
	srt_bpe_encoder_t *bpe;
	srt_string_t buffers[SRT_TOKENIZER_STEPS][2];
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
				s->whole.first && s->start == 0 };

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

	if (s->add_blank && piece.text[0] != ' ')
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
						     piece.first && done == 0 }));
		if (stop > start)
			SRT_TRY(map_bytes(e, step,
					  (piece_t){ piece.text + start, stop - start,
						     piece.first && start == 0 }));
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
	if (s->prepend != SRT_PREPEND_NEVER && (s->prepend == SRT_PREPEND_ALWAYS || piece.first) &&
	    (piece.nbytes < n || memcmp(piece.text, s->text.data, n) != 0))
		SRT_TRY(prepend(&e->buffers[step][0], s->text.data, n, &piece));
	return s->split ? split_piece(e, s, step + 1, piece) : run_step(e, step + 1, piece);
}

/* Hands a piece to a step, or after the last one to the byte-pair encoding. */
static srt_status_t run_step(encoding_t *e, size_t step, piece_t piece)
{
	if (piece.nbytes == 0)
		return SRT_OK;
	if (step == e->t->pre.n)
		return srt_bpe_encode(e->bpe, piece.text, piece.nbytes);
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

/* Puts the ids of the added tokens of a text, and hands on what is between them. */
static srt_status_t split_added(encoding_t *e, const srt_added_set_t *set, piece_t piece, gap_t gap)
{
	srt_added_match_t match;
	size_t covered = 0, next = 0;

	for (;;) {
		SRT_TRY(srt_added_find(set, e->t->word, e->matcher, piece.text, piece.nbytes, next,
				       covered, &match, &next));
		if (match.id < 0)
			match.start = piece.nbytes;
		if (match.start > covered)
			SRT_TRY(gap(e, (piece_t){ piece.text + covered, match.start - covered,
						  piece.first && covered == 0 }));
		if (match.id < 0)
			return SRT_OK;
		SRT_TRY(srt_bpe_put(e->bpe, match.id));
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
		return split_added(e, &e->t->normalized, piece, pre_tokenize);
	status = srt_string_append(&text, piece.text, piece.nbytes);
	if (status == SRT_OK)
		status = srt_tokenizer_normalize(&e->t->normalizer, e->matcher, &text);
	piece.text = text.data;
	piece.nbytes = text.nbytes;
	if (status == SRT_OK)
		status = split_added(e, &e->t->normalized, piece, pre_tokenize);
	free(text.data);
	return status;
}

/* ---- the call -------------------------------------------------------------------------------- */

static srt_status_t encode_text(encoding_t *e, const char *text, size_t nbytes, unsigned flags)
{
	const srt_tokenizer_t *t = e->t;
	const bool special = (flags & SRT_TOKENIZER_ADD_SPECIAL) != 0;

	for (size_t i = 0; special && i < t->nprefix; i++)
		SRT_TRY(srt_bpe_put(e->bpe, t->prefix[i]));
	SRT_TRY(split_added(e, &t->raw, (piece_t){ text, nbytes, true }, normalize));
	for (size_t i = 0; special && i < t->nsuffix; i++)
		SRT_TRY(srt_bpe_put(e->bpe, t->suffix[i]));
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

srt_status_t srt_tokenizer_encode(const srt_tokenizer_t *tokenizer, const char *text, size_t nbytes,
				  unsigned flags, int32_t **ids, size_t *nids)
{
	encoding_t e = { .t = tokenizer };
	srt_status_t status;

	if (tokenizer == NULL || (text == NULL && nbytes > 0) || ids == NULL || nids == NULL)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "srt_tokenizer_encode: tokenizer, text, ids or nids is NULL");
	SRT_TRY(check_text(text, nbytes));
	SRT_TRY(srt_matcher_create(&e.matcher));
	status = srt_bpe_encoder_create(&tokenizer->bpe, nbytes, &e.bpe);
	if (status == SRT_OK)
		status = encode_text(&e, text, nbytes, flags);
	if (status == SRT_OK)
		srt_bpe_take(e.bpe, ids, nids);
	for (size_t i = 0; i < tokenizer->pre.n; i++) {
		free(e.buffers[i][0].data);
		free(e.buffers[i][1].data);
	}
	srt_bpe_encoder_destroy(e.bpe);
	srt_matcher_destroy(e.matcher);
	return status;
}
