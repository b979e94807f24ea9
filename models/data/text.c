/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads a text or a file of tokens; copies batches and validation windows from it. */
#include "models/data/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "models/hash.h"
#include "models/model.h"
#include "models/data/tokens.h"
#include "models/try.h"

/* The blocks that are hashed of a file of tokens which is longer than they are together. */
#define HASH_NBLOCKS 1024
#define HASH_BLOCK_NBYTES 65536 /* a multiple of 8 */

/* Bytes of tokens that are checked at a time. */
#define PIECE_NBYTES 65536
/* Bytes of a batch that are read at a time, on the stack. */
#define SMALL_NBYTES 2048

struct srt_text {
	int fd; /* open, so that the file stays when its name is replaced */
	size_t nbytes;
	struct timespec written; /* the file's time of the last write */
	size_t first;            /* byte of the first token */
	size_t ntokens, ntrain;
	int item;      /* bytes of a token: 1 or 2 */
	int largest;   /* byte of a text */
	int64_t vocab; /* that tokens are checked against */
	uint64_t hash;
	char *path;
};

static const char *kind_of(int item)
{
	return item == 1 ? "text" : "tokens";
}

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

/* Reads bytes of the file. They are not mapped: a process that reads a mapped file which another
 * one makes shorter is killed by SIGBUS. */
static srt_status_t read_bytes(const srt_text_t *t, size_t at, void *bytes, size_t nbytes)
{
	for (size_t done = 0; done < nbytes;) {
		const ssize_t n = pread(t->fd, (char *)bytes + done, nbytes - done, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return srt_model_fail(SRT_ERR_IO, "cannot read the %s %s: %s",
					      kind_of(t->item), t->path, strerror(errno));
		if (n == 0)
			return srt_model_fail(SRT_ERR_IO,
					      "the %s %s became shorter while it was used: it had "
					      "%zu bytes, now %zu: restore it",
					      kind_of(t->item), t->path, t->nbytes, at);
		done += (size_t)n;
		at += (size_t)n;
	}
	return SRT_OK;
}

/* Whether the hash is of blocks of the file. */
static bool is_sampled(const srt_text_t *t)
{
	return t->item > 1 && t->nbytes > (size_t)HASH_NBLOCKS * HASH_BLOCK_NBYTES;
}

/* Where block i of those that are hashed begins, and its size: all of the file, or blocks at equal
 * distances, the first and the last one too. */
static size_t find_block(const srt_text_t *t, size_t i, size_t *nbytes)
{
	const size_t end = t->nbytes - HASH_BLOCK_NBYTES;

	*nbytes = HASH_BLOCK_NBYTES;
	if (is_sampled(t))
		return i < HASH_NBLOCKS ? end / (HASH_NBLOCKS - 1) * i : end;
	i *= HASH_BLOCK_NBYTES;
	*nbytes = t->nbytes - i < HASH_BLOCK_NBYTES ? t->nbytes - i : HASH_BLOCK_NBYTES;
	return i;
}

/* The hash of the file, and the largest byte of a text. A text is read as a whole, a file of tokens
 * may be larger than the memory. */
static srt_status_t scan(const srt_text_t *t, uint64_t *hash, int *largest)
{
	const size_t nblocks = is_sampled(t) ?
				       HASH_NBLOCKS + 1 :
				       (t->nbytes + HASH_BLOCK_NBYTES - 1) / HASH_BLOCK_NBYTES;
	unsigned char *block = malloc(HASH_BLOCK_NBYTES);
	srt_status_t status = SRT_OK;

	if (block == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for the %s %s",
				      kind_of(t->item), t->path);
	*hash = UINT64_C(14695981039346656037);
	*largest = 0;
	for (size_t i = 0; i < nblocks && status == SRT_OK; i++) {
		size_t n;
		const size_t at = find_block(t, i, &n);

		status = read_bytes(t, at, block, n);
		if (status == SRT_OK)
			*hash = hash_bytes(*hash, block, n);
		if (status == SRT_OK && t->item == 1) {
			const int byte = find_largest_byte(block, n);

			*largest = byte > *largest ? byte : *largest;
		}
	}
	free(block);
	return status;
}

/* Sets where the tokens are. */
static srt_status_t find_tokens(srt_text_t *t)
{
	unsigned char header[SRT_TOKENS_HEADER_NBYTES] = { 0 };
	char why[256];
	uint64_t ntokens;

	t->ntokens = t->nbytes;
	if (t->item == 1)
		return SRT_OK;
	SRT_TRY(read_bytes(t, 0, header, t->nbytes < sizeof(header) ? t->nbytes : sizeof(header)));
	if (srt_tokens_parse_header(header, t->nbytes, &ntokens, why, sizeof(why)) != 0)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT, "the tokens %s: %s", t->path, why);
	t->first = SRT_TOKENS_HEADER_NBYTES;
	t->ntokens = (size_t)ntokens;
	return SRT_OK;
}

