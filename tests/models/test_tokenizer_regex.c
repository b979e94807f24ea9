/* SPDX-License-Identifier: BSD-3-Clause */
/* Regular expressions of tokenizers: how they are written for PCRE2, and which are refused. */
#include "models/tokenizer_pattern.h"
#include "tests/harness/check.h"

static void test_expressions(void)
{
	static const struct {
		const char *expression, *translated, *why; /* one of the last two */
	} cases[] = {
		{ "(?i:'s|'t)| ?\\p{L}+|[^\\r\\n]?+", "(?i:'s|'t)| ?\\p{L}+|[^\\r\\n]?+", NULL },
		{ "\\p{Han}\\P{^Lu}\\p{Any}", "\\p{sc:Han}\\P{^Lu}\\p{Any}", NULL },
		{ "\\u4e2d\\x41\\x{1F600}\\v", "\\x{4e2d}\\x41\\x{1F600}\\x0b", NULL },
		{ "a{,3}b{2}c{1,}?", "a{0,3}b{2}c{1,}?", NULL },
		{ "(?i)a", "(?i)a", NULL },
		{ "a(?i)b", NULL, "a group of another kind" },
		{ "(?<name>a)", NULL, "a group of another kind" },
		{ "a{1,3}+", NULL, "an interval with + or ? after it" },
		{ "a{x", NULL, "{ that begins no interval" },
		{ "[^(\\d|[.,!]x)]+", "[^(\\d|.,!x)]+", NULL },
		{ "[a[^b]]", NULL, "brackets in brackets" },
		{ "[a[-b]]", NULL, "brackets in brackets" },
		{ "[[:alpha:]]", NULL, "brackets in brackets" },
		{ "[a[b]-c]", NULL, "a range after brackets" },
		{ "[a&&b]", NULL, "&& in brackets" },
		{ "[]a]", NULL, "] at the start of brackets" },
		{ "[\\W]", NULL, "\\W in brackets" },
		{ "\\h", NULL, "\\h, which is not supported" },
		{ "\\1", NULL, "\\1, which is not supported" },
		{ "\\xe4", NULL, "a malformed number of a character" },
		{ "\\pL", NULL, "a property without a name in braces" },
		{ "a\\", NULL, "a \\ at its end" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		srt_string_t out = { .nbytes = 0 };
		const srt_status_t status = srt_pattern_translate(cases[i].expression, &out);

		if (cases[i].translated == NULL) {
			CHECK_STATUS(status, SRT_ERR_UNSUPPORTED);
			CHECK_ERROR_HAS(cases[i].why);
		} else {
			CHECK_STATUS(status, SRT_OK);
			CHECK_OK(srt_string_append(&out, "", 1));
			CHECK_STR(out.data, cases[i].translated);
		}
		free(out.data);
	}
}

int main(void)
{
	test_expressions();
	return check_done();
}
