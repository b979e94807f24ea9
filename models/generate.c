/* SPDX-License-Identifier: BSD-3-Clause */
/* Generating: passes over prompts and over one token of each sequence, and the loop around them. */
#include <shardrt/models/generate.h>

#include <stdlib.h>
#include <string.h>

#include <shardrt/ops.h>

#include "models/decoder_impl.h"
#include "models/sample.h"
#include "models/tape_impl.h"
#include "models/try.h"

#define CHUNK 64
/* Passes of 1, 2, 4, ... tokens, up to 2^30. */
#define MAX_PASSES 32

/* A recorded pass. */
typedef struct pass {
	srt_tape_t *tape;
	srt_decoder_io_t io;
	int64_t ntokens;
} pass_t;

/* Passes of rising sizes, of which the largest may be no power of two. */
typedef struct ladder {
	pass_t passes[MAX_PASSES];
	int n;
} ladder_t;

/* A sequence that grows, in the place of the cache that has its index. */
typedef struct growing {
	srt_sequence_t *sequence;
	int32_t cached; /* tokens in the cache: all but the last one */
	int32_t last;
} growing_t;

struct srt_generator {
	srt_generator_options_t options;
	srt_device_t *device;
	int64_t vocab;
	int tensor_parts; /* at least 1 */
	srt_decoder_cache_t *cache;
	ladder_t chunks, steps;
	int64_t row; /* of a chunk, whose logits are made */
	size_t arena_nbytes, scratch_nbytes;

	/* probabilities (vocab), losses and targets (sequences), statistics (parts, 3*sequences) */
	srt_buffer_t *buffer;
	srt_view_t probabilities, losses, targets, stats;
	srt_sampler_t *sampler;
	growing_t *growing; /* (sequences) */
	int64_t ngrowing;
	int32_t *ids, *before; /* (sequences) */
	float *values;         /* (sequences) */
};

/* ---- making ------------------------------------------------------------------------------ */

static void raise_maximum(size_t *most, size_t nbytes)
{
	*most = nbytes > *most ? nbytes : *most;
}

static srt_status_t record_pass(srt_generator_t *g, srt_decoder_t *decoder, int step,
				int64_t ntokens, pass_t *pass)
{
	const srt_decoder_pass_t what = { .batch = step ? ntokens : 1,
					  .context = step ? 1 : ntokens,
					  .row = step ? NULL : &g->row,
					  .cache = g->cache,
					  .step = step,
					  .weights = g->options.weights };

	pass->ntokens = ntokens;
	SRT_TRY(srt_tape_create(g->device, SRT_TAPE_FORWARD, &pass->tape));
	SRT_TRY(srt_decoder_record(decoder, pass->tape, &what, &pass->io));
	raise_maximum(&g->arena_nbytes, srt_tape_nbytes(pass->tape));
	raise_maximum(&g->scratch_nbytes, srt_tape_scratch_nbytes(pass->tape));
	return SRT_OK;
}

static srt_status_t record_ladder(srt_generator_t *g, srt_decoder_t *decoder, int step,
				  int64_t most, ladder_t *ladder)
{
	for (int64_t n = 1; ladder->n == 0 || n < 2 * most; n *= 2) {
		pass_t *pass = &ladder->passes[ladder->n++];

		SRT_TRY(record_pass(g, decoder, step, n < most ? n : most, pass));
	}
	return SRT_OK;
}

/* The smallest pass of at least n tokens, or the largest one. */
static const pass_t *find_pass(const ladder_t *ladder, int64_t n)
{
	int i = 0;

	while (i < ladder->n - 1 && ladder->passes[i].ntokens < n)
		i++;
	return &ladder->passes[i];
}

static srt_status_t allocate(srt_generator_t *g)
{
	const size_t n = (size_t)g->options.sequences, vocab = (size_t)g->vocab;

	g->growing = calloc(n, sizeof(*g->growing));
	g->ids = calloc(n, sizeof(*g->ids));
	g->before = calloc(n, sizeof(*g->before));
	g->values = calloc(n, sizeof(*g->values));
	if (g->growing == NULL || g->ids == NULL || g->before == NULL || g->values == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY,
				      "no host memory for a generator of %zu sequences", n);
	SRT_TRY(srt_sampler_create(g->vocab, &g->sampler));
	SRT_TRY(srt_buffer_create(g->device, SRT_MEM_DEVICE,
				  (vocab + n + 3 * n * (size_t)g->tensor_parts) * sizeof(float) +
					  n * sizeof(int32_t),
				  "sampling", &g->buffer));
	g->probabilities = srt_view(g->buffer, 0, SRT_F32);
	g->losses = srt_view(g->buffer, vocab * sizeof(float), SRT_F32);
	g->targets = srt_view(g->buffer, (vocab + n) * sizeof(float), SRT_I32);
	g->stats = srt_view(g->buffer, (vocab + 2 * n) * sizeof(float), SRT_F32);
	return SRT_OK;
}

