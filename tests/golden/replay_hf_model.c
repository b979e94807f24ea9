/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kind "hf": hidden states, logits, losses, gradients and steps of a decoder, and kind "pack":
 * losses of documents in one row and alone (replay_hf.h). config.json is read in the spellings of
 * transformers 4 and 5.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "tests/golden/replay_hf.h"

/* ---- a step's tokens -------------------------------------------------------------------- */

typedef struct tokens {
	int64_t rows, length;
	int32_t *ids, *targets, *positions;
} tokens_t;

static void free_tokens(tokens_t *t)
{
	free(t->ids);
	free(t->targets);
	free(t->positions);
}

/* The tensors PREFIXinput_ids and so on. */
static srt_status_t read_tokens(const golden_t *g, const char *prefix, tokens_t *t)
{
	const srt_safetensors_tensor_t *ids;
	char name[64];
	size_t n;

	*t = (tokens_t){ 0 };
	snprintf(name, sizeof(name), "%sinput_ids", prefix);
	ids = srt_safetensors_find(g->input, name);
	if (ids == NULL || ids->ndim != 2)
		return srt_fail(SRT_ERR_FORMAT, "the case has no matrix '%s'", name);
	t->rows = ids->shape[0];
	t->length = ids->shape[1];
	n = ids->nelem;
	SRT_TRY(hf_read_ints(g->input, name, n, &t->ids));
	snprintf(name, sizeof(name), "%stargets", prefix);
	SRT_TRY(hf_read_ints(g->input, name, n, &t->targets));
	snprintf(name, sizeof(name), "%sposition_ids", prefix);
	return hf_read_ints(g->input, name, n, &t->positions);
}

/* ---- comparing -------------------------------------------------------------------------- */

srt_status_t hf_compare_rows(hf_run_t *r, const char *key, const char *prefix, srt_tensor_t *tensor)
{
	const size_t nmine = (size_t)(srt_tensor_rows(tensor) * srt_tensor_cols(tensor));
	const size_t stride = nmine / (size_t)r->nmine;
	float *got = NULL, *want = NULL;
	char name[96];
	srt_status_t status;

	snprintf(name, sizeof(name), "%s%s", prefix, key);
	status = golden_floats(r->golden->expect, name, stride * (size_t)r->rows, &want);
	if (status == SRT_OK)
		status = hf_read_tensor(r, tensor, &got);
	for (int64_t k = 0; k < r->nmine && status == SRT_OK; k++)
		if (hf_row(r, k) >= 0)
			verdict_values(r->verdict, r->golden, name, got + (size_t)k * stride,
				       want + (size_t)hf_row(r, k) * stride, stride);
	free(got);
	free(want);
	return status;
}

static srt_status_t compare_rope_of(hf_run_t *r, const char *key, const srt_rope_t *rope)
{
	const size_t n = (size_t)rope->dim / 2;
	float *want, *got;
	srt_status_t status;

	if (srt_safetensors_find(r->golden->expect, key) == NULL)
		return SRT_OK;
	SRT_TRY(golden_floats(r->golden->expect, key, n, &want));
	got = srt_calloc(n + 1, sizeof(*got), key);
	status = got != NULL ? srt_rope_inv_freq(rope, got) : SRT_ERR_OUT_OF_MEMORY;
	if (status == SRT_OK)
		verdict_values(r->verdict, r->golden, key, got, want, n);
	free(got);
	free(want);
	return status;
}

static srt_status_t compare_rope(hf_run_t *r)
{
	const srt_decoder_config_t *c = &r->config;

	if (!c->rotary)
		return SRT_OK;
	SRT_TRY(compare_rope_of(r, "rope.inv_freq", &c->rope));
	SRT_TRY(compare_rope_of(r, "rope.full_attention_inv_freq", &c->rope));
	return compare_rope_of(r, "rope.sliding_attention_inv_freq", &c->window_rope);
}

/* A tensor that nothing here compares is as wrong as a deviation. */
void hf_check_keys(hf_run_t *r, const char *const *known, size_t nknown)
{
	for (size_t i = 0; i < srt_safetensors_count(r->golden->expect); i++) {
		const char *key = srt_safetensors_tensor(r->golden->expect, i)->name;
		bool is_known = false;

		for (size_t k = 0; k < nknown; k++)
			is_known = is_known || !strncmp(key, known[k], strlen(known[k]));
		verdict_exact(r->verdict, is_known, "%s was not compared", key);
	}
}

