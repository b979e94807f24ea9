/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Generating tokens from a decoder: prompts are read in chunks, then all sequences grow by a token
 * in each pass, against a cache of keys and values. A token and its log-probability are a function
 * of the parameters, the tokens before it, the sampling and the key of its sequence, to the bit:
 * not of the other sequences, the chunks, the strategy or the number of ranks. docs/decoding.md has
 * the promise and its limits.
 */
#ifndef SHARDRT_MODELS_GENERATE_H
#define SHARDRT_MODELS_GENERATE_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/shardrt.h>

#include <shardrt/models/decoder.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Recorded passes, and the cache of their sequences. Opaque. */
typedef struct srt_generator srt_generator_t;

/** Sizes of a generator. */
typedef struct srt_generator_options {
	int64_t sequences; /* that grow at the same time, at least 1 */
	int64_t length; /* most tokens of a sequence, its prompt included; 1 .. config->context */
	int64_t chunk;  /* tokens of a prompt that one pass reads; 0: 64 */
	/* NULL: each pass gathers the parameters. Else it reads these, which must outlive the
	 * generator. */
	const srt_decoder_weights_t *weights;
} srt_generator_options_t;

/** How the next token is chosen. */
typedef struct srt_sampling {
	float temperature; /* logits are divided by it; below 1e-5: always the likeliest token */
	int64_t top_k;     /* only this many likeliest tokens are drawn; 0: all */
	float top_p; /* only the likeliest tokens whose probabilities reach this sum; 0 or 1: all */
	int64_t vocab; /* only tokens below this are chosen; 0: all */
	uint64_t seed;
	const int32_t *eos; /* tokens that end a sequence, of which they are the last one */
	size_t neos;
} srt_sampling_t;

/** Why a sequence ended. */
typedef enum srt_finish {
	SRT_FINISH_LENGTH = 0, /* max_tokens, or the generator's length */
	SRT_FINISH_EOS,
	SRT_FINISH_STOPPED /* by the caller's function */
} srt_finish_t;

/** A prompt and what follows it. Arrays are the caller's. */
typedef struct srt_sequence {
	const int32_t *prompt; /* nprompt >= 1 tokens, each below the vocabulary */
	int64_t nprompt;
	int64_t max_tokens;  /* new tokens, at least 0 */
	uint64_t key;        /* of its random numbers, with the seed and the position */
	int32_t *tokens;     /* (max_tokens): the new tokens */
	float *logprobs;     /* (max_tokens), or NULL: minus the training loss of each token, of the
			     * logits as they are: temperature and limits do not count */
	int64_t ntokens;     /* out: tokens that there are so far */
	srt_finish_t finish; /* out */
} srt_sequence_t;

/** Called for each new token, sequence->tokens[ntokens - 1]. Without options.weights all ranks must
 * return the same value. @return not 0: the sequence ends. */
typedef int (*srt_on_token_t)(void *arg, srt_sequence_t *sequence);

/**
 * Records the passes and allocates the cache, which is outside of the engine's plan
 * (srt_generator_nbytes()). Local.
 * @param decoder must outlive the generator.
 * @param[out] generator owned by the caller, set on success only.
 * @return SRT_ERR_INVALID_ARGUMENT for sizes out of range, SRT_ERR_UNSUPPORTED for several
 *         sequences over tensor-parallel ranks, SRT_ERR_OUT_OF_MEMORY.
 */
SRT_API srt_status_t srt_generator_create(srt_decoder_t *decoder, srt_device_t *device,
					  const srt_generator_options_t *options,
					  srt_generator_t **generator);
/** Frees it, not its arena. NULL is allowed. */
SRT_API void srt_generator_destroy(srt_generator_t *generator);
/** Bytes of device memory that it has allocated: the cache, and inputs of sampling. */
SRT_API size_t srt_generator_nbytes(const srt_generator_t *generator);
/** Bytes of the arena that it needs. */
SRT_API size_t srt_generator_arena_nbytes(const srt_generator_t *generator);
/** Bytes that the stream keeps (srt_tape_scratch_nbytes()). */
SRT_API size_t srt_generator_scratch_nbytes(const srt_generator_t *generator);
/** Gives it its arena, borrowed, of srt_decoder_mem_kind(); may be shared with tapes that do not
 * run at the same time. As srt_tape_bind(), so collective over tensor-parallel ranks. */
SRT_API srt_status_t srt_generator_bind(srt_generator_t *generator, srt_buffer_t *arena);

/**
 * Continues n prompts; sequences that end make place for the next prompts. Blocking. Local with
 * options.weights. Without, the passes are the engine's: collective where forward passes are (the
 * first of all strategies, all of zero3 and with tensor parallelism), and the ranks have the same
 * prompts.
 * @param on_token may be NULL.
 * @return SRT_ERR_INVALID_ARGUMENT, with a sentence, for a prompt that is empty, longer than the
 *         generator's length, or has a token outside of the vocabulary, and for sampling out of
 *         range: nothing is generated then. SRT_ERR_STATE without an arena; else what the passes
 *         report.
 */
SRT_API srt_status_t srt_decoder_generate(srt_generator_t *generator,
					  const srt_sampling_t *sampling, srt_sequence_t *sequences,
					  size_t n, srt_on_token_t on_token, void *arg,
					  srt_stream_t *stream);

#ifdef __cplusplus
}
#endif
#endif
