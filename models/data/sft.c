/* SPDX-License-Identifier: BSD-3-Clause */
/* A file of lines -> examples of tokens; see sft.h. */
#include "models/data/sft.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "models/data/sft_impl.h"
#include "models/data/text_file.h"
#include "models/string.h"
#include "models/try.h"

/* A file that is being read. */
typedef struct reading {
	const srt_sft_source_t *source;
	srt_sft_t *sft;
	srt_string_t line; /* so far; no more than SRT_SFT_LINE_NBYTES + 1 bytes */
	int64_t number;    /* of the line, from 1 on */
} reading_t;

static srt_status_t fail_memory(const srt_sft_source_t *source)
{
	return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for the examples of %s",
			      source->path);
}

/* ---- tokens --------------------------------------------------------------------------------- */

/* Bytes as tokens. */
static srt_status_t encode_bytes(srt_chat_parts_t *p, int32_t **ids, size_t *nids)
{
	size_t n = 0;

	for (size_t i = 0; i < p->nparts; i++) {
		p->parts[i].first = n;
		n += p->parts[i].text != NULL ? p->parts[i].nbytes : 1;
	}
	*ids = malloc((n + 1) * sizeof(**ids));
	if (*ids == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for %zu tokens", n);
	*nids = n;
	for (size_t i = 0; i < p->nparts; i++) {
		int32_t *to = *ids + p->parts[i].first;

		if (p->parts[i].text == NULL)
			*to = p->parts[i].id;
		for (size_t k = 0; p->parts[i].text != NULL && k < p->parts[i].nbytes; k++)
			to[k] = (unsigned char)p->parts[i].text[k];
	}
	return SRT_OK;
}

/* Which tokens are of answers: those of parts that begin where an answer does. */
static void mark_answers(const srt_chat_parts_t *p, size_t nids, unsigned char *is_answer)
{
	size_t from = 0;
	bool answer = false;

	for (size_t i = 0; i <= p->nparts; i++) {
		const size_t end = i < p->nparts ? p->parts[i].first : nids;

		if (i < p->nparts && p->parts[i].text != NULL && !p->parts[i].cut && i > 0)
			continue;
		memset(is_answer + from, answer, end - from);
		from = end;
		answer = i < p->nparts && p->is_answer[i];
	}
}

static srt_status_t check_tokens(const srt_sft_source_t *source, const int32_t *ids, size_t n,
				 const unsigned char *is_answer)
{
	for (size_t i = 0; i < n; i++)
		if (ids[i] >= source->vocab)
			return srt_model_fail(SRT_ERR_FORMAT,
					      "it has the token %d, but the vocabulary of the "
					      "model has 0 .. %lld",
					      ids[i], (long long)source->vocab - 1);
	if (n < 2 || is_answer[0])
		return srt_model_fail(SRT_ERR_FORMAT,
				      "no token is before the answer: the prompt is empty");
	if ((int64_t)n - 1 > source->context)
		return srt_model_fail(SRT_ERR_FORMAT,
				      "it has %zu tokens, but the context has room for %lld", n,
				      (long long)source->context + 1);
	return SRT_OK;
}

/* ---- examples ------------------------------------------------------------------------------- */

static srt_status_t reserve_tokens(const srt_sft_source_t *source, srt_sft_t *sft, size_t more)
{
	size_t capacity = sft->capacity > 0 ? sft->capacity : 4096;
	int32_t *ids;
	unsigned char *is_answer;

	while (capacity - sft->ntokens < more)
		capacity *= 2;
	if (capacity == sft->capacity)
		return SRT_OK;
	ids = realloc(sft->ids, capacity * sizeof(*ids));
	if (ids != NULL)
		sft->ids = ids;
	is_answer = realloc(sft->is_answer, capacity);
	if (is_answer != NULL)
		sft->is_answer = is_answer;
	if (ids == NULL || is_answer == NULL)
		return fail_memory(source);
	sft->capacity = capacity;
	return SRT_OK;
}

static srt_status_t reserve_example(const srt_sft_source_t *source, srt_sft_t *sft)
{
	const size_t capacity = sft->example_capacity > 0 ? 2 * sft->example_capacity : 256;
	size_t *begin;
	int64_t *line;

	if (sft->nexamples < sft->example_capacity)
		return SRT_OK;
	begin = realloc(sft->begin, (capacity + 1) * sizeof(*begin));
	if (begin != NULL)
		sft->begin = begin;
	line = realloc(sft->line, capacity * sizeof(*line));
	if (line != NULL)
		sft->line = line;
	if (begin == NULL || line == NULL)
		return fail_memory(source);
	sft->example_capacity = capacity;
	return SRT_OK;
}

/* Adds an example, without the tokens after its last answer, which nothing would predict. */
static srt_status_t add_example(reading_t *r, const int32_t *ids, size_t n,
				const unsigned char *is_answer)
{
	srt_sft_t *sft = r->sft;

	while (n > 0 && !is_answer[n - 1])
		n--;
	SRT_TRY(check_tokens(r->source, ids, n, is_answer));
	SRT_TRY(reserve_tokens(r->source, sft, n));
	SRT_TRY(reserve_example(r->source, sft));
	memcpy(sft->ids + sft->ntokens, ids, n * sizeof(*ids));
	memcpy(sft->is_answer + sft->ntokens, is_answer, n);
	sft->begin[sft->nexamples] = sft->ntokens;
	sft->line[sft->nexamples++] = r->number;
	sft->ntokens += n;
	sft->begin[sft->nexamples] = sft->ntokens;
	return SRT_OK;
}

static srt_status_t add_parts(reading_t *r, srt_chat_parts_t *parts)
{
	const srt_sft_source_t *s = r->source;
	const unsigned flags = s->chat == NULL ? SRT_TOKENIZER_ADD_SPECIAL : 0;
	unsigned char *is_answer = NULL;
	int32_t *ids = NULL;
	size_t n = 0;
	srt_status_t status = s->tokenizer == NULL ?
				      encode_bytes(parts, &ids, &n) :
				      srt_tokenizer_encode_parts(s->tokenizer, parts->parts,
								 parts->nparts, flags, &ids, &n);

	if (status == SRT_OK) {
		is_answer = malloc(n + 1);
		status = is_answer != NULL ? SRT_OK : fail_memory(s);
	}
	if (status == SRT_OK) {
		mark_answers(parts, n, is_answer);
		status = add_example(r, ids, n, is_answer);
	}
	free(ids);
	free(is_answer);
	return status;
}

static srt_status_t add_line(reading_t *r, const srt_sft_line_t *line)
{
	const srt_sft_source_t *s = r->source;
	const int32_t eos = s->tokenizer == NULL ? SRT_SFT_BYTES_EOS : s->eos;
	srt_chat_parts_t parts = { .nparts = 0 };
	srt_status_t status;

	if (line->ids != NULL)
		return add_example(r, line->ids, line->nids, line->is_answer);
	if (s->chat != NULL)
		status = srt_chat_lay_out(s->chat, line->messages, line->nmessages, s->bos, eos, 0,
					  &parts);
	else if (line->is_pair)
		status =
			srt_chat_lay_out_plain(&line->messages[0], &line->messages[1], eos, &parts);
	else
		status = srt_model_fail(SRT_ERR_FORMAT, "it has messages, which need a template");
	if (status == SRT_OK)
		status = add_parts(r, &parts);
	srt_chat_parts_clear(&parts);
	return status;
}

/* ---- lines ---------------------------------------------------------------------------------- */

/* A line that is no example is reported. */
static srt_status_t read_line(reading_t *r)
{
	srt_sft_line_t line = { .json = NULL };
	srt_status_t status;

	r->number++;
	if (strspn(r->line.data, " \t\r") == r->line.nbytes)
		return SRT_OK;
	if (r->line.nbytes > SRT_SFT_LINE_NBYTES)
		status = srt_model_fail(SRT_ERR_FORMAT, "it has more than %zu MiB",
					SRT_SFT_LINE_NBYTES >> 20);
	else
		status = srt_sft_line_read(r->line.data, r->line.nbytes, &line);
	if (status == SRT_OK)
		status = add_line(r, &line);
	srt_sft_line_clear(&line);
	if (status != SRT_ERR_FORMAT)
		return status;
	r->sft->nbad++;
	if (r->source->report != NULL)
		r->source->report(r->source->arg, r->number, srt_error_last());
	return SRT_OK;
}

/* Appends a part of a line; of one that is too long, no more than shows it. */
static srt_status_t append(reading_t *r, const char *text, size_t nbytes)
{
	const size_t room = SRT_SFT_LINE_NBYTES + 1 - r->line.nbytes;

	return srt_string_append(&r->line, text, nbytes < room ? nbytes : room) == SRT_OK ?
		       SRT_OK :
		       fail_memory(r->source);
}

static srt_status_t end_line(reading_t *r)
{
	SRT_TRY(srt_string_reserve(&r->line, 1));
	r->line.data[r->line.nbytes] = '\0';
	SRT_TRY(read_line(r));
	r->line.nbytes = 0;
	return SRT_OK;
}

static srt_status_t read_lines(reading_t *r, int fd)
{
	char block[4096];
	ssize_t n;

	while ((n = read(fd, block, sizeof(block))) != 0) {
		const char *at = block, *end = block + n, *newline;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return srt_model_fail(SRT_ERR_IO, "cannot read the examples %s: %s",
					      r->source->path, strerror(errno));
		while ((newline = memchr(at, '\n', (size_t)(end - at))) != NULL) {
			SRT_TRY(append(r, at, (size_t)(newline - at)));
			SRT_TRY(end_line(r));
			at = newline + 1;
		}
		SRT_TRY(append(r, at, (size_t)(end - at)));
	}
	return r->line.nbytes > 0 ? end_line(r) : SRT_OK;
}

static srt_status_t open_file(const char *path, int *fd)
{
	struct stat st;

	/* O_NONBLOCK: opening a FIFO must not block before fstat() */
	*fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (*fd < 0)
		return srt_model_fail(errno == ENOENT || errno == ENOTDIR ? SRT_ERR_NOT_FOUND :
									    SRT_ERR_IO,
				      "cannot open the examples %s: %s", path, strerror(errno));
	if (fstat(*fd, &st) == 0 && S_ISREG(st.st_mode))
		return SRT_OK;
	close(*fd);
	return srt_model_fail(SRT_ERR_INVALID_ARGUMENT, "the examples %s are not a regular file",
			      path);
}

static srt_status_t read_file(reading_t *r)
{
	const srt_sft_source_t *s = r->source;
	const srt_sft_t *sft = r->sft;
	srt_status_t status;
	int fd;

	SRT_TRY(open_file(s->path, &fd));
	status = read_lines(r, fd);
	close(fd);
	SRT_TRY(status);
	if (sft->nbad > 0 && !s->skips_bad)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "%s: %lld of %lld lines are not examples to train on",
				      s->path, (long long)sft->nbad,
				      (long long)sft->nbad + (long long)sft->nexamples);
	if (sft->nexamples == 0)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT, "%s has no examples", s->path);
	return SRT_OK;
}