static srt_status_t check_options(const srt_decoder_t *decoder, const srt_generator_options_t *o)
{
	if (o->sequences < 1 || o->length < 1 || o->chunk < 0)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "generator: %lld sequences of %lld tokens, read in chunks of "
				      "%lld; there is at least one sequence of one token, and a "
				      "chunk of 0 is the default",
				      (long long)o->sequences, (long long)o->length,
				      (long long)o->chunk);
	if (decoder->tensor_ranks > 1 && o->sequences > 1)
		return srt_model_fail(
			SRT_ERR_UNSUPPORTED,
			"generator: a decoder over %d tensor-parallel ranks generates "
			"one sequence at a time, not %lld",
			decoder->tensor_ranks, (long long)o->sequences);
	return SRT_OK;
}

static srt_status_t make(srt_generator_t *g, srt_decoder_t *decoder)
{
	const int64_t chunk = g->options.chunk > 0 ? g->options.chunk : CHUNK;

	SRT_TRY(srt_decoder_cache_create(decoder, g->device, g->options.sequences,
					 g->options.length, &g->cache));
	SRT_TRY(record_ladder(g, decoder, 0, chunk < g->options.length ? chunk : g->options.length,
			      &g->chunks));
	SRT_TRY(record_ladder(g, decoder, 1, g->options.sequences, &g->steps));
	return allocate(g);
}

