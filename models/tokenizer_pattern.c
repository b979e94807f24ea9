/* SPDX-License-Identifier: BSD-3-Clause */
/* Searches of literal texts, and of regular expressions by PCRE2. See tokenizer_pattern.h. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "models/tokenizer_pattern.h"

#include <stdlib.h>
#include <string.h>

#ifdef HAVE_PCRE2
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#endif

#include "models/try.h"

/* Limits of one match: steps of the search, and KiB of memory. */
#define MATCH_STEPS 10000000
#define MATCH_KIB 65536

struct srt_pattern {
	char *literal; /* nliteral bytes; NULL of an expression */
	size_t nliteral;
#ifdef HAVE_PCRE2
	pcre2_code *code;
#endif
};

struct srt_matcher {
#ifdef HAVE_PCRE2
	pcre2_match_data *data;
	pcre2_match_context *context;
#else
	char unused;
#endif
};

static srt_status_t no_memory(void)
{
	return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for a pattern");
}

srt_status_t srt_pattern_create_literal(const char *text, size_t nbytes, srt_pattern_t **pattern)
{
	srt_pattern_t *p = calloc(1, sizeof(*p));

	if (p != NULL)
		p->literal = malloc(nbytes);
	if (p == NULL || p->literal == NULL) {
		free(p);
		return no_memory();
	}
	memcpy(p->literal, text, nbytes);
	p->nliteral = nbytes;
	*pattern = p;
	return SRT_OK;
}

srt_matches_t srt_matches_begin(const srt_pattern_t *pattern, srt_matcher_t *matcher,
				const char *text, size_t nbytes)
{
	return (srt_matches_t){ pattern, matcher, text, nbytes, 0, SIZE_MAX };
}

static void find_literal(srt_matches_t *m, bool *found, size_t *start, size_t *stop)
{
	const srt_pattern_t *p = m->pattern;
	const char *at = memmem(m->text + m->at, m->nbytes - m->at, p->literal, p->nliteral);

	*found = at != NULL;
	if (at == NULL)
		return;
	*start = (size_t)(at - m->text);
	*stop = m->at = *start + p->nliteral;
}

#ifdef HAVE_PCRE2
static srt_status_t fail_compile(const char *expression, int code)
{
	char why[128];

	pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof(why));
	return srt_model_fail(SRT_ERR_UNSUPPORTED, "the regular expression %s is not accepted: %s",
			      srt_string_show(expression).text, why);
}

/* @param translated PCRE2's spelling of the expression. */
static srt_status_t compile(const char *expression, const srt_string_t *translated,
			    pcre2_code **compiled)
{
	pcre2_compile_context *context = pcre2_compile_context_create(NULL);
	PCRE2_SIZE where;
	int code;

	if (context == NULL)
		return no_memory();
	pcre2_set_newline(context, PCRE2_NEWLINE_LF);
	*compiled = pcre2_compile((PCRE2_SPTR)translated->data, translated->nbytes,
				  PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_AUTO_CAPTURE,
				  &code, &where, context);
	pcre2_compile_context_free(context);
	if (*compiled == NULL)
		return fail_compile(expression, code);
	pcre2_jit_compile(*compiled, PCRE2_JIT_COMPLETE); /* without it, matches are slower */
	return SRT_OK;
}

srt_status_t srt_pattern_create(const char *expression, srt_pattern_t **pattern)
{
	srt_string_t translated = { .nbytes = 0 };
	pcre2_code *code = NULL;
	srt_status_t status = srt_pattern_translate(expression, &translated);

	if (status == SRT_OK)
		status = compile(expression, &translated, &code);
	free(translated.data);
	SRT_TRY(status);
	*pattern = calloc(1, sizeof(**pattern));
	if (*pattern == NULL) {
		pcre2_code_free(code);
		return no_memory();
	}
	(*pattern)->code = code;
	return SRT_OK;
}

