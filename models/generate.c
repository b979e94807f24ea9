/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sampling: a forward pass over the text so far, the softmax of the last row on the device (so that
 * the probabilities follow the numeric contract), and a draw by their running sum in double.
 */
#include "models/generate.h"

#include <fenv.h>
#include <stdlib.h>
#include <string.h>

#include <shardrt/ops.h>

#include "models/hash.h"
#include "models/try.h"

/* Only tokens that are bytes are drawn, also from a larger vocabulary. */
#define NBYTE 256

struct srt_generator {
	srt_tape_t *tape;
	srt_decoder_io_t io;
	int64_t context, vocab, row;
	int32_t *ids;
};

srt_status_t srt_generator_create(srt_decoder_t *decoder, srt_device_t *device, int64_t nmax,
				  srt_generator_t **generator)
{
	const srt_decoder_config_t *config = srt_decoder_config(decoder);
	int64_t context = nmax < config->context ? nmax : config->context;
	srt_generator_t *g = calloc(1, sizeof(*g));
	int32_t *ids = calloc((size_t)(context < 1 ? 1 : context), sizeof(*ids));
	srt_decoder_pass_t pass = { .batch = 1 };
	srt_status_t status;

	if (g == NULL || ids == NULL) {
		free(ids);
		free(g);
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY,
				      "no host memory for a generator of %lld tokens",
				      (long long)context);
	}
	g->context = context < 1 ? 1 : context;
	g->vocab = config->vocab;
	g->ids = ids;
	status = srt_tape_create(device, SRT_TAPE_FORWARD, &g->tape);
	if (status != SRT_OK)
		goto fail;
	pass.context = g->context;
	pass.row = &g->row;
	status = srt_decoder_record(decoder, g->tape, &pass, &g->io);
	if (status != SRT_OK)
		goto fail;
	*generator = g;
	return SRT_OK;
fail:
	srt_generator_destroy(g);
	return status;
}

void srt_generator_destroy(srt_generator_t *generator)
{
	if (generator == NULL)
		return;
	srt_tape_destroy(generator->tape);
	free(generator->ids);
	free(generator);
}

size_t srt_generator_nbytes(const srt_generator_t *generator)
{
	return srt_tape_nbytes(generator->tape);
}

size_t srt_generator_scratch_nbytes(const srt_generator_t *generator)
{
	return srt_tape_scratch_nbytes(generator->tape);
}

srt_status_t srt_generator_bind(srt_generator_t *generator, srt_buffer_t *arena)
{
	return srt_tape_bind(generator->tape, arena);
}

/* Probabilities (or logits, for temperature 0) of the byte after `text`. */
static srt_status_t compute_row(srt_generator_t *g, const unsigned char *text, size_t n,
				float temperature, float *row, srt_stream_t *stream)
{
	size_t seen = n < (size_t)g->context ? n : (size_t)g->context;
	srt_view_t ids = srt_tensor_view(g->io.ids), logits = srt_tensor_view(g->io.logits);
	int64_t nbyte = g->vocab < NBYTE ? g->vocab : NBYTE;

	memset(g->ids, 0, (size_t)g->context * sizeof(*g->ids));
	for (size_t t = 0; t < seen; t++)
		g->ids[t] = text[n - seen + t];
	g->row = (int64_t)seen - 1;
	SRT_TRY(srt_buffer_copy_from_host(ids.buffer, ids.offset, g->ids,
					  (size_t)g->context * sizeof(*g->ids), stream));
	SRT_TRY(srt_decoder_put_positions(&g->io, NULL, stream));
	SRT_TRY(srt_tape_forward(g->tape, stream));
	if (temperature > 0.0f) {
		SRT_TRY(srt_op_divide(logits, logits, temperature, nbyte, stream));
		SRT_TRY(srt_op_softmax(logits, logits, 1, nbyte, stream));
	}
	return srt_buffer_copy_to_host(row, logits.buffer, logits.offset,
				       (size_t)nbyte * sizeof(*row), stream);
}

static unsigned char find_likeliest(const float *row, int64_t n)
{
	int64_t best = 0;

	for (int64_t t = 1; t < n; t++)
		if (row[t] > row[best])
			best = t;
	return (unsigned char)best;
}

/* The first byte at which the running sum exceeds u (0 <= u < 1) of the total; -1: probabilities
 * that are NaN. */
static int64_t find_drawn(const float *p, int64_t n, uint64_t bits)
{
	double sum = 0.0, total = 0.0, u = (double)(bits >> 11) * 0x1p-53;

	for (int64_t t = 0; t < n; t++)
		total += (double)p[t];
	for (int64_t t = 0; t < n; t++) {
		sum += (double)p[t];
		if (sum > u * total)
			return t;
	}
	return -1;
}

static unsigned char draw_byte(const float *p, int64_t n, uint64_t bits)
{
	volatile int64_t drawn; /* written before the environment is restored */
	fenv_t env;

	fegetenv(&env);
	fesetenv(FE_DFL_ENV);
	drawn = find_drawn(p, n, bits);
	fesetenv(&env);
	return drawn >= 0 ? (unsigned char)drawn : find_likeliest(p, n);
}

srt_status_t srt_generate(srt_generator_t *g, const srt_sampling_t *sampling,
			  const unsigned char *prompt, size_t nprompt, unsigned char *text,
			  size_t n, srt_stream_t *stream)
{
	int64_t nbyte = g->vocab < NBYTE ? g->vocab : NBYTE;
	float row[NBYTE];

	if (nprompt == 0)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "srt_generate: the prompt is empty; it needs a byte or more");
	for (size_t i = 0; i < nprompt; i++)
		if (prompt[i] >= nbyte)
			return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
					      "srt_generate: byte %zu of the prompt is %d, but the "
					      "vocabulary has 0 .. %lld",
					      i, prompt[i], (long long)nbyte - 1);
	memcpy(text, prompt, nprompt);
	for (size_t i = nprompt; i < nprompt + n; i++) {
		SRT_TRY(compute_row(g, text, i, sampling->temperature, row, stream));
		text[i] = sampling->temperature > 0.0f ?
				  draw_byte(row, nbyte, srt_counter_hash(sampling->seed, 1, i)) :
				  find_likeliest(row, nbyte);
	}
	return SRT_OK;
}
