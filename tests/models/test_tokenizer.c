/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tokenizers: merging, unknown characters, added tokens, splits and decoders on small files that
 * are made here. tests/golden/test_hf.sh compares whole tokenizers with the Python package.
 */
#include "config.h"

#include <unistd.h>

#include "tests/models/tokenizer_case.h"

#ifdef HAVE_JANSSON

/* The ids as text: "3 4". */
static const char *encode(const srt_tokenizer_t *t, const char *text, unsigned flags)
{
	static char shown[4096];
	int32_t *ids = NULL;
	size_t n = 0, at = 0;

	CHECK_OK_OR_DIE(srt_tokenizer_encode(t, text, strlen(text), flags, &ids, &n));
	CHECK((ids == NULL) == (n == 0));
	shown[0] = '\0';
	for (size_t i = 0; i < n && at < sizeof(shown) - 16; i++)
		at += (size_t)sprintf(shown + at, i > 0 ? " %d" : "%d", (int)ids[i]);
	free(ids);
	return shown;
}

/* Encodes with a tokenizer of these parts. */
static void check_ids(const parts_t *p, const char *text, unsigned flags, const char *ids)
{
	srt_tokenizer_t *t = open_tokenizer(p);

	CHECK_STR(encode(t, text, flags), ids);
	srt_tokenizer_close(t);
}

static void check_text(const parts_t *p, const int32_t *ids, size_t n, int skip, const char *text)
{
	srt_tokenizer_t *t = open_tokenizer(p);
	char *got;
	size_t nbytes;

	CHECK_OK_OR_DIE(srt_tokenizer_decode(t, ids, n, skip, &got, &nbytes));
	CHECK_STR(got, text);
	CHECK_INT(nbytes, strlen(text));
	free(got);
	srt_tokenizer_close(t);
}

/* ---- encoding -------------------------------------------------------------------------------- */

static void test_merges(void)
{
	const parts_t plain = { .vocab = NULL };

	check_ids(&plain, "", 0, "");
	check_ids(&plain, "abcab", 0, "5 3");
	check_ids(&plain, "abcd", 0, "5 7"); /* "ab" first, then "abc" before "cd" */
	check_ids(&plain, "acd", 0, "1 8");
	check_ids(&(parts_t){ .merges = "\"#version: 0.2\", \"c d\", \"a b\", \"ab c\"" }, "abcd",
		  0, "3 8");
	check_ids(&(parts_t){ .merges = "", .model = "\"ignore_merges\": true," }, "abc", 0, "5");
	check_ids(&(parts_t){ .merges = "", .model = "\"ignore_merges\": true," }, "abcd", 0,
		  "1 2 4 7");
}

/* A character without a token vanishes, is its bytes, or the unknown token. */
static void test_unknown(void)
{
	check_ids(&(parts_t){ .model = NULL }, "axb", 0, "3");
	check_ids(&(parts_t){ .model = "\"byte_fallback\": true," }, "a\xc3\xa9xb", 0, "1 9 10 2");
	check_ids(&(parts_t){ .model = "\"unk_token\": \"<unk>\"," }, "axxb", 0, "1 0 0 2");
	check_ids(&(parts_t){ .model = "\"unk_token\": \"<unk>\", \"fuse_unk\": true," }, "axxb", 0,
		  "1 0 2");
	/* an unknown token waits for the next known one */
	check_ids(&(parts_t){ .model = "\"unk_token\": \"<unk>\", \"byte_fallback\": true," },
		  "x\xc3\xa9"
		  "a",
		  0, "9 10 0 1");
}

/* Ids of a long text are those of its short parts, if no merge joins them; they depend neither on
 * the cuts nor on the cache. */
static void test_long_pieces(void)
{
	enum { N = 20000 };
	const parts_t joined = { .vocab = "\"a\": 0, \"aa\": 1, \"aaaa\": 2, \"-\": 3",
				 .merges = "[\"a\", \"a\"], [\"aa\", \"aa\"]" };
	srt_tokenizer_t *t = open_tokenizer(&joined);
	char *text = malloc(2 * N);
	int32_t *ids;
	size_t n;

	CHECK_OR_DIE(text != NULL);
	memset(text, 'a', 2 * N);
	CHECK_OK_OR_DIE(srt_tokenizer_encode(t, text, 2 * N - 1, 0, &ids, &n));
	CHECK_INT(n, N / 2 + 1);
	CHECK(ids[0] == 2 && ids[n - 2] == 1 && ids[n - 1] == 0);
	free(ids);
	for (size_t i = 0; i < 2 * N; i += 8)
		text[i] = '-';
	CHECK_OK_OR_DIE(srt_tokenizer_encode(t, text, 2 * N, 0, &ids, &n));
	CHECK_INT(n, 4 * N / 4);
	for (size_t i = 0; i + 3 < n; i += 4)
		CHECK(ids[i] == 3 && ids[i + 1] == 2 && ids[i + 2] == 1 && ids[i + 3] == 0);
	free(ids);
	free(text);
	srt_tokenizer_close(t);
}

