/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Generating text from a decoder, byte by byte. All ranks take part (a sharded model is gathered
 * unit by unit) and all draw the same bytes: the choice is a function of the parameters, the
 * text so far, the seed and the position.
 */
#ifndef SRT_MODELS_GENERATE_H
#define SRT_MODELS_GENERATE_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/shardrt.h>

#include "models/families.h"

/** A recorded forward pass for one sequence. Opaque. */
typedef struct srt_generator srt_generator_t;

/** How the next byte is chosen. */
typedef struct srt_sampling {
	float temperature; /* logits are divided by it; 0 = always the most likely byte */
	uint64_t seed;
} srt_sampling_t;

/**
 * Records the forward pass.
 * @param nmax most bytes (prompt and new ones) of a text: sizes the pass, up to the model's
 *        context; longer texts see their last part.
 * @param[out] generator owned by the caller.
 */
srt_status_t srt_generator_create(srt_decoder_t *decoder, srt_device_t *device, int64_t nmax,
				  srt_generator_t **generator);
/** Frees it, not its arena. NULL is allowed. */
void srt_generator_destroy(srt_generator_t *generator);
/** Bytes of device memory that it needs. */
size_t srt_generator_nbytes(const srt_generator_t *generator);
/** Bytes that the stream keeps (srt_tape_scratch_nbytes()). */
size_t srt_generator_scratch_nbytes(const srt_generator_t *generator);
/** Gives it that memory, borrowed; may be shared with tapes that do not run at the same time. */
srt_status_t srt_generator_bind(srt_generator_t *generator, srt_buffer_t *arena);

/**
 * Continues a prompt by n bytes. Collective and blocking.
 * @param prompt nprompt >= 1 bytes, each below the vocabulary.
 * @param[out] text nprompt + n bytes: the prompt, then the new ones.
 * @return SRT_ERR_INVALID_ARGUMENT for an empty prompt or a byte outside the vocabulary.
 */
srt_status_t srt_generate(srt_generator_t *generator, const srt_sampling_t *sampling,
			  const unsigned char *prompt, size_t nprompt, unsigned char *text,
			  size_t n, srt_stream_t *stream);

#endif
