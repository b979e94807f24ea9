/* SPDX-License-Identifier: BSD-3-Clause */
/* Tokenizers: opened, closed, asked for tokens. See <shardrt/models/tokenizer.h>. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "models/tokenizer_impl.h"
#include "models/try.h"

/* The longest tokenizer.json that is read. */
#define FILE_NBYTES ((size_t)64 << 20)

static void clear_steps(srt_tokenizer_steps_t *steps)
{
	for (size_t i = 0; i < SRT_TOKENIZER_STEPS; i++) {
		srt_pattern_destroy(steps->step[i].pattern);
		free(steps->step[i].text.data);
	}
}

static void clear_set(srt_added_set_t *set)
{
	for (size_t i = 0; i < set->n; i++) {
		free(set->tokens[i].content.data);
		free(set->tokens[i].text.data);
	}
	free(set->tokens);
}

void srt_tokenizer_close(srt_tokenizer_t *tokenizer)
{
	srt_tokenizer_t *t = tokenizer;

	if (t == NULL)
		return;
	srt_bpe_clear(&t->bpe);
	for (size_t i = 0; t->added != NULL && i < t->nids; i++)
		free(t->added[i].data);
	free(t->added);
	free(t->special);
	clear_set(&t->raw);
	clear_set(&t->normalized);
	srt_pattern_destroy(t->word);
	clear_steps(&t->normalizer);
	clear_steps(&t->pre);
	clear_steps(&t->decoder);
	free(t->prefix);
	free(t->suffix);
	free(t);
}

/* Reads a file that is not too long. */
static srt_status_t read_file(FILE *f, const char *path, srt_string_t *text)
{
	size_t n;

	do {
		SRT_TRY(srt_string_reserve(text, 1 << 16));
		n = fread(text->data + text->nbytes, 1, text->capacity - text->nbytes, f);
		text->nbytes += n;
	} while (n > 0 && text->nbytes <= FILE_NBYTES);
	if (ferror(f))
		return srt_model_fail(SRT_ERR_IO, "%s: %s", path, strerror(errno));
	if (text->nbytes > FILE_NBYTES)
		return srt_model_fail(SRT_ERR_UNSUPPORTED,
				      "%s: it has more than %zu MiB, the most that is read", path,
				      FILE_NBYTES >> 20);
	return SRT_OK;
}

/* Opens the file, or the one in the folder. */
static srt_status_t open_file(const char *path, srt_string_t *name, FILE **f)
{
	struct stat st;

	SRT_TRY(srt_string_append(name, path, strlen(path)));
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		SRT_TRY(srt_string_append(name, "/tokenizer.json", strlen("/tokenizer.json")));
	SRT_TRY(srt_string_append(name, "", 1));
	*f = fopen(name->data, "rb");
	if (*f == NULL)
		return srt_model_fail(errno == ENOENT || errno == ENOTDIR ? SRT_ERR_NOT_FOUND :
									    SRT_ERR_IO,
				      "cannot open the tokenizer %s: %s", name->data,
				      strerror(errno));
	return SRT_OK;
}

static srt_status_t read_tokenizer(const char *path, const srt_string_t *text,
				   srt_tokenizer_t **tokenizer)
{
	srt_tokenizer_t *t = calloc(1, sizeof(*t));
	char why[512];
	srt_status_t status;

	if (t == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for a tokenizer");
	status = srt_tokenizer_read(text->data, text->nbytes, t);
	if (status == SRT_OK) {
		*tokenizer = t;
		return SRT_OK;
	}
	srt_tokenizer_close(t);
	snprintf(why, sizeof(why), "%s", srt_error_last());
	return srt_model_fail(status, "%s: %s", path, why);
}

srt_status_t srt_tokenizer_open(const char *path, srt_tokenizer_t **tokenizer)
{
	srt_string_t name = { .nbytes = 0 }, text = { .nbytes = 0 };
	FILE *f = NULL;
	srt_status_t status;

	if (path == NULL || tokenizer == NULL)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT, "srt_tokenizer_open: %s is NULL",
				      path == NULL ? "path" : "tokenizer");
	status = open_file(path, &name, &f);
	if (status == SRT_OK)
		status = read_file(f, name.data, &text);
	if (status == SRT_OK)
		status = read_tokenizer(name.data, &text, tokenizer);
	if (f != NULL)
		fclose(f);
	free(name.data);
	free(text.data);
	return status;
}

int64_t srt_tokenizer_vocab_size(const srt_tokenizer_t *tokenizer)
{
	return tokenizer != NULL ? (int64_t)tokenizer->nids : 0;
}

static int32_t find_added(const srt_added_set_t *set, const char *token, size_t nbytes)
{
	for (size_t i = 0; i < set->n; i++) {
		const srt_string_t *content = &set->tokens[i].content;

		if (content->nbytes == nbytes && memcmp(content->data, token, nbytes) == 0)
			return set->tokens[i].id;
	}
	return -1;
}

int32_t srt_tokenizer_find(const srt_tokenizer_t *tokenizer, const char *token)
{
	const size_t nbytes = token != NULL ? strlen(token) : 0;
	int32_t id;

	if (tokenizer == NULL || token == NULL)
		return -1;
	id = find_added(&tokenizer->raw, token, nbytes);
	if (id < 0)
		id = find_added(&tokenizer->normalized, token, nbytes);
	return id >= 0 ? id : srt_bpe_find(&tokenizer->bpe, token, nbytes);
}