static void test_added(void)
{
	const parts_t p = {
		.added =
			TOKEN(11, "<s>",
			      "") ", " TOKEN(12, "<s>x",
					     "") ", " TOKEN(13, "<l>",
							    ", \"lstrip\": true, \"rstrip\": true"),
		.post = "{\"type\": \"TemplateProcessing\", \"single\": "
			"[{\"SpecialToken\": {\"id\": \"s\", \"type_id\": 0}}, "
			"{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, "
			"{\"SpecialToken\": {\"id\": \"l\", \"type_id\": 0}}], "
			"\"pair\": [], \"special_tokens\": {\"s\": {\"id\": \"s\", "
			"\"ids\": [11], \"tokens\": [\"<s>\"]}, \"l\": {\"id\": \"l\", "
			"\"ids\": [13, 0], \"tokens\": []}}}",
		.vocab = VOCAB ", \" \": 14",
		.decoder = "{\"type\": \"Fuse\"}"
	};
	srt_tokenizer_t *t = open_tokenizer(&p);

	CHECK_STR(encode(t, "ab<s>c<s>xb", 0), "3 11 4 12 2"); /* the longest one */
	CHECK_STR(encode(t, "a  <l> b", 0), "1 13 2");
	CHECK_STR(encode(t, "<l> <l>", 0), "13 13");
	CHECK_STR(encode(t, "ab", SRT_TOKENIZER_ADD_SPECIAL), "11 3 13 0");
	CHECK_STR(encode(t, "", SRT_TOKENIZER_ADD_SPECIAL), "11 13 0");
	CHECK_INT(srt_tokenizer_find(t, "<s>"), 11);
	CHECK_INT(srt_tokenizer_find(t, "abc"), 5);
	CHECK_INT(srt_tokenizer_find(t, "abcd"), -1);
	CHECK_INT(srt_tokenizer_find(t, ""), -1);
	CHECK_INT(srt_tokenizer_vocab_size(t), 15);
	srt_tokenizer_close(t);
	check_text(&p, (int32_t[]){ 11, 3, -1, 15, 13, 1 << 30 }, 6, 0, "<s>ab<l>");
	check_text(&p, (int32_t[]){ 11, 3, -1, 15, 13, 1 << 30 }, 6, 1, "ab");
}

