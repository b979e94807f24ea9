/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes that grow, and UTF-8. */
#ifndef SRT_MODELS_STRING_H
#define SRT_MODELS_STRING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shardrt/status.h>

/** Bytes, all zero at first. There is no terminating zero. */
typedef struct srt_string {
	char *data; /* owned, freed by free() */
	size_t nbytes, capacity;
} srt_string_t;

/** Makes room for more bytes. @return SRT_ERR_OUT_OF_MEMORY. */
srt_status_t srt_string_reserve(srt_string_t *s, size_t more);

/** Appends bytes, which are not of the string. @return SRT_ERR_OUT_OF_MEMORY. */
srt_status_t srt_string_append(srt_string_t *s, const char *data, size_t nbytes);

/** A name for a message: cut after 60 bytes or less, control characters are '?'. */
typedef struct srt_shown {
	char text[64];
} srt_shown_t;
/** Makes a valid UTF-8 text of a file fit to be shown. */
srt_shown_t srt_string_show(const char *text);

/**
 * Decodes a character.
 * @param n bytes that are there, at least 1. @param[out] c the character; not set if it is invalid.
 * @return its bytes; or minus the number of bytes, at least 1, that one U+FFFD replaces.
 */
int srt_utf8_decode(const char *text, size_t n, uint32_t *c);

/** Encodes a character. @param text 4 bytes. @return its bytes. */
int srt_utf8_encode(uint32_t c, char *text);

/** Position of the first byte that is not UTF-8; n if all are. */
size_t srt_utf8_find_invalid(const char *text, size_t n);

/** Whether a character is a blank (White_Space of Unicode). */
bool srt_is_space(uint32_t c);

#endif
