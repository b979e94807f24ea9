/* SPDX-License-Identifier: BSD-3-Clause */
/* See chat.h. */
#include "models/data/chat.h"

#include <stdlib.h>
#include <string.h>

#include "models/string.h"
#include "models/try.h"

/* In the texts of a template, the tokenizer's token of the end. */
#define EOS "\1"
/* Most tokens of a template. */
#define MOST_TOKENS 3

#define ROLE(role) (1u << (role))

struct srt_chat_template {
	const char *name;
	/* What is before and after the text of each role. Before that of an assistant: what asks
	 * for an answer. After it: what follows `end`. */
	const char *before[SRT_CHAT_ROLES], *after[SRT_CHAT_ROLES];
	const char *lead, *end;          /* of an answer, before and after its text */
	const char *tokens[MOST_TOKENS]; /* that the tokenizer must have; then NULL */
	const char *system;              /* NULL, or what separates the text of the system, which
					   * is in the first message of a user, from the user's */
	unsigned trimmed;                /* ROLE()s whose texts have no blanks at their ends */
	bool bos;                        /* begins with the token of the beginning */
};

/* The templates are those of Meta-Llama-3-8B-Instruct, Mistral-7B-Instruct-v0.3, gemma-3-1b-it and
 * zephyr-7b-beta, and ChatML without a default message of the system. That of Mistral puts the text
 * of the system into the last message of a user, which in a chat of several answers is another one
 * for each of them: here it is the first. */
static const srt_chat_template_t templates[] = {
	{ .name = "chatml",
	  .before = { "<|im_start|>system\n", "<|im_start|>user\n", "<|im_start|>assistant\n" },
	  .after = { "<|im_end|>\n", "<|im_end|>\n", "\n" },
	  .lead = "",
	  .end = "<|im_end|>",
	  .tokens = { "<|im_start|>", "<|im_end|>" } },
	{ .name = "llama3",
	  .before = { "<|start_header_id|>system<|end_header_id|>\n\n",
		      "<|start_header_id|>user<|end_header_id|>\n\n",
		      "<|start_header_id|>assistant<|end_header_id|>\n\n" },
	  .after = { "<|eot_id|>", "<|eot_id|>", "" },
	  .lead = "",
	  .end = "<|eot_id|>",
	  .tokens = { "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>" },
	  .trimmed = ROLE(SRT_CHAT_SYSTEM) | ROLE(SRT_CHAT_USER) | ROLE(SRT_CHAT_ASSISTANT),
	  .bos = true },
	{ .name = "mistral",
	  .before = { "", "[INST] ", "" },
	  .after = { "", "[/INST]", "" },
	  .lead = " ",
	  .end = EOS,
	  .system = "\n\n",
	  .trimmed = ROLE(SRT_CHAT_ASSISTANT),
	  .bos = true },
	{ .name = "gemma",
	  .before = { "", "<start_of_turn>user\n", "<start_of_turn>model\n" },
	  .after = { "", "<end_of_turn>\n", "\n" },
	  .lead = "",
	  .end = "<end_of_turn>",
	  .tokens = { "<start_of_turn>", "<end_of_turn>" },
	  .system = "\n\n",
	  .trimmed = ROLE(SRT_CHAT_USER) | ROLE(SRT_CHAT_ASSISTANT),
	  .bos = true },
	{ .name = "zephyr",
	  .before = { "<|system|>\n", "<|user|>\n", "<|assistant|>\n" },
	  .after = { EOS "\n", EOS "\n", "\n" },
	  .lead = "",
	  .end = EOS },
};

const srt_chat_template_t *srt_chat_find(const char *name)
{
	for (size_t i = 0; i < sizeof(templates) / sizeof(templates[0]); i++)
		if (strcmp(templates[i].name, name) == 0)
			return &templates[i];
	return NULL;
}

const char *srt_chat_names(void)
{
	return "chatml, llama3, mistral, gemma, zephyr";
}

srt_status_t srt_chat_check(const srt_chat_template_t *chat, const srt_tokenizer_t *tokenizer,
			    int32_t bos, int32_t eos)
{
	const bool wants_eos = strcmp(chat->end, EOS) == 0;

	for (size_t i = 0; i < MOST_TOKENS && chat->tokens[i] != NULL; i++)
		if (srt_tokenizer_find(tokenizer, chat->tokens[i]) < 0)
			return srt_model_fail(
				SRT_ERR_INVALID_ARGUMENT,
				"the template %s has the token %s, which the tokenizer does not "
				"have",
				chat->name, chat->tokens[i]);
	if ((chat->bos && bos < 0) || (wants_eos && eos < 0))
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "the template %s needs a token of the %s of a text, which "
				      "the model's folder does not name",
				      chat->name, chat->bos && bos < 0 ? "beginning" : "end");
	return SRT_OK;
}

/* ---- parts ---------------------------------------------------------------------------------- */

void srt_chat_parts_clear(srt_chat_parts_t *p)
{
	free(p->parts);
	free(p->is_answer);
	*p = (srt_chat_parts_t){ 0 };
}

