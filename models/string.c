/* SPDX-License-Identifier: BSD-3-Clause */
/* See string.h. */
#include "models/string.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/try.h"

srt_status_t srt_string_reserve(srt_string_t *s, size_t more)
{
	size_t capacity = s->capacity > 0 ? s->capacity : 64;
	char *data;

	if (s->data != NULL && more <= s->capacity - s->nbytes)
		return SRT_OK;
	if (more > SIZE_MAX / 4 - s->nbytes)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "a text is too long");
	while (capacity < s->nbytes + more)
		capacity *= 2;
	data = realloc(s->data, capacity);
	if (data == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY,
				      "no host memory for a text of %zu bytes", capacity);
	s->data = data;
	s->capacity = capacity;
	return SRT_OK;
}

srt_status_t srt_string_append(srt_string_t *s, const char *data, size_t nbytes)
{
	SRT_TRY(srt_string_reserve(s, nbytes));
	if (nbytes > 0)
		memcpy(s->data + s->nbytes, data, nbytes);
	s->nbytes += nbytes;
	return SRT_OK;
}

srt_shown_t srt_string_show(const char *text)
{
	srt_shown_t shown;
	size_t n = 0;
	uint32_t c;

	while (text[n] != '\0') {
		const int nchar = srt_utf8_decode(text + n, strlen(text + n), &c);
		const size_t step = nchar > 0 ? (size_t)nchar : 1;

		if (n + step > 60)
			break;
		memcpy(shown.text + n, text + n, step);
		if (nchar <= 0 || c < 0x20 || c == 0x7f)
			shown.text[n] = '?';
		n += step;
	}
	shown.text[n] = '\0';
	return shown;
}

/* A lead byte: length and range of the second byte. Length 0: not a lead byte. */
typedef struct {
	int n;
	unsigned char low, high;
} lead_t;

static lead_t read_lead(unsigned char b)
{
	if (b >= 0xc2 && b <= 0xdf)
		return (lead_t){ 2, 0x80, 0xbf };
	if (b >= 0xe0 && b <= 0xef)
		return (lead_t){ 3, b == 0xe0 ? 0xa0 : 0x80, b == 0xed ? 0x9f : 0xbf };
	if (b >= 0xf0 && b <= 0xf4)
		return (lead_t){ 4, b == 0xf0 ? 0x90 : 0x80, b == 0xf4 ? 0x8f : 0xbf };
	return (lead_t){ 0, 0, 0 };
}

int srt_utf8_decode(const char *text, size_t n, uint32_t *c)
{
	const unsigned char *p = (const unsigned char *)text;
	lead_t lead;
	uint32_t value;

	if (p[0] < 0x80) {
		*c = p[0];
		return 1;
	}
	lead = read_lead(p[0]);
	if (lead.n == 0)
		return -1;
	value = p[0] & (0x7fu >> lead.n);
	for (int i = 1; i < lead.n; i++) {
		if ((size_t)i >= n || p[i] < (i == 1 ? lead.low : 0x80) ||
		    p[i] > (i == 1 ? lead.high : 0xbf))
			return -i;
		value = value << 6 | (p[i] & 0x3f);
	}
	*c = value;
	return lead.n;
}

int srt_utf8_encode(uint32_t c, char *text)
{
	const int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

	if (n == 1) {
		text[0] = (char)c;
		return 1;
	}
	for (int i = n - 1; i > 0; i--, c >>= 6)
		text[i] = (char)(0x80 | (c & 0x3f));
	text[0] = (char)((0xf00 >> n & 0xff) | c);
	return n;
}

size_t srt_utf8_find_invalid(const char *text, size_t n)
{
	uint32_t c;

	for (size_t i = 0; i < n;) {
		const int nchar = srt_utf8_decode(text + i, n - i, &c);

		if (nchar < 0)
			return i;
		i += (size_t)nchar;
	}
	return n;
}

bool srt_is_space(uint32_t c)
{
	return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 ||
	       (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
	       c == 0x205f || c == 0x3000;
}
