/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a tokenizer searches for: a literal text, or a regular expression as Oniguruma reads it in
 * its Ruby syntax. Expressions run in PCRE2: they are translated where the two differ.
 */
#ifndef SRT_MODELS_TOKENIZER_PATTERN_H
#define SRT_MODELS_TOKENIZER_PATTERN_H

#include "models/string.h"

/** A pattern. Opaque; not changed by a search. */
typedef struct srt_pattern srt_pattern_t;
/** What the searches of one thread need. Opaque. */
typedef struct srt_matcher srt_matcher_t;

/** Makes a pattern of a text that is not empty, which is copied. @return SRT_ERR_OUT_OF_MEMORY. */
srt_status_t srt_pattern_create_literal(const char *text, size_t nbytes, srt_pattern_t **pattern);

/**
 * Compiles a regular expression.
 * @return SRT_ERR_UNSUPPORTED for one that is malformed or is not translated, and without PCRE2;
 *         SRT_ERR_OUT_OF_MEMORY.
 */
srt_status_t srt_pattern_create(const char *expression, srt_pattern_t **pattern);

/** Frees the pattern. NULL is allowed. */
void srt_pattern_destroy(srt_pattern_t *pattern);

/** Appends PCRE2's spelling of an expression of Oniguruma. @return SRT_ERR_UNSUPPORTED. */
srt_status_t srt_pattern_translate(const char *expression, srt_string_t *out);

/** Makes a matcher. @return SRT_ERR_OUT_OF_MEMORY. */
srt_status_t srt_matcher_create(srt_matcher_t **matcher);

/** Frees the matcher. NULL is allowed. */
void srt_matcher_destroy(srt_matcher_t *matcher);

/** The matches of a pattern in a text, from left to right. */
typedef struct srt_matches {
	const srt_pattern_t *pattern;
	srt_matcher_t *matcher;
	const char *text; /* nbytes of UTF-8 */
	size_t nbytes;
	size_t at, last; /* where the search goes on; end of the last match, SIZE_MAX at first */
} srt_matches_t;

/** Begins a search. */
srt_matches_t srt_matches_begin(const srt_pattern_t *pattern, srt_matcher_t *matcher,
				const char *text, size_t nbytes);

/**
 * The next match. An empty one is not at the end of the last one.
 * @param[out] found false: there is none. @param[out] start, stop bytes of the match.
 * @return SRT_ERR_FORMAT if the expression needs too many steps, SRT_ERR_OUT_OF_MEMORY.
 */
srt_status_t srt_matches_next(srt_matches_t *m, bool *found, size_t *start, size_t *stop);

#endif
