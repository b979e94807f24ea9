/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shardrt-generate: continues texts by a model; `shardrun -n N shardrt-generate ...` on N ranks.
 *
 * Prompts are continued in rounds: after each, rank 0 prints what all ranks have. Errors in
 * options, model and prompts are found on all ranks and printed once (tools/ranks.h); others are
 * printed by each rank, status 1.
 */
#include "tools/generate/generate.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "models/try.h"
#include "tools/common.h"
#include "tools/prompt.h"

/* Rows of a round, for each prompt that is continued at the same time. */
#define ROUND 4
/* A prompt of a round. */
typedef struct item {
	int32_t *ids; /* the prompt and what follows it */
	float *logprobs;
	generate_text_t text;
	size_t printed; /* bytes of a text that is printed as it comes */
} item_t;

/* The prompts of a round that are this rank's. */
typedef struct round {
	generate_run_t *run;
	size_t first, n;           /* rows of prompts, of which each rank has one or none */
	item_t *items;             /* (n) */
	srt_sequence_t *sequences; /* (n) */
	double last_s;             /* when a token came */
	srt_status_t status;       /* of its text */
} round_t;

static double get_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- a round ---------------------------------------------------------------------------- */

/* The prompt of a row; nprompts or more: it has none for this rank. */
static size_t find_index(const generate_run_t *run, size_t row)
{
	return row * (size_t)run->ranks.world + (size_t)run->ranks.rank;
}

static bool is_eos(const generate_run_t *run, int32_t token)
{
	for (size_t i = 0; i < run->neos; i++)
		if (run->eos[i] == token)
			return true;
	return false;
}

static void count_token(round_t *round, const srt_sequence_t *sequence)
{
	generate_speed_t *speed = &round->run->speed;
	const double now_s = get_seconds(), s = now_s - round->last_s;

	round->last_s = now_s;
	if (sequence->ntokens == 1) { /* of the pass that has read the prompt */
		speed->prompt_tokens += sequence->nprompt;
		speed->prompt_s += s;
	} else {
		speed->new_tokens++;
		speed->new_s += s;
	}
}

/* Adds the text of new tokens, and prints it if it is printed as it comes. */
static srt_status_t add_text(round_t *round, const srt_sequence_t *sequence, bool last)
{
	item_t *item = &round->items[sequence - round->sequences];
	int64_t n = sequence->ntokens;

	if (n > 0 && is_eos(round->run, sequence->tokens[n - 1]))
		n--;
	SRT_TRY(generate_text_add(round->run, &item->text, item->ids,
				  (size_t)(sequence->nprompt + n), last));
	if (round->run->streams) {
		generate_print(round->run, item->text.text.data + item->printed,
			       item->text.shown - item->printed);
		item->printed = item->text.shown;
	}
	return SRT_OK;
}

static int on_token(void *arg, srt_sequence_t *sequence)
{
	round_t *round = arg;
	const generate_text_t *text = &round->items[sequence - round->sequences].text;

	count_token(round, sequence);
	if (round->status == SRT_OK)
		round->status = add_text(round, sequence, false);
	return round->status != SRT_OK || text->stopped || round->run->cannot_print;
}

/* Makes the item of a prompt. */
static srt_status_t make_item(round_t *round, size_t i)
{
	generate_run_t *run = round->run;
	const size_t index = find_index(run, round->first + i);
	const generate_prompt_t *prompt = &run->prompts[index];
	const size_t room = (size_t)run->length - prompt->nids;
	const size_t most = (size_t)run->opt.max_tokens < room ? (size_t)run->opt.max_tokens : room;
	item_t *item = &round->items[i];

	item->ids = malloc((prompt->nids + most) * sizeof(*item->ids));
	item->logprobs = run->opt.json ? malloc((most + 1) * sizeof(*item->logprobs)) : NULL;
	if (item->ids == NULL || (run->opt.json && item->logprobs == NULL))
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for %zu tokens",
				      prompt->nids + most);
	memcpy(item->ids, prompt->ids, prompt->nids * sizeof(*item->ids));
	generate_text_start(&item->text, prompt->nids);
	round->sequences[i] = (srt_sequence_t){ .prompt = item->ids,
						.nprompt = (int64_t)prompt->nids,
						.max_tokens = (int64_t)most,
						.key = index,
						.tokens = item->ids + prompt->nids,
						.logprobs = item->logprobs };
	return SRT_OK;
}

static srt_status_t make_round(round_t *round, size_t nrows)
{
	while (round->n < nrows &&
	       find_index(round->run, round->first + round->n) < round->run->nprompts)
		round->n++;
	round->items = calloc(round->n + 1, sizeof(*round->items));
	round->sequences = calloc(round->n + 1, sizeof(*round->sequences));
	if (round->items == NULL || round->sequences == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for %zu prompts",
				      round->n);
	for (size_t i = 0; i < round->n; i++)
		SRT_TRY(make_item(round, i));
	return SRT_OK;
}

