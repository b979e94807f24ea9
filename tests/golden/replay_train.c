/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Replays a training case (replay.h): the recorded parameters and inputs -> the library's own
 * steps, each compared with what was recorded (replay_step.c). Called by the program once a
 * strategy.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/engine/engine.h"
#include "tests/golden/replay.h"

static srt_optimizer_t optimizer_of(const json_t *optimizer)
{
	const char *name = golden_text(optimizer, "name");

	return !strcmp(name, "SGD")  ? SRT_OPTIMIZER_SGD :
	       !strcmp(name, "Adam") ? SRT_OPTIMIZER_ADAM :
				       SRT_OPTIMIZER_ADAMW;
}

static srt_status_t create_engine(replay_t *r)
{
	const json_t *c = r->golden->json;
	const json_t *opt = json_object_get(c, "optimizer"), *clip = json_object_get(c, "clip");
	const json_t *betas = json_object_get(opt, "betas");
	const char *sync = golden_text(c, "accum_sync"), *p = golden_text(clip, "p");
	const srt_engine_options_t options = {
		.strategy = r->strategy,
		.average = SRT_AVERAGE_ONCE,
		.accumulation =
			sync && !strcmp(sync, "last") ? SRT_ACCUMULATE_LAST : SRT_ACCUMULATE_EVERY,
		.microbatches = r->golden->accum,
		.optimizer = optimizer_of(opt),
		.momentum = (float)golden_number(opt, "momentum", 0),
		.dampening = (float)golden_number(opt, "dampening", 0),
		.nesterov = golden_is_set(opt, "nesterov"),
		.beta1 = json_number_value(json_array_get(betas, 0)),
		.beta2 = json_number_value(json_array_get(betas, 1)),
		.eps = (float)golden_number(opt, "eps", 0),
		.lr = (float)golden_number(opt, "lr", 0),
		.norm_p = p ? SRT_NORM_INF : (int)golden_number(clip, "p", 0),
		.max_norm = (float)golden_number(clip, "max_norm", 0),
	};

	return srt_engine_create(r->context, &options, &r->engine);
}

/* Each declared parameter is one of the case, and the other way round. */
static srt_status_t set_params(replay_t *r)
{
	size_t n = json_array_size(json_object_get(r->golden->json, "params")), i;
	srt_param_t *p;

	for (i = 0; (p = srt_engine_param(r->engine, i)); i++) {
		float *full = NULL;
		srt_status_t status = golden_floats(r->golden->init, srt_param_name(p),
						    (size_t)srt_param_nelem(p), &full);

		if (status == SRT_OK)
			status = srt_param_set(p, full, r->stream);
		free(full);
		SRT_TRY(status);
	}
	if (i != n)
		return srt_fail(SRT_ERR_FORMAT, "the case has %zu parameters, the model %zu", n, i);
	return SRT_OK;
}

/* Tied names lead to one parameter. */
static srt_status_t check_tied(const replay_t *r)
{
	const json_t *pair;
	size_t i;

	json_array_foreach(json_object_get(r->golden->json, "tied"), i, pair)
	{
		const char *alias = json_string_value(json_array_get(pair, 0));
		const char *name = json_string_value(json_array_get(pair, 1));

		if (!alias || !name)
			return srt_fail(SRT_ERR_FORMAT, "tied is not a list of pairs of names");
		verdict_exact(r->verdict,
			      srt_engine_find(r->engine, name) &&
				      srt_engine_find(r->engine, name) ==
					      srt_engine_find(r->engine, alias),
			      "%s and %s are not tied", alias, name);
	}
	return SRT_OK;
}

static srt_status_t record(replay_t *r)
{
	srt_device_t *device = srt_context_device(r->context);

	SRT_TRY(srt_tape_create(device, SRT_TAPE_TRAINING, &r->tape));
	SRT_TRY(r->model->record(r));
	if (srt_tape_finish(r->tape) != SRT_OK)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s", srt_tape_error(r->tape));
	SRT_TRY(srt_buffer_create(device, SRT_MEM_DEVICE, srt_tape_nbytes(r->tape), "tape",
				  &r->arena));
	return srt_tape_bind(r->tape, r->arena);
}

