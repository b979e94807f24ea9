/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * JSON text in memory, for the headers of safetensors files, manifests and indexes: a scanner, and
 * functions that append to a text. The scanner has a function for each form of value that they may
 * have. A parser calls the one that must come next, and stops at the first other byte, so it keeps
 * nothing of a text that it does not know: its time and memory are in proportion to what is
 * well-formed. Strings are decoded where they lie: a
 * decoded string and its terminating zero are never longer than the quoted one.
 *
 * Stricter than JSON: strings have no zero bytes, integers no fraction and no exponent.
 *
 * Used by safetensors_parse.c, manifest_read.c and index.c; writing by safetensors_write.c and
 * model_write.c.
 */
#ifndef SRT_BASE_JSON_H
#define SRT_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shardrt/status.h>

/* Deepest nesting of a value that is skipped, and longest number in it. */
#define SRT_JSON_MAX_DEPTH 100
#define SRT_JSON_MAX_NUMBER 64

typedef struct srt_json {
	char *text, *at;  /* a zero ends the text */
	const char *name; /* of the text, for messages: "the header" */
} srt_json_t;

/* SRT_ERR_FORMAT: "byte 7 of the header: expected WHAT". */
srt_status_t srt_json_fail(const srt_json_t *json, const char *expected);
/* Skips this character and blanks around it. False, and nothing is skipped but blanks, if another
 * one is there. */
bool srt_json_skip_char(srt_json_t *json, char c);
/* What follows an element of an object or array: a comma, or the end. */
srt_status_t srt_json_separator(srt_json_t *json, char end, bool *more);
/* The begin of an object ('{', '}') or array ('[', ']'). *more: it has an element. */
srt_status_t srt_json_begin(srt_json_t *json, char begin, char end, bool *more);
/* A string, decoded. It lives as long as the text. */
srt_status_t srt_json_string(srt_json_t *json, char **string);
/* An integer from low to high. */
srt_status_t srt_json_integer(srt_json_t *json, int64_t low, int64_t high, int64_t *value);
/* The name of an element of an object, and the colon. */
srt_status_t srt_json_key(srt_json_t *json, char **key);
/* This word, as "null" or "true", if it is there. */
bool srt_json_word(srt_json_t *json, const char *word);
/* Any value, which is checked and forgotten. */
srt_status_t srt_json_skip(srt_json_t *json);

/* ---- writing ---------------------------------------------------------------------------- */

/* A text that grows. It is zero at the start, and its bytes are freed by the caller. `failed` is
 * set once memory ran out, and checked at the end only. */
typedef struct srt_json_text {
	char *bytes;
	size_t nbytes, room;
	bool failed;
} srt_json_text_t;

void srt_json_append(srt_json_text_t *text, const char *bytes, size_t nbytes);
/* Appends at most 63 bytes: numbers and fixed words. */
__attribute__((format(printf, 2, 3))) void srt_json_append_format(srt_json_text_t *text,
								  const char *format, ...);
/* Appends a string in quotes, with the escapes that it needs. */
void srt_json_append_string(srt_json_text_t *text, const char *string);

#endif
