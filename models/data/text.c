/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads a text or files of tokens; copies batches and validation windows from them. */
#include "models/data/text.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/data/text_file.h"
#include "models/hash.h"
#include "models/model.h"
#include "models/try.h"

/* The tokens of all files, one after the other: those of training, then those of validation. */
struct srt_text {
	srt_text_file_t *files;
	size_t *begin; /* token that each file begins with, and the end */
	size_t nfiles;
	size_t ntokens, ntrain;
	int are_tokens, evaluates;
	int largest;   /* byte of a text */
	int64_t vocab; /* that tokens are checked against */
	uint64_t hash;
};

/* ---- files ------------------------------------------------------------------------------ */

static srt_status_t fail_memory(const char *path)
{
	return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for the files of %s", path);
}

static srt_status_t add_file(srt_text_t *t, const char *path, const srt_tokenizer_t *tokenizer)
{
	srt_text_file_t *files = realloc(t->files, (t->nfiles + 1) * sizeof(*files));
	size_t *begin;

	if (files == NULL)
		return fail_memory(path);
	t->files = files;
	begin = realloc(t->begin, (t->nfiles + 2) * sizeof(*begin));
	if (begin == NULL)
		return fail_memory(path);
	t->begin = begin;
	t->begin[t->nfiles] = t->ntokens;
	files += t->nfiles++;
	SRT_TRY(tokenizer != NULL ? srt_text_file_encode(path, tokenizer, files) :
				    srt_text_file_open(path, t->are_tokens, files));
	t->ntokens += t->files[t->nfiles - 1].ntokens;
	t->begin[t->nfiles] = t->ntokens;
	return SRT_OK;
}

