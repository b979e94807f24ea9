/* SPDX-License-Identifier: BSD-3-Clause */
/* See text_file.h. */
#include "models/data/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "models/data/tokens.h"
#include "models/model.h"
#include "models/try.h"

/* The blocks that are hashed of a file of tokens which is longer than they are together. */
#define HASH_NBLOCKS 1024
#define HASH_BLOCK_NBYTES 65536 /* a multiple of 8 */

/* Bytes of tokens that are read at a time, on the stack. */
#define PIECE_NBYTES 4096

const char *srt_text_file_kind(int are_tokens)
{
	return are_tokens ? "tokens" : "text";
}

uint64_t srt_text_hash_bytes(uint64_t hash, const void *bytes, size_t nbytes)
{
	for (size_t i = 0; i < nbytes; i += sizeof(uint64_t)) {
		const size_t n = nbytes - i < sizeof(uint64_t) ? nbytes - i : sizeof(uint64_t);
		uint64_t word = 0;

		memcpy(&word, (const unsigned char *)bytes + i, n);
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
static srt_status_t read_bytes(const srt_text_file_t *f, size_t at, void *bytes, size_t nbytes)
{
	for (size_t done = 0; done < nbytes;) {
		const ssize_t n = pread(f->fd, (char *)bytes + done, nbytes - done, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return srt_model_fail(SRT_ERR_IO, "cannot read the %s %s: %s",
					      srt_text_file_kind(f->are_tokens), f->path,
					      strerror(errno));
		if (n == 0)
			return srt_model_fail(SRT_ERR_IO,
					      "the %s %s became shorter while it was used: it had "
					      "%zu bytes, now %zu: restore it",
					      srt_text_file_kind(f->are_tokens), f->path, f->nbytes,
					      at);
		done += (size_t)n;
		at += (size_t)n;
	}
	return SRT_OK;
}

/* Whether the hash is of blocks of the file. */
static bool is_sampled(const srt_text_file_t *f)
{
	return f->are_tokens && f->nbytes > (size_t)HASH_NBLOCKS * HASH_BLOCK_NBYTES;
}

/* Where block i of those that are hashed begins, and its size: all of the file, or blocks at equal
 * distances, the first and the last one too. */
static size_t find_block(const srt_text_file_t *f, size_t i, size_t *nbytes)
{
	const size_t end = f->nbytes - HASH_BLOCK_NBYTES;

	*nbytes = HASH_BLOCK_NBYTES;
	if (is_sampled(f))
		return i < HASH_NBLOCKS ? end / (HASH_NBLOCKS - 1) * i : end;
	i *= HASH_BLOCK_NBYTES;
	*nbytes = f->nbytes - i < HASH_BLOCK_NBYTES ? f->nbytes - i : HASH_BLOCK_NBYTES;
	return i;
}

/* The hash of the file, and the largest byte of a text. A text is read as a whole, a file of tokens
 * may be larger than the memory. */
static srt_status_t scan(const srt_text_file_t *f, uint64_t *hash, int *largest)
{
	const size_t nblocks = is_sampled(f) ?
				       HASH_NBLOCKS + 1 :
				       (f->nbytes + HASH_BLOCK_NBYTES - 1) / HASH_BLOCK_NBYTES;
	unsigned char *block = malloc(HASH_BLOCK_NBYTES);
	srt_status_t status = SRT_OK;

	if (block == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for the %s %s",
				      srt_text_file_kind(f->are_tokens), f->path);
	*hash = SRT_TEXT_HASH_INIT;
	*largest = 0;
	for (size_t i = 0; i < nblocks && status == SRT_OK; i++) {
		size_t n;
		const size_t at = find_block(f, i, &n);

		status = read_bytes(f, at, block, n);
		if (status == SRT_OK)
			*hash = srt_text_hash_bytes(*hash, block, n);
		if (status == SRT_OK && !f->are_tokens) {
			const int byte = find_largest_byte(block, n);

			*largest = byte > *largest ? byte : *largest;
		}
	}
	free(block);
	return status;
}

/* Sets where the tokens are. */
static srt_status_t find_tokens(srt_text_file_t *f)
{
	unsigned char head[SRT_TOKENS_HEADER_NBYTES] = { 0 };
	srt_tokens_t tokens;
	char why[256];

	f->ntokens = f->nbytes;
	f->item = 1;
	if (!f->are_tokens)
		return SRT_OK;
	SRT_TRY(read_bytes(f, 0, head, f->nbytes < sizeof(head) ? f->nbytes : sizeof(head)));
	if (srt_tokens_find(head, f->nbytes, &tokens, why, sizeof(why)) != 0)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT, "the tokens %s: %s", f->path, why);
	f->first = tokens.first;
	f->ntokens = (size_t)tokens.ntokens;
	f->item = tokens.item;
	return SRT_OK;
}

srt_status_t srt_text_file_open(const char *path, int are_tokens, srt_text_file_t *f)
{
	const char *kind = srt_text_file_kind(are_tokens);
	struct stat st;

	*f = (srt_text_file_t){ .fd = -1, .are_tokens = are_tokens, .path = strdup(path) };
	if (f->path == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for the %s %s", kind,
				      path);
	/* O_NONBLOCK: opening a FIFO must not block before fstat() */
	f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (f->fd < 0)
		return srt_model_fail(errno == ENOENT || errno == ENOTDIR ? SRT_ERR_NOT_FOUND :
									    SRT_ERR_IO,
				      "cannot open the %s %s: %s", kind, path, strerror(errno));
	if (fstat(f->fd, &st) != 0 || !S_ISREG(st.st_mode))
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT, "the %s %s is not a regular file",
				      kind, path);
	if (st.st_size == 0)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT, "the %s %s is empty", kind, path);
	f->nbytes = (size_t)st.st_size;
	f->written = st.st_mtim;
	SRT_TRY(find_tokens(f));
	return scan(f, &f->hash, &f->largest);
}