/* Opens the file and reads what is to be known of it. */
static srt_status_t open_file(srt_text_t *t)
{
	const char *kind = kind_of(t->item);
	struct stat st;

	/* O_NONBLOCK: opening a FIFO must not block before fstat() */
	t->fd = open(t->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (t->fd < 0)
		return srt_model_fail(errno == ENOENT || errno == ENOTDIR ? SRT_ERR_NOT_FOUND :
									    SRT_ERR_IO,
				      "cannot open the %s %s: %s", kind, t->path, strerror(errno));
	if (fstat(t->fd, &st) != 0 || !S_ISREG(st.st_mode))
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT, "the %s %s is not a regular file",
				      kind, t->path);
	if (st.st_size == 0)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT, "the %s %s is empty", kind,
				      t->path);
	t->nbytes = (size_t)st.st_size;
	t->written = st.st_mtim;
	SRT_TRY(find_tokens(t));
	t->ntrain = t->ntokens / 10 * 9 + t->ntokens % 10 * 9 / 10;
	return scan(t, &t->hash, &t->largest);
}

static srt_status_t load_file(const char *path, int item, srt_text_t **text)
{
	srt_text_t *t = calloc(1, sizeof(*t));
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	if (t != NULL) {
		*t = (srt_text_t){ .fd = -1, .item = item, .vocab = INT32_MAX };
		t->path = strdup(path);
	}
	if (t != NULL && t->path != NULL)
		status = open_file(t);
	else
		srt_model_fail(status, "no host memory for the %s %s", kind_of(item), path);
	if (status == SRT_OK)
		*text = t;
	else
		srt_text_destroy(t);
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
	if (text == NULL)
		return;
	if (text->fd >= 0)
		close(text->fd);
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

srt_status_t srt_text_check_unchanged(srt_text_t *text)
{
	const char *kind = kind_of(text->item);
	struct stat st;
	uint64_t hash = 0;
	int largest;

	if (fstat(text->fd, &st) != 0)
		return srt_model_fail(SRT_ERR_IO, "cannot read the %s %s: %s", kind, text->path,
				      strerror(errno));
	if ((size_t)st.st_size != text->nbytes)
		return srt_model_fail(SRT_ERR_IO,
				      "the %s %s was changed while it was used: it had %zu bytes, "
				      "now %lld: restore it",
				      kind, text->path, text->nbytes, (long long)st.st_size);
	if (st.st_mtim.tv_sec == text->written.tv_sec &&
	    st.st_mtim.tv_nsec == text->written.tv_nsec)
		return SRT_OK;
	if (!is_sampled(text)) /* it may have been written with the same bytes */
		SRT_TRY(scan(text, &hash, &largest));
	if (is_sampled(text) || hash != text->hash)
		return srt_model_fail(SRT_ERR_IO,
				      "the %s %s was written to while it was used: restore it",
				      kind, text->path);
	text->written = st.st_mtim;
	return SRT_OK;
}

static int32_t get_token(const srt_text_t *text, const unsigned char *p)
{
	return text->item == 1 ? p[0] : p[0] | p[1] << 8;
}

static srt_status_t fail_token(const srt_text_t *text, size_t i, int32_t id)
{
	return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
			      "the tokens %s: token %zu (at byte %zu of the file) is %d, but the "
			      "vocabulary has 0 .. %lld",
			      text->path, i, text->first + i * (size_t)text->item, (int)id,
			      (long long)text->vocab - 1);
}

/* Checks n tokens from token `start` that were read. */
static srt_status_t check_ids(const srt_text_t *text, const unsigned char *bytes, size_t start,
			      size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const int32_t id = get_token(text, bytes + i * (size_t)text->item);

		if (id >= text->vocab)
			return fail_token(text, start + i, id);
	}
	return SRT_OK;
}

srt_status_t srt_text_check_tokens(const srt_text_t *text, int part, int nparts)
{
	const size_t item = (size_t)text->item, each = text->ntokens / (size_t)nparts;
	const size_t start = (size_t)part * each;
	const size_t end = part + 1 < nparts ? start + each : text->ntokens;
	unsigned char *bytes;
	srt_status_t status = SRT_OK;

	if (text->item == 1 || text->vocab > UINT16_MAX) /* checked, or none is outside */
		return SRT_OK;
	bytes = malloc(PIECE_NBYTES);
	if (bytes == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for the tokens %s",
				      text->path);
	for (size_t at = start; at < end && status == SRT_OK;) {
		const size_t most = PIECE_NBYTES / item, n = end - at < most ? end - at : most;

		status = read_bytes(text, text->first + at * item, bytes, n * item);
		if (status == SRT_OK)
			status = check_ids(text, bytes, at, n);
		at += n;
	}
	free(bytes);
	return status;
}

/* Inputs and targets of n predictions, from token `start`. */
static srt_status_t copy_tokens(const srt_text_t *text, size_t start, int64_t n, int32_t *ids,
				int32_t *targets)
{
	const size_t item = (size_t)text->item;
	unsigned char bytes[SMALL_NBYTES];
	int64_t count;

	for (int64_t at = 0; at <= n; at += count) {
		const int64_t most = (int64_t)(sizeof(bytes) / item), left = n + 1 - at;

		count = left < most ? left : most;
		SRT_TRY(read_bytes(text, text->first + (start + (size_t)at) * item, bytes,
				   (size_t)count * item));
		SRT_TRY(check_ids(text, bytes, start + (size_t)at, (size_t)count));
		for (int64_t i = at; i < at + count; i++) {
			const int32_t id = get_token(text, bytes + (size_t)(i - at) * item);

			if (i < n)
				ids[i] = id;
			if (i > 0)
				targets[i - 1] = id;
		}
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