srt_status_t srt_generator_create(srt_decoder_t *decoder, srt_device_t *device,
				  const srt_generator_options_t *options,
				  srt_generator_t **generator)
{
	srt_generator_t *g;
	srt_status_t status;

	SRT_TRY(check_options(decoder, options));
	g = calloc(1, sizeof(*g));
	if (g == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for a generator");
	g->options = *options;
	g->device = device;
	g->vocab = srt_decoder_config(decoder)->vocab;
	g->tensor_parts = srt_decoder_config(decoder)->tensor_parts;
	status = make(g, decoder);
	if (status != SRT_OK) {
		srt_generator_destroy(g);
		return status;
	}
	*generator = g;
	return SRT_OK;
}

static void destroy_ladder(ladder_t *ladder)
{
	for (int i = 0; i < ladder->n; i++)
		srt_tape_destroy(ladder->passes[i].tape);
}

void srt_generator_destroy(srt_generator_t *g)
{
	if (g == NULL)
		return;
	destroy_ladder(&g->chunks);
	destroy_ladder(&g->steps);
	srt_decoder_cache_destroy(g->cache);
	srt_buffer_destroy(g->buffer);
	srt_sampler_destroy(g->sampler);
	free(g->growing);
	free(g->ids);
	free(g->before);
	free(g->values);
	free(g);
}

size_t srt_generator_nbytes(const srt_generator_t *generator)
{
	return srt_decoder_cache_nbytes(generator->cache) + srt_buffer_nbytes(generator->buffer);
}

size_t srt_generator_arena_nbytes(const srt_generator_t *generator)
{
	return generator->arena_nbytes;
}

size_t srt_generator_scratch_nbytes(const srt_generator_t *generator)
{
	return generator->scratch_nbytes;
}

static srt_status_t bind_ladder(ladder_t *ladder, srt_buffer_t *arena)
{
	for (int i = 0; i < ladder->n; i++)
		SRT_TRY(srt_tape_bind(ladder->passes[i].tape, arena));
	return SRT_OK;
}

srt_status_t srt_generator_bind(srt_generator_t *g, srt_buffer_t *arena)
{
	SRT_TRY(bind_ladder(&g->chunks, arena));
	return bind_ladder(&g->steps, arena);
}

/* ---- choosing ---------------------------------------------------------------------------- */

/* The next token of the sequence whose logits are this row's. */
static srt_status_t choose(srt_generator_t *g, const srt_sampling_t *sampling, srt_view_t logits,
			   int64_t row, const srt_sequence_t *sequence, int32_t *token,
			   srt_stream_t *stream)
{
	const int64_t n = sampling->vocab > 0 ? sampling->vocab : g->vocab;
	srt_view_t from = logits;

	from.offset += (size_t)(row * g->vocab) * sizeof(float);
	if (!srt_is_greedy(sampling)) {
		SRT_TRY(srt_op_divide(g->probabilities, from, sampling->temperature, n, stream));
		from = g->probabilities;
		SRT_TRY(srt_op_softmax(from, from, 1, n, stream));
	}
	SRT_TRY(srt_buffer_copy_to_host(srt_sampler_row(g->sampler), from.buffer, from.offset,
					(size_t)n * sizeof(float), stream));
	*token = srt_sampler_choose(g->sampler, sampling, n, sequence->key,
				    (uint64_t)(sequence->nprompt + sequence->ntokens));
	return SRT_OK;
}

/* The losses as training with tensor parts makes them, from statistics of each part. */
static srt_status_t compute_losses_by_part(srt_generator_t *g, srt_loss_t *args,
					   srt_stream_t *stream)
{
	const int64_t chunk = (g->vocab + g->tensor_parts - 1) / g->tensor_parts;
	const srt_vocab_part_t all = { .vocab = g->vocab, .n = g->vocab };

	args->part = &all;
	args->nparts = g->tensor_parts;
	args->stride = 3 * args->rows;
	args->stats = g->stats;
	SRT_TRY(srt_loss_make_stats(args, chunk, stream));
	return srt_op_cross_entropy_merge(args, stream);
}

/* Minus the losses of the tokens g->ids, (n), as g->values. */
static srt_status_t compute_logprobs(srt_generator_t *g, srt_view_t logits, int64_t n,
				     srt_stream_t *stream)
{
	srt_loss_t args = SRT_LOSS_INIT;

	SRT_TRY(srt_buffer_copy_from_host(g->targets.buffer, g->targets.offset, g->ids,
					  (size_t)n * sizeof(*g->ids), stream));
	args.rows = n;
	args.n = g->vocab;
	args.x = logits;
	args.target = g->targets;
	args.loss = g->losses;
	SRT_TRY(g->tensor_parts > 1 ? compute_losses_by_part(g, &args, stream) :
				      srt_op_cross_entropy(&args, stream));
	SRT_TRY(srt_buffer_copy_to_host(g->values, g->losses.buffer, g->losses.offset,
					(size_t)n * sizeof(*g->values), stream));
	for (int64_t i = 0; i < n; i++)
		g->values[i] = -g->values[i];
	return SRT_OK;
}

/* The arguments of srt_decoder_generate(). */
typedef struct request {
	const srt_sampling_t *sampling;
	srt_on_token_t on_token;
	void *arg;
	srt_stream_t *stream;
} request_t;

static int is_eos(const srt_sampling_t *sampling, int32_t token)
{
	for (size_t i = 0; i < sampling->neos; i++)
		if (sampling->eos[i] == token)
			return 1;
	return 0;
}

/* Adds a token. @return whether the sequence goes on. */
static int append(const srt_generator_t *g, const request_t *r, growing_t *growing, int32_t token,
		  float logprob)
{
	srt_sequence_t *s = growing->sequence;

	growing->last = token;
	s->tokens[s->ntokens] = token;
	if (s->logprobs != NULL)
		s->logprobs[s->ntokens] = logprob;
	s->ntokens++;
	if (r->on_token != NULL && r->on_token(r->arg, s) != 0)
		s->finish = SRT_FINISH_STOPPED;
	else if (is_eos(r->sampling, token))
		s->finish = SRT_FINISH_EOS;
	else if (s->ntokens < s->max_tokens && s->nprompt + s->ntokens < g->options.length)
		return 1;
	return 0;
}

/* Chooses the next token of the n sequences whose logits a pass has made. `growing` [0 .. n). */
static srt_status_t extend(srt_generator_t *g, const request_t *r, const pass_t *pass,
			   growing_t *growing, int64_t n)
{
	const srt_view_t logits = srt_tensor_view(pass->io.logits);
	int has_logprobs = 0;

	for (int64_t i = 0; i < n; i++) {
		SRT_TRY(choose(g, r->sampling, logits, i, growing[i].sequence, &g->ids[i],
			       r->stream));
		has_logprobs |= growing[i].sequence->logprobs != NULL;
	}
	if (has_logprobs)
		SRT_TRY(compute_logprobs(g, logits, n, r->stream));
	for (int64_t i = 0; i < n; i++)
		if (!append(g, r, &growing[i], g->ids[i], g->values[i]))
			growing[i].sequence = NULL; /* it has ended */
	return SRT_OK;
}

/* ---- passes ------------------------------------------------------------------------------ */

/* Reads a prompt into the next place and chooses its first token. */
static srt_status_t start(srt_generator_t *g, const request_t *r, srt_sequence_t *sequence)
{
	const int64_t largest = g->chunks.passes[g->chunks.n - 1].ntokens;
	growing_t *growing = &g->growing[g->ngrowing];
	const pass_t *pass = NULL;

	for (int64_t t = 0, n; t < sequence->nprompt; t += n) {
		n = sequence->nprompt - t;
		pass = find_pass(&g->chunks, n);
		n = n < largest ? n : largest;
		g->row = n - 1;
		SRT_TRY(srt_decoder_put_chunk(&pass->io, g->ngrowing, t, sequence->prompt + t, n,
					      r->stream));
		SRT_TRY(srt_tape_forward(pass->tape, r->stream));
	}
	*growing = (growing_t){ .sequence = sequence, .cached = (int32_t)sequence->nprompt };
	SRT_TRY(extend(g, r, pass, growing, 1));
	g->ngrowing += growing->sequence != NULL;
	return SRT_OK;
}

/* Closes the gaps of sequences that have ended: the last ones take their places. */
static srt_status_t close_gaps(srt_generator_t *g, srt_stream_t *stream)
{
	for (int64_t i = 0; i < g->ngrowing; i++) {
		while (g->ngrowing > i && g->growing[g->ngrowing - 1].sequence == NULL)
			g->ngrowing--;
		if (i >= g->ngrowing || g->growing[i].sequence != NULL)
			continue;
		g->growing[i] = g->growing[--g->ngrowing];
		SRT_TRY(srt_decoder_cache_move(g->cache, g->ngrowing, i, g->growing[i].cached,
					       stream));
	}
	return SRT_OK;
}

/* One token for each sequence. */
static srt_status_t step(srt_generator_t *g, const request_t *r)
{
	const pass_t *pass = find_pass(&g->steps, g->ngrowing);

	for (int64_t i = 0; i < g->ngrowing; i++) {
		g->ids[i] = g->growing[i].last;
		g->before[i] = g->growing[i].cached++;
	}
	SRT_TRY(srt_decoder_put_step(&pass->io, g->before, g->ids, g->ngrowing, r->stream));
	SRT_TRY(srt_tape_forward(pass->tape, r->stream));
	SRT_TRY(extend(g, r, pass, g->growing, g->ngrowing));
	return close_gaps(g, r->stream);
}

/* ---- the call ---------------------------------------------------------------------------- */

static srt_status_t check_prompt(const srt_generator_t *g, const srt_sequence_t *s, size_t i)
{
	if (s->nprompt < 1)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "prompt %zu is empty; it needs a token or more", i);
	if (s->nprompt > g->options.length)
		return srt_model_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"prompt %zu has %lld tokens, but a sequence has at most %lld, "
			"with its new ones",
			i, (long long)s->nprompt, (long long)g->options.length);
	for (int64_t t = 0; t < s->nprompt; t++)
		if (s->prompt[t] < 0 || s->prompt[t] >= g->vocab)
			return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
					      "token %lld of prompt %zu is %d, but the vocabulary "
					      "has 0 .. %lld",
					      (long long)t, i, s->prompt[t],
					      (long long)g->vocab - 1);
	return SRT_OK;
}

