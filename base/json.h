/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A scanner of JSON text in memory, for the headers of safetensors files and for manifests. It has
 * a function for each form of value that they may have. A parser calls the one that must come next,
 * and stops at the first other byte, so it keeps nothing of a text that it does not know: its time
 * and memory are in proportion to what is well-formed. Strings are decoded where they lie: a
 * decoded string and its terminating zero are never longer than the quoted one.
 *
 * Stricter than JSON: strings have no zero bytes, integers no fraction and no exponent.
 *
 * Used by safetensors_parse.c and manifest_read.c.
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

#endif
