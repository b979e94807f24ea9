/* SPDX-License-Identifier: BSD-3-Clause */
/* Tokenizers: hostile and unsupported files are refused with what they have; wrong arguments. */
#include "config.h"

#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "models/bpe_impl.h"
#include "tests/models/tokenizer_case.h"

static const struct {
	parts_t parts;
	srt_status_t status;
	const char *why;
} refused[] = {
	{ { .vocab = "\"a\": 1, \"b\": 1" }, SRT_ERR_FORMAT, "the id of b belongs to another" },
	{ { .vocab = "\"a\": 1, \"a\": 2" }, SRT_ERR_FORMAT, "duplicate object key" },
	{ { .vocab = "\"a\": -1" }, SRT_ERR_FORMAT, "model.vocab: an id is not a whole number" },
	{ { .vocab = "\"a\": 1048576" }, SRT_ERR_FORMAT, "from 0 to 1048575" },
	{ { .vocab = "\"a\": \"1\"" }, SRT_ERR_FORMAT, "an id is not a whole number" },
	{ { .merges = "[\"a\", \"x\"]" }, SRT_ERR_FORMAT, "merge 0 has a part or a result" },
	{ { .merges = "[\"a\", \"b\"], [\"b\", \"a\"]" }, SRT_ERR_FORMAT, "merge 1 has a part" },
	{ { .merges = "[\"a\"]" }, SRT_ERR_FORMAT, "merge 0 is not a pair of tokens" },
	{ { .merges = "\"a b c\"" }, SRT_ERR_FORMAT, "merge 0 is not a pair of tokens" },
	{ { .merges = "[\"\", \"a\"]" }, SRT_ERR_FORMAT, "merge 0 has a part" },
	{ { .model = "\"unk_token\": \"x\"," }, SRT_ERR_UNSUPPORTED, "model.unk_token is \"x\"" },
	{ { .model = "\"dropout\": 0.5," }, SRT_ERR_UNSUPPORTED, "model.dropout is 0.5; possible" },
	{ { .model = "\"end_of_word_suffix\": \"</w>\"," },
	  SRT_ERR_UNSUPPORTED,
	  "model.end_of_word_suffix is \"</w>\"; possible is null" },
	{ { .model = "\"fuse_unk\": 1," }, SRT_ERR_UNSUPPORTED, "model.fuse_unk is 1" },
	{ { .model = "\"new\\u001bkey\": 1," },
	  SRT_ERR_UNSUPPORTED,
	  "model has the key \"new?key\"" },
	{ { .added = TOKEN(1, "<s>", "") }, SRT_ERR_FORMAT, "<s> and another token have the same" },
	{ { .added = TOKEN(12, "a", "") }, SRT_ERR_FORMAT, "a and another token have the same id" },
	{ { .added = TOKEN(12, "x", "") ", " TOKEN(12, "y", "") },
	  SRT_ERR_FORMAT,
	  "y and another" },
	{ { .added = TOKEN(12, "x", "") ", " TOKEN(13, "x", "") },
	  SRT_ERR_FORMAT,
	  "two tokens have the text x" },
	{ { .added = TOKEN(12, "", "") }, SRT_ERR_UNSUPPORTED, "token 12 has 0 bytes" },
	{ { .added = TOKEN(1048576, "x", "") }, SRT_ERR_FORMAT, "added_tokens: an id is not" },
	{ { .added = "3" }, SRT_ERR_FORMAT, "added_tokens: an id is not" },
	{ { .added = "{\"id\": 3}" }, SRT_ERR_FORMAT, "a token has no content" },
	{ { .normalizer = "{\"type\": \"Lowercase\"}" },
	  SRT_ERR_UNSUPPORTED,
	  "normalizer.type is \"Lowercase\"; possible is NFC, " },
	{ { .normalizer = "{\"type\": \"Prepend\"}" },
	  SRT_ERR_UNSUPPORTED,
	  "normalizer.prepend is missing; possible is a string" },
	{ { .normalizer = "{\"type\": \"Sequence\"}" }, SRT_ERR_FORMAT, "no list of normalizers" },
	{ { .pre = "{\"type\": \"Whitespace\"}" }, SRT_ERR_UNSUPPORTED, "pre_tokenizer.type is" },
	{ { .pre = SPLIT("{\"String\": \"\"}", "Isolated", "false") },
	  SRT_ERR_UNSUPPORTED,
	  "pre_tokenizer.pattern is an object; possible is" },
	{ { .pre = SPLIT("{\"String\": \"a\"}", "Merged", "false") },
	  SRT_ERR_UNSUPPORTED,
	  "pre_tokenizer.behavior is \"Merged\"; possible is Isolated" },
	{ { .pre = "{\"type\": \"Metaspace\", \"replacement\": \"__\"}" },
	  SRT_ERR_UNSUPPORTED,
	  "pre_tokenizer.replacement is \"__\"; possible is one character" },
	{ { .decoder = "{\"type\": \"WordPiece\"}" }, SRT_ERR_UNSUPPORTED, "decoder.type is" },
	{ { .decoder = "{\"type\": \"Strip\", \"content\": \" \", \"start\": -1, \"stop\": 0}" },
	  SRT_ERR_UNSUPPORTED,
	  "decoder.start is -1" },
	{ { .post = "{\"type\": \"BertProcessing\"}" },
	  SRT_ERR_UNSUPPORTED,
	  "post_processor.type" },
	{ { .post = "{\"type\": \"TemplateProcessing\", \"single\": []}" },
	  SRT_ERR_UNSUPPORTED,
	  "post_processor.single is a list; possible is" },
	{ { .post = "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": "
		    "\"x\"}}, {\"Sequence\": {\"id\": \"A\"}}]}" },
	  SRT_ERR_FORMAT,
	  "post_processor.special_tokens has no ids of \"x\"" },
	{ { .post = "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": "
		    "\"x\"}}, {\"Sequence\": {\"id\": \"A\"}}], \"special_tokens\": {\"x\": "
		    "{\"ids\": [99]}}}" },
	  SRT_ERR_FORMAT,
	  "has an id that is not one of a token" },
};