static srt_status_t check_sampling(const srt_generator_t *g, const srt_sampling_t *s)
{
	if (s->temperature >= 0.0f && s->top_k >= 0 && s->top_p >= 0.0f && s->top_p <= 1.0f &&
	    s->vocab >= 0 && s->vocab <= g->vocab)
		return SRT_OK;
	return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
			      "sampling: temperature %g, the %lld likeliest of %lld tokens, "
			      "probabilities up to a sum of %g; they are at least 0, the sum is at "
			      "most 1, the vocabulary has %lld",
			      (double)s->temperature, (long long)s->top_k, (long long)s->vocab,
			      (double)s->top_p, (long long)g->vocab);
}

srt_status_t srt_decoder_generate(srt_generator_t *g, const srt_sampling_t *sampling,
				  srt_sequence_t *sequences, size_t n, srt_on_token_t on_token,
				  void *arg, srt_stream_t *stream)
{
	const request_t r = { sampling, on_token, arg, stream };
	size_t next = 0;

	SRT_TRY(check_sampling(g, sampling));
	for (size_t i = 0; i < n; i++) {
		SRT_TRY(check_prompt(g, &sequences[i], i));
		sequences[i].ntokens = 0;
		sequences[i].finish = SRT_FINISH_LENGTH;
	}
	g->ngrowing = 0;
	while (next < n || g->ngrowing > 0) {
		while (next < n && g->ngrowing < g->options.sequences) {
			srt_sequence_t *s = &sequences[next++];

			if (s->max_tokens > 0 && s->nprompt < g->options.length)
				SRT_TRY(start(g, &r, s));
		}
		if (g->ngrowing > 0)
			SRT_TRY(step(g, &r));
	}
	return SRT_OK;
}
