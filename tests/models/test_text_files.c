/* SPDX-License-Identifier: BSD-3-Clause */
/* Texts of several files of tokens, of each format, by a pattern; other files for the validation;
 * all of a text for it. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "models/data/text.h"
#include "tests/harness/check.h"

#define FOLDER "tests/models/test_text_files.tmp"

enum { CONTEXT = 5 };

/* A file of n tokens that count from `first` on. magic: 0: no header. */
static void write_file(const char *path, int32_t magic, int32_t version, size_t item, int32_t first,
		       size_t n)
{
	FILE *f = fopen(path, "wb");
	int32_t words[256] = { magic, version, (int32_t)n };

	CHECK_OR_DIE(f != NULL);
	if (magic != 0)
		fwrite(words, sizeof(words), 1, f);
	for (size_t i = 0; i < n; i++) {
		const int32_t id = first + (int32_t)i;

		fwrite(&id, item, 1, f);
	}
	CHECK_OR_DIE(fclose(f) == 0);
}

/* Tokens 1 .. 60 in four files of three formats, one of them empty, and 61 .. 70 in a fifth. */
static void write_files(void)
{
	write_file(FOLDER "/train_a.bin", 20240520, 1, 2, 1, 20);
	write_file(FOLDER "/train_b.bin", 20240801, 7, 4, 21, 3);
	write_file(FOLDER "/train_c.bin", 20240520, 2, 4, 24, 0);
	write_file(FOLDER "/train_d.bin", 0, 0, 2, 24, 37);
	write_file(FOLDER "/val.bin", 20240520, 1, 2, 61, 10);
}

static srt_text_t *open_text(const srt_text_source_t *source)
{
	srt_text_t *text = NULL;

	CHECK_OK_OR_DIE(srt_text_open(source, &text));
	CHECK_OK(srt_text_check(text, CONTEXT, 100));
	for (int part = 0; part < 3; part++)
		CHECK_OK(srt_text_check_tokens(text, part, 3));
	CHECK_OK(srt_text_check_unchanged(text));
	return text;
}

/* Each token follows the one before it, over the ends of files. */
static void check_windows(const srt_text_t *text, int32_t first, int32_t last)
{
	int32_t ids[CONTEXT], targets[CONTEXT], next = first;
	int64_t n;

	for (int64_t w = 0; (n = srt_text_window(text, w, CONTEXT, ids, targets)) > 0; w++)
		for (int64_t i = 0; i < n; i++, next++)
			CHECK(ids[i] == next && targets[i] == next + 1);
	CHECK_INT(next, last);
}

static void check_batches(const srt_text_t *text, int32_t last)
{
	int32_t ids[CONTEXT], targets[CONTEXT], most = 0, least = last;

	for (int64_t step = 1; step < 1000; step++) {
		CHECK_OK(srt_text_batch(text, 1, step, 0, 1, CONTEXT, ids, targets));
		for (int i = 0; i < CONTEXT; i++)
			CHECK(ids[i] == ids[0] + i && targets[i] == ids[i] + 1);
		most = targets[CONTEXT - 1] > most ? targets[CONTEXT - 1] : most;
		least = ids[0] < least ? ids[0] : least;
	}
	CHECK(least == 1 && most == last);
}

static void test_pattern(void)
{
	srt_text_t *text =
		open_text(&(srt_text_source_t){ .path = FOLDER "/train_*.bin", .are_tokens = 1 });
	const uint64_t hash = srt_text_hash(text);

	CHECK_INT(srt_text_ntokens(text), 60);
	CHECK_INT(srt_text_ntrain(text), 54);
	check_batches(text, 54);
	check_windows(text, 55, 60);
	srt_text_destroy(text);
	text = open_text(
		&(srt_text_source_t){ .path = FOLDER "/train_[abd].bin", .are_tokens = 1 });
	CHECK(srt_text_hash(text) != hash && srt_text_ntokens(text) == 60);
	srt_text_destroy(text);
}

static void test_validation(void)
{
	srt_text_t *text = open_text(&(srt_text_source_t){
		.path = FOLDER "/train_*.bin", .validation = FOLDER "/val.bin", .are_tokens = 1 });

	CHECK_INT(srt_text_ntrain(text), 60);
	CHECK_INT(srt_text_nvalidation(text), 10);
	check_batches(text, 60);
	check_windows(text, 61, 70);
	CHECK_OK(srt_text_check(text, CONTEXT, 66));
	CHECK_STATUS(srt_text_check_tokens(text, 0, 1), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS(FOLDER "/val.bin: token 5 (at byte 1034 of the file) is 66");
	write_file(FOLDER "/train_b.bin", 20240801, 7, 4, 22, 3);
	CHECK_STATUS(srt_text_check_unchanged(text), SRT_ERR_IO);
	CHECK_ERROR_HAS(FOLDER "/train_b.bin was written to");
	srt_text_destroy(text);
	write_files();
}

static void test_evaluation(void)
{
	srt_text_t *text = open_text(&(srt_text_source_t){
		.path = FOLDER "/train_?.bin", .are_tokens = 1, .evaluates = 1 });
	int32_t ids[CONTEXT], targets[CONTEXT], next = 1;
	int64_t n;

	CHECK_INT(srt_text_nvalidation(text), 60);
	CHECK_INT(srt_text_nwindows(text, CONTEXT), (60 + CONTEXT - 1) / CONTEXT);
	for (int64_t w = 0; (n = srt_text_window(text, w, CONTEXT, ids, targets)) > 0; w++)
		for (int64_t i = 0; i < n; i++, next++)
			CHECK(ids[i] == next && targets[i] == (i < n - 1 ? next + 1 : -1));
	CHECK_INT(next, 61);
	srt_text_destroy(text);
}

/* A token of 32 bits that no int32_t has is outside of every vocabulary. */
static void test_mistakes(void)
{
	srt_text_t *text = NULL;

	CHECK_STATUS(srt_text_load_tokens(FOLDER "/none_*.bin", &text), SRT_ERR_NOT_FOUND);
	CHECK_ERROR_HAS("no file matches the pattern " FOLDER "/none_*.bin");
	CHECK_STATUS(srt_text_load_tokens(FOLDER "/none.bin", &text), SRT_ERR_NOT_FOUND);
	CHECK_STATUS(srt_text_load(FOLDER "/train_*.bin", &text), SRT_ERR_NOT_FOUND);
	CHECK(text == NULL);
	write_file(FOLDER "/[x].bin", 20240520, 2, 4, -3, 20);
	CHECK_OK_OR_DIE(srt_text_load_tokens(FOLDER "/[x].bin", &text));
	CHECK_OK(srt_text_check(text, CONTEXT, INT32_MAX));
	CHECK_STATUS(srt_text_check_tokens(text, 0, 1), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("token 0 (at byte 1024 of the file) is 4294967293");
	srt_text_destroy(text);
	unlink(FOLDER "/[x].bin");
}

int main(void)
{
	static const char *const files[] = { "train_a.bin", "train_b.bin", "train_c.bin",
					     "train_d.bin", "val.bin" };
	char path[128];

	CHECK_OR_DIE(mkdir(FOLDER, 0777) == 0 || errno == EEXIST);
	write_files();
	test_pattern();
	test_validation();
	test_evaluation();
	test_mistakes();
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		snprintf(path, sizeof(path), FOLDER "/%s", files[i]);
		unlink(path);
	}
	CHECK(rmdir(FOLDER) == 0);
	return check_done();
}
