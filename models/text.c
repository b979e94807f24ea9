/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads a text or a file of tokens; copies batches and validation windows from it. */
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
#include "models/tokens.h"
#include "models/try.h"

/* The blocks that are hashed of a file of tokens which is longer than they are together. */
#define HASH_NBLOCKS 1024
#define HASH_BLOCK_NBYTES 65536

struct srt_text {
	const unsigned char *map;
	size_t map_nbytes;
	const unsigned char *data; /* the tokens, in the map */
	size_t ntokens, ntrain;
	int item;      /* bytes of a token: 1 or 2 */
	int largest;   /* byte of a text */
	int64_t vocab; /* that tokens are checked against */
	uint64_t hash;
	char *path;
};

/* FNV-1a by words of eight bytes. */
static uint64_t hash_bytes(uint64_t hash, const unsigned char *bytes, size_t nbytes)
{
	for (size_t i = 0; i < nbytes; i += sizeof(uint64_t)) {
		const size_t n = nbytes - i < sizeof(uint64_t) ? nbytes - i : sizeof(uint64_t);
		uint64_t word = 0;

		memcpy(&word, bytes + i, n);
		hash = (hash ^ word) * UINT64_C(1099511628211);
		hash ^= hash >> 32;
	}
	return hash;
}

static int find_largest_byte(const unsigned char *bytes, size_t nbytes)
{
	int largest = 0;

	for (size_t i = 0; i < nbytes; i++)
		largest = bytes[i] > largest ? bytes[i] : largest;
	return largest;
}

/* A text is read once. Of a long file of tokens, which may be larger than the memory, blocks at
 * equal distances are hashed: the first and the last one too. */
static void scan(srt_text_t *t)
{
	const uint64_t start = UINT64_C(14695981039346656037);
	const size_t most = (size_t)HASH_NBLOCKS * HASH_BLOCK_NBYTES;

	if (t->item == 1)
		t->largest = find_largest_byte(t->map, t->map_nbytes);
	if (t->item == 1 || t->map_nbytes <= most) {
		t->hash = hash_bytes(start, t->map, t->map_nbytes);
		return;
	}
	t->hash = start;
	for (size_t i = 0; i < HASH_NBLOCKS; i++)
		t->hash = hash_bytes(t->hash,
				     t->map + (t->map_nbytes - HASH_BLOCK_NBYTES) /
						      (HASH_NBLOCKS - 1) * i,
				     HASH_BLOCK_NBYTES);
	t->hash =
		hash_bytes(t->hash, t->map + t->map_nbytes - HASH_BLOCK_NBYTES, HASH_BLOCK_NBYTES);
}

/* Sets where the tokens are. */
static srt_status_t find_tokens(srt_text_t *t)
{
	char why[256];
	uint64_t ntokens;

	t->data = t->map;
	t->ntokens = t->map_nbytes;
	if (t->item == 1)
		return SRT_OK;
	if (srt_tokens_parse_header(t->map, t->map_nbytes, &ntokens, why, sizeof(why)) != 0)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT, "the tokens %s: %s", t->path, why);
	t->data = t->map + SRT_TOKENS_HEADER_NBYTES;
	t->ntokens = (size_t)ntokens;
	return SRT_OK;
}

static const char *kind_of(int item)
{
	return item == 1 ? "text" : "tokens";
}

/* Maps an open file of known size. */
static srt_status_t map_file(int fd, const char *path, size_t nbytes, int item, srt_text_t **text)
{
	srt_text_t *t = calloc(1, sizeof(*t));
	char *name = strdup(path);
	srt_status_t status;
	void *bytes;

	if (!t || !name) {
		free(t);
		free(name);
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for the %s %s",
				      kind_of(item), path);
	}
	t->path = name;
	t->item = item;
	t->vocab = INT32_MAX;
	bytes = mmap(NULL, nbytes, PROT_READ, MAP_PRIVATE, fd, 0);
	if (bytes == MAP_FAILED) {
		status = srt_model_fail(SRT_ERR_IO, "cannot map the %s %s: %s", kind_of(item), path,
					strerror(errno));
		srt_text_destroy(t);
		return status;
	}
	t->map = bytes;
	t->map_nbytes = nbytes;
	status = find_tokens(t);
	if (status != SRT_OK) {
		srt_text_destroy(t);
		return status;
	}
	t->ntrain = t->ntokens / 10 * 9 + t->ntokens % 10 * 9 / 10;
	scan(t);
	*text = t;
	return SRT_OK;
}

static srt_status_t load_file(const char *path, int item, srt_text_t **text)
{
	/* O_NONBLOCK: opening a FIFO must not block before fstat() */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	srt_status_t status;

	if (fd < 0)
		return srt_model_fail(SRT_ERR_IO, "cannot open the %s %s: %s", kind_of(item), path,
				      strerror(errno));
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
		status = srt_model_fail(SRT_ERR_INVALID_ARGUMENT, "the %s %s is not a regular file",
					kind_of(item), path);
	else if (st.st_size == 0)
		status = srt_model_fail(SRT_ERR_INVALID_ARGUMENT, "the %s %s is empty",
					kind_of(item), path);
	else
		status = map_file(fd, path, (size_t)st.st_size, item, text);
	close(fd);
	return status;
}

