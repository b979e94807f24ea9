/* SPDX-License-Identifier: BSD-3-Clause */
/* Files of tokenizers that tests make of their parts. */
#ifndef SRT_TESTS_TOKENIZER_CASE_H
#define SRT_TESTS_TOKENIZER_CASE_H

#include <shardrt/models/tokenizer.h>

#include "tests/harness/check.h"

/* The parts of a file; NULL: none. */
typedef struct {
	const char *vocab, *merges, *model; /* model: more keys, each with a comma after it */
	const char *added, *normalizer, *pre, *post, *decoder;
} parts_t;

#define VOCAB                                                                                      \
	"\"<unk>\": 0, \"a\": 1, \"b\": 2, \"ab\": 3, \"c\": 4, \"abc\": 5, \"_\": 6, \"d\": 7, "  \
	"\"cd\": 8, \"<0xC3>\": 9, \"<0xA9>\": 10"
#define MERGES "[\"a\", \"b\"], [\"ab\", \"c\"], [\"c\", \"d\"]"
#define TOKEN(id, text, more)                                                                      \
	"{\"id\": " #id ", \"content\": \"" text "\", \"special\": true" more "}"
/* A pre-tokenizer. */
#define SPLIT(pattern, behavior, invert)                                                           \
	"{\"type\": \"Split\", \"pattern\": " pattern ", \"behavior\": \"" behavior                \
	"\", \"invert\": " invert "}"

/* The file that the functions below write, of this process. */
extern char tokenizer_path[64];

/* Sets the name of the file. */
void tokenizer_case_begin(void);
/* Removes the file. */
void tokenizer_case_end(void);

void write_tokenizer_text(const char *text);
void write_tokenizer(const parts_t *p);
/* Writes and opens it; ends the program if it is refused. */
srt_tokenizer_t *open_tokenizer(const parts_t *p);
/* Opening the file fails with these words, and its name. */
void check_tokenizer_refused(srt_status_t status, const char *why);

#endif
