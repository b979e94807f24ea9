/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chats as text: messages of users and assistants under the templates of published models. A
 * template is a row of a table, not a program: Jinja templates are not run.
 */
#ifndef SRT_MODELS_DATA_CHAT_H
#define SRT_MODELS_DATA_CHAT_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/models/tokenizer.h>
#include <shardrt/status.h>

/** Who has written a message. */
typedef enum srt_chat_role {
	SRT_CHAT_SYSTEM,
	SRT_CHAT_USER,
	SRT_CHAT_ASSISTANT,
	SRT_CHAT_ROLES
} srt_chat_role_t;

/** A message: UTF-8, borrowed. */
typedef struct srt_chat_message {
	srt_chat_role_t role;
	const char *text;
	size_t nbytes;
} srt_chat_message_t;

/** A template; static. */
typedef struct srt_chat_template srt_chat_template_t;

/** Finds a template by its name; NULL if there is none. */
const srt_chat_template_t *srt_chat_find(const char *name);
/** The names of all templates, with commas. */
const char *srt_chat_names(void);

/**
 * Checks that a tokenizer has what a template writes.
 * @param bos, eos its tokens of the beginning and the end of a text, -1: none.
 * @return SRT_ERR_INVALID_ARGUMENT, with a sentence, for a token that is missing.
 */
srt_status_t srt_chat_check(const srt_chat_template_t *chat, const srt_tokenizer_t *tokenizer,
			    int32_t bos, int32_t eos);

/** The parts of a chat, for srt_tokenizer_encode_parts(); all zero at first. Texts are borrowed
 * from the messages and the template. */
typedef struct srt_chat_parts {
	srt_tokenizer_part_t *parts; /* owned, freed by free() */
	unsigned char *is_answer;    /* (nparts) the part is of an answer; owned too */
	size_t nparts, capacity;
} srt_chat_parts_t;

/** Frees them. */
void srt_chat_parts_clear(srt_chat_parts_t *parts);

/**
 * Lays out messages as the template has them. An answer, which is the text of an assistant with the
 * token that ends it, is cut off from what is before and after it.
 * @param messages an optional one of the system, then those of users and assistants in turn.
 * @param generate 1: what asks for an answer follows the last message, which is a user's.
 * @return SRT_ERR_OUT_OF_MEMORY.
 */
srt_status_t srt_chat_lay_out(const srt_chat_template_t *chat, const srt_chat_message_t *messages,
			      size_t nmessages, int32_t bos, int32_t eos, int generate,
			      srt_chat_parts_t *parts);

/**
 * Lays out a prompt and its completion without a template: the completion and the token `eos` are
 * the answer.
 * @param eos -1: none.
 * @return SRT_ERR_OUT_OF_MEMORY.
 */
srt_status_t srt_chat_lay_out_plain(const srt_chat_message_t *prompt,
				    const srt_chat_message_t *completion, int32_t eos,
				    srt_chat_parts_t *parts);

/** Whether a text has characters that are not blanks. */
int srt_chat_has_text(const char *text, size_t nbytes);

#endif
