/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Input: a line of a file of examples. One that is accepted has tokens, of which one after the
 * first is predicted, or messages in turn, the last an answer; these are laid out under each
 * template with an answer for each message of an assistant.
 */
#include <shardrt/status.h>

#include "models/data/sft_impl.h"
#include "models/string.h"
#include "tests/fuzz/fuzz.h"

/* The message, which names parts of the line, can be shown on a terminal. */
static void check_message(void)
{
	const char *message = srt_error_last();

	FUZZ_CHECK(message[0] != '\0');
	FUZZ_CHECK(srt_utf8_find_invalid(message, strlen(message)) == strlen(message));
	for (const char *c = message; *c != '\0'; c++)
		FUZZ_CHECK((unsigned char)*c >= 0x20 && *c != 0x7f);
}

static void check_chat(const srt_sft_line_t *line, const char *name)
{
	srt_chat_parts_t parts = { .nparts = 0 };
	size_t nanswers = 0, nassistants = 0;
	bool before = false;

	FUZZ_CHECK(srt_chat_lay_out(srt_chat_find(name), line->messages, line->nmessages, 1, 2, 0,
				    &parts) == SRT_OK);
	for (size_t i = 0; i < parts.nparts; i++) {
		FUZZ_CHECK(parts.parts[i].cut == (parts.is_answer[i] != before));
		nanswers += parts.is_answer[i] && !before;
		before = parts.is_answer[i];
	}
	for (size_t i = 0; i < line->nmessages; i++)
		nassistants += line->messages[i].role == SRT_CHAT_ASSISTANT;
	FUZZ_CHECK(nanswers == nassistants && nanswers > 0);
	srt_chat_parts_clear(&parts);
}

static void check_tokens(const srt_sft_line_t *line)
{
	FUZZ_CHECK(line->nmessages == 0 && line->nids >= 2);
	FUZZ_CHECK(!line->is_answer[0] && memchr(line->is_answer, 1, line->nids) != NULL);
	for (size_t i = 0; i < line->nids; i++)
		FUZZ_CHECK(line->ids[i] >= 0);
}

static void check_messages(const srt_sft_line_t *line)
{
	static const char *const names[] = { "chatml", "llama3", "mistral", "gemma", "zephyr" };

	FUZZ_CHECK(line->nmessages >= 2);
	FUZZ_CHECK(line->messages[line->nmessages - 1].role == SRT_CHAT_ASSISTANT);
	for (size_t i = 0; i < line->nmessages; i++)
		FUZZ_CHECK(
			srt_utf8_find_invalid(line->messages[i].text, line->messages[i].nbytes) ==
			line->messages[i].nbytes);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		check_chat(line, names[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes)
{
	/* Exactly the input, so that ASan sees a read past its end. */
	char *text = malloc(nbytes > 0 ? nbytes : 1);
	srt_sft_line_t line = { .json = NULL };

	FUZZ_CHECK(text != NULL);
	if (nbytes > 0)
		memcpy(text, input, nbytes);
	if (srt_sft_line_read(text, nbytes, &line) == SRT_OK) {
		if (line.ids != NULL)
			check_tokens(&line);
		else
			check_messages(&line);
	} else {
		check_message();
	}
	srt_sft_line_clear(&line);
	free(text);
	return 0;
}
