/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kind "lora": PEFT's adapters (replay_hf.h). They are read from adapter_init, trained, saved and
 * compared with the files of adapter; the saved ones are merged into the weights of the base. The
 * folders that this makes are in the folder of the test, and removed.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/golden/replay_hf.h"

/* A case, and the folders of this run; names are relative to the working directory. */
typedef struct lora_run {
	hf_run_t run;
	srt_lora_t *lora;
	char *init, *after, *base;  /* of the case */
	char saved[96], merged[96]; /* of this run */
} lora_run_t;

/* ---- folders ---------------------------------------------------------------------------- */

static srt_status_t name_folders(lora_run_t *l)
{
	const golden_t *g = l->run.golden;

	l->init = srt_asprintf("%s/adapter_init", g->dir);
	l->after = srt_asprintf("%s/adapter", g->dir);
	l->base = srt_asprintf("%s/%s", g->dir, golden_text(g->json, "model"));
	snprintf(l->saved, sizeof(l->saved), "replay_hf_lora.%ld.saved", (long)getpid());
	snprintf(l->merged, sizeof(l->merged), "replay_hf_lora.%ld.merged", (long)getpid());
	return l->init != NULL && l->after != NULL && l->base != NULL ? SRT_OK :
									SRT_ERR_OUT_OF_MEMORY;
}

