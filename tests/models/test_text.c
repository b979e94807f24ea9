/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The data rule: batches are a function of (seed, step), ranks' slices and micro-batches are a
 * partition of them for every world size; validation windows cover the tail once; mistakes are
 * told.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "models/data/text.h"
#include "tests/harness/check.h"

enum { CONTEXT = 7, BATCH = 60 };

static char path[64];

/* A file of n bytes whose values tell their place: byte i is i % 251. */
static void write_text(size_t n)
{
	FILE *f = fopen(path, "wb");

	CHECK_OR_DIE(f != NULL);
	for (size_t i = 0; i < n; i++)
		fputc((int)(i % 251), f);
	CHECK_OR_DIE(fclose(f) == 0);
}

static srt_text_t *load(size_t n)
{
	srt_text_t *text = NULL;

	write_text(n);
	CHECK_OK_OR_DIE(srt_text_load(path, &text));
	return text;
}

static void test_slices(void)
{
	srt_text_t *text = load(5003);
	int32_t whole[BATCH * CONTEXT], targets[BATCH * CONTEXT];
	int32_t part[BATCH * CONTEXT], part_targets[BATCH * CONTEXT];

	CHECK_OK(srt_text_batch(text, 3, 17, 0, BATCH, CONTEXT, whole, targets));
	for (int i = 0; i < BATCH * CONTEXT; i++) {
		CHECK_INT(targets[i], (whole[i] + 1) % 251);
		if (i % CONTEXT != CONTEXT - 1)
			CHECK_INT(targets[i], whole[i + 1]);
	}
	for (int world = 1; world <= 6; world++) {
		for (int accumulate = 1; accumulate <= 2; accumulate++) {
			int64_t micro = BATCH / world / accumulate, at = 0;

			if (BATCH % (world * accumulate) != 0)
				continue;
			for (int rank = 0; rank < world; rank++)
				for (int m = 0; m < accumulate; m++, at += micro)
					CHECK_OK(srt_text_batch(text, 3, 17,
								rank * (BATCH / world) + m * micro,
								micro, CONTEXT, part + at * CONTEXT,
								part_targets + at * CONTEXT));
			CHECK(memcmp(part, whole, sizeof(whole)) == 0);
			CHECK(memcmp(part_targets, targets, sizeof(targets)) == 0);
		}
	}
	srt_text_destroy(text);
}

/* Seeds and steps give other batches; starts stay inside the training part and reach its ends. */
/* Texts that differ in one byte or in length have different hashes. */
static void test_hash(void)
{
	uint64_t hashes[3];

	for (int i = 0; i < 3; i++) {
		srt_text_t *text = load(i == 2 ? 998 : 997);

		CHECK_INT(srt_text_ntokens(text), i == 2 ? 998 : 997);
		hashes[i] = srt_text_hash(text);
		srt_text_destroy(text);
		if (i == 0) {
			FILE *f = fopen(path, "r+b");

			CHECK_OR_DIE(f != NULL && fseek(f, 996, SEEK_SET) == 0);
			fputc(255, f);
			fclose(f);
			CHECK_OK_OR_DIE(srt_text_load(path, &text));
			CHECK(srt_text_hash(text) != hashes[0]);
			srt_text_destroy(text);
		}
	}
	CHECK(hashes[0] == hashes[1]);
	CHECK(hashes[0] != hashes[2]);
}

static void test_starts(void)
{
	srt_text_t *text = load(1000);
	size_t ntrain = srt_text_ntrain(text), smallest = ntrain, largest = 0, same = 0;

	CHECK_INT(ntrain, 900);
	CHECK_INT(srt_text_nvalidation(text), 100);
	for (int64_t step = 1; step <= 400; step++) {
		for (int64_t i = 0; i < 20; i++) {
			size_t start = srt_text_start(text, 1, step, i, CONTEXT);

			smallest = start < smallest ? start : smallest;
			largest = start > largest ? start : largest;
			same += start == srt_text_start(text, 2, step, i, CONTEXT);
			same += start == srt_text_start(text, 1, step + 1, i, CONTEXT);
		}
	}
	CHECK_INT(smallest, 0);
	CHECK_INT(largest, ntrain - CONTEXT - 1); /* its last target is the part's last byte */
	CHECK_MSG(same < 60, "%zu of 16000 starts agree; about 18 by chance", same);
	srt_text_destroy(text);
}