/* ---- encoding --------------------------------------------------------------------------- */

static srt_status_t fail_storing(const srt_text_file_t *f)
{
	return srt_model_fail(SRT_ERR_IO, "cannot keep the tokens of the text %s in memory: %s",
			      f->path, strerror(errno));
}

static srt_status_t write_bytes(const srt_text_file_t *f, int fd, const unsigned char *bytes,
				size_t nbytes)
{
	for (size_t done = 0; done < nbytes;) {
		const ssize_t n = write(fd, bytes + done, nbytes - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail_storing(f);
		done += (size_t)n;
	}
	return SRT_OK;
}

/* Tokens of 32 bits, little-endian. */
static srt_status_t write_tokens(const srt_text_file_t *f, int fd, const int32_t *ids, size_t n)
{
	unsigned char bytes[PIECE_NBYTES];

	for (size_t at = 0, count; at < n; at += count) {
		count = n - at < sizeof(bytes) / 4 ? n - at : sizeof(bytes) / 4;
		for (size_t i = 0; i < 4 * count; i++)
			bytes[i] = (unsigned char)((uint32_t)ids[at + i / 4] >> 8 * (i % 4));
		SRT_TRY(write_bytes(f, fd, bytes, 4 * count));
	}
	return SRT_OK;
}

/* Replaces the file by one without a name that has the tokens. */
static srt_status_t store_tokens(srt_text_file_t *f, const int32_t *ids, size_t n)
{
	struct stat st;
	int fd = memfd_create("tokens", MFD_CLOEXEC);

	if (fd < 0)
		return fail_storing(f);
	close(f->fd);
	f->fd = fd;
	SRT_TRY(write_tokens(f, fd, ids, n));
	if (fstat(fd, &st) != 0)
		return fail_storing(f);
	f->are_tokens = 1;
	f->item = 4;
	f->ntokens = n;
	f->nbytes = 4 * n;
	f->written = st.st_mtim;
	return scan(f, &f->hash, &f->largest);
}

srt_status_t srt_text_file_encode(const char *path, const srt_tokenizer_t *tokenizer,
				  srt_text_file_t *f)
{
	srt_status_t status;
	int32_t *ids = NULL;
	size_t n = 0;
	char *text;

	SRT_TRY(srt_text_file_open(path, 0, f));
	text = malloc(f->nbytes);
	if (text == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for the text %s",
				      path);
	status = read_bytes(f, 0, text, f->nbytes);
	if (status == SRT_OK) {
		status = srt_tokenizer_encode(tokenizer, text, f->nbytes, 0, &ids, &n);
		if (status != SRT_OK)
			status = srt_model_fail(status, "the text %s: %s", path, srt_error_last());
	}
	free(text);
	if (status == SRT_OK)
		status = store_tokens(f, ids, n);
	free(ids);
	return status;
}

void srt_text_file_close(srt_text_file_t *f)
{
	if (f->fd >= 0)
		close(f->fd);
	free(f->path);
	*f = (srt_text_file_t){ .fd = -1 };
}

srt_status_t srt_text_file_check_unchanged(srt_text_file_t *f)
{
	const char *kind = srt_text_file_kind(f->are_tokens);
	struct stat st;
	uint64_t hash = 0;
	int largest;

	if (fstat(f->fd, &st) != 0)
		return srt_model_fail(SRT_ERR_IO, "cannot read the %s %s: %s", kind, f->path,
				      strerror(errno));
	if ((size_t)st.st_size != f->nbytes)
		return srt_model_fail(SRT_ERR_IO,
				      "the %s %s was changed while it was used: it had %zu bytes, "
				      "now %lld: restore it",
				      kind, f->path, f->nbytes, (long long)st.st_size);
	if (st.st_mtim.tv_sec == f->written.tv_sec && st.st_mtim.tv_nsec == f->written.tv_nsec)
		return SRT_OK;
	if (!is_sampled(f)) /* it may have been written with the same bytes */
		SRT_TRY(scan(f, &hash, &largest));
	if (is_sampled(f) || hash != f->hash)
		return srt_model_fail(SRT_ERR_IO,
				      "the %s %s was written to while it was used: restore it",
				      kind, f->path);
	f->written = st.st_mtim;
	return SRT_OK;
}

static int64_t get_token(const unsigned char *p, int item)
{
	int64_t id = 0;

	for (int i = 0; i < item; i++)
		id |= (int64_t)p[i] << 8 * i;
	return id;
}

static srt_status_t fail_token(const srt_text_file_t *f, size_t i, int64_t id, int64_t vocab)
{
	return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
			      "the tokens %s: token %zu (at byte %zu of the file) is %lld, but the "
			      "vocabulary has 0 .. %lld",
			      f->path, i, f->first + i * (size_t)f->item, (long long)id,
			      (long long)vocab - 1);
}

srt_status_t srt_text_file_read(const srt_text_file_t *f, size_t start, size_t n, int64_t vocab,
				int32_t *ids)
{
	const size_t item = (size_t)f->item, most = PIECE_NBYTES / item;
	unsigned char bytes[PIECE_NBYTES];

	if (ids == NULL && item <= 2 && vocab > UINT16_MAX) /* none can be outside */
		return SRT_OK;
	for (size_t at = 0, count; at < n; at += count) {
		count = n - at < most ? n - at : most;
		SRT_TRY(read_bytes(f, f->first + (start + at) * item, bytes, count * item));
		for (size_t i = 0; i < count; i++) {
			const int64_t id = get_token(bytes + i * item, f->item);

			if (id >= vocab)
				return fail_token(f, start + at + i, id, vocab);
			if (ids != NULL)
				ids[at + i] = (int32_t)id;
		}
	}
	return SRT_OK;
}
