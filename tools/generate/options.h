/* SPDX-License-Identifier: BSD-3-Clause */
/* The options of shardrt-generate. */
#ifndef SRT_TOOLS_GENERATE_OPTIONS_H
#define SRT_TOOLS_GENERATE_OPTIONS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/option_table.h"

/** Values of the options. Strings are borrowed from argv; 0 or NULL: the default of --help. */
typedef struct generate_options {
	const char *model, *adapter, *tokenizer, *preset, *prompt, *prompts;
	int64_t layers, heads, width, context, vocab; /* 0 = the preset's, or the file's */
	int64_t tensor_parts;
	int64_t max_tokens, top_k, seed, batch, threads;
	int64_t dtype, numerics; /* indices of words */
	double temperature, top_p;
	tool_texts_t stop;
	int64_t greedy, json, ignore_eos, quiet, help, version; /* flags */
} generate_options_t;

/**
 * Parses the command line and checks what can be checked without a model.
 * @param[out] why the error message, nwhy bytes.
 * @return 0, or -1.
 */
int generate_options_parse(int argc, char **argv, generate_options_t *options, char *why,
			   size_t nwhy);

/** Prints what --help prints. */
void generate_options_help(FILE *out);

#endif
