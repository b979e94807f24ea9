/* SPDX-License-Identifier: BSD-3-Clause */
/* Generated text: --generate and --sample. */
#include <stdlib.h>
#include <string.h>

#include "models/try.h"
#include "tools/common.h"
#include "tools/model_folder.h"
#include "tools/prompt.h"
#include "tools/train/train.h"

int trainer_prepare_prompt(trainer_t *t)
{
	const char *prompt = t->opt.prompt;
	char path[TOOL_CONFIG_NBYTES];

	if (t->config.context < 2)
		return tool_why_usage(&t->why,
				      "--generate and --sample need a context of 2 or more");
	if (tool_model_find_file(&t->model, "tokenizer.json", path) &&
	    srt_tokenizer_open(path, &t->tokenizer) != SRT_OK)
		return tool_why_usage(&t->why, "--prompt: %s", srt_error_last());
	return tool_encode_prompt(t->tokenizer, "--prompt", prompt, strlen(prompt), t->config.vocab,
				  &t->prompt, &t->nprompt, &t->why);
}

srt_status_t trainer_create_generator(trainer_t *t)
{
	const int64_t wanted = (int64_t)t->nprompt + t->opt.generate + t->opt.sample;
	const srt_generator_options_t options = {
		.sequences = 1,
		.length = wanted < t->config.context ? wanted : t->config.context,
	};

	return srt_generator_create(t->decoder, t->device, &options, &t->generator);
}

/* Continues a text of more tokens than the context by its last part, again and again.
 * @param ids nprompt tokens, then n new ones. */
static srt_status_t continue_text(trainer_t *t, int32_t *ids, int64_t nprompt, int64_t n)
{
	const int64_t context = t->config.context;
	srt_sampling_t sampling = { .temperature = (float)t->opt.temperature,
				    .seed = (uint64_t)t->opt.seed };
	uint64_t part = 0;
	sampling.vocab = tool_drawn_vocab(t->tokenizer, t->config.vocab);
	for (int64_t from = 0, have = nprompt; have < nprompt + n; part++) {
		srt_sequence_t sequence = { .key = part };

		if (have - from >= context)
			from = have - context / 2;
		sequence.prompt = ids + from;
		sequence.nprompt = have - from;
		sequence.tokens = ids + have;
		sequence.max_tokens = nprompt + n - have;
		SRT_TRY(srt_decoder_generate(t->generator, &sampling, &sequence, 1, NULL, NULL,
					     t->stream));
		have += sequence.ntokens;
	}
	return SRT_OK;
}

static void print_text(FILE *out, const char *text, size_t n)
{
	tool_print_text(out, text, n);
	fputc('\n', out);
	fflush(out);
}

/* Prints the text of n tokens. */
static srt_status_t print_tokens(const trainer_t *t, const int32_t *ids, size_t n, FILE *out)
{
	srt_status_t status = SRT_OK;
	char *text = NULL;
	size_t nbytes = n;

	if (t->tokenizer != NULL) {
		status = srt_tokenizer_decode(t->tokenizer, ids, n, 1, &text, &nbytes);
	} else {
		text = malloc(n);
		if (text == NULL)
			return SRT_ERR_OUT_OF_MEMORY;
		for (size_t i = 0; i < n; i++)
			text[i] = (char)ids[i];
	}
	if (status == SRT_OK)
		print_text(out, text, nbytes);
	free(text);
	return status;
}

srt_status_t trainer_generate(trainer_t *t, int64_t n, FILE *out)
{
	const size_t total = t->nprompt + (size_t)n;
	int32_t *ids = malloc(total * sizeof(*ids));
	srt_status_t status;

	if (ids == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	memcpy(ids, t->prompt, t->nprompt * sizeof(*ids));
	status = continue_text(t, ids, (int64_t)t->nprompt, n);
	if (status == SRT_OK && t->rank == 0)
		status = print_tokens(t, ids, total, out);
	free(ids);
	return status;
}
