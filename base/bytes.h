/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers of bytes in messages. */
#ifndef SRT_BASE_BYTES_H
#define SRT_BASE_BYTES_H

#include <stddef.h>
#include <stdio.h>

typedef struct srt_bytes {
	char text[48];
} srt_bytes_t;

/* "3.2 GiB (3435973837 bytes)", below 1 KiB "1000 bytes". As an argument of a message:
 * srt_bytes(n).text */
static inline srt_bytes_t srt_bytes(size_t nbytes)
{
	static const char unit[] = "KMGTPE";
	double value = (double)nbytes / 1024;
	srt_bytes_t b;
	int u = 0;

	if (nbytes < 1024) {
		snprintf(b.text, sizeof(b.text), "%zu bytes", nbytes);
		return b;
	}
	for (; value >= 1023.95; u++) /* which would be printed as 1024.0 */
		value /= 1024;
	snprintf(b.text, sizeof(b.text), "%.1f %ciB (%zu bytes)", value, unit[u], nbytes);
	return b;
}

#endif
