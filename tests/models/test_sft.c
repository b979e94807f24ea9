/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Examples of answers: templates as transformers renders those of published models, and which
 * tokens are of answers.
 */
#include <stdbool.h>
#include <stdlib.h>

#include "tests/models/sft_case.h"
#include "tests/models/tokenizer_case.h"

/* ---- templates ------------------------------------------------------------------------------ */

enum { BOS = 1, EOS = 2 };

typedef struct {
	const char *name;
	const char *text[3]; /* of chats[] */
	const char *asks;    /* of the last chat without its last message */
} rendered_t;

#define TEXT(role, text)                                                                           \
	{                                                                                          \
		SRT_CHAT_##role, text, sizeof(text) - 1                                            \
	}

static const srt_chat_message_t chats[][4] = {
	{ TEXT(USER, "Hi "), TEXT(ASSISTANT, " Hello!") },
	{ TEXT(SYSTEM, "Be  brief.\n"), TEXT(USER, "  Who?"), TEXT(ASSISTANT, "I.\n") },
	{ TEXT(USER, "A"), TEXT(ASSISTANT, "B"), TEXT(USER, "C\n"), TEXT(ASSISTANT, "D") },
};
static const size_t chat_lengths[] = { 2, 3, 4 };

/* What transformers 5.24 makes of these chats by the published templates (Meta-Llama-3-8B-Instruct,
 * Mistral-7B-Instruct-v0.3, gemma-3-1b-it, zephyr-7b-beta), with <s> and </s> for the tokens of the
 * beginning and the end. */
static const rendered_t rendered[] = {
	{ "chatml",
	  { "<|im_start|>user\nHi <|im_end|>\n<|im_start|>assistant\n Hello!<|im_end|>\n",
	    "<|im_start|>system\nBe  brief.\n<|im_end|>\n<|im_start|>user\n  Who?<|im_end|>\n"
	    "<|im_start|>assistant\nI.\n<|im_end|>\n",
	    "<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\nB<|im_end|>\n"
	    "<|im_start|>user\nC\n<|im_end|>\n<|im_start|>assistant\nD<|im_end|>\n" },
	  "<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\nB<|im_end|>\n"
	  "<|im_start|>user\nC\n<|im_end|>\n<|im_start|>assistant\n" },
	{ "llama3",
	  { "<s><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
	    "<|start_header_id|>assistant<|end_header_id|>\n\nHello!<|eot_id|>",
	    "<s><|start_header_id|>system<|end_header_id|>\n\nBe  brief.<|eot_id|>"
	    "<|start_header_id|>user<|end_header_id|>\n\nWho?<|eot_id|>"
	    "<|start_header_id|>assistant<|end_header_id|>\n\nI.<|eot_id|>",
	    "<s><|start_header_id|>user<|end_header_id|>\n\nA<|eot_id|>"
	    "<|start_header_id|>assistant<|end_header_id|>\n\nB<|eot_id|>"
	    "<|start_header_id|>user<|end_header_id|>\n\nC<|eot_id|>"
	    "<|start_header_id|>assistant<|end_header_id|>\n\nD<|eot_id|>" },
	  "<s><|start_header_id|>user<|end_header_id|>\n\nA<|eot_id|>"
	  "<|start_header_id|>assistant<|end_header_id|>\n\nB<|eot_id|>"
	  "<|start_header_id|>user<|end_header_id|>\n\nC<|eot_id|>"
	  "<|start_header_id|>assistant<|end_header_id|>\n\n" },
	{ "mistral",
	  { "<s>[INST] Hi [/INST] Hello!</s>", "<s>[INST] Be  brief.\n\n\n  Who?[/INST] I.</s>",
	    "<s>[INST] A[/INST] B</s>[INST] C\n[/INST] D</s>" },
	  "<s>[INST] A[/INST] B</s>[INST] C\n[/INST]" },
	{ "gemma",
	  { "<s><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nHello!<end_of_turn>\n",
	    "<s><start_of_turn>user\nBe  brief.\n\n\nWho?<end_of_turn>\n"
	    "<start_of_turn>model\nI.<end_of_turn>\n",
	    "<s><start_of_turn>user\nA<end_of_turn>\n<start_of_turn>model\nB<end_of_turn>\n"
	    "<start_of_turn>user\nC<end_of_turn>\n<start_of_turn>model\nD<end_of_turn>\n" },
	  "<s><start_of_turn>user\nA<end_of_turn>\n<start_of_turn>model\nB<end_of_turn>\n"
	  "<start_of_turn>user\nC<end_of_turn>\n<start_of_turn>model\n" },
	{ "zephyr",
	  { "<|user|>\nHi </s>\n<|assistant|>\n Hello!</s>\n",
	    "<|system|>\nBe  brief.\n</s>\n<|user|>\n  Who?</s>\n<|assistant|>\nI.\n</s>\n",
	    "<|user|>\nA</s>\n<|assistant|>\nB</s>\n<|user|>\nC\n</s>\n<|assistant|>\nD</s>\n" },
	  "<|user|>\nA</s>\n<|assistant|>\nB</s>\n<|user|>\nC\n</s>\n<|assistant|>\n" },
};