static srt_status_t continue_prompts(round_t *round)
{
	const generate_run_t *run = round->run;
	srt_sampling_t sampling = { .temperature = (float)run->opt.temperature,
				    .top_k = run->opt.top_k,
				    .top_p = (float)run->opt.top_p,
				    .seed = (uint64_t)run->opt.seed,
				    .eos = run->eos,
				    .neos = run->neos };
	sampling.vocab = tool_drawn_vocab(run->tokenizer, run->model.config.vocab);
	round->last_s = get_seconds();
	SRT_TRY(srt_decoder_generate(run->generator, &sampling, round->sequences, round->n,
				     on_token, round, run->stream));
	for (size_t i = 0; i < round->n && round->status == SRT_OK; i++)
		round->status = add_text(round, &round->sequences[i], true);
	return round->status;
}

/* Prints the rows; a rank without a prompt takes part. */
static srt_status_t print_round(round_t *round, size_t nrows)
{
	for (size_t i = 0; i < nrows; i++) {
		srt_string_t line = { .nbytes = 0 };
		srt_status_t status = SRT_OK;

		if (i < round->n)
			status = generate_describe(round->run,
						   find_index(round->run, round->first + i),
						   &round->sequences[i], &round->items[i].text,
						   &line);
		if (status == SRT_OK)
			status = generate_print_row(round->run, &line);
		free(line.data);
		SRT_TRY(status);
	}
	return SRT_OK;
}

static void clear_round(round_t *round)
{
	for (size_t i = 0; i < round->n && round->items != NULL; i++) {
		free(round->items[i].ids);
		free(round->items[i].logprobs);
		free(round->items[i].text.text.data);
	}
	free(round->items);
	free(round->sequences);
}

/* Continues nrows rows of prompts. */
static srt_status_t run_round(generate_run_t *run, size_t first, size_t nrows)
{
	round_t round = { .run = run, .first = first };
	srt_status_t status = make_round(&round, nrows);

	if (status == SRT_OK)
		status = continue_prompts(&round);
	if (status == SRT_OK)
		status = print_round(&round, nrows);
	clear_round(&round);
	return status;
}

/* ---- the run ---------------------------------------------------------------------------- */

static srt_status_t run_rounds(generate_run_t *run)
{
	const size_t world = (size_t)run->ranks.world, most = ROUND * (size_t)run->sequences;
	const size_t nrows = (run->nprompts + world - 1) / world;
	int stops = 0, who;

	for (size_t row = 0; row < nrows && !stops; row += most) {
		SRT_TRY(run_round(run, row, nrows - row < most ? nrows - row : most));
		SRT_TRY(tool_find_largest(&run->ranks, "after a round", run->cannot_print, &stops,
					  &who));
	}
	return run->opt.quiet || stops ? SRT_OK : generate_print_speed(run);
}

static int run_program(generate_run_t *run)
{
	tool_ranks_t *ranks = &run->ranks;
	int code, any, who;
	srt_status_t status;

	code = tool_report_why(ranks, "on the model and the prompts", &run->why,
			       generate_prepare(run) != 0);
	if (code == 0)
		code = tool_report_why(ranks, "on equal prompts", &run->why,
				       generate_compare_prompts(run) != 0);
	if (code != 0)
		return code;
	status = generate_build(run);
	if (status == SRT_OK || run->why.text[0]) {
		code = tool_report_why(ranks, "on the values", &run->why, run->why.text[0] != '\0');
		if (code != 0)
			return code;
	}
	if (status == SRT_OK)
		status = run_rounds(run);
	if (status == SRT_OK) /* no rank exits while another one prints */
		status = tool_find_largest(ranks, "at the end", 0, &any, &who);
	if (status != SRT_OK)
		return tool_report_failure(ranks, status);
	if (!run->cannot_print)
		return 0;
	tool_error("standard output cannot be written");
	return EXIT_FAILURE;
}

static int print_and_stop(const generate_options_t *o, int rank)
{
	if (rank != 0)
		return EXIT_SUCCESS;
	if (o->version)
		printf("shardrt-generate %s\n", srt_version_string());
	else
		generate_options_help(stdout);
	return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Joins the job. */
static srt_status_t join(generate_run_t *run)
{
	srt_context_options_t options = { .size = sizeof(options) };

	options.threads = (int)run->opt.threads;
	options.numerics = (srt_numerics_t)run->opt.numerics;
	SRT_TRY(srt_context_create(&options, &run->context));
	run->ranks = (tool_ranks_t){ .comm = srt_context_world(run->context),
				     .rank = srt_context_rank(run->context),
				     .world = srt_context_world_size(run->context) };
	return SRT_OK;
}

int main(int argc, char **argv)
{
	generate_run_t run = { .why = { .status = TOOL_EXIT_USAGE } };
	const char *rank = "0";
	srt_status_t status;
	bool is_wrong;
	int code;

	tool_start("shardrt-generate");
	srt_config_value("SHARDRT_RANK", &rank, NULL);
	run.ranks.rank = atoi(rank);
	is_wrong = generate_options_parse(argc, argv, &run.opt, run.why.text,
					  sizeof(run.why.text)) != 0;
	if (!is_wrong && (run.opt.help || run.opt.version))
		return print_and_stop(&run.opt, run.ranks.rank);
	code = tool_check_config();
	if (code != 0)
		return code;
	status = join(&run);
	if (status != SRT_OK)
		return tool_report_failure(&run.ranks, status);
	run.on_terminal = isatty(STDOUT_FILENO);
	tool_make_printable(run.why.text);
	code = tool_report_why(&run.ranks, "on the options", &run.why, is_wrong);
	if (code == 0)
		code = run_program(&run);
	generate_destroy(&run);
	return code;
}
