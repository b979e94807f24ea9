/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A text as training data: a file of one token a byte, one that a tokenizer encodes, or files of
 * tokens (tokens.h), read as one sequence. The first nine tenths are for training and the tail is
 * for validation, unless there are other files for it.
 *
 * The global batch of a step is a function of (seed, step) alone: the start of sequence `index` is
 * a counter-based hash of (seed, step, index). Rank r takes the contiguous slice r of the indices
 * and its micro-batches in order, so that the data do not depend on the number of ranks.
 */
#ifndef SRT_MODELS_DATA_TEXT_H
#define SRT_MODELS_DATA_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/models/tokenizer.h>
#include <shardrt/status.h>

/** A text: open files, of which batches are read. Opaque; not thread-safe. */
typedef struct srt_text srt_text_t;

/** The files of a text. */
typedef struct srt_text_source {
	/* A file. Of tokens also a pattern of the shell, such as data/train_*.bin, whose files
	 * follow each other in the order of names (compared as bytes). */
	const char *path;
	const char *validation; /* the same, of the validation part; NULL: the last tenth */
	int are_tokens;         /* 1: files of tokens; 0: of bytes */
	/* Texts are encoded by it once and kept in memory as tokens, without those of its template;
	 * borrowed for the call. NULL: each byte is a token. Not with are_tokens. */
	const srt_tokenizer_t *tokenizer;
	int evaluates; /* 1: all of it is the validation part */
} srt_text_source_t;

/**
 * Opens the files of a text, as srt_text_load() or srt_text_load_tokens() opens one.
 * @return SRT_ERR_NOT_FOUND too for a pattern that no file matches.
 */
srt_status_t srt_text_open(const srt_text_source_t *source, srt_text_t **text);

/**
 * Opens a file and reads it once. If another process writes to it while the text is used, calls
 * that read it fail or give the new bytes: see srt_text_check_unchanged().
 * @param[out] text owned by the caller, destroy with srt_text_destroy().
 * @return SRT_ERR_NOT_FOUND without a file, SRT_ERR_IO if it cannot be read,
 *         SRT_ERR_INVALID_ARGUMENT if it is empty or not a file.
 */
srt_status_t srt_text_load(const char *path, srt_text_t **text);

/**
 * Opens a file of tokens. Reads at most its header and 64 MiB: srt_text_check_tokens() reads all.
 * As srt_text_load() otherwise.
 * @return SRT_ERR_INVALID_ARGUMENT too for a file that srt_tokens_find() refuses.
 */
srt_status_t srt_text_load_tokens(const char *path, srt_text_t **text);

/** Frees the text. NULL is allowed. */
void srt_text_destroy(srt_text_t *text);

/**
 * Checks that a model with this context and vocabulary can train on the text. Later calls check the
 * tokens that they copy against this vocabulary.
 * @return SRT_ERR_INVALID_ARGUMENT if it cannot.
 */
srt_status_t srt_text_check(srt_text_t *text, int64_t context, int64_t vocab);

/**
 * Reads a part of the tokens and checks them against the vocabulary of srt_text_check().
 * @param part 0 .. nparts-1, of about the same size, so that ranks share the work.
 * @return SRT_ERR_INVALID_ARGUMENT, with file and position, for a token outside of it, SRT_ERR_IO.
 */
srt_status_t srt_text_check_tokens(const srt_text_t *text, int part, int nparts);

/**
 * Checks that nobody has changed the file since it was loaded: one system call. If it was written
 * to and its size is the same, it is hashed again; of a file of more than 64 MiB of tokens, whose
 * hash is not of all bytes, every write is a change.
 * @return SRT_ERR_IO if it was changed or cannot be read.
 */
srt_status_t srt_text_check_unchanged(srt_text_t *text);

/** Tokens of the text. */
size_t srt_text_ntokens(const srt_text_t *text);
/** A hash of all bytes, to compare the texts of ranks; of a file of tokens of more than 64 MiB, of
 * 1024 blocks of it; of several files, of their hashes and sizes. Not cryptographic. */
uint64_t srt_text_hash(const srt_text_t *text);
/** Tokens of the training part. */
size_t srt_text_ntrain(const srt_text_t *text);
/** Tokens of the validation part. */
size_t srt_text_nvalidation(const srt_text_t *text);

/** Where sequence `index` of the global batch of a step starts in the training part. */
size_t srt_text_start(const srt_text_t *text, uint64_t seed, int64_t step, int64_t index,
		      int64_t context);

/**
 * Sequences first .. first+count-1 of the global batch of a step.
 * @param[out] ids, targets (count*context) tokens; targets are the ids one position later.
 * @return SRT_ERR_INVALID_ARGUMENT, with file and position, for a token outside the vocabulary,
 *         SRT_ERR_IO if the file became shorter or cannot be read.
 */
srt_status_t srt_text_batch(const srt_text_t *text, uint64_t seed, int64_t step, int64_t first,
			    int64_t count, int64_t context, int32_t *ids, int32_t *targets);

/** Number of windows of `context` predictions without overlap that cover the validation part; the
 * last one may be shorter. Of a text that only evaluates: of `context` tokens. */
int64_t srt_text_nwindows(const srt_text_t *text, int64_t context);

/**
 * Window w of the validation part.
 * @param[out] ids, targets (context) tokens, 0 after the end of the text.
 * @return the number of predictions in it: `context`, fewer in the last one, 0 past it. Of a text
 *         that only evaluates the number of tokens, the last with target -1; -1, with
 *         srt_error_last(), for a token outside the vocabulary or a file that cannot be read.
 */
int64_t srt_text_window(const srt_text_t *text, int64_t w, int64_t context, int32_t *ids,
			int32_t *targets);

#endif