static void remove_folder(const char *folder)
{
	static const char *const names[] = { "adapter_config.json", "adapter_model.safetensors",
					     "model.safetensors" };
	char path[160];

	for (size_t i = 0; i < SRT_ARRAY_LEN(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
		unlink(path);
	}
	rmdir(folder);
}

/* ---- steps ------------------------------------------------------------------------------ */

/* Step s of rows of one document each, or their logits. */
static srt_status_t feed_step(hf_run_t *r, int s, bool is_first)
{
	const golden_t *g = r->golden;
	const srt_safetensors_tensor_t *t;
	int32_t *ids = NULL, *targets = NULL, *positions;
	srt_decoder_pass_t pass = { .documents = 1, .loss = 1 };
	srt_status_t status;
	char key[48];

	snprintf(key, sizeof(key), "step%d.input_ids", s);
	t = srt_safetensors_find(g->input, key);
	if (t == NULL || t->ndim != 2)
		return srt_fail(SRT_ERR_FORMAT, "the case has no matrix '%s'", key);
	pass.context = t->shape[1];
	if (is_first)
		SRT_TRY(hf_record(r, SRT_TAPE_TRAINING, t->shape[0], &pass));
	if (t->shape[0] != r->rows || t->shape[1] != r->context_length)
		return srt_fail(SRT_ERR_FORMAT, "step %d has tokens of another shape", s);
	positions = srt_calloc(t->nelem + 1, sizeof(*positions), "positions");
	status = hf_read_ints(g->input, key, t->nelem, &ids);
	snprintf(key, sizeof(key), "step%d.targets", s);
	if (status == SRT_OK)
		status = hf_read_ints(g->input, key, t->nelem, &targets);
	for (size_t i = 0; positions != NULL && i < t->nelem; i++)
		positions[i] = (int32_t)(i % (size_t)t->shape[1]);
	if (status == SRT_OK)
		status = positions != NULL ? hf_feed(r, ids, targets, positions) :
					     SRT_ERR_OUT_OF_MEMORY;
	free(ids);
	free(targets);
	free(positions);
	return status;
}

/* Targets of step s, over all ranks. */
static srt_status_t count_targets(const hf_run_t *r, int s, double *n)
{
	int32_t *targets;
	char key[48];

	*n = 0;
	snprintf(key, sizeof(key), "step%d.targets", s);
	SRT_TRY(hf_read_ints(r->golden->input, key, (size_t)(r->rows * r->context_length),
			     &targets));
	for (int64_t i = 0; i < r->rows * r->context_length; i++)
		*n += targets[i] >= 0;
	free(targets);
	return SRT_OK;
}

static srt_status_t run_step(hf_run_t *r, int s)
{
	const json_t *step =
		json_array_get(json_object_get(r->golden->json, "steps"), (size_t)s - 1);
	const srt_view_t none = { 0 };
	double ntargets;
	char key[48];

	SRT_TRY(feed_step(r, s, s == 1));
	SRT_TRY(count_targets(r, s, &ntargets));
	SRT_TRY(srt_engine_microbatch(r->engine, 0, 1));
	SRT_TRY(srt_tape_forward(r->tape, r->stream));
	SRT_TRY(srt_tape_backward(r->tape, 1.0f / (float)ntargets, none, r->stream));
	SRT_TRY(srt_engine_finish_backward(r->engine, r->stream));
	snprintf(key, sizeof(key), "step%d.loss", s);
	SRT_TRY(hf_compare_loss(r, key, json_object_get(step, "loss"), ntargets));
	return srt_engine_step(r->engine, r->stream);
}

/* The logits of the last step's tokens, by the engine's values or by those that were gathered. */
static srt_status_t run_logits(hf_run_t *r, const srt_decoder_weights_t *weights, float **logits)
{
	const srt_decoder_pass_t pass = { .context = r->context_length,
					  .documents = 1,
					  .weights = weights };

	SRT_TRY(hf_record(r, SRT_TAPE_FORWARD, r->rows, &pass));
	SRT_TRY(feed_step(r, r->golden->nsteps, false));
	SRT_TRY(srt_tape_forward(r->tape, r->stream));
	SRT_TRY(hf_compare_rows(r, "logits", "final.", r->io.logits));
	return hf_read_tensor(r, r->io.logits, logits);
}

/* Tensor-parallel ranks neither gather logits of many rows, nor values. */
static srt_status_t compare_logits(hf_run_t *r)
{
	const size_t n =
		(size_t)((r->rows + r->ndata - 1) / r->ndata * r->context_length * r->config.vocab);
	srt_decoder_weights_t *weights = NULL;
	float *logits = NULL, *again = NULL;
	srt_status_t status;

	if (r->options->tp > 1)
		return SRT_OK;
	status = run_logits(r, NULL, &logits);
	if (status == SRT_OK)
		status = srt_decoder_weights_create(r->decoder, srt_context_device(r->context),
						    &weights);
	if (status == SRT_OK)
		status = srt_decoder_weights_gather(weights, r->stream);
	if (status == SRT_OK)
		status = run_logits(r, weights, &again);
	if (status == SRT_OK)
		verdict_exact(r->verdict, !memcmp(logits, again, n * sizeof(*logits)),
			      "logits have other bits by gathered values");
	hf_forget(r); /* before the values that its tape reads */
	srt_decoder_weights_destroy(weights);
	free(logits);
	free(again);
	return status;
}

/* ---- files ------------------------------------------------------------------------------ */

/* Compares a tensor of a file that this run wrote with one that was recorded. */
static srt_status_t compare_tensor(hf_run_t *r, const char *key, const srt_safetensors_t *mine,
				   const srt_safetensors_t *recorded, const char *name,
				   const char *recorded_name)
{
	const srt_safetensors_tensor_t *t = srt_safetensors_find(mine, name);
	const srt_safetensors_tensor_t *want_t = srt_safetensors_find(recorded, recorded_name);
	float *got = NULL, *want = NULL;
	srt_status_t status;

	verdict_exact(r->verdict,
		      t != NULL && t->ndim == want_t->ndim &&
			      !memcmp(t->shape, want_t->shape, (size_t)t->ndim * sizeof(*t->shape)),
		      "%s is missing or has another shape", name);
	if (t == NULL || t->nelem != want_t->nelem)
		return SRT_OK;
	status = golden_floats(mine, name, t->nelem, &got);
	if (status == SRT_OK)
		status = golden_floats(recorded, recorded_name, t->nelem, &want);
	if (status == SRT_OK)
		verdict_values(r->verdict, r->golden, key, got, want, t->nelem);
	free(got);
	free(want);
	return status;
}

/* The adapter of this run with that of the case, which has the same tensors. */
static srt_status_t compare_adapter(lora_run_t *l)
{
	char *path = srt_asprintf("%s/adapter_model.safetensors", l->after), mine_path[160],
	     key[320];
	srt_safetensors_t *mine = NULL, *recorded = NULL;
	srt_lora_t *mine_lora = NULL;
	srt_status_t status;

	snprintf(mine_path, sizeof(mine_path), "%s/adapter_model.safetensors", l->saved);
	status = path != NULL ? srt_safetensors_open(path, &recorded) : SRT_ERR_OUT_OF_MEMORY;
	if (status == SRT_OK)
		status = srt_safetensors_open(mine_path, &mine);
	if (status == SRT_OK)
		verdict_exact(l->run.verdict,
			      srt_safetensors_count(mine) == srt_safetensors_count(recorded),
			      "%zu tensors are saved", srt_safetensors_count(mine));
	for (size_t i = 0; status == SRT_OK && i < srt_safetensors_count(recorded); i++) {
		const char *name = srt_safetensors_tensor(recorded, i)->name;

		snprintf(key, sizeof(key), "adapter.%s", name);
		status = compare_tensor(&l->run, key, mine, recorded, name, name);
	}
	if (status == SRT_OK)
		status = srt_lora_read(l->saved, &mine_lora);
	if (status == SRT_OK)
		verdict_exact(l->run.verdict,
			      mine_lora->r == l->lora->r && mine_lora->rslora == l->lora->rslora &&
				      mine_lora->alpha == l->lora->alpha,
			      "the saved adapter_config.json has other sizes");
	srt_lora_destroy(mine_lora);
	srt_safetensors_close(mine);
	srt_safetensors_close(recorded);
	free(path);
	return status;
}

static srt_status_t compare_merged(lora_run_t *l)
{
	static const char prefix[] = "merged.";
	const srt_safetensors_t *expect = l->run.golden->expect;
	srt_safetensors_t *mine = NULL;
	char path[160];
	srt_status_t status;

	SRT_TRY(srt_lora_merge(l->base, l->run.family, &l->run.config, l->saved, l->merged, 0));
	snprintf(path, sizeof(path), "%s/model.safetensors", l->merged);
	status = srt_safetensors_open(path, &mine);
	for (size_t i = 0; status == SRT_OK && i < srt_safetensors_count(expect); i++) {
		const char *key = srt_safetensors_tensor(expect, i)->name;

		if (!strncmp(key, prefix, strlen(prefix)))
			status = compare_tensor(&l->run, key, mine, expect, key + strlen(prefix),
						key);
	}
	srt_safetensors_close(mine);
	return status;
}

/* ---- the case ---------------------------------------------------------------------------- */

static srt_status_t check_config(lora_run_t *l)
{
	const json_t *json = l->run.golden->json;

	SRT_TRY(srt_lora_read(l->init, &l->lora));
	verdict_exact(l->run.verdict,
		      (double)l->lora->r == golden_number(json, "r", 0) &&
			      l->lora->alpha == golden_number(json, "alpha", 0) &&
			      l->lora->rslora == golden_is_set(json, "rslora"),
		      "adapter_config.json is read with other sizes");
	verdict_exact(l->run.verdict,
		      srt_lora_scaling(l->lora) == golden_scalar(json_object_get(json, "scaling")),
		      "the scaling is %g", srt_lora_scaling(l->lora));
	return SRT_OK;
}

static srt_status_t run_case(lora_run_t *l)
{
	hf_run_t *r = &l->run;
	const bool is_first = srt_context_rank(r->context) == 0;
	const json_t *json = r->golden->json;
	srt_lora_save_t save = { .base = golden_text(json, "model") };
	hf_engine_t how = { .folder = golden_text(json, "model"), .dtype = SRT_F32 };
	srt_status_t status = SRT_OK;

	SRT_TRY(name_folders(l));
	SRT_TRY(check_config(l));
	how.optim = hf_read_optim(r->golden);
	how.lora = l->lora;
	SRT_TRY(hf_open(r, &how));
	SRT_TRY(srt_decoder_load_lora(r->decoder, r->family, l->init, r->stream));
	for (int s = 1; s <= r->golden->nsteps; s++)
		SRT_TRY(run_step(r, s));
	SRT_TRY(compare_logits(r));
	save.family = r->family;
	SRT_TRY(srt_decoder_save_lora(r->decoder, &save, is_first ? l->saved : NULL, r->stream));
	if (is_first) {
		status = compare_adapter(l);
		if (status == SRT_OK)
			status = compare_merged(l);
	}
	return status;
}

srt_status_t replay_hf_lora(golden_t *g, srt_context_t *context, const hf_options_t *options,
			    verdict_t *v)
{
	static const char *const known[] = { "final.logits", "merged." };
	lora_run_t l = {
		.run = { .golden = g, .context = context, .options = options, .verdict = v }
	};
	srt_status_t status;

	hf_check_keys(&l.run, known, SRT_ARRAY_LEN(known));
	status = run_case(&l);
	hf_close(&l.run);
	srt_lora_destroy(l.lora);
	free(l.init);
	free(l.after);
	free(l.base);
	remove_folder(l.saved);
	remove_folder(l.merged);
	return status;
}
