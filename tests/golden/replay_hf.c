/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * replay_hf [--strategy NAME] [--flat | --padded] [--tp N] [--tensor-parts N] CASE_DIR...: replays
 * recordings of transformers and PEFT on the real library, under shardrun: training cases with the
 * case's world size, others with any. One line a case, as replay_golden. Exit status: 0, 1 if a
 * case failed, 77, with the reason, if all were skipped, 2 for what is no case or another world
 * size.
 */
#include "config.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "tests/golden/replay_hf.h"

static const struct {
	const char *kind;
	srt_status_t (*run)(golden_t *g, srt_context_t *context, const hf_options_t *options,
			    verdict_t *v);
} kinds[] = {
	{ "hf", replay_hf_model },      { "pack", replay_hf_pack },
	{ "decode", replay_hf_decode }, { "lora", replay_hf_lora },
	{ "sft", replay_hf_sft },       { "tokenizer", replay_hf_tokenizer },
	{ "muon", replay_hf_muon },
};

static replay_outcome_t run_kind(golden_t *g, size_t kind, srt_context_t *context,
				 const hf_options_t *options)
{
	const bool speak = srt_context_rank(context) == 0;
	verdict_t v = { 0 };
	srt_status_t status = kinds[kind].run(g, context, options, &v);

	if (status == SRT_ERR_UNSUPPORTED) { /* the same on all ranks */
		if (speak)
			printf("skip %s: %s\n", g->name, srt_error_last());
		return REPLAY_SKIP;
	}
	if (status != SRT_OK)
		fprintf(stderr, "%s: rank %d: %s: %s\n", g->name, srt_context_rank(context),
			srt_status_string(status), srt_error_last());
	if (replay_join_status(context, status) != SRT_OK || verdict_join(&v, context) != SRT_OK) {
		if (speak)
			printf("FAIL %s ended early\n", g->name);
		return REPLAY_FAIL;
	}
	return replay_print_verdict(g, &v, kinds[kind].kind, "", speak);
}

static replay_outcome_t run_case(const char *dir, srt_context_t *context,
				 const hf_options_t *options)
{
	replay_outcome_t outcome = REPLAY_BAD;
	golden_t g;
	const srt_status_t status = golden_open(dir, srt_context_rank(context), &g);
	size_t k = 0;

	if (status != SRT_OK)
		fprintf(stderr, "replay_hf: %s\n", srt_error_last());
	if (replay_join_status(context, status) == SRT_OK) {
		while (k < SRT_ARRAY_LEN(kinds) && strcmp(kinds[k].kind, g.kind))
			k++;
		if (k < SRT_ARRAY_LEN(kinds)) {
			outcome = run_kind(&g, k, context, options);
		} else if (!strcmp(g.kind, "train")) {
			outcome = replay_run_case(dir, false, context);
		} else {
			outcome = REPLAY_SKIP;
			if (srt_context_rank(context) == 0)
				printf("skip %s: the library does not have what kind %s needs\n",
				       g.name, g.kind);
		}
	}
	golden_close(&g);
	return outcome;
}

/* @return 0, or -1 for options that are not known. */
static int read_options(int argc, char **argv, hf_options_t *o)
{
	static const struct {
		const char *name;
		srt_strategy_t strategy;
	} strategies[] = { { "ddp", SRT_STRATEGY_DDP },
			   { "zero1", SRT_STRATEGY_ZERO1 },
			   { "zero2", SRT_STRATEGY_ZERO2 },
			   { "zero3", SRT_STRATEGY_ZERO3 } };
	static const struct option options[] = { { "strategy", required_argument, NULL, 's' },
						 { "flat", no_argument, NULL, 'f' },
						 { "padded", no_argument, NULL, 'p' },
						 { "tp", required_argument, NULL, 't' },
						 { "tensor-parts", required_argument, NULL, 'n' },
						 { NULL, 0, NULL, 0 } };
	size_t k = 0;
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 's') {
			while (k < SRT_ARRAY_LEN(strategies) && strcmp(strategies[k].name, optarg))
				k++;
			if (k == SRT_ARRAY_LEN(strategies))
				return -1;
			o->strategy = strategies[k].strategy;
		} else if (option == 'f') {
			o->flat = SRT_FLAT_VIEWS;
		} else if (option == 'p') {
			o->flat = SRT_FLAT_PADDED;
		} else if (option == 't' && atoi(optarg) > 0) {
			o->tp = atoi(optarg);
		} else if (option == 'n' && atoi(optarg) > 0) {
			o->tensor_parts = atoi(optarg);
		} else {
			return -1;
		}
	}
	return optind < argc ? 0 : -1;
}

int main(int argc, char **argv)
{
	hf_options_t options = {
		.strategy = SRT_STRATEGY_ZERO3, .flat = SRT_FLAT_NO, .tp = 1, .tensor_parts = 1
	};
	bool any[4] = { false };
	srt_context_t *context;

	if (read_options(argc, argv, &options) != 0) {
		fprintf(stderr, "usage: shardrun -n WORLD replay_hf [--strategy NAME] "
				"[--flat | --padded] [--tp N] [--tensor-parts N] CASE_DIR...\n");
		return 2;
	}
	if (srt_context_create(NULL, &context) != SRT_OK) {
		fprintf(stderr, "replay_hf: %s\n", srt_error_last());
		return 1;
	}
	for (int i = optind; i < argc; i++)
		any[run_case(argv[i], context, &options)] = true;
	/* the launcher ends all ranks when the first one fails: not before rank 0 has spoken */
	fflush(stdout);
	replay_join_status(context, SRT_OK);
	srt_context_destroy(context);
	return any[REPLAY_BAD] ? 2 : any[REPLAY_FAIL] ? 1 : any[REPLAY_PASS] ? 0 : 77;
}
