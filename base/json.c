/* SPDX-License-Identifier: BSD-3-Clause */
/* See json.h. */
#include "base/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

srt_status_t srt_json_fail(const srt_json_t *j, const char *expected)
{
	return srt_fail(SRT_ERR_FORMAT, "byte %zu of %s: expected %s", (size_t)(j->at - j->text),
			j->name, expected);
}

static void skip_blanks(srt_json_t *j)
{
	while (*j->at == ' ' || *j->at == '\t' || *j->at == '\n' || *j->at == '\r')
		j->at++;
}

bool srt_json_skip_char(srt_json_t *j, char c)
{
	skip_blanks(j);
	if (*j->at != c)
		return false;
	j->at++;
	skip_blanks(j);
	return true;
}

srt_status_t srt_json_separator(srt_json_t *j, char end, bool *more)
{
	*more = srt_json_skip_char(j, ',');
	if (*more || srt_json_skip_char(j, end))
		return SRT_OK;
	return srt_json_fail(j, end == '}' ? "',' or '}'" : "',' or ']'");
}

srt_status_t srt_json_begin(srt_json_t *j, char begin, char end, bool *more)
{
	if (!srt_json_skip_char(j, begin))
		return srt_json_fail(j, begin == '{' ? "an object" : "an array");
	*more = !srt_json_skip_char(j, end);
	return SRT_OK;
}

/* ---- strings ---------------------------------------------------------------------------- */

/* The four digits after \u; false if they are not there. */
static bool read_hex(srt_json_t *j, uint32_t *code)
{
	*code = 0;
	for (int i = 0; i < 4; i++) {
		char c = *j->at;
		int digit = c >= '0' && c <= '9' ? c - '0' :
			    c >= 'a' && c <= 'f' ? c - 'a' + 10 :
			    c >= 'A' && c <= 'F' ? c - 'A' + 10 :
						   -1;

		if (digit < 0)
			return false;
		*code = *code << 4 | (uint32_t)digit;
		j->at++;
	}
	return true;
}

/* After a backslash. Writes the UTF-8 bytes of the character; false if the escape is malformed. */
static bool decode_escape(srt_json_t *j, char **to)
{
	static const char plain[] = "\"\\/bfnrt", meaning[] = "\"\\/\b\f\n\r\t";
	const char *found = *j->at ? strchr(plain, *j->at) : NULL;
	uint32_t code, low;

	if (found != NULL) {
		j->at++;
		*(*to)++ = meaning[found - plain];
		return true;
	}
	if (*j->at++ != 'u' || !read_hex(j, &code) || code == 0 ||
	    (code >= 0xdc00 && code < 0xe000))
		return false;
	if (code >= 0xd800 && code < 0xdc00) { /* the first of two surrogates */
		if (j->at[0] != '\\' || j->at[1] != 'u')
			return false;
		j->at += 2;
		if (!read_hex(j, &low) || low < 0xdc00 || low >= 0xe000)
			return false;
		code = 0x10000 + ((code - 0xd800) << 10 | (low - 0xdc00));
	}
	if (code < 0x80) {
		*(*to)++ = (char)code;
		return true;
	}
	if (code >= 0x10000) {
		*(*to)++ = (char)(0xf0 | code >> 18);
		*(*to)++ = (char)(0x80 | (code >> 12 & 0x3f));
	} else if (code >= 0x800) {
		*(*to)++ = (char)(0xe0 | code >> 12);
	}
	if (code >= 0x800)
		*(*to)++ = (char)(0x80 | (code >> 6 & 0x3f));
	else
		*(*to)++ = (char)(0xc0 | code >> 6);
	*(*to)++ = (char)(0x80 | (code & 0x3f));
	return true;
}

/* Bytes of the characters of ASCII that `text` begins with and that stand for themselves. */
static size_t count_plain(const char *text)
{
	size_t n = 0;

	while (text[n] >= 0x20 && text[n] < 0x7f && text[n] != '"' && text[n] != '\\')
		n++;
	return n;
}

srt_status_t srt_json_string(srt_json_t *j, char **string)
{
	char *to;

	skip_blanks(j);
	if (*j->at != '"')
		return srt_json_fail(j, "a string");
	to = *string = ++j->at;
	while (*j->at != '"') {
		size_t n = count_plain(j->at);

		if (n == 0 && *j->at != '\\')
			n = (unsigned char)*j->at < 0x20 ? 0 : srt_utf8_length(j->at);
		if (n > 0) {
			memmove(to, j->at, n);
			to += n;
			j->at += n;
			continue;
		}
		if (*j->at != '\\')
			return srt_json_fail(j, "a character of UTF-8 or the string's end");
		j->at++;
		if (!decode_escape(j, &to))
			return srt_json_fail(j, "an escape sequence of JSON, not of a zero byte");
	}
	j->at++;
	*to = '\0';
	return SRT_OK;
}