/* Puts one recorded input (F32, or I64 that becomes I32) into its tensor of the tape. */
static srt_status_t feed(replay_t *r, const char *key, srt_tensor_t *to)
{
	const srt_safetensors_tensor_t *t = srt_safetensors_find(r->golden->input, key);
	srt_view_t view = srt_tensor_view(to);
	size_t n = (size_t)(srt_tensor_rows(to) * srt_tensor_cols(to));
	srt_dtype_t want = view.dtype == SRT_I32 ? SRT_I64 : view.dtype;
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;
	char *values;

	if (!t || t->dtype != want || t->nelem != n)
		return srt_fail(SRT_ERR_FORMAT, "input '%s' is not there as %s with %zu elements",
				key, srt_dtype_name(want), n);
	values = srt_calloc(t->nbytes + 1, 1, key);
	if (!values)
		return status;
	status = srt_safetensors_read(r->golden->input, t, 0, t->nbytes, values);
	for (size_t i = 0; i < n && want == SRT_I64; i++) {
		int64_t wide;
		int32_t narrow;

		memcpy(&wide, values + i * sizeof(wide), sizeof(wide));
		narrow = (int32_t)wide;
		memcpy(values + i * sizeof(narrow), &narrow, sizeof(narrow));
	}
	if (status == SRT_OK)
		status = srt_copy_from_host(r->stream, view.buffer, view.offset, values,
					    n * srt_dtype_bits(view.dtype) / 8);
	free(values);
	return status;
}

/* The mean loss of this rank's micro-batch. */
static srt_status_t read_loss(replay_t *r, double *loss)
{
	size_t n = (size_t)srt_tensor_rows(r->loss);
	srt_view_t view = srt_tensor_view(r->loss);
	float *rows = srt_calloc(n + 1, sizeof(*rows), "losses");
	srt_status_t status;

	if (!rows)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_copy_to_host(r->stream, rows, view.buffer, view.offset, n * sizeof(*rows));
	*loss = 0;
	for (size_t i = 0; i < n; i++)
		*loss += (double)rows[i];
	*loss /= (double)r->nmean;
	free(rows);
	return status;
}

static srt_status_t run_microbatch(replay_t *r, int s, int m)
{
	const json_t *step =
		json_array_get(json_object_get(r->golden->json, "steps"), (size_t)s - 1);
	int rank = srt_context_rank(r->context);
	const json_t *of_rank = json_array_get(json_object_get(step, "ranks"), (size_t)rank);
	const json_t *losses = json_object_get(of_rank, "loss");
	char key[96];
	double loss;

	SRT_TRY(srt_engine_microbatch(r->engine, m, r->golden->accum));
	for (int i = 0; i < 2; i++) {
		snprintf(key, sizeof(key), "step%d.micro%d.%s", s, m, r->model->inputs[i]);
		SRT_TRY(feed(r, key, r->in[i]));
	}
	SRT_TRY(srt_tape_forward(r->tape, r->stream));
	SRT_TRY(srt_tape_backward(r->tape, r->stream, 1.0f / (float)(r->nmean * r->golden->accum),
				  (srt_view_t){ 0 }));
	SRT_TRY(read_loss(r, &loss));
	if (json_array_size(losses) != (size_t)r->golden->accum)
		return srt_fail(SRT_ERR_FORMAT, "step %d has not one loss a micro-batch", s);
	snprintf(key, sizeof(key), "step%d.loss.rank%d.%d", s, rank, m);
	verdict_scalar(r->verdict, r->golden, key, loss,
		       golden_scalar(json_array_get(losses, (size_t)m)));
	return SRT_OK;
}

static srt_status_t run(replay_t *r)
{
	SRT_TRY(create_engine(r));
	SRT_TRY(r->model->declare(r));
	SRT_TRY(srt_engine_build(r->engine));
	SRT_TRY(check_tied(r));
	SRT_TRY(set_params(r));
	SRT_TRY(record(r));
	SRT_TRY(replay_compare_start(r));
	for (int s = 1; s <= r->golden->nsteps; s++) {
		for (int m = 0; m < r->golden->accum; m++)
			SRT_TRY(run_microbatch(r, s, m));
		SRT_TRY(srt_engine_step(r->engine, r->stream));
		SRT_TRY(replay_compare_step(r, s));
		SRT_TRY(srt_engine_check(r->engine));
	}
	return SRT_OK;
}

srt_status_t replay_train(replay_t *r)
{
	golden_t *g = r->golden;
	const char *model = golden_text(json_object_get(g->json, "model"), "name");
	srt_status_t status;

	r->model = replay_model_find(model, golden_text(g->json, "loss"));
	status = srt_stream_create(srt_context_device(r->context), 0, "replay", &r->stream);
	if (status == SRT_OK)
		status = run(r);
	/* what is in the files and was never reached is as wrong as a deviation */
	for (size_t i = 0; g->expect && i < srt_safetensors_count(g->expect); i++)
		verdict_exact(r->verdict, g->seen[i], "%s was not compared",
			      srt_safetensors_tensor(g->expect, i)->name);
	for (size_t i = 0; g->expect_rank && i < srt_safetensors_count(g->expect_rank); i++)
		verdict_exact(r->verdict, g->seen_rank[i], "%s of the rank was not compared",
			      srt_safetensors_tensor(g->expect_rank, i)->name);
	srt_stream_destroy(r->stream);
	srt_tape_destroy(r->tape);
	srt_buffer_destroy(r->arena);
	srt_gpt_destroy(r->gpt);
	srt_engine_destroy(r->engine);
	free(r->units);
	return status;
}
