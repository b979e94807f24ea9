/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads a text; copies batches and validation windows from it. */
#include "models/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "models/hash.h"

struct srt_text {
	size_t nbytes, ntrain;
	int largest; /* byte value */
	unsigned char bytes[];
};

/* Reads an open file of known size. */
static srt_status_t read_file(FILE *file, const char *path, size_t nbytes, char *why, size_t nwhy,
			      srt_text_t **text)
{
	srt_text_t *t = malloc(sizeof(*t) + nbytes);

	if (!t) {
		snprintf(why, nwhy, "no memory for the %zu bytes of %s", nbytes, path);
		return SRT_ERR_OUT_OF_MEMORY;
	}
	if (fread(t->bytes, 1, nbytes, file) != nbytes) {
		snprintf(why, nwhy, "cannot read all of %s: %s", path,
			 ferror(file) ? strerror(errno) : "it became shorter");
		free(t);
		return SRT_ERR_IO;
	}
	t->nbytes = nbytes;
	t->ntrain = nbytes / 10 * 9 + nbytes % 10 * 9 / 10;
	t->largest = 0;
	for (size_t i = 0; i < nbytes; i++)
		if (t->bytes[i] > t->largest)
			t->largest = t->bytes[i];
	*text = t;
	return SRT_OK;
}

srt_status_t srt_text_load(const char *path, char *why, size_t nwhy, srt_text_t **text)
{
	FILE *file = fopen(path, "rb");
	struct stat st;
	srt_status_t status = SRT_ERR_INVALID_ARGUMENT;

	if (!file) {
		snprintf(why, nwhy, "cannot open the text %s: %s", path, strerror(errno));
		return SRT_ERR_IO;
	}
	if (fstat(fileno(file), &st) != 0 || !S_ISREG(st.st_mode))
		snprintf(why, nwhy, "the text %s is not a regular file", path);
	else if (st.st_size == 0)
		snprintf(why, nwhy, "the text %s is empty", path);
	else
		status = read_file(file, path, (size_t)st.st_size, why, nwhy, text);
	fclose(file);
	return status;
}

void srt_text_destroy(srt_text_t *text)
{
	free(text);
}

srt_status_t srt_text_check(const srt_text_t *text, int64_t context, int64_t vocab, char *why,
			    size_t nwhy)
{
	if (text->ntrain < 2 || context > (int64_t)text->ntrain - 1) {
		snprintf(
			why, nwhy,
			"the context of %lld is longer than the training part of the text (the first "
			"nine tenths), which has %zu bytes",
			(long long)context, text->ntrain);
		return SRT_ERR_INVALID_ARGUMENT;
	}
	if (text->nbytes - text->ntrain < 2) {
		snprintf(why, nwhy, "the text is too short: its validation part has %zu bytes",
			 text->nbytes - text->ntrain);
		return SRT_ERR_INVALID_ARGUMENT;
	}
	if (text->largest >= vocab) {
		snprintf(why, nwhy,
			 "the text has a byte of value %d, but the vocabulary has 0 .. %lld",
			 text->largest, (long long)vocab - 1);
		return SRT_ERR_INVALID_ARGUMENT;
	}
	return SRT_OK;
}

size_t srt_text_ntrain(const srt_text_t *text)
{
	return text->ntrain;
}

size_t srt_text_nvalidation(const srt_text_t *text)
{
	return text->nbytes - text->ntrain;
}

/* Inputs and targets of n predictions, from byte `start`. */
static void copy_tokens(const srt_text_t *text, size_t start, int64_t n, int32_t *ids,
			int32_t *targets)
{
	for (int64_t t = 0; t < n; t++) {
		ids[t] = text->bytes[start + (size_t)t];
		targets[t] = text->bytes[start + (size_t)t + 1];
	}
}

size_t srt_text_start(const srt_text_t *text, uint64_t seed, int64_t step, int64_t index,
		      int64_t context)
{
	uint64_t starts = text->ntrain - (uint64_t)context;

	/* the bias of the remainder is less than 2^-30 for any text that fits in memory */
	return (size_t)(srt_counter_hash(seed, (uint64_t)step, (uint64_t)index) % starts);
}

void srt_text_batch(const srt_text_t *text, uint64_t seed, int64_t step, int64_t first,
		    int64_t count, int64_t context, int32_t *ids, int32_t *targets)
{
	for (int64_t i = 0; i < count; i++)
		copy_tokens(text, srt_text_start(text, seed, step, first + i, context), context,
			    ids + i * context, targets + i * context);
}

int64_t srt_text_nwindows(const srt_text_t *text, int64_t context)
{
	int64_t predictions = (int64_t)(text->nbytes - text->ntrain) - 1;

	return predictions < 1 ? 0 : (predictions + context - 1) / context;
}

int64_t srt_text_window(const srt_text_t *text, int64_t w, int64_t context, int32_t *ids,
			int32_t *targets)
{
	int64_t left = (int64_t)(text->nbytes - text->ntrain) - 1 - w * context;
	int64_t n = left < 0 ? 0 : left < context ? left : context;

	if (n > 0)
		copy_tokens(text, text->ntrain + (size_t)(w * context), n, ids, targets);
	for (int64_t t = n; t < context; t++)
		ids[t] = targets[t] = 0;
	return n;
}