srt_status_t srt_json_key(srt_json_t *j, char **key)
{
	SRT_TRY(srt_json_string(j, key));
	return srt_json_skip_char(j, ':') ? SRT_OK : srt_json_fail(j, "':'");
}

/* ---- numbers and words ------------------------------------------------------------------ */

static srt_status_t fail_integer(const srt_json_t *j, int64_t low, int64_t high)
{
	char expected[96];

	snprintf(expected, sizeof(expected), "an integer from %lld to %lld", (long long)low,
		 (long long)high);
	return srt_json_fail(j, expected);
}

srt_status_t srt_json_integer(srt_json_t *j, int64_t low, int64_t high, int64_t *value)
{
	const char *first;
	bool negative, fits = true;

	skip_blanks(j);
	negative = *j->at == '-';
	first = j->at += negative;
	*value = 0;
	for (; *j->at >= '0' && *j->at <= '9' && fits; j->at++)
		fits = !__builtin_mul_overflow(*value, 10, value) &&
		       !__builtin_add_overflow(*value, *j->at - '0', value);
	if (negative)
		*value = -*value;
	/* no leading zeros, no fraction, no exponent */
	if (!fits || j->at == first || (*first == '0' && (j->at > first + 1 || negative)) ||
	    *j->at == '.' || *j->at == 'e' || *j->at == 'E' || *value < low || *value > high)
		return fail_integer(j, low, high);
	return SRT_OK;
}

bool srt_json_word(srt_json_t *j, const char *word)
{
	const size_t n = strlen(word);

	skip_blanks(j);
	if (strncmp(j->at, word, n) != 0)
		return false;
	j->at += n;
	return true;
}

/* The digits of a number, of which there is at least one. */
static bool skip_digits(srt_json_t *j)
{
	const char *first = j->at;

	while (*j->at >= '0' && *j->at <= '9')
		j->at++;
	return j->at > first;
}

/* A number with its optional sign, fraction and exponent, whose size a double has. */
static bool skip_number(srt_json_t *j)
{
	const char *first = j->at, *exponent;

	j->at += *j->at == '-';
	if (*j->at == '0')
		j->at++;
	else if (!skip_digits(j))
		return false;
	if (*j->at == '.') {
		j->at++;
		if (!skip_digits(j))
			return false;
	}
	if (*j->at != 'e' && *j->at != 'E')
		return j->at - first <= SRT_JSON_MAX_NUMBER;
	j->at++;
	j->at += *j->at == '+' || *j->at == '-';
	exponent = j->at;
	return skip_digits(j) && j->at - exponent <= 2 && j->at - first <= SRT_JSON_MAX_NUMBER;
}

static srt_status_t skip_value(srt_json_t *j, int depth)
{
	const char begin = *j->at, end = begin == '{' ? '}' : ']';
	bool more;
	char *text;

	if (begin == '"')
		return srt_json_string(j, &text);
	if (begin != '{' && begin != '[') {
		if (srt_json_word(j, "null") || srt_json_word(j, "true") ||
		    srt_json_word(j, "false") || skip_number(j))
			return SRT_OK;
		return srt_json_fail(j, "a value");
	}
	if (depth == SRT_JSON_MAX_DEPTH)
		return srt_json_fail(j, "fewer objects and arrays within each other");
	SRT_TRY(srt_json_begin(j, begin, end, &more));
	while (more) {
		if (begin == '{')
			SRT_TRY(srt_json_key(j, &text));
		SRT_TRY(skip_value(j, depth + 1));
		SRT_TRY(srt_json_separator(j, end, &more));
	}
	return SRT_OK;
}

srt_status_t srt_json_skip(srt_json_t *j)
{
	skip_blanks(j);
	return skip_value(j, 0);
}

/* ---- writing ---------------------------------------------------------------------------- */

void srt_json_append(srt_json_text_t *t, const char *bytes, size_t nbytes)
{
	char *grown;

	if (t->failed || nbytes == 0)
		return;
	grown = srt_grow(t->bytes, t->nbytes + nbytes, &t->room, 1, "a text of JSON");
	if (grown == NULL) {
		t->failed = true;
		return;
	}
	t->bytes = grown;
	memcpy(t->bytes + t->nbytes, bytes, nbytes);
	t->nbytes += nbytes;
}

void srt_json_append_format(srt_json_text_t *t, const char *format, ...)
{
	char buf[64];
	va_list args;

	va_start(args, format);
	srt_json_append(t, buf, (size_t)vsnprintf(buf, sizeof(buf), format, args));
	va_end(args);
}

void srt_json_append_string(srt_json_text_t *t, const char *s)
{
	srt_json_append(t, "\"", 1);
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			srt_json_append_format(t, "\\%c", *s);
		else if ((unsigned char)*s < 0x20)
			srt_json_append_format(t, "\\u%04x", (unsigned)*s);
		else
			srt_json_append(t, s, 1);
	}
	srt_json_append(t, "\"", 1);
}