static void test_windows(void)
{
	int32_t ids[64], targets[64];

	for (size_t n = 20; n <= 700; n += 17) {
		srt_text_t *text = load(n);
		size_t tail = srt_text_nvalidation(text), at = srt_text_ntrain(text);

		for (int64_t context = 1; context <= 64; context = 2 * context + 1) {
			int64_t windows = srt_text_nwindows(text, context), seen = 0;

			for (int64_t w = 0; w <= windows; w++) {
				int64_t k = srt_text_window(text, w, context, ids, targets);

				CHECK(w + 1 < windows ? k == context :
				      w < windows     ? k > 0 && k <= context :
							k == 0);
				for (int64_t t = 0; t < context; t++) {
					int32_t id = (int32_t)((at + (size_t)(seen + t)) % 251);

					CHECK(t < k ? ids[t] == id && targets[t] == (id + 1) % 251 :
						      ids[t] == 0 && targets[t] == 0);
				}
				seen += k;
			}
			CHECK_INT(seen, (int64_t)tail - 1);
		}
		srt_text_destroy(text);
	}
}

/* Replaces bytes of the file in place, and sets another time of the last write. */
static void change_text(long at, const char *bytes, time_t written)
{
	const struct timespec times[2] = { { .tv_sec = written }, { .tv_sec = written } };
	FILE *f = fopen(path, "r+b");

	CHECK_OR_DIE(f != NULL && fseek(f, at, SEEK_SET) == 0);
	fputs(bytes, f);
	CHECK_OR_DIE(fclose(f) == 0 && utimensat(AT_FDCWD, path, times, 0) == 0);
}

/* A file that is written to is read again; a change of it is an error, and so is its end. */
static void test_changes(void)
{
	srt_text_t *text = load(1000);
	int32_t ids[100 * CONTEXT], targets[100 * CONTEXT];

	CHECK_OK(srt_text_check_unchanged(text));
	change_text(97, "abc", 1000); /* the bytes that are there */
	CHECK_OK(srt_text_check_unchanged(text));
	change_text(97, "abd", 2000);
	CHECK_STATUS(srt_text_check_unchanged(text), SRT_ERR_IO);
	CHECK_ERROR_HAS("was written to while it was used");
	change_text(97, "abc", 3000);
	CHECK_OK(srt_text_check_unchanged(text));
	CHECK_OR_DIE(truncate(path, 20) == 0);
	CHECK_STATUS(srt_text_check_unchanged(text), SRT_ERR_IO);
	CHECK_ERROR_HAS("it had 1000 bytes, now 20");
	CHECK_STATUS(srt_text_batch(text, 1, 1, 0, 100, CONTEXT, ids, targets), SRT_ERR_IO);
	CHECK_ERROR_HAS("became shorter while it was used: it had 1000 bytes, now");
	CHECK_INT(srt_text_window(text, 0, CONTEXT, ids, targets), -1);
	srt_text_destroy(text);
}

