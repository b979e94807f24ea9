/* SPDX-License-Identifier: BSD-3-Clause */
/* --sft-show: prints examples as they are trained on. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "models/data/sft.h"
#include "models/try.h"
#include "tools/common.h"
#include "tools/train/data.h"

/* The text of tokens; bytes without a tokenizer. */
static srt_status_t decode(const srt_tokenizer_t *tokenizer, const int32_t *ids, size_t n,
			   char **text, size_t *nbytes)
{
	if (tokenizer != NULL)
		return srt_tokenizer_decode(tokenizer, ids, n, 0, text, nbytes);
	*text = malloc(n + 1);
	if (*text == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < n; i++)
		(*text)[i] = (char)ids[i];
	*nbytes = n;
	return SRT_OK;
}

/* A token as text of one line. */
static srt_status_t print_token(FILE *out, const srt_tokenizer_t *tokenizer, int32_t id)
{
	size_t nbytes;
	char *text;

	SRT_TRY(decode(tokenizer, &id, 1, &text, &nbytes));
	for (size_t i = 0; i < nbytes; i++)
		if (text[i] == '\n')
			fputs("\\n", out);
		else
			tool_print_text(out, text + i, 1);
	free(text);
	return SRT_OK;
}

/* The tokens from `from` on that are of answers or not, as the first one is. @return their end. */
static int64_t find_end(const srt_sft_example_t *e, int64_t from)
{
	int64_t to = from;

	while (to < e->ntokens && e->is_answer[to] == e->is_answer[from])
		to++;
	return to;
}

static srt_status_t print_example(FILE *out, const trainer_t *t, const srt_tokenizer_t *tokenizer,
				  int64_t i)
{
	const srt_sft_example_t e = srt_sft_example(t->sft, i);
	int64_t nanswer = 0;
	size_t nbytes;
	char *text;

	for (int64_t k = 0; k < e.ntokens; k++)
		nanswer += e.is_answer[k];
	fprintf(out,
		"example %" PRId64 ", line %" PRId64 ": %" PRId64 " tokens, %" PRId64
		" of them of answers, between >>> and <<<\n",
		i + 1, e.line, e.ntokens, nanswer);
	for (int64_t from = 0, to; from < e.ntokens; from = to) {
		to = find_end(&e, from);
		SRT_TRY(decode(tokenizer, e.ids + from, (size_t)(to - from), &text, &nbytes));
		fputs(e.is_answer[from] ? ">>>" : "", out);
		tool_print_text(out, text, nbytes);
		fputs(e.is_answer[from] ? "<<<" : "", out);
		free(text);
	}
	fputs("\ntokens; those that are predicted have a *:\n", out);
	for (int64_t k = 0; k < e.ntokens; k++) {
		fprintf(out, "%c %7" PRId32 "  ", e.is_answer[k] ? '*' : ' ', e.ids[k]);
		SRT_TRY(print_token(out, tokenizer, e.ids[k]));
		fputc('\n', out);
	}
	fputc('\n', out);
	return SRT_OK;
}

int trainer_show_examples(trainer_t *t, FILE *out)
{
	const int64_t have = srt_sft_info(t->sft).nexamples;
	const int64_t n = t->opt.sft_show < have ? t->opt.sft_show : have;
	srt_tokenizer_t *tokenizer = NULL;
	srt_status_t status = SRT_OK;

	if (trainer_open_tokenizer(t, "--sft", &tokenizer) != 0)
		return -1;
	for (int64_t i = 0; i < n && status == SRT_OK; i++)
		status = print_example(out, t, tokenizer, i);
	srt_tokenizer_close(tokenizer);
	return status == SRT_OK ? 0 : tool_why_failure(&t->why, "%s", srt_error_last());
}
