/* SPDX-License-Identifier: BSD-3-Clause */
/* Files of examples for the tests of models/data/sft.h. */
#ifndef SRT_TESTS_SFT_CASE_H
#define SRT_TESTS_SFT_CASE_H

#include "models/data/sft.h"
#include "tests/harness/check.h"

/* Lines of a prompt and its completion, and of messages. */
#define PAIR(prompt, completion) "{\"prompt\": " prompt ", \"completion\": " completion "}"
#define SAYS(role, content) "{\"role\": \"" role "\", \"content\": \"" content "\"}"
#define CHAT(messages) "{\"messages\": [" messages "]}"

/* The file that the functions below write, of this process. */
extern char sft_path[64];

/* The lines of it that were reported. */
typedef struct {
	int64_t lines[1200];
	size_t n;
	char why[256]; /* the last one */
} sft_reported_t;
extern sft_reported_t sft_reported;

/* Sets the name of the file. Skips the test without jansson. */
void sft_case_begin(void);
/* Removes the file. */
void sft_case_end(void);

void write_sft(const char *text, size_t nbytes);
/* Bytes are tokens, and no line was reported yet. */
srt_sft_source_t sft_of_bytes(int64_t context);

#endif