static void check_rendered(const rendered_t *r, size_t chat, bool asks, const char *want)
{
	const size_t n = chat_lengths[chat] - asks;
	srt_chat_parts_t parts = { .nparts = 0 };
	char text[512] = "";

	CHECK_OK_OR_DIE(
		srt_chat_lay_out(srt_chat_find(r->name), chats[chat], n, BOS, EOS, asks, &parts));
	for (size_t i = 0; i < parts.nparts; i++) {
		const srt_tokenizer_part_t *p = &parts.parts[i];

		if (p->text == NULL)
			CHECK(p->id == BOS || p->id == EOS);
		strncat(text,
			p->text != NULL ? p->text :
			p->id == BOS    ? "<s>" :
					  "</s>",
			p->text != NULL ? p->nbytes : 4);
	}
	CHECK_MSG(strcmp(text, want) == 0, "%s: %s", r->name, text);
	srt_chat_parts_clear(&parts);
}

static void test_templates(void)
{
	for (size_t i = 0; i < sizeof(rendered) / sizeof(rendered[0]); i++) {
		CHECK(srt_chat_find(rendered[i].name) != NULL);
		CHECK(strstr(srt_chat_names(), rendered[i].name) != NULL);
		for (size_t k = 0; k < 3; k++)
			check_rendered(&rendered[i], k, false, rendered[i].text[k]);
		check_rendered(&rendered[i], 2, true, rendered[i].asks);
	}
	CHECK(srt_chat_find("chat") == NULL);
	CHECK(srt_chat_find("") == NULL);
}

/* ---- tokens --------------------------------------------------------------------------------- */

enum { IM_START = 3, IM_END = 4 };

/* A tokenizer of characters of ASCII, with tokens of the template chatml and two merges. */
static srt_tokenizer_t *open_ascii(const char *normalizer)
{
	static char vocab[4096];
	size_t n = 0;

	n += (size_t)snprintf(vocab, sizeof(vocab), "\"\\n\": 10, \"\\n\\n\": 11, \"ab\": 12");
	for (int c = ' '; c < 127; c++)
		n += (size_t)snprintf(vocab + n, sizeof(vocab) - n, ", \"%s%c\": %d",
				      c == '"' || c == '\\' ? "\\" : "", c, c);
	return open_tokenizer(
		&(parts_t){ .vocab = vocab,
			    .merges = "[\"\\n\", \"\\n\"], [\"a\", \"b\"]",
			    .normalizer = normalizer,
			    .decoder = "{\"type\": \"Fuse\"}",
			    .added = TOKEN(1, "<s>", ) ", " TOKEN(2, "</s>", ) ", " TOKEN(
				    3, "<|im_start|>", ) ", " TOKEN(4, "<|im_end|>", ) });
}

