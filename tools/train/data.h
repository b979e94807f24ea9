/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a run trains on. The steps (steps.c) know rows of ids, targets and positions; where they
 * come from is one of the kinds below. Functions are local, and read into t->ids, t->targets and
 * t->positions; those that can fail have srt_error_last().
 *
 *     text.c        a text, or files of tokens: sequences of one document
 *     sft.c         examples of answers: rows of several documents
 *     sft_tokens.c  the tokens that begin and end a text, in the files of a tokenizer
 *     sft_show.c    --sft-show
 */
#ifndef SRT_TOOLS_TRAIN_DATA_H
#define SRT_TOOLS_TRAIN_DATA_H

#include "tools/train/train.h"

struct train_data {
	int documents; /* rows have several documents, and so positions */
	/* Opens t->opt's files, checks them against the model, and sets t->data_id.
	 * @return 0, or -1 with t->why. */
	int (*open)(trainer_t *t);
	/* Rows first .. first+count-1 of a step. */
	srt_status_t (*read_batch)(trainer_t *t, int64_t step, int64_t first, int64_t count);
	/* Tokens that a step predicts, over all ranks. */
	srt_status_t (*count_targets)(trainer_t *t, int64_t step, int64_t *ntargets);
	/* Rows to validate on; 0: none. */
	int64_t (*count_windows)(const trainer_t *t);
	/* What the first n of them have: predictions, and losses, some of which may be 0. */
	void (*count_losses)(const trainer_t *t, int64_t n, int64_t *predictions, int64_t *losses);
	/* Row w of them, an empty one past their end, into row i.
	 * @return its losses, from the start of the row; -1: it cannot be read. */
	int64_t (*read_window)(trainer_t *t, int64_t w, int64_t i);
	/* SRT_ERR_IO if a file was changed. */
	srt_status_t (*check_unchanged)(trainer_t *t);
};

/** A text or tokens, and examples of answers. */
extern const train_data_t train_text, train_sft;

/** Sets the last error as t->why. @return -1. */
int trainer_why_data(trainer_t *t, srt_status_t status);
/**
 * Opens the tokenizer of a model of Hugging Face. NULL if its folder has none, or it is another
 * model: then bytes are tokens, if the vocabulary is one of bytes.
 * @param option that needs it, for messages. @return 0, or -1 with t->why.
 */
int trainer_open_tokenizer(trainer_t *t, const char *option, srt_tokenizer_t **tokenizer);
/**
 * Finds the tokens of the beginning and the end of a text: bos_token and eos_token of
 * tokenizer_config.json, else bos_token_id and eos_token_id of config.json, of a list the first.
 * @param[out] bos, eos -1: none. @return 0, or -1 with t->why.
 */
int trainer_find_special(trainer_t *t, const srt_tokenizer_t *tokenizer, int32_t *bos,
			 int32_t *eos);

#endif