static srt_status_t reserve(srt_chat_parts_t *p)
{
	const size_t capacity = p->capacity > 0 ? 2 * p->capacity : 16;
	srt_tokenizer_part_t *parts;
	unsigned char *is_answer;

	if (p->nparts < p->capacity)
		return SRT_OK;
	parts = realloc(p->parts, capacity * sizeof(*parts));
	if (parts != NULL)
		p->parts = parts;
	is_answer = realloc(p->is_answer, capacity);
	if (is_answer != NULL)
		p->is_answer = is_answer;
	if (parts == NULL || is_answer == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for a chat");
	p->capacity = capacity;
	return SRT_OK;
}

/* An answer begins and ends with a cut. */
static srt_status_t add(srt_chat_parts_t *p, srt_tokenizer_part_t part, bool is_answer)
{
	SRT_TRY(reserve(p));
	part.cut = p->nparts > 0 ? p->is_answer[p->nparts - 1] != is_answer : is_answer;
	p->is_answer[p->nparts] = is_answer;
	p->parts[p->nparts++] = part;
	return SRT_OK;
}

static srt_status_t add_token(srt_chat_parts_t *p, int32_t id, bool is_answer)
{
	return add(p, (srt_tokenizer_part_t){ .id = id }, is_answer);
}

static srt_status_t add_content(srt_chat_parts_t *p, const char *text, size_t nbytes,
				bool is_answer)
{
	return nbytes == 0 ?
		       SRT_OK :
		       add(p, (srt_tokenizer_part_t){ .text = text, .nbytes = nbytes, .plain = 1 },
			   is_answer);
}

/* A text of a template, with EOS for a token. */
static srt_status_t add_text(srt_chat_parts_t *p, const char *text, int32_t eos, bool is_answer)
{
	while (*text != '\0') {
		const size_t n = strcspn(text, EOS);

		if (n > 0)
			SRT_TRY(add(p, (srt_tokenizer_part_t){ .text = text, .nbytes = n },
				    is_answer));
		text += n;
		if (*text == '\0')
			break;
		SRT_TRY(add_token(p, eos, is_answer));
		text++;
	}
	return SRT_OK;
}

/* ---- blanks --------------------------------------------------------------------------------- */

/* Blanks are those of Python's str.strip(), which the templates call. */
static bool is_blank(uint32_t c)
{
	return srt_is_space(c) || (c >= 0x1c && c <= 0x1f);
}

/* The text without blanks at its ends. */
static srt_chat_message_t trim(srt_chat_message_t m)
{
	size_t start = m.nbytes, end = 0;
	uint32_t c;

	for (size_t at = 0, n; at < m.nbytes; at += n) {
		const int length = srt_utf8_decode(m.text + at, m.nbytes - at, &c);

		n = (size_t)(length > 0 ? length : -length);
		if (length > 0 && is_blank(c))
			continue;
		if (at < start)
			start = at;
		end = at + n;
	}
	m.nbytes = end > start ? end - start : 0;
	m.text = m.nbytes > 0 ? m.text + start : m.text;
	return m;
}

int srt_chat_has_text(const char *text, size_t nbytes)
{
	return trim((srt_chat_message_t){ .text = text, .nbytes = nbytes }).nbytes > 0;
}

/* ---- chats ---------------------------------------------------------------------------------- */

static srt_chat_message_t trim_role(const srt_chat_template_t *chat, srt_chat_message_t m)
{
	return (chat->trimmed & ROLE(m.role)) != 0 ? trim(m) : m;
}

static srt_status_t add_answer(const srt_chat_template_t *chat, srt_chat_message_t m, int32_t eos,
			       srt_chat_parts_t *p)
{
	SRT_TRY(add_text(p, chat->before[SRT_CHAT_ASSISTANT], eos, false));
	SRT_TRY(add_text(p, chat->lead, eos, true));
	SRT_TRY(add_content(p, m.text, m.nbytes, true));
	SRT_TRY(add_text(p, chat->end, eos, true));
	return add_text(p, chat->after[SRT_CHAT_ASSISTANT], eos, false);
}

/* @param system before the user's text; NULL: none. */
static srt_status_t add_question(const srt_chat_template_t *chat, srt_chat_message_t m,
				 const srt_chat_message_t *system, int32_t eos, srt_chat_parts_t *p)
{
	SRT_TRY(add_text(p, chat->before[m.role], eos, false));
	if (system != NULL) {
		const srt_chat_message_t s = trim_role(chat, *system);

		SRT_TRY(add_content(p, s.text, s.nbytes, false));
		SRT_TRY(add_text(p, chat->system, eos, false));
	}
	SRT_TRY(add_content(p, m.text, m.nbytes, false));
	return add_text(p, chat->after[m.role], eos, false);
}

srt_status_t srt_chat_lay_out(const srt_chat_template_t *chat, const srt_chat_message_t *messages,
			      size_t nmessages, int32_t bos, int32_t eos, int generate,
			      srt_chat_parts_t *p)
{
	const srt_chat_message_t *system = NULL;

	if (chat->bos)
		SRT_TRY(add_token(p, bos, false));
	for (size_t i = 0; i < nmessages; i++) {
		const srt_chat_message_t m = trim_role(chat, messages[i]);

		if (m.role == SRT_CHAT_ASSISTANT) {
			SRT_TRY(add_answer(chat, m, eos, p));
		} else if (m.role == SRT_CHAT_SYSTEM && chat->system != NULL) {
			system = &messages[i];
		} else {
			SRT_TRY(add_question(chat, m, system, eos, p));
			system = NULL;
		}
	}
	return generate ? add_text(p, chat->before[SRT_CHAT_ASSISTANT], eos, false) : SRT_OK;
}

srt_status_t srt_chat_lay_out_plain(const srt_chat_message_t *prompt,
				    const srt_chat_message_t *completion, int32_t eos,
				    srt_chat_parts_t *p)
{
	SRT_TRY(add_content(p, prompt->text, prompt->nbytes, false));
	SRT_TRY(add_content(p, completion->text, completion->nbytes, true));
	return eos >= 0 ? add_token(p, eos, true) : SRT_OK;
}