/* Pieces are seen by what is not merged. */
static void test_splits(void)
{
	static const struct {
		const char *pre, *text, *ids;
	} cases[] = {
		{ SPLIT("{\"String\": \"b\"}", "Isolated", "false"), "abcb", "1 2 4 2" },
		{ SPLIT("{\"String\": \"_\"}", "Removed", "false"), "ab_c_d", "3 4 7" },
		{ SPLIT("{\"String\": \"_\"}", "Removed", "true"), "ab_c_d", "6 6" },
		{ SPLIT("{\"String\": \"b\"}", "MergedWithPrevious", "false"), "abcd", "3 8" },
		{ SPLIT("{\"String\": \"b\"}", "MergedWithNext", "false"), "abcd", "1 2 8" },
		{ SPLIT("{\"String\": \"a\"}", "MergedWithNext", "false"), "abcab", "5 3" },
		{ SPLIT("{\"String\": \"a\"}", "Contiguous", "false"), "aabc", "1 1 2 4" },
		{ "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": "
		  "\"first\", \"split\": false}",
		  "a b", "6 1 6 2" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		check_ids(&(parts_t){ .pre = cases[i].pre }, cases[i].text, 0, cases[i].ids);
	check_ids(&(parts_t){ .normalizer = "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": "
					    "\"Prepend\", \"prepend\": \"_\"}, {\"type\": "
					    "\"Replace\", \"pattern\": {\"String\": \" \"}, "
					    "\"content\": \"_\"}]}" },
		  "ab c", 0, "6 3 6 4");
}

/* ---- decoding -------------------------------------------------------------------------------- */

static void test_decoders(void)
{
	const parts_t llama = {
		.decoder = "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", "
			   "\"pattern\": {\"String\": \"_\"}, \"content\": \" \"}, {\"type\": "
			   "\"ByteFallback\"}, {\"type\": \"Fuse\"}, {\"type\": \"Strip\", "
			   "\"content\": \" \", \"start\": 1, \"stop\": 1}]}"
	};
	const parts_t bytes = { .decoder = "{\"type\": \"ByteLevel\"}",
				.vocab = "\"\\u0120\": 0, \"\\u00c3\": 1, \"\\u00a9\": 2, "
					 "\"\\u4e2d\": 3, \"a\": 4",
				.merges = "" };

	check_text(&(parts_t){ .decoder = NULL }, (int32_t[]){ 1, 3 }, 2, 0, "a ab");
	check_text(&llama, (int32_t[]){ 6, 6, 3, 9, 10, 6 }, 6, 0, " ab\xc3\xa9");
	check_text(&llama, (int32_t[]){ 9, 9, 1 }, 3, 0, "\xef\xbf\xbd\xef\xbf\xbd\x61");
	check_text(&llama, NULL, 0, 0, "");
	check_text(&bytes, (int32_t[]){ 0, 1, 2, 3, 4 }, 5, 0, " \xc3\xa9\xe4\xb8\xad\x61");
	check_text(&bytes, (int32_t[]){ 1, 4, 2, 1 }, 4, 0,
		   "\xef\xbf\xbd"
		   "a\xef\xbf\xbd\xef\xbf\xbd");
}

/* ---- packages ------------------------------------------------------------------------------- */

#ifdef HAVE_PCRE2
/* A Mongolian separator is a blank of PCRE2, not of Unicode; other classes. */
static void test_classes(void)
{
	const char *vocab = "\"a\": 0, \"x\": 1, \"xa\": 2, \"\\u180e\": 3, \"1\": 4, \"11\": 5, "
			    "\"\\u2003\": 6, \"ax\": 7";
	const char *merges = "[\"x\", \"a\"], [\"1\", \"1\"], [\"a\", \"x\"]";

	check_ids(&(parts_t){ vocab, merges,
			      .pre = SPLIT("{\"Regex\": \"\\\\s\"}", "Removed", "false") },
		  "xa\xe1\xa0\x8e\xe2\x80\x83x", 0, "2 3 1");
	check_ids(&(parts_t){ vocab, merges,
			      .pre = SPLIT("{\"Regex\": \"[\\\\S]\"}", "Removed", "false") },
		  "xa\xe1\xa0\x8e\xe2\x80\x83x", 0, "6");
	check_ids(&(parts_t){ vocab, merges,
			      .pre = SPLIT("{\"Regex\": \"(?=x)\"}", "Isolated", "false") },
		  "axax", 0, "0 2 1"); /* empty matches cut */
	check_ids(&(parts_t){ vocab, merges,
			      .pre = "{\"type\": \"Digits\", \"individual_digits\": true}" },
		  "11", 0, "4 4");
	check_ids(&(parts_t){ vocab, merges, .pre = "{\"type\": \"Digits\"}" }, "a11", 0, "0 5");
}

/* Matching an expression takes a bounded number of steps. */
static void test_steps(void)
{
	const char *text = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaacb";
	srt_tokenizer_t *t = open_tokenizer(
		&(parts_t){ .pre = SPLIT("{\"Regex\": \"(?:a|a)+b\"}", "Isolated", "false") });
	int32_t *ids = NULL;
	size_t n;

	CHECK_STATUS(srt_tokenizer_encode(t, text, strlen(text), 0, &ids, &n), SRT_ERR_FORMAT);
	CHECK_ERROR_HAS("takes too many steps at byte 0");
	CHECK(ids == NULL);
	srt_tokenizer_close(t);
	write_tokenizer(&(parts_t){ .pre = SPLIT("{\"Regex\": \"(a\"}", "Isolated", "false") });
	check_tokenizer_refused(SRT_ERR_UNSUPPORTED,
				"the regular expression (a is not accepted: missing");
}
#else
static void test_classes(void)
{
	write_tokenizer(&(parts_t){ .pre = "{\"type\": \"Digits\"}" });
	check_tokenizer_refused(SRT_ERR_UNSUPPORTED, "needs PCRE2");
}

static void test_steps(void)
{
}
#endif

/* A character and its mark become one character, also after one of ASCII. */
static void test_unicode(void)
{
	const parts_t nfc = { .vocab = "\"e\": 0, \"\\u00e9\": 1, \"\\u0301\": 2",
			      .merges = "",
			      .normalizer = "{\"type\": \"NFC\"}" };

#ifdef HAVE_UTF8PROC
	check_ids(&nfc,
		  "ee\xcc\x81"
		  "e\xc3\xa9\xcc\x81",
		  0, "0 1 0 1 2");
#else
	write_tokenizer(&nfc);
	check_tokenizer_refused(SRT_ERR_UNSUPPORTED, "normalizer needs utf8proc");
#endif
}

int main(void)
{
	tokenizer_case_begin();
	test_merges();
	test_unknown();
	test_long_pieces();
	test_added();
	test_splits();
	test_decoders();
	test_classes();
	test_steps();
	test_unicode();
	tokenizer_case_end();
	return check_done();
}
#else
int main(void)
{
	srt_tokenizer_t *t;
	FILE *f = fopen("tests/models/test_tokenizer.tmp", "wb");

	CHECK_OR_DIE(f != NULL && fputs("{}", f) >= 0 && fclose(f) == 0);
	CHECK_STATUS(srt_tokenizer_open("tests/models/test_tokenizer.tmp", &t),
		     SRT_ERR_UNSUPPORTED);
	CHECK_ERROR_HAS("needs jansson");
	unlink("tests/models/test_tokenizer.tmp");
	return check_done();
}
#endif