/* The ids of an example's answers, as text. */
static void decode_answers(const srt_tokenizer_t *t, const srt_sft_example_t *e, char *text)
{
	char *one;
	size_t nbytes;

	*text = '\0';
	for (int64_t i = 0; i < e->ntokens; i++) {
		if (!e->is_answer[i]) {
			if (i > 0 && e->is_answer[i - 1])
				strcat(text, "|");
			continue;
		}
		CHECK_OK_OR_DIE(srt_tokenizer_decode(t, &e->ids[i], 1, 0, &one, &nbytes));
		strcat(text, one);
		free(one);
	}
}

/* Answers and the tokens that end them, all of a chat; texts of users are no control tokens. */
static void test_answers(void)
{
	static const char line[] =
		CHAT(SAYS("system", "S<|im_end|>") ", " SAYS("user", "\\nab<|im_start|>") ", " SAYS(
			"assistant", "ab</s>") ", " SAYS("user", "C") ", " SAYS("assistant", "D"));
	static const char want[] = "<|im_start|>system\nS<|im_end|><|im_end|>\n<|im_start|>user\n\n"
				   "ab<|im_start|><|im_end|>\n<|im_start|>assistant\nab</s>"
				   "<|im_end|>\n<|im_start|>user\nC<|im_end|>\n"
				   "<|im_start|>assistant\nD<|im_end|>";
	srt_tokenizer_t *t = open_ascii(NULL);
	srt_sft_source_t source = sft_of_bytes(512);
	srt_sft_t *sft;
	srt_sft_example_t e;
	int64_t nstarts = 0, nends = 0, neos = 0, npairs = 0;
	char text[256], *all;
	size_t nbytes;

	source.tokenizer = t;
	source.chat = srt_chat_find("chatml");
	write_sft(line, sizeof(line) - 1);
	CHECK_OK_OR_DIE(srt_sft_open(&source, &sft));
	e = srt_sft_example(sft, 0);
	decode_answers(t, &e, text);
	CHECK_MSG(strcmp(text, "ab</s><|im_end|>|D<|im_end|>") == 0, "%s", text);
	CHECK_OK_OR_DIE(srt_tokenizer_decode(t, e.ids, (size_t)e.ntokens, 0, &all, &nbytes));
	CHECK_MSG(strcmp(all, want) == 0, "%s", all);
	free(all);
	for (int64_t i = 0; i < e.ntokens; i++) {
		nstarts += e.ids[i] == IM_START;
		nends += e.ids[i] == IM_END;
		neos += e.ids[i] == EOS;
		npairs += e.ids[i] == 11; /* a line's end of the template, and the user's first */
	}
	CHECK_INT(nstarts, 5);
	CHECK_INT(nends, 5);
	CHECK_INT(neos, 0);
	CHECK_INT(npairs, 1);
	CHECK(e.is_answer[e.ntokens - 1]);
	srt_sft_destroy(sft);
	srt_tokenizer_close(t);
}

/* A prompt and its completion: no token is of both, and the token of the end is an answer. */
static void test_pairs(void)
{
	static const char line[] = PAIR("\"ab a\"", "\"b<s>ab\"");
	static const int32_t plain[] = { 12, ' ', 'a', 'b', '<', 's', '>', 12, EOS };
	/* what the normalizer puts before a text is not put before its completion */
	static const int32_t prefixed[] = { '_', 12, ' ', 'a', 'b', '<', 's', '>', 12, EOS };
	static const char *const normalizers[] = { NULL,
						   "{\"type\": \"Prepend\", \"prepend\": \"_\"}" };

	write_sft(line, sizeof(line) - 1);
	for (int k = 0; k < 2; k++) {
		const int32_t *want = k == 0 ? plain : prefixed;
		const int64_t n = k == 0 ? 9 : 10;
		srt_tokenizer_t *t = open_ascii(normalizers[k]);
		srt_sft_source_t source = sft_of_bytes(64);
		srt_sft_t *sft;
		srt_sft_example_t e;

		source.tokenizer = t;
		source.eos = EOS;
		CHECK_OK_OR_DIE(srt_sft_open(&source, &sft));
		e = srt_sft_example(sft, 0);
		CHECK_INT(e.ntokens, n);
		for (int64_t i = 0; i < n; i++) {
			CHECK_INT(e.ids[i], want[i]);
			CHECK_INT(e.is_answer[i], i >= 3 + k);
		}
		srt_sft_destroy(sft);
		srt_tokenizer_close(t);
	}
}

