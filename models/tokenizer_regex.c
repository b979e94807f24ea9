/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Translates regular expressions of Oniguruma, in its Ruby syntax, to those of PCRE2 with UTF, UCP
 * and MULTILINE. Classes of characters that the two define in different ways are written out; what
 * has another meaning in PCRE2 and is not used by published tokenizers is refused.
 */
#include <ctype.h>
#include <string.h>

#include "models/tokenizer_pattern.h"
#include "models/try.h"

/* Blanks, and all others, as parts of a class. PCRE2's \s has U+180E, too. */
#define SPACES                                                                                     \
	"\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"        \
	"\\x{205f}\\x{3000}"
#define NO_SPACES                                                                                  \
	"\\x00-\\x08\\x0e-\\x1f\\x21-\\x84\\x86-\\x9f\\xa1-\\x{167f}\\x{1681}-\\x{1fff}"           \
	"\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}"             \
	"\\x{3001}-\\x{10ffff}"
/* Characters of words: alphabetic ones, marks, decimal digits, connecting punctuation. */
#define WORD                                                                                       \
	"\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}"                \
	"\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"

/* What \w has in addition outside of brackets. */
#define WORD_ALONE "\\xb2\\xb3\\xb9\\xbc-\\xbe"

/* A translation: p is what is left of the expression. */
typedef struct {
	const char *begin, *p;
	srt_string_t *out;
	int depth; /* of brackets */
} translator_t;

static srt_status_t refuse(const translator_t *t, const char *what)
{
	return srt_model_fail(SRT_ERR_UNSUPPORTED,
			      "the regular expression %s has %s, which is not supported",
			      srt_string_show(t->begin).text, what);
}

static srt_status_t put(translator_t *t, const char *text)
{
	return srt_string_append(t->out, text, strlen(text));
}

/* Copies n characters of ASCII. */
static srt_status_t copy(translator_t *t, size_t n)
{
	t->p += n;
	return srt_string_append(t->out, t->p - n, n);
}

/* A class by its members: they alone inside of brackets. */
static srt_status_t put_class(translator_t *t, const char *open, const char *members)
{
	t->p += 2;
	if (t->depth > 0)
		return put(t, members);
	SRT_TRY(put(t, open));
	SRT_TRY(put(t, members));
	return put(t, "]");
}

/* \p{NAME}, \P{NAME}, \p{^NAME}: names of one or two letters are categories, others scripts. PCRE2
 * takes the latter for script extensions if they have no prefix. */
static srt_status_t translate_property(translator_t *t)
{
	const char *name = t->p + 3, *end = strchr(t->p, '}');

	if (t->p[2] != '{' || end == NULL)
		return refuse(t, "a property without a name in braces");
	name += *name == '^';
	for (const char *c = name; c < end; c++)
		if (!isalpha((unsigned char)*c) && *c != '_')
			return refuse(t, "a property with a malformed name");
	SRT_TRY(copy(t, (size_t)(name - t->p)));
	if (end - name > 2 && strncmp(name, "Any}", 4) != 0)
		SRT_TRY(put(t, "sc:"));
	return copy(t, (size_t)(end + 1 - name));
}

/* \uHHHH, \xHH below 0x80, \x{H...}. */
static srt_status_t translate_code(translator_t *t)
{
	const char *digits = t->p + 2;
	size_t n = strspn(digits, "0123456789abcdefABCDEF");

	if (t->p[1] == 'u' && n >= 4) {
		SRT_TRY(put(t, "\\x{"));
		t->p = digits;
		SRT_TRY(copy(t, 4));
		return put(t, "}");
	}
	if (t->p[1] == 'x' && n >= 2 && digits[0] < '8')
		return copy(t, 4);
	n = strspn(digits + (*digits == '{'), "0123456789abcdefABCDEF");
	if (t->p[1] == 'x' && *digits == '{' && n > 0 && digits[n + 1] == '}')
		return copy(t, n + 4);
	return refuse(t, "a malformed number of a character");
}