static int compare_paths(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Adds the files that match a pattern, in the order of names. */
static srt_status_t add_matching(srt_text_t *t, const char *pattern)
{
	glob_t found = { 0 };
	const int error = glob(pattern, GLOB_NOSORT, NULL, &found);
	srt_status_t status = SRT_OK;

	if (error == GLOB_NOMATCH)
		return srt_model_fail(SRT_ERR_NOT_FOUND, "no file matches the pattern %s", pattern);
	if (error != 0)
		return srt_model_fail(error == GLOB_NOSPACE ? SRT_ERR_OUT_OF_MEMORY : SRT_ERR_IO,
				      "cannot list the files of %s", pattern);
	qsort(found.gl_pathv, found.gl_pathc, sizeof(*found.gl_pathv), compare_paths);
	for (size_t i = 0; i < found.gl_pathc && status == SRT_OK; i++)
		status = add_file(t, found.gl_pathv[i], NULL);
	globfree(&found);
	return status;
}

/* A text is one file, whatever its name is; a file of tokens that is there is one too. */
static srt_status_t add_files(srt_text_t *t, const char *path, const srt_tokenizer_t *tokenizer)
{
	if (!t->are_tokens || strpbrk(path, "*?[") == NULL || access(path, F_OK) == 0)
		return add_file(t, path, tokenizer);
	return add_matching(t, path);
}

/* That of the only file, or of the hashes and sizes of all. */
static void hash_files(srt_text_t *t)
{
	t->hash = t->files[0].hash;
	for (size_t i = 0; i < t->nfiles && t->nfiles > 1; i++) {
		const uint64_t words[] = { t->files[i].hash, t->files[i].ntokens, t->ntrain };

		t->hash = srt_text_hash_bytes(i > 0 ? t->hash : SRT_TEXT_HASH_INIT, words,
					      sizeof(words));
	}
}

static srt_status_t open_files(srt_text_t *t, const srt_text_source_t *source)
{
	SRT_TRY(add_files(t, source->path, source->tokenizer));
	t->ntrain = source->evaluates          ? 0 :
		    source->validation != NULL ? t->ntokens :
						 t->ntokens / 10 * 9 + t->ntokens % 10 * 9 / 10;
	if (source->validation != NULL)
		SRT_TRY(add_files(t, source->validation, source->tokenizer));
	if (source->tokenizer != NULL)
		t->are_tokens = 1;
	for (size_t i = 0; i < t->nfiles; i++)
		t->largest = t->files[i].largest > t->largest ? t->files[i].largest : t->largest;
	hash_files(t);
	return SRT_OK;
}

srt_status_t srt_text_open(const srt_text_source_t *source, srt_text_t **text)
{
	srt_text_t *t = calloc(1, sizeof(*t));
	srt_status_t status;

	if (t == NULL)
		return fail_memory(source->path);
	t->are_tokens = source->are_tokens;
	t->evaluates = source->evaluates;
	t->vocab = INT32_MAX;
	status = open_files(t, source);
	if (status == SRT_OK)
		*text = t;
	else
		srt_text_destroy(t);
	return status;
}

srt_status_t srt_text_load(const char *path, srt_text_t **text)
{
	return srt_text_open(&(srt_text_source_t){ .path = path }, text);
}

srt_status_t srt_text_load_tokens(const char *path, srt_text_t **text)
{
	return srt_text_open(&(srt_text_source_t){ .path = path, .are_tokens = 1 }, text);
}

void srt_text_destroy(srt_text_t *text)
{
	if (text == NULL)
		return;
	for (size_t i = 0; i < text->nfiles; i++)
		srt_text_file_close(&text->files[i]);
	free(text->files);
	free(text->begin);
	free(text);
}

/* ---- sizes ------------------------------------------------------------------------------ */

size_t srt_text_ntokens(const srt_text_t *text)
{
	return text->ntokens;
}

uint64_t srt_text_hash(const srt_text_t *text)
{
	return text->hash;
}

size_t srt_text_ntrain(const srt_text_t *text)
{
	return text->ntrain;
}

size_t srt_text_nvalidation(const srt_text_t *text)
{
	return text->ntokens - text->ntrain;
}

srt_status_t srt_text_check(srt_text_t *text, int64_t context, int64_t vocab)
{
	const char *unit = text->are_tokens ? "tokens" : "bytes";
	const size_t nvalidation = srt_text_nvalidation(text);

	if (!text->evaluates && (text->ntrain < 2 || context > (int64_t)text->ntrain - 1))
		return srt_model_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"the context of %lld is longer than the training part of the text (the first "
			"nine tenths, or all if there is another one to validate), which has %zu %s",
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

srt_status_t srt_text_check_unchanged(srt_text_t *text)
{
	for (size_t i = 0; i < text->nfiles; i++)
		SRT_TRY(srt_text_file_check_unchanged(&text->files[i]));
	return SRT_OK;
}

/* ---- tokens ----------------------------------------------------------------------------- */

/* The file that has a token. */
static size_t find_file(const srt_text_t *text, size_t token)
{
	size_t low = 0, high = text->nfiles - 1;

	while (low < high) {
		const size_t middle = (low + high + 1) / 2;

		if (text->begin[middle] <= token)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

/* n tokens from `start`, of one file or several. ids: NULL: they are only checked. */
static srt_status_t read_tokens(const srt_text_t *text, size_t start, size_t n, int32_t *ids)
{
	size_t file = find_file(text, start);

	for (size_t at = start, end = start + n, count; at < end; at += count, file++) {
		const size_t file_end = text->begin[file + 1];

		count = (end < file_end ? end : file_end) - at;
		SRT_TRY(srt_text_file_read(&text->files[file], at - text->begin[file], count,
					   text->vocab, ids != NULL ? ids + (at - start) : NULL));
	}
	return SRT_OK;
}

srt_status_t srt_text_check_tokens(const srt_text_t *text, int part, int nparts)
{
	const size_t each = text->ntokens / (size_t)nparts, start = (size_t)part * each;
	const size_t end = part + 1 < nparts ? start + each : text->ntokens;

	if (!text->are_tokens) /* the largest byte was compared */
		return SRT_OK;
	return read_tokens(text, start, end - start, NULL);
}

/* Inputs and targets of n predictions, from token `start`. */
static srt_status_t copy_tokens(const srt_text_t *text, size_t start, int64_t n, int32_t *ids,
				int32_t *targets)
{
	SRT_TRY(read_tokens(text, start, (size_t)n, ids));
	memcpy(targets, ids + 1, (size_t)(n - 1) * sizeof(*ids));
	return read_tokens(text, start + (size_t)n, 1, targets + n - 1);
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
	/* Windows that only evaluate do not predict the token after them. */
	const int64_t n = (int64_t)srt_text_nvalidation(text) - !text->evaluates;

	return n < 1 ? 0 : (n + context - 1) / context;
}

/* Window w of tokens that are predicted within it: the last one is none. */
static int64_t copy_separate(const srt_text_t *text, int64_t w, int64_t context, int32_t *ids,
			     int32_t *targets)
{
	const int64_t left = (int64_t)srt_text_nvalidation(text) - w * context;
	const int64_t n = left < 0 ? 0 : left < context ? left : context;

	if (n == 0)
		return 0;
	if (read_tokens(text, text->ntrain + (size_t)(w * context), (size_t)n, ids) != SRT_OK)
		return -1;
	memcpy(targets, ids + 1, (size_t)(n - 1) * sizeof(*ids));
	targets[n - 1] = -1;
	return n;
}

static int64_t copy_window(const srt_text_t *text, int64_t w, int64_t context, int32_t *ids,
			   int32_t *targets)
{
	const int64_t left = (int64_t)srt_text_nvalidation(text) - 1 - w * context;
	const int64_t n = left < 0 ? 0 : left < context ? left : context;

	if (n > 0 &&
	    copy_tokens(text, text->ntrain + (size_t)(w * context), n, ids, targets) != SRT_OK)
		return -1;
	return n;
}

int64_t srt_text_window(const srt_text_t *text, int64_t w, int64_t context, int32_t *ids,
			int32_t *targets)
{
	const int64_t n = text->evaluates ? copy_separate(text, w, context, ids, targets) :
					    copy_window(text, w, context, ids, targets);

	for (int64_t t = n; n >= 0 && t < context; t++)
		ids[t] = targets[t] = 0;
	return n;
}
