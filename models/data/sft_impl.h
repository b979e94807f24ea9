/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts of srt_sft_t (sft.h):
 *
 *     sft_line.c    a line of JSON -> messages
 *     sft.c         a file -> examples of tokens
 *     sft_rows.c    examples -> rows, by epochs
 *     pack.c        which row each example is in
 */
#ifndef SRT_MODELS_DATA_SFT_IMPL_H
#define SRT_MODELS_DATA_SFT_IMPL_H

#include <stdbool.h>

#include "models/data/sft.h"

/** The messages of a line, or its tokens. */
typedef struct srt_sft_line {
	void *json;                   /* that has their texts; of jansson, owned */
	srt_chat_message_t *messages; /* owned */
	size_t nmessages;
	bool is_pair; /* a prompt and its completion */
	int32_t *ids; /* (nids) owned, as is_answer; NULL: it has messages */
	unsigned char *is_answer;
	size_t nids;
} srt_sft_line_t;

/**
 * Reads a line.
 * @param[out] line all zero at first; to be cleared also after a failure.
 * @return SRT_ERR_FORMAT, with a sentence, if it is not an example; SRT_ERR_OUT_OF_MEMORY,
 *         SRT_ERR_UNSUPPORTED without jansson.
 */
srt_status_t srt_sft_line_read(const char *text, size_t nbytes, srt_sft_line_t *line);
/** Frees what it has. */
void srt_sft_line_clear(srt_sft_line_t *line);

/** Rows of examples. All zero at first. */
typedef struct srt_sft_rows {
	size_t nrows;
	size_t *begin;    /* (nrows + 1) index of the first example of a row */
	size_t *examples; /* (all of them) owned, as the others */
	int64_t *targets; /* (nrows + 1) in the rows before it */
} srt_sft_rows_t;

struct srt_sft {
	int64_t context;
	uint64_t seed;
	int64_t batch;
	int32_t *ids;             /* of all examples */
	unsigned char *is_answer; /* as many */
	size_t ntokens, capacity;
	size_t *begin; /* (nexamples + 1) token that each example begins with */
	int64_t *line; /* (nexamples) */
	size_t nexamples, example_capacity;
	int64_t nbad;
	srt_sft_rows_t windows; /* in the order of the file */
	srt_sft_rows_t rows;    /* of an epoch */
	int64_t epoch, before;  /* that epoch, and the steps before it */
};

/** Makes the rows of validation and of the first epoch. @return SRT_ERR_OUT_OF_MEMORY. */
srt_status_t srt_sft_start(srt_sft_t *sft);
/** Frees rows. */
void srt_sft_rows_clear(srt_sft_rows_t *rows);

#endif