/* ---- kind "hf" ---------------------------------------------------------------------------- */

/* Hidden states and logits of step 1; logits alone with another prefix than "step1.". */
static srt_status_t compare_forward(hf_run_t *r, const tokens_t *t, const char *prefix)
{
	const int64_t layers = r->config.layers;
	srt_tensor_t **hidden = srt_calloc((size_t)layers + 1, sizeof(srt_tensor_t *), "hidden");
	const srt_decoder_pass_t pass = { .context = t->length,
					  .documents = 1,
					  /* the ranks do not gather logits of many rows */
					  .loss = r->options->tp > 1,
					  .hidden = hidden };
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;
	char key[32];

	if (hidden != NULL)
		status = hf_record(r, SRT_TAPE_FORWARD, t->rows, &pass);
	if (status == SRT_OK)
		status = hf_feed(r, t->ids, NULL, t->positions);
	if (status == SRT_OK)
		status = srt_tape_forward(r->tape, r->stream);
	for (int64_t i = 0; i <= layers && status == SRT_OK && !strcmp(prefix, "step1."); i++) {
		snprintf(key, sizeof(key), "hidden.%lld", (long long)i);
		status = hf_compare_rows(r, key, prefix, hidden[i]);
	}
	if (status == SRT_OK && r->options->tp == 1)
		status = hf_compare_rows(r, "logits", prefix, r->io.logits);
	free(hidden);
	return status;
}

srt_status_t hf_compare_loss(hf_run_t *r, const char *key, const json_t *recorded, double ntargets)
{
	const size_t n = (size_t)(r->nmine * r->context_length);
	float *losses = NULL;
	double sum = 0;
	srt_status_t status = hf_read_tensor(r, r->io.loss, &losses);

	if (status == SRT_OK)
		status = hf_sum(r, losses, n, &sum);
	if (status == SRT_OK)
		verdict_scalar(r->verdict, r->golden, key, (double)(float)(sum / ntargets),
			       golden_scalar(recorded));
	free(losses);
	return status;
}

/* Step s of a run with `decay`; the first run's first step has gradients and losses of tokens. */
static srt_status_t run_step(hf_run_t *r, const char *decay, int s, bool is_first)
{
	const json_t *json = r->golden->json;
	const json_t *step = json_array_get(json_object_get(json_object_get(json, "steps"), decay),
					    (size_t)s - 1);
	const double ntargets = json_number_value(
		json_array_get(json_object_get(json, "num_targets"), (size_t)s - 1));
	const srt_view_t none = { 0 };
	srt_step_info_t info = SRT_STEP_INFO_INIT;
	tokens_t t;
	char key[96];
	srt_status_t status;

	snprintf(key, sizeof(key), "step%d.", s);
	status = read_tokens(r->golden, key, &t);
	if (status == SRT_OK && (t.rows != r->rows || t.length != r->context_length))
		status = srt_fail(SRT_ERR_FORMAT, "step %d has tokens of another shape", s);
	if (status == SRT_OK)
		status = hf_feed(r, t.ids, t.targets, t.positions);
	free_tokens(&t);
	SRT_TRY(status);
	SRT_TRY(srt_engine_microbatch(r->engine, 0, 1));
	SRT_TRY(srt_tape_forward(r->tape, r->stream));
	SRT_TRY(srt_tape_backward(r->tape, 1.0f / (float)ntargets, none, r->stream));
	SRT_TRY(srt_engine_finish_backward(r->engine, r->stream));
	if (is_first) {
		SRT_TRY(hf_compare_rows(r, "token_loss", "step1.", r->io.loss));
		SRT_TRY(hf_compare_params(r, "step1.grad.", SRT_PARAM_GRAD));
		SRT_TRY(hf_compare_loss(r, "step1.loss", json_object_get(json, "loss"), ntargets));
	}
	snprintf(key, sizeof(key), "%s.step%d.loss", decay, s);
	SRT_TRY(hf_compare_loss(r, key, json_object_get(step, "loss"), ntargets));
	SRT_TRY(srt_engine_step(r->engine, r->stream));
	SRT_TRY(srt_engine_get_step_info(r->engine, &info, r->stream));
	snprintf(key, sizeof(key), "%s.step%d.grad_norm", decay, s);
	verdict_scalar(r->verdict, r->golden, key, (double)info.grad_norm,
		       golden_scalar(json_object_get(step, "grad_norm")));
	snprintf(key, sizeof(key), "%s.step%d.param.", decay, s);
	return hf_compare_params(r, key, SRT_PARAM_VALUE);
}