static void test_mistakes(void)
{
	srt_text_t *text = NULL;

	write_text(0);
	CHECK_STATUS(srt_text_load(path, &text), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("empty");
	CHECK_ERROR_HAS(path);
	CHECK_STATUS(srt_text_load("/", &text), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("the text / is not a regular file");
	CHECK_STATUS(srt_text_load("/nonexistent/text", &text), SRT_ERR_NOT_FOUND);
	CHECK_ERROR_HAS("/nonexistent/text: No such file");
	CHECK(text == NULL);

	text = load(100);
	CHECK_OK(srt_text_check(text, 89, 251));
	CHECK_STATUS(srt_text_check(text, 90, 251), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("longer than the training part");
	CHECK_OK(srt_text_check(text, 8, 100));
	CHECK_STATUS(srt_text_check(text, 8, 99), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("value 99");
	srt_text_destroy(text);
	text = load(2);
	CHECK_STATUS(srt_text_check(text, 1, 256), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("which has 1 bytes");
	srt_text_destroy(text);
	text = load(4);
	CHECK_STATUS(srt_text_check(text, 1, 256), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("validation part has 1 bytes, 2 are needed");
	srt_text_destroy(text);
	srt_text_destroy(NULL);
}

/* A file of tokens with this header; token i is i % 1000. */
static void write_tokens(const int32_t header[3], size_t n)
{
	FILE *f = fopen(path, "wb");
	int32_t words[256] = { header[0], header[1], header[2] };

	CHECK_OR_DIE(f != NULL);
	fwrite(words, sizeof(words), 1, f);
	for (size_t i = 0; i < n; i++)
		fwrite(&(uint16_t){ (uint16_t)(i % 1000) }, 2, 1, f);
	CHECK_OR_DIE(fclose(f) == 0);
}

/* Batches and windows are as of a text, of tokens of 16 bits. */
static void test_tokens(void)
{
	const int32_t header[3] = { 20240520, 1, 3003 };
	int32_t ids[CONTEXT], targets[CONTEXT];
	srt_text_t *text = NULL;
	uint64_t hash;

	write_tokens(header, 3003);
	CHECK_OK_OR_DIE(srt_text_load_tokens(path, &text));
	CHECK_INT(srt_text_ntokens(text), 3003);
	CHECK_INT(srt_text_ntrain(text), 2702);
	CHECK_OK(srt_text_check(text, CONTEXT, 1000));
	for (int64_t step = 1; step < 40; step++) {
		size_t start = srt_text_start(text, 5, step, 0, CONTEXT);

		CHECK_OK(srt_text_batch(text, 5, step, 0, 1, CONTEXT, ids, targets));
		for (size_t i = 0; i < CONTEXT; i++)
			CHECK(ids[i] == (int32_t)((start + i) % 1000) &&
			      targets[i] == (int32_t)((start + i + 1) % 1000));
	}
	CHECK_INT(srt_text_window(text, 42, CONTEXT, ids, targets), 6); /* 300 predictions */
	CHECK(ids[0] == 996 && targets[5] == 2 && ids[6] == 0);

	/* The last token of the training part and the last of all are too large; then 999. */
	CHECK_OK(srt_text_check(text, CONTEXT, 702));
	CHECK_STATUS(srt_text_window(text, 0, CONTEXT, ids, targets) < 0 ?
			     SRT_ERR_INVALID_ARGUMENT :
			     SRT_OK,
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS(
		"token 2702 (at byte 6428 of the file) is 702, but the vocabulary has 0 .. 701");
	CHECK_ERROR_HAS(path);
	CHECK_OK(srt_text_check(text, 2701, 999));
	CHECK_STATUS(srt_text_batch(text, 5, 1, 0, 1, 2701, (int32_t[2701]){ 0 },
				    (int32_t[2701]){ 0 }),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("token 999 (at byte 3022 of the file) is 999");
	hash = srt_text_hash(text);
	srt_text_destroy(text);

	write_tokens((int32_t[]){ 20240520, 1, 3002 }, 3002);
	CHECK_OK_OR_DIE(srt_text_load_tokens(path, &text));
	CHECK(srt_text_hash(text) != hash);
	srt_text_destroy(text);
}

/* Each part of a file of tokens is checked on its own, and together they are the file. */
static void test_token_parts(void)
{
	enum { NTOKENS = 70003, BAD = 65543 };
	srt_text_t *text = NULL;

	write_tokens((int32_t[]){ 20240520, 1, NTOKENS }, NTOKENS);
	change_text(1024 + 2 * BAD, "\xe9\x03", 1000); /* 1001 */
	CHECK_OK_OR_DIE(srt_text_load_tokens(path, &text));
	CHECK_OK(srt_text_check(text, 64, 1002));
	CHECK_OK(srt_text_check_tokens(text, 0, 1));
	CHECK_OK(srt_text_check(text, 64, 1001));
	for (int nparts = 1; nparts <= 16; nparts++) {
		int nbad = 0;

		for (int part = 0; part < nparts; part++)
			nbad += srt_text_check_tokens(text, part, nparts) != SRT_OK;
		CHECK_INT(nbad, 1);
		CHECK_ERROR_HAS("token 65543 (at byte 132110 of the file) is 1001");
	}
	srt_text_destroy(text);
}

/* The first and the last token of a file that is larger than what is hashed change the hash. */
static void test_tokens_hash(void)
{
	enum { NTOKENS = 40 << 20 };
	const off_t at[] = { 1024, (off_t)NTOKENS * 2 + 1023 };
	uint64_t hashes[3] = { 0 };

	for (size_t i = 0; i < 3; i++) {
		srt_text_t *text;

		write_tokens((int32_t[]){ 20240520, 1, NTOKENS }, 0);
		CHECK_OR_DIE(truncate(path, (off_t)NTOKENS * 2 + 1024) == 0);
		if (i < 2) {
			FILE *f = fopen(path, "r+b");

			CHECK_OR_DIE(f != NULL && fseek(f, at[i], SEEK_SET) == 0);
			fputc(1, f);
			fclose(f);
		}
		CHECK_OK_OR_DIE(srt_text_load_tokens(path, &text));
		hashes[i] = srt_text_hash(text);
		srt_text_destroy(text);
	}
	CHECK(hashes[0] != hashes[1] && hashes[0] != hashes[2] && hashes[1] != hashes[2]);
}

static void test_tokens_mistakes(void)
{
	static const struct {
		int32_t header[3];
		size_t n;
		off_t nbytes;
		const char *why;
	} cases[] = {
		{ { 20240520, 1, 10 }, 10, 1023, "it has 1023 bytes, but the header" },
		{ { 20240520, 1, 10 }, 10, 3, "it is text, not a file of tokens" },
		{ { 20240801, 7, 10 }, 10, 0, "has 10 tokens of 4 bytes, but 20 bytes follow" },
		{ { 20240801, 1, 10 }, 10, 0, "of version 1, but only 7 is accepted" },
		{ { 20240520, 2, 10 }, 10, 0, "has 10 tokens of 4 bytes, but 20 bytes follow" },
		{ { 20240520, 7, 10 }, 10, 0, "of version 7, but only 1 and 2 are accepted" },
		{ { 0x02010403, 1, 10 }, 10, 1043, "it would have an even number" },
		{ { 20240520, 1, 11 }, 10, 0, "has 11 tokens of 2 bytes, but 20 bytes follow" },
		{ { 20240520, 1, 9 }, 10, 0, "has 9 tokens of 2 bytes, but 20 bytes follow" },
		{ { 20240520, 1, 10 }, 10, 1043, "but 19 bytes follow" },
		{ { 20240520, 1, -1 }, 10, 0, "has 4294967295 tokens" },
		{ { 20240520, 1, INT32_MIN + 10 }, 10, 0, "has 2147483658 tokens" },
	};
	srt_text_t *text = NULL;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		write_tokens(cases[i].header, cases[i].n);
		CHECK_OR_DIE(cases[i].nbytes == 0 || truncate(path, cases[i].nbytes) == 0);
		CHECK_STATUS(srt_text_load_tokens(path, &text), SRT_ERR_INVALID_ARGUMENT);
		CHECK_ERROR_HAS(cases[i].why);
		CHECK_ERROR_HAS(path);
	}
	CHECK(text == NULL);
	write_tokens((int32_t[]){ 20240520, 1, 0 }, 0);
	CHECK_OK_OR_DIE(srt_text_load_tokens(path, &text));
	CHECK_STATUS(srt_text_check(text, 1, 256), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("which has 0 tokens");
	srt_text_destroy(text);
}

int main(void)
{
	snprintf(path, sizeof(path), "tests/models/test_text.%ld.tmp", (long)getpid());
	test_slices();
	test_starts();
	test_hash();
	test_windows();
	test_changes();
	test_mistakes();
	test_tokens();
	test_token_parts();
	test_tokens_hash();
	test_tokens_mistakes();
	unlink(path);
	return check_done();
}
