/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts of shardrt-generate.
 *
 *     options.c    the options: one row for each
 *     prompts.c    reads the prompts
 *     eos.c        the tokens that end a text
 *     setup.c      model, tokenizer, engine and generator
 *     text.c       the text of tokens as they come, and the texts that end it
 *     output.c     prints texts and JSON, gathers those of other ranks
 *     generate.c   main program: rounds of prompts, errors
 *
 * All ranks read all prompts. Rank r continues r, r + world, ..., with its own engine.
 */
#ifndef SRT_TOOLS_GENERATE_GENERATE_H
#define SRT_TOOLS_GENERATE_GENERATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shardrt/models/generate.h>
#include <shardrt/models/tokenizer.h>
#include <shardrt/shardrt.h>

#include "models/string.h"
#include "tools/generate/options.h"
#include "tools/lora.h"
#include "tools/model_source.h"
#include "tools/ranks.h"

/** Most tokens that end a text. */
#define GENERATE_MOST_EOS 64

/** A prompt. */
typedef struct generate_prompt {
	int32_t *ids; /* owned */
	size_t nids;
} generate_prompt_t;

/** Tokens, and the seconds that they took. */
typedef struct generate_speed {
	int64_t prompt_tokens, new_tokens;
	double prompt_s, new_s;
} generate_speed_t;

/** A run. Fields are NULL until they are created. */
typedef struct generate_run {
	generate_options_t opt;
	tool_ranks_t ranks;
	tool_why_t why;
	tool_model_t model;
	tool_lora_t lora;           /* of --adapter */
	srt_tokenizer_t *tokenizer; /* NULL: tokens are bytes */
	int32_t eos[GENERATE_MOST_EOS];
	size_t neos;
	generate_prompt_t *prompts; /* (nprompts), of all ranks */
	size_t nprompts;
	int64_t length;    /* most tokens of a prompt and its continuation */
	int64_t sequences; /* at the same time */
	bool streams;      /* the text is printed as it comes */
	bool on_terminal;
	bool cannot_print; /* the standard output failed */
	srt_context_t *context;
	srt_comm_t *alone; /* of this rank */
	srt_stream_t *stream;
	srt_engine_t *engine;
	srt_decoder_t *decoder;
	srt_generator_t *generator;
	srt_buffer_t *arena;
	generate_speed_t speed; /* of this rank */
} generate_run_t;

/* ---- prompts.c */

/** Reads and encodes the prompts. Local. @return 0, or -1 with run->why. */
int generate_read_prompts(generate_run_t *run);
/** Compares the prompts of all ranks. Collective. @return 0, or -1 with run->why on all of them. */
int generate_compare_prompts(generate_run_t *run);

/* ---- eos.c */

/** Finds the tokens that end a text. Local. @return 0, or -1 with run->why. */
int generate_find_eos(generate_run_t *run);

/* ---- setup.c */

/** Opens model and tokenizer, and reads the prompts. Local. @return 0, or -1 with run->why. */
int generate_prepare(generate_run_t *run);
/** Engine, generator and values. Collective. run->why: the error of a file that does not fit. */
srt_status_t generate_build(generate_run_t *run);
/** Frees everything. */
void generate_destroy(generate_run_t *run);

/* ---- text.c */

/** The text of the new tokens of a prompt. */
typedef struct generate_text {
	srt_string_t text; /* owned */
	size_t shown;      /* bytes that can be shown: whole characters, no part of a --stop */
	size_t from, to;   /* tokens that were decoded last; those from `to` on were not */
	bool stopped;      /* by a --stop, before which the text ends */
} generate_text_t;

/** Starts the text after a prompt. @param text all zero. */
void generate_text_start(generate_text_t *text, size_t nprompt);
/**
 * Adds the tokens that are new. A part of a character is held back until it is whole.
 * @param ids n tokens: the prompt and what follows it. @param last nothing follows.
 */
srt_status_t generate_text_add(const generate_run_t *run, generate_text_t *text, const int32_t *ids,
			       size_t n, bool last);

/* ---- output.c */

/** Appends what is printed of a prompt. */
srt_status_t generate_describe(const generate_run_t *run, size_t index,
			       const srt_sequence_t *sequence, const generate_text_t *text,
			       srt_string_t *out);
/** Prints bytes of a text and flushes them. Sets run->cannot_print. */
void generate_print(generate_run_t *run, const char *text, size_t nbytes);
/**
 * Prints what the ranks have for a row of prompts, one of each rank, in order; on rank 0.
 * Collective and blocking.
 * @param mine of this rank; may be empty.
 */
srt_status_t generate_print_row(generate_run_t *run, const srt_string_t *mine);
/** Prints the speed of all ranks, on rank 0. Collective and blocking. */
srt_status_t generate_print_speed(generate_run_t *run);

#endif
