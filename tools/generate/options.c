/* SPDX-License-Identifier: BSD-3-Clause */
/* The options of shardrt-generate: one row for each; see options.h. */
#include "tools/generate/options.h"

#include <string.h>

#include "tools/precision.h"

#define FIELD(f) offsetof(generate_options_t, f)

static const tool_option_t rows[] = {
	HEADING("Prompts"),
	STRING("prompt", prompt, "TEXT", NULL, "continue this text"),
	STRING("prompts", prompts, "FILE", NULL,
	       "continue each line of a file; of a name that ends with .jsonl, the\n"
	       "\"prompt\" of each line, a JSON object. '-': the standard input, on\n"
	       "one rank"),
	HEADING("Tokens"),
	INT("max-tokens", max_tokens, "128", 0, OPTION_BIG, "most new tokens of a prompt"),
	REAL("temperature", temperature, "0", 0, 1e6,
	     "draw tokens, with logits divided by X; 0: always the likeliest\n"
	     "token"),
	FLAG("greedy", greedy, "always the likeliest token, as without --temperature"),
	INT("top-k", top_k, "0", 0, OPTION_BIG, "draw of the N likeliest tokens only; 0: of all"),
	REAL("top-p", top_p, "1", 1e-6, 1,
	     "draw of the likeliest tokens whose probabilities reach X only; 1:\n"
	     "of all"),
	INT("seed", seed, "1", 0, 9e15, "seed of the draws"),
	LIST("stop", stop, "TEXT",
	     "a text that ends a continuation, and is not printed; up to 16 times"),
	FLAG("ignore-eos", ignore_eos,
	     "go on after the model's end token, the eos_token_id of\n"
	     "generation_config.json or config.json"),
	INT("context", context, NULL, 1, OPTION_BIG,
	    "most tokens of a prompt and its continuation; default: those of the\n"
	    "model"),
	INT("batch", batch, "8", 1, 65536, "prompts that a rank continues at the same time"),
	HEADING("Output"),
	FLAG("json", json,
	     "print a JSON object for each prompt, in a line: index, prompt_ids,\n"
	     "ids, logprobs, text, finish (length, eos or stop)"),
	FLAG("quiet", quiet, "do not print the speed"),
	HEADING("Model"),
	STRING("adapter", adapter, "FOLDER", NULL, "with the LoRA adapters in a folder of PEFT"),
	STRING("tokenizer", tokenizer, "FOLDER", NULL,
	       "tokenizer.json, or the folder that has it; default: that of the\n"
	       "model's folder. Without one, tokens are bytes"),
	STRING("preset", preset, "NAME", NULL,
	       "model size of a file that does not have it: nano, char or\n"
	       "gpt2-124m; the options below override it; default: nano"),
	INT("layers", layers, NULL, 1, OPTION_BIG, "transformer blocks"),
	INT("heads", heads, NULL, 1, OPTION_BIG, "attention heads; must divide the width"),
	INT("width", width, NULL, 1, OPTION_BIG, "width of the residual stream"),
	INT("vocab", vocab, NULL, 1, OPTION_BIG, "vocabulary size"),
	WORD("dtype", dtype, "fp32", TOOL_DTYPES, "dtype of parameters and compute"),
	INT("tensor-parts", tensor_parts, "1", 1, 8,
	    "tensor parts of the training: with them logprobs are minus its losses"),
	INT("threads", threads, "0", 0, 4096,
	    "compute threads of a rank; 0: SHARDRT_THREADS. The results have\n"
	    "the same bits"),
	WORD("numerics", numerics, "default", "default|exact|fast",
	     "exact: bits as docs/numerics.md defines them; fast: products and\n"
	     "attention in the order of the device's libraries; default:\n"
	     "SHARDRT_NUMERICS, else exact"),
	FLAG("version", version, "print the version and stop"),
	FLAG("help", help, "print this help and stop; also -h"),
};

static const tool_options_t table = { .rows = rows,
				      .count = sizeof(rows) / sizeof(rows[0]),
				      .has_argument = true,
				      .argument = FIELD(model) };

static int check_options(const generate_options_t *o, char *why, size_t nwhy)
{
	if (o->model == NULL || !*o->model) {
		snprintf(why, nwhy, "there is no model: the name of a folder or file is missing");
		return -1;
	}
	if ((o->prompt == NULL) == (o->prompts == NULL)) {
		snprintf(why, nwhy, "%s",
			 o->prompt == NULL ?
				 "there is nothing to continue: --prompt TEXT or --prompts FILE is "
				 "missing" :
				 "--prompt and --prompts are both given");
		return -1;
	}
	if (o->greedy && o->temperature > 0) {
		snprintf(why, nwhy,
			 "--greedy takes the likeliest token, --temperature %g draws: "
			 "one of them is to be left out",
			 o->temperature);
		return -1;
	}
	if (o->temperature == 0 && (o->top_k > 0 || o->top_p < 1)) {
		snprintf(why, nwhy, "--top-k and --top-p need --temperature");
		return -1;
	}
	for (int i = 0; i < o->stop.n; i++) {
		if (*o->stop.text[i])
			continue;
		snprintf(why, nwhy, "--stop must not be empty");
		return -1;
	}
	return 0;
}

int generate_options_parse(int argc, char **argv, generate_options_t *o, char *why, size_t nwhy)
{
	memset(o, 0, sizeof(*o));
	if (tool_options_parse(&table, argc, argv, o, why, nwhy) != 0)
		return -1;
	return o->help || o->version ? 0 : check_options(o, why, nwhy);
}

void generate_options_help(FILE *out)
{
	fprintf(out,
		"usage: shardrt-generate MODEL --prompt TEXT [options]\n"
		"       shardrt-generate MODEL --prompts FILE [options]\n"
		"       shardrun -n RANKS shardrt-generate ...\n"
		"\n"
		"Continues texts by a model: a folder of Hugging Face, a file of shardrt-train --save,\n"
		"a checkpoint, or the folder of checkpoints. Prints the continuations, not the\n"
		"prompts, each with a newline at its end, in the order of the prompts; a single one\n"
		"as it is generated. On a terminal, control characters are shown as '?'.\n"
		"\n"
		"The continuation of a prompt is the same for every number of ranks, which have the\n"
		"prompts in turn, and for every --batch.\n");
	tool_options_print(&table, out);
	fprintf(out,
		"\n"
		"Speeds go to standard error. Exit status: 0 success, 1 failure, 2 wrong options,\n"
		"model or prompts. shardrt-info -c lists the environment variables (SHARDRT_*).\n");
}