/* A file whose sequences are nested. */
static void write_nested(int depth, bool many)
{
	static char pre[8192];

	pre[0] = '\0';
	for (int i = 0; i < depth; i++)
		strcat(pre, "{\"type\": \"Sequence\", \"pretokenizers\": [");
	for (int i = 0; i < 33 && many; i++)
		sprintf(pre + strlen(pre), "%s%s", i > 0 ? "," : "",
			"{\"type\": \"Metaspace\", \"replacement\": \"_\"}");
	for (int i = 0; i < depth; i++)
		strcat(pre, "]}");
	write_tokenizer(&(parts_t){ .pre = pre });
}

static void test_refused(void)
{
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		write_tokenizer(&refused[i].parts);
		check_tokenizer_refused(refused[i].status, refused[i].why);
	}
	write_nested(9, false);
	check_tokenizer_refused(SRT_ERR_FORMAT, "is deeper than 8 levels");
	write_nested(2, true);
	check_tokenizer_refused(SRT_ERR_UNSUPPORTED, "pre_tokenizer has more than 32 steps");
	write_tokenizer_text("");
	check_tokenizer_refused(SRT_ERR_FORMAT, "not JSON, or cut");
	write_tokenizer_text("[]");
	check_tokenizer_refused(SRT_ERR_FORMAT, "it is not a JSON object");
	write_tokenizer_text("{\"model\": {\"type\": \"WordPiece\"}}");
	check_tokenizer_refused(SRT_ERR_UNSUPPORTED,
				"model.type is \"WordPiece\"; possible is BPE");
	write_tokenizer_text("{\"truncation\": {\"max_length\": 3}}");
	check_tokenizer_refused(SRT_ERR_UNSUPPORTED, "tokenizer.json.truncation is an object");
	write_tokenizer_text("{\"model\": 3}");
	check_tokenizer_refused(SRT_ERR_FORMAT, "model is missing, or not an object");
	CHECK_OR_DIE(truncate(tokenizer_path, (64 << 20) + 1) == 0);
	check_tokenizer_refused(SRT_ERR_UNSUPPORTED, "more than 64 MiB");
}

