/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kind "decode": the tokens that follow prompts, their log-probabilities, the five likeliest ones of
 * each step, and the place where an end token stops (replay_hf.h). The log-probabilities must have
 * the bits of training losses, whatever the batch and the chunks.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <shardrt/models/generate.h>
#include "tests/golden/replay_hf.h"

#define NTOP 5

/* A prompt of the case, and what was generated. */
typedef struct prompt {
	int32_t *ids; /* (n + new), the new tokens after the prompt */
	int64_t n;
	float *logprobs; /* (new) */
	int32_t *want, *top;
} prompt_t;

typedef struct decode {
	hf_run_t run;
	int64_t new_tokens;
	prompt_t *prompts;
	size_t nprompts;
	int64_t longest; /* with the new tokens */
} decode_t;

/* ---- the case ----------------------------------------------------------------------------- */

static srt_status_t read_prompt(const golden_t *g, size_t i, int64_t new_tokens, prompt_t *p)
{
	const size_t nnew = (size_t)new_tokens;
	int32_t *ids = NULL;
	char key[48];
	srt_status_t status;

	snprintf(key, sizeof(key), "prompt%zu.input_ids", i);
	status = hf_read_ints(g->expect, key, (size_t)p->n, &ids);
	p->ids = srt_calloc((size_t)p->n + nnew, sizeof(*p->ids), key);
	p->logprobs = srt_calloc(nnew, sizeof(*p->logprobs), key);
	if (status == SRT_OK && (p->ids == NULL || p->logprobs == NULL))
		status = SRT_ERR_OUT_OF_MEMORY;
	if (status == SRT_OK)
		memcpy(p->ids, ids, (size_t)p->n * sizeof(*ids));
	free(ids);
	SRT_TRY(status);
	snprintf(key, sizeof(key), "prompt%zu.tokens", i);
	SRT_TRY(hf_read_ints(g->expect, key, nnew, &p->want));
	snprintf(key, sizeof(key), "prompt%zu.top5_ids", i);
	return hf_read_ints(g->expect, key, NTOP * nnew, &p->top);
}