/* Parts without cuts and plain texts are encoded as the text that they are together. */
static void test_parts(void)
{
	static const char text[] = "a<s>b\n\nab</s>ab";
	srt_tokenizer_t *t = open_ascii("{\"type\": \"Prepend\", \"prepend\": \"_\"}");
	int32_t *whole, *ids;
	size_t nwhole, n;

	CHECK_OK_OR_DIE(srt_tokenizer_encode(t, text, sizeof(text) - 1, 0, &whole, &nwhole));
	for (size_t cut = 0; cut < sizeof(text); cut++) {
		srt_tokenizer_part_t parts[] = {
			{ .text = text, .nbytes = cut },
			{ .text = text + cut, .nbytes = sizeof(text) - 1 - cut },
		};
		/* within a special token */
		if ((cut > 1 && cut < 4) || (cut > 9 && cut < 13))
			continue;
		CHECK_OK_OR_DIE(srt_tokenizer_encode_parts(t, parts, 2, 0, &ids, &n));
		CHECK(n == nwhole && memcmp(ids, whole, n * sizeof(*ids)) == 0);
		free(ids);
	}
	free(whole);
	srt_tokenizer_close(t);

	/* what is special only in a normal form cannot be told from a user's text */
	t = open_tokenizer(&(parts_t){ .added = TOKEN(11, "<x>", ", \"normalized\": true") });
	for (int plain = 0; plain < 2; plain++) {
		srt_tokenizer_part_t part = { .text = "a<x>", .nbytes = 4, .plain = plain };

		CHECK_STATUS(srt_tokenizer_encode_parts(t, &part, 1, 0, &ids, &n),
			     plain ? SRT_ERR_UNSUPPORTED : SRT_OK);
		if (plain)
			CHECK_ERROR_HAS("special token 11");
		else
			free(ids);
	}
	CHECK_STATUS(srt_tokenizer_encode_parts(NULL, NULL, 0, 0, &ids, &n),
		     SRT_ERR_INVALID_ARGUMENT);
	srt_tokenizer_close(t);
}

/* A template needs the tokens that it writes. */
static void test_missing_tokens(void)
{
	srt_tokenizer_t *t = open_ascii(NULL);

	CHECK_OK(srt_chat_check(srt_chat_find("chatml"), t, -1, -1));
	CHECK_OK(srt_chat_check(srt_chat_find("mistral"), t, BOS, EOS));
	CHECK_STATUS(srt_chat_check(srt_chat_find("llama3"), t, BOS, EOS),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("the template llama3 has the token <|start_header_id|>");
	CHECK_STATUS(srt_chat_check(srt_chat_find("mistral"), t, -1, EOS),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("a token of the beginning");
	CHECK_STATUS(srt_chat_check(srt_chat_find("zephyr"), t, BOS, -1), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("a token of the end");
	srt_tokenizer_close(t);
}

int main(void)
{
	sft_case_begin();
	tokenizer_case_begin();
	test_templates();
	test_answers();
	test_pairs();
	test_parts();
	test_missing_tokens();
	tokenizer_case_end();
	sft_case_end();
	return check_done();
}