void srt_pattern_destroy(srt_pattern_t *pattern)
{
	if (pattern == NULL)
		return;
	pcre2_code_free(pattern->code);
	free(pattern->literal);
	free(pattern);
}

srt_status_t srt_matcher_create(srt_matcher_t **matcher)
{
	srt_matcher_t *m = calloc(1, sizeof(*m));

	if (m != NULL) {
		m->data = pcre2_match_data_create(1, NULL);
		m->context = pcre2_match_context_create(NULL);
	}
	if (m == NULL || m->data == NULL || m->context == NULL) {
		srt_matcher_destroy(m);
		return no_memory();
	}
	pcre2_set_match_limit(m->context, MATCH_STEPS);
	pcre2_set_heap_limit(m->context, MATCH_KIB);
	*matcher = m;
	return SRT_OK;
}

void srt_matcher_destroy(srt_matcher_t *matcher)
{
	if (matcher == NULL)
		return;
	pcre2_match_data_free(matcher->data);
	pcre2_match_context_free(matcher->context);
	free(matcher);
}

/* The text is valid. Compiled code has a small stack: PCRE2's interpreter has no such limit. */
static int match(const srt_matches_t *m)
{
	const uint32_t options[] = { PCRE2_NO_UTF_CHECK, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT };
	int code = PCRE2_ERROR_JIT_STACKLIMIT;

	for (int i = 0; i < 2 && code == PCRE2_ERROR_JIT_STACKLIMIT; i++)
		code = pcre2_match(m->pattern->code, (PCRE2_SPTR)m->text, m->nbytes, m->at,
				   options[i], m->matcher->data, m->matcher->context);
	return code;
}

static size_t next_char(const srt_matches_t *m)
{
	size_t at = m->at + 1;

	while (at < m->nbytes && (m->text[at] & 0xc0) == 0x80)
		at++;
	return at;
}

srt_status_t srt_matches_next(srt_matches_t *m, bool *found, size_t *start, size_t *stop)
{
	const PCRE2_SIZE *bounds;
	int code;

	*found = false;
	if (m->pattern->literal != NULL) {
		find_literal(m, found, start, stop);
		return SRT_OK;
	}
	while (m->at <= m->nbytes) {
		code = match(m);
		if (code == PCRE2_ERROR_NOMATCH)
			return SRT_OK;
		if (code < 0)
			return srt_model_fail(
				code == PCRE2_ERROR_NOMEMORY ? SRT_ERR_OUT_OF_MEMORY :
							       SRT_ERR_FORMAT,
				"a regular expression of the tokenizer takes too many steps at "
				"byte %zu of a piece of the text",
				m->at);
		bounds = pcre2_get_ovector_pointer(m->matcher->data);
		if (bounds[0] < bounds[1] || bounds[1] != m->last) {
			*found = true;
			*start = bounds[0];
			*stop = m->at = m->last = bounds[1];
			return SRT_OK;
		}
		m->at = next_char(m);
	}
	return SRT_OK;
}
#else
srt_status_t srt_pattern_create(const char *expression, srt_pattern_t **pattern)
{
	(void)pattern;
	return srt_model_fail(SRT_ERR_UNSUPPORTED,
			      "the regular expression %s needs PCRE2, but the library was built "
			      "without it: install it (Debian: libpcre2-dev) and configure again",
			      srt_string_show(expression).text);
}

void srt_pattern_destroy(srt_pattern_t *pattern)
{
	if (pattern != NULL)
		free(pattern->literal);
	free(pattern);
}

srt_status_t srt_matcher_create(srt_matcher_t **matcher)
{
	*matcher = calloc(1, sizeof(**matcher));
	return *matcher != NULL ? SRT_OK : no_memory();
}

void srt_matcher_destroy(srt_matcher_t *matcher)
{
	free(matcher);
}

srt_status_t srt_matches_next(srt_matches_t *m, bool *found, size_t *start, size_t *stop)
{
	find_literal(m, found, start, stop);
	return SRT_OK;
}
#endif