static srt_status_t read_case(decode_t *d)
{
	const golden_t *g = d->run.golden;
	const json_t *prompts = json_object_get(g->json, "prompts");

	d->new_tokens = (int64_t)golden_number(g->json, "new_tokens", 0);
	d->nprompts = json_array_size(prompts);
	d->prompts = srt_calloc(d->nprompts + 1, sizeof(*d->prompts), "prompts");
	if (d->prompts == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	if (d->new_tokens < 1 || d->nprompts < 1)
		return srt_fail(SRT_ERR_FORMAT, "the case has no prompts");
	for (size_t i = 0; i < d->nprompts; i++) {
		prompt_t *p = &d->prompts[i];

		p->n = (int64_t)golden_number(json_array_get(prompts, i), "length", 0);
		if (p->n < 1)
			return srt_fail(SRT_ERR_FORMAT, "prompt %zu is empty", i);
		if (p->n + d->new_tokens > d->longest)
			d->longest = p->n + d->new_tokens;
		SRT_TRY(read_prompt(g, i, d->new_tokens, p));
	}
	return SRT_OK;
}

static void free_case(decode_t *d)
{
	for (size_t i = 0; d->prompts != NULL && i < d->nprompts; i++) {
		free(d->prompts[i].ids);
		free(d->prompts[i].logprobs);
		free(d->prompts[i].want);
		free(d->prompts[i].top);
	}
	free(d->prompts);
}

/* ---- generating --------------------------------------------------------------------------- */

typedef struct generation {
	srt_generator_t *generator;
	srt_buffer_t *arena;
} generation_t;

static srt_status_t open_generation(decode_t *d, int64_t sequences, int64_t chunk, generation_t *g)
{
	srt_device_t *device = srt_context_device(d->run.context);
	const srt_generator_options_t options = { .sequences = sequences,
						  .length = d->longest,
						  .chunk = chunk };

	SRT_TRY(srt_generator_create(d->run.decoder, device, &options, &g->generator));
	SRT_TRY(srt_buffer_create(device, srt_decoder_mem_kind(d->run.decoder),
				  srt_generator_arena_nbytes(g->generator), "tape", &g->arena));
	return srt_generator_bind(g->generator, g->arena);
}

static void close_generation(decode_t *d, generation_t *g)
{
	srt_stream_sync(d->run.stream);
	srt_generator_destroy(g->generator);
	srt_buffer_destroy(g->arena);
	*g = (generation_t){ 0 };
}

/* Continues all prompts; is_first: into the prompts, else compared with what they have. */
static srt_status_t generate_all(decode_t *d, generation_t *g, bool is_first)
{
	const size_t nnew = (size_t)d->new_tokens;
	const srt_sampling_t greedy = { 0 };
	srt_sequence_t *s = srt_calloc(d->nprompts, sizeof(*s), "sequences");
	int32_t *tokens = srt_calloc(d->nprompts * nnew, sizeof(*tokens), "tokens");
	float *logprobs = srt_calloc(d->nprompts * nnew, sizeof(*logprobs), "tokens");
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	for (size_t i = 0; s != NULL && tokens != NULL && logprobs != NULL && i < d->nprompts; i++)
		s[i] = (srt_sequence_t){ .prompt = d->prompts[i].ids,
					 .nprompt = d->prompts[i].n,
					 .max_tokens = d->new_tokens,
					 .tokens = tokens + i * nnew,
					 .logprobs = logprobs + i * nnew };
	if (s != NULL && tokens != NULL && logprobs != NULL)
		status = srt_decoder_generate(g->generator, &greedy, s, d->nprompts, NULL, NULL,
					      d->run.stream);
	for (size_t i = 0; i < d->nprompts && status == SRT_OK; i++) {
		prompt_t *p = &d->prompts[i];

		if (is_first) {
			memcpy(p->ids + p->n, s[i].tokens, nnew * sizeof(*tokens));
			memcpy(p->logprobs, s[i].logprobs, nnew * sizeof(*logprobs));
		}
		verdict_exact(d->run.verdict,
			      s[i].ntokens == d->new_tokens && s[i].finish == SRT_FINISH_LENGTH &&
				      !memcmp(p->ids + p->n, s[i].tokens, nnew * sizeof(*tokens)),
			      "prompt %zu has other tokens in another batch", i);
		verdict_exact(d->run.verdict,
			      !memcmp(p->logprobs, s[i].logprobs, nnew * sizeof(*logprobs)),
			      "prompt %zu has other log-probabilities in another batch", i);
	}
	free(s);
	free(tokens);
	free(logprobs);
	return status;
}

/* Generates until one of the recorded end tokens of prompt i. */
static srt_status_t compare_stop(decode_t *d, generation_t *g, size_t i)
{
	const json_t *stop =
		json_object_get(json_array_get(json_object_get(d->run.golden->json, "prompts"), i),
				"stop");
	const json_t *ids = json_object_get(stop, "eos_token_id");
	const size_t neos = json_array_size(ids);
	const prompt_t *p = &d->prompts[i];
	int32_t *eos = srt_calloc(neos + 1, sizeof(*eos), "eos");
	int32_t *tokens = srt_calloc((size_t)d->new_tokens, sizeof(*tokens), "tokens");
	srt_sequence_t s = {
		.prompt = p->ids, .nprompt = p->n, .max_tokens = d->new_tokens, .tokens = tokens
	};
	srt_sampling_t sampling = { .eos = eos, .neos = neos };
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	for (size_t k = 0; eos != NULL && k < neos; k++)
		eos[k] = (int32_t)json_integer_value(json_array_get(ids, k));
	if (neos == 0)
		status = SRT_OK; /* the case has none for this prompt */
	else if (eos != NULL && tokens != NULL)
		status = srt_decoder_generate(g->generator, &sampling, &s, 1, NULL, NULL,
					      d->run.stream);
	if (status == SRT_OK && neos > 0)
		verdict_exact(d->run.verdict,
			      s.finish == SRT_FINISH_EOS &&
				      (double)s.ntokens == golden_number(stop, "generated", 0),
			      "prompt %zu ended after %lld tokens", i, (long long)s.ntokens);
	free(eos);
	free(tokens);
	return status;
}

/* ---- comparing ---------------------------------------------------------------------------- */

/* A forward pass over a prompt and its new tokens but the last one; the row is rank 0's. */
static srt_status_t run_whole(hf_run_t *r, const prompt_t *p, int64_t new_tokens, int loss)
{
	const int64_t n = p->n + new_tokens - 1;
	const srt_decoder_pass_t pass = { .context = n, .documents = 1, .loss = loss };
	int32_t *positions = srt_calloc((size_t)n, sizeof(*positions), "positions");
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	for (int64_t t = 0; positions != NULL && t < n; t++)
		positions[t] = (int32_t)t;
	if (positions != NULL)
		status = hf_record(r, SRT_TAPE_FORWARD, 1, &pass);
	if (status == SRT_OK)
		status = hf_feed(r, p->ids, p->ids + 1, positions);
	free(positions);
	SRT_TRY(status);
	return srt_tape_forward(r->tape, r->stream);
}

/* The log-probabilities are minus the losses of training, to the bit. */
static srt_status_t compare_losses(decode_t *d, size_t i)
{
	const prompt_t *p = &d->prompts[i];
	float *losses = NULL;
	int64_t differing = 0;
	char key[48];
	srt_status_t status = run_whole(&d->run, p, d->new_tokens, 1);

	if (status == SRT_OK)
		status = hf_read_tensor(&d->run, d->run.io.loss, &losses);
	for (int64_t t = 0; t < d->new_tokens && status == SRT_OK; t++) {
		const float logprob = -losses[p->n - 1 + t];

		differing += memcmp(&logprob, &p->logprobs[t], sizeof(logprob)) != 0;
	}
	verdict_exact(d->run.verdict, hf_row(&d->run, 0) != 0 || differing == 0,
		      "prompt %zu: %lld log-probabilities have other bits than training losses", i,
		      (long long)differing);
	free(losses);
	SRT_TRY(status);
	snprintf(key, sizeof(key), "prompt%zu.logprob", i);
	SRT_TRY(golden_floats(d->run.golden->expect, key, (size_t)d->new_tokens, &losses));
	verdict_values(d->run.verdict, d->run.golden, key, p->logprobs, losses,
		       (size_t)d->new_tokens);
	free(losses);
	return SRT_OK;
}

/* The five likeliest tokens of a row of logits, and their log-probabilities. */
static void find_top(const float *row, int64_t vocab, int32_t *top, float *logprobs)
{
	double sum = 0, max = (double)row[0];

	for (int64_t t = 1; t < vocab; t++)
		max = (double)row[t] > max ? (double)row[t] : max;
	for (int64_t t = 0; t < vocab; t++)
		sum += exp((double)row[t] - max);
	for (int k = 0; k < NTOP; k++) {
		int64_t best = -1;

		for (int64_t t = 0; t < vocab; t++) {
			bool is_taken = false;

			for (int j = 0; j < k; j++)
				is_taken = is_taken || top[j] == t;
			if (!is_taken && (best < 0 || row[t] > row[best]))
				best = t;
		}
		top[k] = (int32_t)best;
		logprobs[k] = (float)((double)row[best] - max - log(sum));
	}
}

static srt_status_t compare_top(decode_t *d, size_t i)
{
	const prompt_t *p = &d->prompts[i];
	const int64_t vocab = d->run.config.vocab;
	const size_t n = (size_t)d->new_tokens * NTOP;
	float *logits = NULL, *want = NULL, *got = srt_calloc(n, sizeof(*got), "likeliest");
	int32_t *top = srt_calloc(n, sizeof(*top), "likeliest");
	char key[48];
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	snprintf(key, sizeof(key), "prompt%zu.top5_logprob", i);
	if (got != NULL && top != NULL)
		status = run_whole(&d->run, p, d->new_tokens, 0);
	if (status == SRT_OK)
		status = hf_read_tensor(&d->run, d->run.io.logits, &logits);
	if (status == SRT_OK)
		status = golden_floats(d->run.golden->expect, key, n, &want);
	for (int64_t t = 0; t < d->new_tokens && status == SRT_OK; t++)
		find_top(logits + (p->n - 1 + t) * vocab, vocab, top + t * NTOP, got + t * NTOP);
	if (status == SRT_OK && hf_row(&d->run, 0) == 0) {
		verdict_values(d->run.verdict, d->run.golden, key, got, want, n);
		verdict_exact(d->run.verdict, !memcmp(top, p->top, n * sizeof(*top)),
			      "prompt %zu has other likeliest tokens", i);
	}
	free(logits);
	free(want);
	free(got);
	free(top);
	return status;
}

static srt_status_t compare_prompt(decode_t *d, size_t i)
{
	const prompt_t *p = &d->prompts[i];

	verdict_exact(d->run.verdict,
		      !memcmp(p->ids + p->n, p->want, (size_t)d->new_tokens * sizeof(*p->want)),
		      "prompt %zu has other tokens", i);
	SRT_TRY(compare_losses(d, i));
	return compare_top(d, i);
}

static srt_status_t run_decode(decode_t *d)
{
	const hf_engine_t how = { .folder = golden_text(d->run.golden->json, "model"),
				  .dtype = SRT_F32,
				  .optim = SRT_OPTIM_ADAM_INIT };
	const struct {
		int64_t sequences, chunk;
	} batches[] = { { (int64_t)d->nprompts, 64 }, { 1, 1 }, { 2, 5 } };
	generation_t g = { 0 };
	srt_status_t status = hf_open(&d->run, &how);

	for (size_t k = 0; k < SRT_ARRAY_LEN(batches) && status == SRT_OK; k++) {
		status = open_generation(d, batches[k].sequences, batches[k].chunk, &g);
		if (status == SRT_OK)
			status = generate_all(d, &g, k == 0);
		for (size_t i = 0; i < d->nprompts && k == 0 && status == SRT_OK; i++)
			status = compare_stop(d, &g, i);
		close_generation(d, &g);
	}
	for (size_t i = 0; i < d->nprompts && status == SRT_OK; i++)
		status = compare_prompt(d, i);
	return status;
}

srt_status_t replay_hf_decode(golden_t *g, srt_context_t *context, const hf_options_t *options,
			      verdict_t *v)
{
	decode_t d = {
		.run = { .golden = g, .context = context, .options = options, .verdict = v }
	};
	srt_status_t status;

	if (options->tp > 1)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"--tp %d: the ranks do not gather logits of many rows",
				options->tp);
	status = read_case(&d);
	verdict_exact(v, srt_safetensors_count(g->expect) == 5 * d.nprompts,
		      "the case has tensors that are not compared");
	if (status == SRT_OK)
		status = run_decode(&d);
	hf_close(&d.run);
	free_case(&d);
	return status;
}