srt_status_t srt_text_load(const char *path, srt_text_t **text)
{
	return load_file(path, 1, text);
}

srt_status_t srt_text_load_tokens(const char *path, srt_text_t **text)
{
	return load_file(path, 2, text);
}

void srt_text_destroy(srt_text_t *text)
{
	if (!text)
		return;
	if (text->map)
		munmap((void *)(uintptr_t)text->map, text->map_nbytes);
	free(text->path);
	free(text);
}

size_t srt_text_ntokens(const srt_text_t *text)
{
	return text->ntokens;
}

uint64_t srt_text_hash(const srt_text_t *text)
{
	return text->hash;
}

srt_status_t srt_text_check(srt_text_t *text, int64_t context, int64_t vocab)
{
	const char *unit = text->item == 1 ? "bytes" : "tokens";
	const size_t nvalidation = srt_text_nvalidation(text);

	if (text->ntrain < 2 || context > (int64_t)text->ntrain - 1)
		return srt_model_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"the context of %lld is longer than the training part of the text (the first "
			"nine tenths), which has %zu %s",
			(long long)context, text->ntrain, unit);
	if (nvalidation < 2)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "the text is too short: its validation part has %zu %s, 2 "
				      "are needed",
				      nvalidation, unit);
	if (text->largest >= vocab)
		return srt_model_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"the text has a byte of value %d, but the vocabulary has 0 .. %lld",
			text->largest, (long long)vocab - 1);
	text->vocab = vocab;
	return SRT_OK;
}

size_t srt_text_ntrain(const srt_text_t *text)
{
	return text->ntrain;
}

size_t srt_text_nvalidation(const srt_text_t *text)
{
	return text->ntokens - text->ntrain;
}

/* Token i, or -1 if it is not in the vocabulary. */
static int32_t get_token(const srt_text_t *text, size_t i)
{
	const unsigned char *p = text->data + i * (size_t)text->item;
	const int32_t id = text->item == 1 ? p[0] : p[0] | p[1] << 8;

	return id < text->vocab ? id : -1;
}

static srt_status_t fail_token(const srt_text_t *text, size_t i)
{
	const unsigned char *p = text->data + i * (size_t)text->item;

	return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
			      "the tokens %s: token %zu (at byte %zu of the file) is %d, but the "
			      "vocabulary has 0 .. %lld",
			      text->path, i, (size_t)(p - text->map), p[0] | p[1] << 8,
			      (long long)text->vocab - 1);
}

/* Inputs and targets of n predictions, from token `start`. */
static srt_status_t copy_tokens(const srt_text_t *text, size_t start, int64_t n, int32_t *ids,
				int32_t *targets)
{
	for (int64_t t = 0; t <= n; t++) {
		const int32_t id = get_token(text, start + (size_t)t);

		if (id < 0)
			return fail_token(text, start + (size_t)t);
		if (t < n)
			ids[t] = id;
		if (t > 0)
			targets[t - 1] = id;
	}
	return SRT_OK;
}

size_t srt_text_start(const srt_text_t *text, uint64_t seed, int64_t step, int64_t index,
		      int64_t context)
{
	uint64_t starts = text->ntrain - (uint64_t)context;

	/* the bias of the remainder is less than 2^-30 for any text that fits in memory */
	return (size_t)(srt_counter_hash(seed, (uint64_t)step, (uint64_t)index) % starts);
}

srt_status_t srt_text_batch(const srt_text_t *text, uint64_t seed, int64_t step, int64_t first,
			    int64_t count, int64_t context, int32_t *ids, int32_t *targets)
{
	for (int64_t i = 0; i < count; i++)
		SRT_TRY(copy_tokens(text, srt_text_start(text, seed, step, first + i, context),
				    context, ids + i * context, targets + i * context));
	return SRT_OK;
}

int64_t srt_text_nwindows(const srt_text_t *text, int64_t context)
{
	int64_t predictions = (int64_t)srt_text_nvalidation(text) - 1;

	return predictions < 1 ? 0 : (predictions + context - 1) / context;
}

int64_t srt_text_window(const srt_text_t *text, int64_t w, int64_t context, int32_t *ids,
			int32_t *targets)
{
	int64_t left = (int64_t)srt_text_nvalidation(text) - 1 - w * context;
	int64_t n = left < 0 ? 0 : left < context ? left : context;

	if (n > 0 &&
	    copy_tokens(text, text->ntrain + (size_t)(w * context), n, ids, targets) != SRT_OK)
		return -1;
	for (int64_t t = n; t < context; t++)
		ids[t] = targets[t] = 0;
	return n;
}