/* All steps with weight decay of matrices, or of all parameters, from the saved values. */
static srt_status_t run_steps(hf_run_t *r, const char *decay, bool is_first)
{
	const json_t *json = r->golden->json, *clip = json_object_get(json, "clip");
	const float rate =
		(float)golden_number(json_object_get(json, "optimizer"), "weight_decay", 0);
	const hf_engine_t how = { .folder = golden_text(json, "model"),
				  /* the spelling of version 4 in one of both runs */
				  .config = is_first ? NULL : "config_v4.json",
				  .dtype = SRT_F32,
				  .matrix_decay = rate,
				  .vector_decay = strcmp(decay, "all") ? 0.0f : rate,
				  .optim = hf_read_optim(r->golden),
				  .max_norm = (float)golden_number(clip, "max_norm", 0) };
	srt_decoder_pass_t pass = { .documents = 1, .loss = 1 };
	tokens_t t;
	srt_status_t status;

	SRT_TRY(hf_open(r, &how));
	SRT_TRY(compare_rope(r));
	status = read_tokens(r->golden, "step1.", &t);
	if (status == SRT_OK && is_first)
		status = compare_forward(r, &t, "step1.");
	pass.context = t.length;
	if (status == SRT_OK)
		status = hf_record(r, SRT_TAPE_TRAINING, t.rows, &pass);
	free_tokens(&t);
	for (int s = 1; s <= r->golden->nsteps && status == SRT_OK; s++)
		status = run_step(r, decay, s, is_first && s == 1);
	return status;
}

/* The logits of step 1 of a model in bf16, within their wide tolerance. */
static srt_status_t run_bf16(hf_run_t *r)
{
	const hf_engine_t how = { .folder = golden_text(r->golden->json, "model"),
				  .dtype = SRT_BF16,
				  .optim = hf_read_optim(r->golden) };
	tokens_t t;
	srt_status_t status;

	SRT_TRY(hf_open(r, &how));
	status = read_tokens(r->golden, "step1.", &t);
	if (status == SRT_OK)
		status = compare_forward(r, &t, "bf16.");
	free_tokens(&t);
	return status;
}

srt_status_t replay_hf_model(golden_t *g, srt_context_t *context, const hf_options_t *options,
			     verdict_t *v)
{
	static const char *const known[] = { "step1.hidden.", "step1.logits",  "step1.token_loss",
					     "step1.grad.",   "matrices.step", "all.step",
					     "rope.",         "bf16.logits" };
	static const char *const decays[] = { "matrices", "all" };
	hf_run_t r = { .golden = g, .context = context, .options = options, .verdict = v };
	srt_status_t status = SRT_OK;

	hf_check_keys(&r, known, SRT_ARRAY_LEN(known));
	for (size_t i = 0; i < SRT_ARRAY_LEN(decays) && status == SRT_OK; i++) {
		hf_run_t run = r;

		status = run_steps(&run, decays[i], i == 0);
		hf_close(&run);
	}
	if (status == SRT_OK && options->tp == 1 &&
	    srt_safetensors_find(g->expect, "bf16.logits") != NULL) {
		status = run_bf16(&r);
		hf_close(&r);
	}
	return status;
}

/* ---- kind "pack" -------------------------------------------------------------------------- */