srt_status_t srt_sft_open(const srt_sft_source_t *source, srt_sft_t **sft)
{
	srt_sft_t *s = calloc(1, sizeof(*s));
	reading_t reading = { .source = source, .sft = s };
	srt_status_t status;

	if (s == NULL)
		return fail_memory(source);
	s->context = source->context;
	s->seed = source->seed;
	s->batch = source->batch;
	status = read_file(&reading);
	free(reading.line.data);
	if (status == SRT_OK)
		status = srt_sft_start(s);
	if (status == SRT_OK)
		*sft = s;
	else
		srt_sft_destroy(s);
	return status;
}

void srt_sft_destroy(srt_sft_t *sft)
{
	if (sft == NULL)
		return;
	srt_sft_rows_clear(&sft->windows);
	srt_sft_rows_clear(&sft->rows);
	free(sft->ids);
	free(sft->is_answer);
	free(sft->begin);
	free(sft->line);
	free(sft);
}

/* ---- what there is -------------------------------------------------------------------------- */

srt_sft_info_t srt_sft_info(const srt_sft_t *sft)
{
	const int64_t nread = (int64_t)(sft->ntokens - sft->nexamples);
	srt_sft_info_t info = { .nexamples = (int64_t)sft->nexamples,
				.nbad = sft->nbad,
				.ntokens = (int64_t)sft->ntokens,
				.nrows = (int64_t)sft->windows.nrows };
	uint64_t hash = SRT_TEXT_HASH_INIT;

	info.nanswer_tokens = sft->windows.targets[sft->windows.nrows];
	info.fill = (double)nread / ((double)info.nrows * (double)sft->context);
	hash = srt_text_hash_bytes(hash, sft->ids, sft->ntokens * sizeof(*sft->ids));
	hash = srt_text_hash_bytes(hash, sft->is_answer, sft->ntokens);
	info.hash =
		srt_text_hash_bytes(hash, sft->begin, (sft->nexamples + 1) * sizeof(*sft->begin));
	return info;
}

srt_sft_example_t srt_sft_example(const srt_sft_t *sft, int64_t i)
{
	const size_t begin = sft->begin[i];

	return (srt_sft_example_t){ .line = sft->line[i],
				    .ntokens = (int64_t)(sft->begin[i + 1] - begin),
				    .ids = sft->ids + begin,
				    .is_answer = sft->is_answer + begin };
}