static srt_status_t translate_escape(translator_t *t)
{
	const char c = t->p[1];

	switch (c) {
	case 's':
		return put_class(t, "[", SPACES);
	case 'S':
		return put_class(t, "[", NO_SPACES);
	case 'w':
		return put_class(t, "[", t->depth > 0 ? WORD : WORD WORD_ALONE);
	case 'W':
		return t->depth > 0 ? refuse(t, "\\W in brackets") :
				      put_class(t, "[^", WORD WORD_ALONE);
	case 'p':
	case 'P':
		return translate_property(t);
	case 'x':
	case 'u':
		return translate_code(t);
	case 'v':
		t->p += 2;
		return put(t, "\\x0b");
	case '\0':
		return refuse(t, "a \\ at its end");
	default:
		if (strchr("dDnrtfae", c) != NULL || (t->depth == 0 && strchr("Az", c) != NULL) ||
		    !isalnum((unsigned char)c))
			return copy(t, 2);
		return refuse(t, (const char[]){ '\\', c, '\0' });
	}
}

/* Brackets in brackets add their members: PCRE2 has none, so they are left out. */
static srt_status_t translate_class(translator_t *t)
{
	if (t->p[0] == '&' && t->p[1] == '&')
		return refuse(t, "&& in brackets");
	if (*t->p == '[' && (t->p[-1] == '-' || strchr("^:-]", t->p[1]) != NULL))
		return refuse(t, "brackets in brackets that are not plain members");
	if (*t->p == ']' && t->depth > 1 && t->p[1] == '-')
		return refuse(t, "a range after brackets in brackets");
	if (*t->p == '[' || (*t->p == ']' && t->depth > 1)) {
		t->depth += *t->p == '[' ? 1 : -1;
		t->p++;
		return SRT_OK;
	}
	t->depth -= *t->p == ']';
	return copy(t, 1);
}

static srt_status_t open_class(translator_t *t)
{
	t->depth = 1;
	SRT_TRY(copy(t, t->p[1] == '^' ? 2 : 1));
	return *t->p == ']' ? refuse(t, "] at the start of brackets") : SRT_OK;
}

/* (?: and others; (?i) at the start alone, since its reach differs elsewhere. */
static srt_status_t translate_group(translator_t *t)
{
	static const char *const opens[] = { "(?:",  "(?=",  "(?!",  "(?>",
					     "(?<=", "(?<!", "(?i:", "(?-i:" };

	if (t->p[1] != '?')
		return copy(t, 1);
	for (size_t i = 0; i < sizeof(opens) / sizeof(opens[0]); i++)
		if (strncmp(t->p, opens[i], strlen(opens[i])) == 0)
			return copy(t, strlen(opens[i]));
	if (t->p == t->begin && strncmp(t->p, "(?i)", 4) == 0)
		return copy(t, 4);
	return refuse(t, "a group of another kind than (?: (?= (?! (?> (?<= (?<! (?i: (?-i:");
}

/* {n}, {n,}, {,m}, {n,m}. After it, + and ? have another meaning in PCRE2. */
static srt_status_t translate_interval(translator_t *t)
{
	const size_t low = strspn(t->p + 1, "0123456789");
	const char *comma = t->p + 1 + low;
	const size_t high = *comma == ',' ? strspn(comma + 1, "0123456789") : 0;
	const char *end = comma + (*comma == ',') + high;

	if (*end != '}' || low + high == 0)
		return refuse(t, "{ that begins no interval");
	if (end[1] == '+' || (end[1] == '?' && *comma != ','))
		return refuse(t, "an interval with + or ? after it");
	SRT_TRY(copy(t, 1));
	if (low == 0)
		SRT_TRY(put(t, "0"));
	return copy(t, (size_t)(end + 1 - t->p));
}

srt_status_t srt_pattern_translate(const char *expression, srt_string_t *out)
{
	translator_t t = { .begin = expression, .p = expression, .out = out };
	srt_status_t status = SRT_OK;

	while (*t.p != '\0' && status == SRT_OK) {
		if (*t.p == '\\')
			status = translate_escape(&t);
		else if (t.depth > 0)
			status = translate_class(&t);
		else if (*t.p == '[')
			status = open_class(&t);
		else if (*t.p == '(')
			status = translate_group(&t);
		else if (*t.p == '{')
			status = translate_interval(&t);
		else
			status = copy(&t, 1);
	}
	return status;
}