/* The losses of a row of documents. */
static srt_status_t run_packed(hf_run_t *r, const tokens_t *t, float **losses)
{
	const json_t *json = r->golden->json;
	const double ntargets = golden_number(json, "num_targets", 0);
	const srt_decoder_pass_t pass = { .context = t->length, .documents = 1, .loss = 1 };
	const srt_view_t none = { 0 };
	srt_step_info_t info = SRT_STEP_INFO_INIT;

	SRT_TRY(hf_record(r, SRT_TAPE_TRAINING, t->rows, &pass));
	SRT_TRY(hf_feed(r, t->ids, t->targets, t->positions));
	SRT_TRY(srt_engine_microbatch(r->engine, 0, 1));
	SRT_TRY(srt_tape_forward(r->tape, r->stream));
	SRT_TRY(srt_tape_backward(r->tape, 1.0f / (float)ntargets, none, r->stream));
	SRT_TRY(srt_engine_finish_backward(r->engine, r->stream));
	SRT_TRY(hf_read_tensor(r, r->io.loss, losses));
	SRT_TRY(hf_compare_rows(r, "packed.token_loss", "", r->io.loss));
	SRT_TRY(hf_compare_loss(r, "packed.loss", json_object_get(json, "loss"), ntargets));
	SRT_TRY(srt_engine_step(r->engine, r->stream));
	SRT_TRY(srt_engine_get_step_info(r->engine, &info, r->stream));
	verdict_scalar(r->verdict, r->golden, "packed.grad_norm", (double)info.grad_norm,
		       golden_scalar(json_object_get(json, "grad_norm")));
	return SRT_OK;
}

/* The losses of document i alone, whose tokens begin at `at`; they have the bits of the row. */
static srt_status_t run_alone(hf_run_t *r, const tokens_t *t, size_t i, int64_t at, int64_t length,
			      const float *packed)
{
	const srt_decoder_pass_t pass = { .context = length, .documents = 1, .loss = 1 };
	float *losses = NULL;
	char key[64];
	srt_status_t status;

	SRT_TRY(hf_record(r, SRT_TAPE_FORWARD, 1, &pass));
	SRT_TRY(hf_feed(r, t->ids + at, t->targets + at, t->positions + at));
	SRT_TRY(srt_tape_forward(r->tape, r->stream));
	snprintf(key, sizeof(key), "alone.doc%zu.token_loss", i);
	SRT_TRY(hf_compare_rows(r, key, "", r->io.loss));
	status = hf_read_tensor(r, r->io.loss, &losses);
	if (status == SRT_OK && hf_row(r, 0) == 0)
		verdict_exact(r->verdict,
			      !memcmp(losses, packed + at, (size_t)length * sizeof(*losses)),
			      "document %zu has other bits alone than in the row", i);
	free(losses);
	return status;
}

static srt_status_t run_pack(hf_run_t *r, const tokens_t *t)
{
	const json_t *lengths = json_object_get(r->golden->json, "lengths"), *length;
	const hf_engine_t how = { .folder = golden_text(r->golden->json, "model"),
				  .dtype = SRT_F32,
				  .optim = SRT_OPTIM_ADAM_INIT };
	float *packed = NULL;
	int64_t at = 0;
	srt_status_t status;
	size_t i;

	SRT_TRY(hf_open(r, &how));
	/* before the step, which changes the parameters, and with those of the folder again */
	status = run_packed(r, t, &packed);
	if (status == SRT_OK) {
		hf_close(r);
		*r = (hf_run_t){ .golden = r->golden,
				 .context = r->context,
				 .options = r->options,
				 .verdict = r->verdict };
		status = hf_open(r, &how);
	}
	json_array_foreach(lengths, i, length)
	{
		const int64_t n = (int64_t)json_number_value(length);

		if (status == SRT_OK && (n < 1 || at + n > t->length))
			status = srt_fail(SRT_ERR_FORMAT, "lengths are not those of the row");
		if (status == SRT_OK)
			status = run_alone(r, t, i, at, n, packed);
		at += n;
	}
	free(packed);
	return status;
}

srt_status_t replay_hf_pack(golden_t *g, srt_context_t *context, const hf_options_t *options,
			    verdict_t *v)
{
	static const char *const known[] = { "packed.token_loss", "alone.doc" };
	hf_run_t r = { .golden = g, .context = context, .options = options, .verdict = v };
	tokens_t t;
	srt_status_t status = read_tokens(g, "", &t);

	hf_check_keys(&r, known, SRT_ARRAY_LEN(known));
	if (status == SRT_OK)
		status = run_pack(&r, &t);
	hf_close(&r);
	free_tokens(&t);
	return status;
}
