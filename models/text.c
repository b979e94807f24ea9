/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads a text; copies batches and validation windows from it. */
#include "models/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "models/hash.h"
#include "models/model.h"

struct srt_text {
	const unsigned char *bytes; /* mapped */
	size_t nbytes, ntrain;
	int largest; /* byte value */
	uint64_t hash;
};

/* One pass over the text: the largest byte and a hash, FNV-1a by words of eight bytes. */
static void scan(srt_text_t *t)
{
	uint64_t hash = UINT64_C(14695981039346656037);

	for (size_t i = 0; i < t->nbytes; i += sizeof(uint64_t)) {
		const size_t n =
			t->nbytes - i < sizeof(uint64_t) ? t->nbytes - i : sizeof(uint64_t);
		uint64_t word = 0;

		memcpy(&word, t->bytes + i, n);
		hash = (hash ^ word) * UINT64_C(1099511628211);
		hash ^= hash >> 32;
		for (size_t k = i; k < i + n; k++)
			if (t->bytes[k] > t->largest)
				t->largest = t->bytes[k];
	}
	t->hash = hash;
}

/* Maps an open file of known size. */
static srt_status_t map_file(int fd, const char *path, size_t nbytes, srt_text_t **text)
{
	void *bytes = mmap(NULL, nbytes, PROT_READ, MAP_PRIVATE, fd, 0);
	srt_text_t *t;

	if (bytes == MAP_FAILED)
		return srt_model_fail(SRT_ERR_IO, "cannot map the text %s: %s", path,
				      strerror(errno));
	t = calloc(1, sizeof(*t));
	if (!t) {
		munmap(bytes, nbytes);
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for the text %s",
				      path);
	}
	t->bytes = bytes;
	t->nbytes = nbytes;
	t->ntrain = nbytes / 10 * 9 + nbytes % 10 * 9 / 10;
	scan(t);
	*text = t;
	return SRT_OK;
}

srt_status_t srt_text_load(const char *path, srt_text_t **text)
{
	/* O_NONBLOCK: opening a FIFO must not block before fstat() */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	srt_status_t status;

	if (fd < 0)
		return srt_model_fail(SRT_ERR_IO, "cannot open the text %s: %s", path,
				      strerror(errno));
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
		status = srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
					"the text %s is not a regular file", path);
	else if (st.st_size == 0)
		status = srt_model_fail(SRT_ERR_INVALID_ARGUMENT, "the text %s is empty", path);
	else
		status = map_file(fd, path, (size_t)st.st_size, text);
	close(fd);
	return status;
}

void srt_text_destroy(srt_text_t *text)
{
	if (!text)
		return;
	munmap((void *)(uintptr_t)text->bytes, text->nbytes);
	free(text);
}

size_t srt_text_nbytes(const srt_text_t *text)
{
	return text->nbytes;
}

uint64_t srt_text_hash(const srt_text_t *text)
{
	return text->hash;
}

srt_status_t srt_text_check(const srt_text_t *text, int64_t context, int64_t vocab)
{
	if (text->ntrain < 2 || context > (int64_t)text->ntrain - 1)
		return srt_model_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"the context of %lld is longer than the training part of the text (the first "
			"nine tenths), which has %zu bytes",
			(long long)context, text->ntrain);
	if (text->nbytes - text->ntrain < 2)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "the text is too short: its validation part has %zu bytes, 2 "
				      "are needed",
				      text->nbytes - text->ntrain);
	if (text->largest >= vocab)
		return srt_model_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"the text has a byte of value %d, but the vocabulary has 0 .. %lld",
			text->largest, (long long)vocab - 1);
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