/* Lists that take much memory. */
static void test_empty_lists(void)
{
	FILE *f = fopen(tokenizer_path, "wb");

	CHECK_OR_DIE(f != NULL);
	for (int i = 0; i < 100000; i++)
		fputs(i > 0 ? ",[]" : "{\"a\": [[]", f);
	fputs("]}", f);
	CHECK_OR_DIE(fclose(f) == 0);
	check_tokenizer_refused(SRT_ERR_FORMAT, "too many lists and objects");
}

/* Tokens whose hashes are equal in the bits that choose their slots, so that each search would take
 * as many steps as there are tokens. */
static void test_equal_hashes(void)
{
	enum { N = 1100, SLOTS = 4096 };
	FILE *f = fopen(tokenizer_path, "wb");
	char text[16];

	CHECK_OR_DIE(f != NULL);
	fputs("{\"model\": {\"merges\": [], \"vocab\": {", f);
	for (int i = 0, n = 0; n < N; i++) {
		const int nbytes = snprintf(text, sizeof(text), "%d", i);

		if (srt_bpe_hash(text, (size_t)nbytes) % SLOTS == 0)
			fprintf(f, "%s\"%s\": %d", n > 0 ? ", " : "", text, n), n++;
	}
	fputs("}}}", f);
	CHECK_OR_DIE(fclose(f) == 0);
	check_tokenizer_refused(SRT_ERR_UNSUPPORTED, "too many tokens have the same hash");
}

static void test_arguments(void)
{
	srt_tokenizer_t *t = open_tokenizer(&(parts_t){ .vocab = NULL });
	int32_t *ids = NULL;
	char *text = NULL, folder[80];
	size_t n;

	CHECK_STATUS(srt_tokenizer_open(NULL, &t), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_tokenizer_open(tokenizer_path, NULL), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_tokenizer_encode(NULL, "a", 1, 0, &ids, &n), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_tokenizer_encode(t, NULL, 1, 0, &ids, &n), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_tokenizer_encode(t, "a\xc3", 2, 0, &ids, &n), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("not UTF-8: byte 1 is 0xc3");
	CHECK_STATUS(srt_tokenizer_encode(t, "a\xed\xa0\x80", 4, 0, &ids, &n),
		     SRT_ERR_INVALID_ARGUMENT); /* a surrogate */
	CHECK_STATUS(srt_tokenizer_decode(t, NULL, 1, 0, &text, &n), SRT_ERR_INVALID_ARGUMENT);
	CHECK(ids == NULL && text == NULL);
	CHECK_INT(srt_tokenizer_vocab_size(NULL), 0);
	CHECK_INT(srt_tokenizer_find(NULL, "a"), -1);
	CHECK_INT(srt_tokenizer_find(t, NULL), -1);
	srt_tokenizer_close(t);
	srt_tokenizer_close(NULL);

	snprintf(folder, sizeof(folder), "%s.d", tokenizer_path);
	CHECK_OR_DIE(mkdir(folder, 0700) == 0);
	CHECK_STATUS(srt_tokenizer_open(folder, &t), SRT_ERR_NOT_FOUND);
	CHECK_ERROR_HAS(".d/tokenizer.json: No such file");
	rmdir(folder);
}

int main(void)
{
#ifndef HAVE_JANSSON
	CHECK_SKIP("tokenizers need jansson");
#endif
	tokenizer_case_begin();
	test_refused();
	test_empty_lists();
	test_equal_hashes();
	test_arguments();
	tokenizer_case_end();
	return check_done();
}
