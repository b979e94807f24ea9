/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Examples of answers as training data (supervised fine-tuning): a file with one object of JSON in
 * a line,
 *
 *     {"prompt": "...", "completion": "..."}
 *     {"messages": [{"role": "system" | "user" | "assistant", "content": "..."}, ...]}
 *     {"input_ids": [...], "labels": [...]}
 *
 * Tokens of answers are predicted, the others are only read: the targets of these are -1. Tokens of
 * the third form are answers but where their label is -100; the first one never is. Examples are
 * encoded once and kept in memory, 5 bytes for each token.
 *
 * Rows of tokens have several examples each, the documents of srt_decoder_put_positions(). In an
 * epoch each example is once in a row: the rows of epoch e are a function of (seed, e), so they do
 * not depend on ranks. A step has `batch` rows; the last step of an epoch has the rows that are
 * left, and empty ones.
 */
#ifndef SRT_MODELS_DATA_SFT_H
#define SRT_MODELS_DATA_SFT_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/models/tokenizer.h>
#include <shardrt/status.h>

#include "models/data/chat.h"

/** The longest line. */
#define SRT_SFT_LINE_NBYTES ((size_t)16 << 20)

/** A token of the end where bytes are tokens; no text has this byte. */
#define SRT_SFT_BYTES_EOS 0

/** Examples. Opaque; not thread-safe. */
typedef struct srt_sft srt_sft_t;

/** What examples are read from, and how. */
typedef struct srt_sft_source {
	const char *path;
	/* Borrowed for the call. NULL: bytes are tokens, and a completion ends with
	 * SRT_SFT_BYTES_EOS. */
	const srt_tokenizer_t *tokenizer;
	/* The template of messages; with it, a prompt and its completion are those of a user and an
	 * assistant. NULL: there are no messages, and a prompt is encoded as
	 * srt_tokenizer_encode() encodes it with SRT_TOKENIZER_ADD_SPECIAL, but for what the file's
	 * template has after a text. */
	const srt_chat_template_t *chat;
	int32_t bos, eos; /* tokens of the beginning and the end; -1: none */
	int64_t context;  /* tokens of a row: an example has at most one more */
	int64_t vocab;
	uint64_t seed;
	int64_t batch; /* rows of a step, over all ranks */
	int skips_bad; /* 1: lines that are not examples are left out; 0: the file is refused */
	/* Called for each line that is not an example, in their order; may be NULL.
	 * @param line from 1 on. @param why a sentence, which may have parts of the line. */
	void (*report)(void *arg, int64_t line, const char *why);
	void *arg;
} srt_sft_source_t;

/** Numbers of the examples. */
typedef struct srt_sft_info {
	int64_t nexamples, nbad; /* nbad: lines that are not examples */
	int64_t ntokens, nanswer_tokens;
	int64_t nrows; /* in the order of the file */
	double fill;   /* part of their tokens that are of examples */
	uint64_t hash; /* of the tokens and targets, to compare the examples of ranks */
} srt_sft_info_t;

/** An example; the arrays have ntokens elements and are of the object. */
typedef struct srt_sft_example {
	int64_t line, ntokens;
	const int32_t *ids;
	const unsigned char *is_answer;
} srt_sft_example_t;

/**
 * Reads the examples of a file. Lines of blanks are none. Memory is bounded by the tokens and the
 * longest line.
 * @param[out] sft owned by the caller, destroy with srt_sft_destroy(); set on success only.
 * @return SRT_ERR_NOT_FOUND without a file, SRT_ERR_IO if it cannot be read,
 *         SRT_ERR_INVALID_ARGUMENT if it is not a file, has no examples, or lines that are none;
 *         SRT_ERR_UNSUPPORTED without jansson, or for a tokenizer that
 *         srt_tokenizer_encode_parts() refuses; SRT_ERR_OUT_OF_MEMORY.
 */
srt_status_t srt_sft_open(const srt_sft_source_t *source, srt_sft_t **sft);

/** Frees them. NULL is allowed. */
void srt_sft_destroy(srt_sft_t *sft);

/** Numbers of the examples. */
srt_sft_info_t srt_sft_info(const srt_sft_t *sft);

/** Example i, in the order of the file. */
srt_sft_example_t srt_sft_example(const srt_sft_t *sft, int64_t i);

/** The number of targets of a step (1, 2, ...) over all ranks: at least 1.
 * @return SRT_ERR_OUT_OF_MEMORY. */
srt_status_t srt_sft_ntargets(srt_sft_t *sft, int64_t step, int64_t *ntargets);

/**
 * Rows first .. first+count-1 of a step (1, 2, ...).
 * @param[out] ids, targets, positions (count*context); after the examples of a row ids are 0 and
 *        targets -1.
 * @return SRT_ERR_OUT_OF_MEMORY.
 */
srt_status_t srt_sft_batch(srt_sft_t *sft, int64_t step, int64_t first, int64_t count, int32_t *ids,
			   int32_t *targets, int32_t *positions);

/** The epoch (0, 1, ...) that a step is of, and the steps of all epochs before it.
 * @return SRT_ERR_OUT_OF_MEMORY. */
srt_status_t srt_sft_find_epoch(srt_sft_t *sft, int64_t step, int64_t *epoch, int64_t *before);

/** Rows that have all examples once, placed in the order of the file: to validate on. */
int64_t srt_sft_nwindows(const srt_sft_t *sft);
/** The number of targets in the first n of these rows. */
int64_t srt_sft_window_targets(const srt_sft_t *sft, int64_t n);
/** Row w of them, as srt_sft_batch(); past the end an empty one. */
void srt_sft_window(const srt_sft_t *sft, int64_t w, int32_t *ids, int32_t *targets,
		    int32_t *positions);

#endif
