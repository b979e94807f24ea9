/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Examples of answers: lines that are none are reported, and change nothing.
 */
#include <stdlib.h>
#include <unistd.h>

#include "models/hash.h"
#include "tests/models/sft_case.h"

/* A line, whose bytes are tokens, is not an example. */
static void check_line_refused(const char *line, size_t nbytes, const char *why)
{
	const srt_sft_source_t source = sft_of_bytes(64);
	srt_sft_t *sft = NULL;

	write_sft(line, nbytes);
	CHECK_STATUS(srt_sft_open(&source, &sft), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS(sft_path);
	CHECK_ERROR_HAS("1 of 1 lines are not examples");
	CHECK(sft == NULL && sft_reported.n == 1 && sft_reported.lines[0] == 1);
	CHECK_MSG(strstr(sft_reported.why, why) != NULL, "\"%s\" is not in: %s", why,
		  sft_reported.why);
}

#define REFUSED(line, why) check_line_refused(line, sizeof(line) - 1, why)
static void test_refused_lines(void)
{
	REFUSED("prompt: a", "not JSON");
	REFUSED("{\"prompt\": \"a\", \"completion\": \"b\"", "not JSON");
	REFUSED(PAIR("\"a\"", "\"b\"") " x", "not JSON");
	REFUSED("{\"prompt\": \"a\", \"completion\": \"\xff\"}", "not JSON");
	REFUSED("{\"prompt\": \"\xc3\", \"completion\": \"b\"}", "not JSON");
	REFUSED(PAIR("\"a\"", "\"\\ud800\""), "not JSON");
	REFUSED(PAIR("\"a\"", "\"b\\u0000c\""), "not JSON");
	REFUSED("{\"prompt\": \"a\0\", \"completion\": \"b\"}", "not JSON");
	REFUSED("\0", "not JSON");
	REFUSED("{\"prompt\": \"a\", \"prompt\": \"a\", \"completion\": \"b\"}", "duplicate");
	REFUSED("[\"a\", \"b\"]", "it is a list, not an object");
	REFUSED("\"a\"", "it is a text, not an object");
	REFUSED("null", "it is null, not an object");
	REFUSED("{}", "it has neither");
	REFUSED("{\"question\": \"a\", \"answer\": \"b\"}", "it has neither");
	REFUSED("{\"prompt\": \"a\"}", "has no \"completion\"");
	REFUSED("{\"completion\": \"a\"}", "has no \"prompt\"");
	REFUSED("{\"prompt\": \"a\", \"completion\": \"b\", \"id\": 3}",
		"the key \"id\", which nothing reads");
	REFUSED("{\"prompt\": \"a\", \"completion\": \"b\", \"\\u001b[2J\": 3}",
		"the key \"?[2J\"");
	REFUSED(PAIR("[\"a\"]", "\"b\""), "\"prompt\" is a list, not a text");
	REFUSED(PAIR("\"a\"", "17"), "\"completion\" is a number, not a text");
	REFUSED(PAIR("\"a\"", "null"), "\"completion\" is null, not a text");
	REFUSED(PAIR("\"a\"", "\"\""), "the answer is empty");
	REFUSED(PAIR("\"a\"", "\" \\n\\u00a0\""), "the answer is empty");
	REFUSED(PAIR("\"\"", "\"b\""), "the prompt is empty");
	REFUSED(PAIR("\"0123456789012345678901234567890123456789\"",
		     "\"0123456789012345678901234\""),
		"it has 66 tokens, but the context has room for 65");
	REFUSED(CHAT(SAYS("user", "a") ", " SAYS("assistant", "b")), "need a template");
	REFUSED("{\"messages\": {}}", "\"messages\" is an object, not a list");
	REFUSED("{\"messages\": [], \"prompt\": \"a\"}", "the key \"prompt\", which nothing reads");
	REFUSED(CHAT(""), "there is no answer: it has no messages");
	REFUSED(CHAT(SAYS("system", "a")), "there is no answer: it has a message of the system");
	REFUSED(CHAT(SAYS("user", "a")), "there is no answer to the last message");
	REFUSED(CHAT(SAYS("user", "a") ", " SAYS("assistant", "b") ", " SAYS("user", "c")),
		"there is no answer to the last message");
	REFUSED(CHAT(SAYS("user", "a") ", " SAYS("assistant", "")), "message 2 has no text");
	REFUSED(CHAT(SAYS("assistant", "a")), "message 1 is of the role assistant, where user");
	REFUSED(CHAT(SAYS("user", "a") ", " SAYS("user", "b") ", " SAYS("assistant", "c")),
		"message 2 is of the role user, where assistant is expected");
	REFUSED(CHAT(SAYS("user", "a") ", " SAYS("system", "b") ", " SAYS("assistant", "c")),
		"message 2 is of the role system, where assistant is expected");
	REFUSED(CHAT(SAYS("tool", "a")), "message 1 is of the role \"tool\"; possible are");
	REFUSED(CHAT("3"), "message 1 is a number, not an object");
	REFUSED(CHAT("{\"role\": \"user\"}"), "message 1 has no \"content\"");
	REFUSED(CHAT("{\"role\": 1, \"content\": \"a\"}"), "the \"role\" of message 1 is a number");
	REFUSED(CHAT("{\"role\": \"user\", \"content\": [1]}"),
		"the \"content\" of message 1 is a list, not a text");
	REFUSED(CHAT("{\"role\": \"user\", \"content\": \"a\", \"name\": \"b\"}"),
		"message 1 has the key \"name\"");
	REFUSED("{\"input_ids\": 3}", "\"input_ids\" is a number, not a list");
	REFUSED("{\"input_ids\": [1, 2], \"labels\": 2}", "\"labels\" is a number, not a list");
	REFUSED("{\"input_ids\": [1, 2], \"labels\": [1]}", "2 \"input_ids\", but 1 \"labels\"");
	REFUSED("{\"input_ids\": [1, 2.5]}", "element 2 of \"input_ids\" is no token");
	REFUSED("{\"input_ids\": [-1, 2]}", "element 1 of \"input_ids\" is no token");
	REFUSED("{\"input_ids\": [1, 4294967296]}", "element 2 of \"input_ids\" is no token");
	REFUSED("{\"input_ids\": [1, 2], \"labels\": [1, 3]}",
		"element 2 of \"labels\" is neither");
	REFUSED("{\"input_ids\": [1, 2], \"labels\": [-100, null]}",
		"element 2 of \"labels\" is neither");
	REFUSED("{\"input_ids\": [1, 2], \"labels\": [1, -100]}", "no token after the first");
	REFUSED("{\"input_ids\": [1]}", "no token after the first is predicted");
	REFUSED("{\"input_ids\": []}", "no token after the first is predicted");
	REFUSED("{\"input_ids\": [1, 2, 256]}", "the token 256, but");
	REFUSED("{\"input_ids\": [1, 2], \"attention_mask\": [1, 1]}",
		"the key \"attention_mask\", which nothing reads");
}

/* Tokens of another program; nothing predicts the first one, nor any after the last label. */
static void test_tokens(void)
{
	static const char lines[] =
		"{\"input_ids\": [5, 0, 255]}\n"
		"{\"labels\": [7, -100, 9, -100], \"input_ids\": [7, 8, 9, 10]}";
	const srt_sft_source_t source = sft_of_bytes(64);
	srt_sft_t *sft = NULL;
	srt_sft_example_t e;

	write_sft(lines, sizeof(lines) - 1);
	CHECK_OK_OR_DIE(srt_sft_open(&source, &sft));
	CHECK_INT(srt_sft_info(sft).nanswer_tokens, 3);
	e = srt_sft_example(sft, 0);
	CHECK_INT(e.ntokens, 3);
	CHECK(e.ids[0] == 5 && e.ids[1] == 0 && e.ids[2] == 255);
	CHECK(!e.is_answer[0] && e.is_answer[1] && e.is_answer[2]);
	e = srt_sft_example(sft, 1);
	CHECK_INT(e.ntokens, 3);
	CHECK(e.ids[0] == 7 && e.ids[1] == 8 && e.ids[2] == 9);
	CHECK(!e.is_answer[0] && !e.is_answer[1] && e.is_answer[2]);
	srt_sft_destroy(sft);
}

/* Lines of many bytes, or of many values. */
static void test_long_lines(void)
{
	static const char begin[] = "{\"prompt\": \"a\", \"completion\": \"", end[] = "\"}";
	const size_t most = SRT_SFT_LINE_NBYTES + 100;
	char *line = malloc(most);

	CHECK_OR_DIE(line != NULL);
	for (int k = 0; k < 3; k++) {
		const size_t n = k == 0 ? 10 << 20 : most;

		memset(line, k == 2 ? '[' : 'x', n);
		if (k < 2) {
			memcpy(line, begin, sizeof(begin) - 1);
			memcpy(line + n - sizeof(end) + 1, end, sizeof(end) - 1);
		}
		check_line_refused(line, k < 2 ? n : (size_t)2 << 20,
				   k == 0 ? "tokens, but the context has room for 65" :
				   k == 1 ? "it has more than 16 MiB" :
					    "it has more than 1048576 values");
	}
	free(line);
}

/* 40,000 tokens, each with a label. */
static void test_many_tokens(void)
{
	enum { NTOKENS = 40000 };
	const srt_sft_source_t source = sft_of_bytes(NTOKENS);
	char *line = malloc(16 * NTOKENS);
	srt_sft_t *sft = NULL;
	size_t n = 0;

	CHECK_OR_DIE(line != NULL);
	for (int k = 0; k < 2; k++) {
		n += (size_t)sprintf(line + n, k == 0 ? "{\"input_ids\": [" : "], \"labels\": [");
		for (int i = 0; i < NTOKENS; i++)
			n += (size_t)sprintf(line + n, "%s%d", i > 0 ? ", " : "", i % 256);
	}
	n += (size_t)sprintf(line + n, "]}");
	write_sft(line, n);
	CHECK_OK_OR_DIE(srt_sft_open(&source, &sft));
	CHECK_INT(srt_sft_info(sft).ntokens, NTOKENS);
	CHECK_INT(srt_sft_info(sft).nanswer_tokens, NTOKENS - 1);
	srt_sft_destroy(sft);
	free(line);
}

static void test_files(void)
{
	srt_sft_source_t source = sft_of_bytes(64);
	srt_sft_t *sft = NULL;
	srt_sft_example_t e;

	unlink(sft_path);
	CHECK_STATUS(srt_sft_open(&source, &sft), SRT_ERR_NOT_FOUND);
	CHECK_ERROR_HAS(sft_path);
	write_sft("", 0);
	CHECK_STATUS(srt_sft_open(&source, &sft), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("has no examples");
	source.path = "tests";
	CHECK_STATUS(srt_sft_open(&source, &sft), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("not a regular file");
	source.path = sft_path;

	/* blank lines are none, the last line needs no end; the token of the end is predicted */
	write_sft("\n \r\n" PAIR("\"ab\"", "\"c\\n\"") "\r\n\n" PAIR("\"d\"", "\"\xc3\xa9\""),
		  4 + sizeof(PAIR("\"ab\"", "\"c\\n\"")) - 1 + 3 +
			  sizeof(PAIR("\"d\"", "\"\xc3\xa9\"")) - 1);
	CHECK_OK_OR_DIE(srt_sft_open(&source, &sft));
	CHECK_INT(srt_sft_info(sft).nexamples, 2);
	CHECK_INT(srt_sft_info(sft).nbad, 0);
	CHECK_INT(srt_sft_info(sft).ntokens, 9);
	CHECK_INT(srt_sft_info(sft).nanswer_tokens, 6);
	e = srt_sft_example(sft, 0);
	CHECK_INT(e.line, 3);
	CHECK_INT(e.ntokens, 5);
	for (int i = 0; i < 5; i++) {
		CHECK_INT(e.ids[i], "abc\n\0"[i]);
		CHECK_INT(e.is_answer[i], i >= 2);
	}
	e = srt_sft_example(sft, 1);
	CHECK_INT(e.line, 5);
	CHECK_INT(e.ids[1], 0xc3);
	srt_sft_destroy(sft);
	CHECK_INT(sft_reported.n, 0);

	/* a token that the model does not have */
	source.vocab = 101;
	CHECK_STATUS(srt_sft_open(&source, &sft), SRT_ERR_INVALID_ARGUMENT);
	CHECK(sft_reported.n == 1 && strstr(sft_reported.why, "the token 195, but") != NULL);
}

/* 1000 lines, of which those that are no examples are reported; the others are what a file without
 * them has. */
static void test_many_lines(void)
{
	static const char *const bad[] = {
		"{\"prompt\": \"a\"}\n",
		"{\"prompt\": \"a\", \"completion\": \"\"}\n",
		"{\"prompt\": \"a\", \"completion\": 1}\n",
		"{\"prompt\": \"\xff\", \"completion\": \"b\"}\n",
		"{\"messages\": []}\n",
		"{\n",
	};
	srt_sft_source_t source = sft_of_bytes(64);
	srt_sft_t *sft = NULL, *clean = NULL;
	static int64_t lines[1000];
	size_t nbad = 0;

	for (int with_bad = 1; with_bad >= 0; with_bad--) {
		FILE *f = fopen(sft_path, "wb");

		CHECK_OR_DIE(f != NULL);
		for (int i = 0; i < 1000; i++) {
			const uint64_t r = srt_counter_hash(1, 2, (uint64_t)i);

			if (r % 9 != 0)
				fprintf(f, "{\"prompt\": \"%d\", \"completion\": \"%.*s\"}\n", i,
					(int)(r / 16 % 40) + 1,
					"0123456789abcdefghijklmnopqrstuvwxyzABCDE");
			else if (with_bad)
				fputs(bad[r / 16 % (sizeof(bad) / sizeof(bad[0]))], f);
			if (r % 9 == 0 && with_bad)
				lines[nbad++] = i + 1;
		}
		CHECK_OR_DIE(fclose(f) == 0);
		if (!with_bad)
			break;
		CHECK_STATUS(srt_sft_open(&source, &sft), SRT_ERR_INVALID_ARGUMENT);
		CHECK_ERROR_HAS("of 1000 lines are not examples");
		CHECK_INT(sft_reported.n, nbad);
		sft_reported.n = 0;
		source.skips_bad = 1;
		CHECK_OK_OR_DIE(srt_sft_open(&source, &sft));
	}
	CHECK(nbad > 80 && nbad < 140);
	CHECK_INT(sft_reported.n, nbad);
	CHECK(memcmp(sft_reported.lines, lines, nbad * sizeof(*lines)) == 0);
	CHECK_INT(srt_sft_info(sft).nbad, nbad);
	CHECK_INT(srt_sft_info(sft).nexamples, 1000 - nbad);
	CHECK_OK_OR_DIE(srt_sft_open(&source, &clean));
	CHECK_INT(srt_sft_info(clean).nexamples, 1000 - nbad);
	CHECK(srt_sft_info(clean).hash == srt_sft_info(sft).hash);
	srt_sft_destroy(clean);
	srt_sft_destroy(sft);
}

int main(void)
{
	sft_case_begin();
	test_refused_lines();
	test_tokens();
	test_long_lines();
	test_many_tokens();
	test_files();
	test_many_lines();
	sft_case_end();
	return check_done();
}
