/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Replays a training case (replay.h): the recorded parameters and inputs -> the library's own
 * steps, each compared with what was recorded (replay_step.c). Called by the program once a
 * strategy.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/comm.h"
#include "runtime/engine/checks/checks.h"
#include "tests/golden/replay.h"
#include "tests/harness/half.h"

/* ---- setting up ------------------------------------------------------------------------- */

static srt_optim_kind_t optimizer_of(const json_t *optimizer)
{
	const char *name = golden_text(optimizer, "name");

	return !strcmp(name, "SGD")  ? SRT_OPTIM_SGD :
	       !strcmp(name, "Adam") ? SRT_OPTIM_ADAM :
				       SRT_OPTIM_ADAMW;
}

static srt_average_t average_of(const golden_t *g)
{
	if (!strcmp(g->reference, "fsdp1"))
		return SRT_AVERAGE_FACTORS;
	return !strcmp(g->reference, "ddp") ? SRT_AVERAGE_FIRST : SRT_AVERAGE_DEFAULT;
}

static srt_accumulation_t accumulation_of(const golden_t *g)
{
	const char *sync = golden_text(g->json, "accum_sync");

	if (sync != NULL && !strcmp(sync, "last_all_reduce"))
		return SRT_ACCUMULATE_LAST_ALL_REDUCE;
	return sync != NULL && !strcmp(sync, "last") ? SRT_ACCUMULATE_LAST : SRT_ACCUMULATE_EVERY;
}

static int norm_p(const json_t *clip)
{
	return golden_text(clip, "p") != NULL ? SRT_NORM_INF : (int)golden_number(clip, "p", 0);
}

static srt_status_t create_engine(replay_t *r)
{
	const json_t *c = r->golden->json;
	const json_t *opt = json_object_get(c, "optimizer"), *clip = json_object_get(c, "clip");
	const json_t *betas = json_object_get(opt, "betas");
	const bool is_sgd = optimizer_of(opt) == SRT_OPTIM_SGD;
	const srt_optim_options_t optim = {
		.size = sizeof(optim),
		.kind = optimizer_of(opt),
		.momentum = golden_number(opt, "momentum", 0),
		.dampening = (float)golden_number(opt, "dampening", 0),
		.nesterov = golden_is_set(opt, "nesterov"),
		.beta1 = is_sgd ? 0 : json_number_value(json_array_get(betas, 0)),
		.beta2 = is_sgd ? 0 : json_number_value(json_array_get(betas, 1)),
		.eps = is_sgd ? 0 : (float)golden_number(opt, "eps", 0),
		.lr = (float)golden_number(opt, "lr", 0),
	};
	srt_engine_options_t options = {
		.size = sizeof(options),
		.comm = r->mesh != NULL ? NULL : r->comm,
		.mesh = r->mesh,
		.strategy = r->strategy,
		.precision = &r->root_precision, /* of the library's models */
		.average = average_of(r->golden),
		.accumulation = accumulation_of(r->golden),
		.microbatches = r->golden->accum,
		/* Units of one size share one slot, so those below the root are gathered again. */
		.prefetch = r->reshard > 0 ? 0 : 1,
		.optim = &optim,
		.norm_p = r->clip_in_step ? norm_p(clip) : 0,
		.max_norm = r->clip_in_step ? (float)golden_number(clip, "max_norm", 0) : 0,
	};
	srt_device_t *home = srt_context_device(r->context);

	if (golden_is_set(c, "cpu_offload")) {
		options.offload = (srt_offload_t){ .params = 1, .grads = 1, .state = 1 };
		SRT_TRY(srt_context_host(r->context, &home));
	}
	SRT_TRY(srt_stream_create(home, 0, "shards", &r->home));
	SRT_TRY(srt_engine_create(r->context, &options, &r->engine));
	return replay_ignored_create(r, &options);
}

static srt_status_t create_mesh(replay_t *r)
{
	static const char *const hybrid[] = { "replicate", "shard" }, *const tensor[] = { "dp",
											  "tp" };
	const bool is_tensor = golden_is_tensor(r->golden);
	const int world = r->golden->world_size;
	const int n = is_tensor ? world / r->golden->dp_size : golden_nshards(r->golden);
	const int shape[] = { world / n, n };

	return srt_mesh_create(r->comm, 2, shape, is_tensor ? tensor : hybrid, &r->mesh);
}

/* The ranks that share the parameters: all, or each alone where gradients are not reduced. */
static srt_status_t find_ranks(replay_t *r)
{
	const char *reduction = golden_text(r->golden->json, "grad_reduction");
	const int world = srt_context_world_size(r->context);

	r->comm = srt_context_world(r->context);
	if (r->on_mesh)
		return create_mesh(r);
	for (int k = 0; k < world && !strcmp(reduction, "none"); k++) {
		srt_comm_t *comm = NULL;
		char name[32];

		snprintf(name, sizeof(name), "rank %d", k);
		SRT_TRY(srt_comm_create_group(r->comm, &k, 1, name, &comm));
		if (comm != NULL)
			r->own = comm;
	}
	if (r->own != NULL)
		r->comm = r->own;
	return SRT_OK;
}

static srt_status_t create_scaler(replay_t *r)
{
	const json_t *s = json_object_get(r->golden->json, "scaler");
	const char *class = golden_text(s, "class");
	srt_scaler_options_t options = SRT_SCALER_OPTIONS_INIT;

	options.rule = class != NULL && !strcmp(class, "ShardedGradScaler") ? SRT_SCALER_SHARDED :
									      SRT_SCALER_PLAIN;
	options.init_scale = (float)golden_number(s, "init_scale", (double)options.init_scale);
	options.growth_factor = golden_number(s, "growth_factor", options.growth_factor);
	options.backoff_factor = golden_number(s, "backoff_factor", options.backoff_factor);
	options.growth_interval = (int)golden_number(s, "growth_interval", options.growth_interval);
	options.comm = r->comm;
	return class != NULL ? srt_scaler_create(r->context, &options, &r->scaler) : SRT_OK;
}

/* Stores n values in the dtype of the parameter. */
srt_status_t replay_set_param(replay_t *r, srt_param_t *p, const float *x, size_t n)
{
	const srt_dtype_t dtype = test_local(p, SRT_PARAM_VALUE).dtype;
	void *stored = srt_calloc(n + 1, sizeof(*x), "values");
	srt_status_t status;

	if (stored == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < n; i++)
		half_put(dtype, stored, i, x[i]);
	status = srt_param_set(p, SRT_PARAM_VALUE, stored, r->stream);
	free(stored);
	return status;
}

static srt_status_t set_param(replay_t *r, srt_param_t *p)
{
	const size_t nelem = (size_t)srt_param_nelem(p);
	srt_status_t status;
	float *full;

	SRT_TRY(golden_floats(r->golden->init, srt_param_name(p), nelem, &full));
	status = replay_set_param(r, p, full, nelem);
	free(full);
	return status;
}

/* Each declared parameter is one of the case, and the other way round. */
static srt_status_t set_params(replay_t *r)
{
	/* the library's models have initial values of the library */
	const bool has_modules = srt_engine_module(r->engine) != NULL && r->decoder == NULL &&
				 r->transformer == NULL;
	size_t n = json_array_size(json_object_get(r->golden->json, "params")), i;

	if (has_modules)
		SRT_TRY(srt_engine_materialize(r->engine, NULL, r->stream));
	for (i = 0; replay_nth(r, i) != NULL; i++) {
		if (!has_modules)
			SRT_TRY(set_param(r, replay_nth(r, i)));
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

		if (alias == NULL || name == NULL)
			return srt_fail(SRT_ERR_FORMAT, "tied is not a list of pairs of names");
		verdict_exact(r->verdict,
			      replay_find(r, name) != NULL &&
				      replay_find(r, name) == replay_find(r, alias),
			      "%s and %s are not tied", alias, name);
	}
	return SRT_OK;
}

static srt_status_t record(replay_t *r)
{
	srt_device_t *device = srt_context_device(r->context);

	SRT_TRY(srt_tape_create(device, SRT_TAPE_TRAINING, &r->tape));
	srt_tape_set_mesh(r->tape, r->mesh, "tp");
	SRT_TRY(r->model->record(r));
	SRT_TRY(srt_tape_finish(r->tape));
	SRT_TRY(srt_buffer_create(device, srt_tape_mem_kind(r->tape), srt_tape_nbytes(r->tape),
				  "tape", &r->arena));
	SRT_TRY(srt_tape_bind(r->tape, r->arena));
	if (r->decoder_io.ids != NULL)
		SRT_TRY(srt_decoder_put_positions(&r->decoder_io, NULL, r->stream));
	return replay_buffers_fill(r);
}

/* ---- a micro-batch ------------------------------------------------------------------------ */

/* Puts one recorded input (F32 or I64) into its tensor of the tape, in the tensor's dtype. */
static srt_status_t feed(replay_t *r, const char *key, const replay_input_t *input)
{
	const srt_safetensors_tensor_t *t = srt_safetensors_find(r->golden->input, key);
	srt_view_t view = srt_tensor_view(input->tensor);
	size_t n = (size_t)(srt_tensor_rows(input->tensor) * srt_tensor_cols(input->tensor));
	srt_dtype_t want = view.dtype == SRT_I32 ? SRT_I64 : SRT_F32;
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;
	char *recorded, *values;
	int64_t ncounted = 0;

	if (t == NULL || t->dtype != want || t->nelem != n)
		return srt_fail(SRT_ERR_FORMAT, "input '%s' is not there as %s with %zu elements",
				key, srt_dtype_name(want), n);
	recorded = srt_calloc(t->nbytes + 1, 1, key);
	values = srt_calloc(t->nbytes + 1, 1, key);
	if (recorded != NULL && values != NULL)
		status = srt_safetensors_read(r->golden->input, t, 0, t->nbytes, recorded);
	for (size_t i = 0; i < n && status == SRT_OK; i++) {
		int64_t wide;
		int32_t narrow;
		float x;

		if (want == SRT_I64) {
			memcpy(&wide, recorded + i * sizeof(wide), sizeof(wide));
			narrow = (int32_t)wide;
			ncounted += narrow >= 0;
			memcpy(values + i * sizeof(narrow), &narrow, sizeof(narrow));
		} else {
			memcpy(&x, recorded + i * sizeof(x), sizeof(x));
			half_put(view.dtype, values, i, x);
		}
	}
	if (status == SRT_OK)
		status = srt_buffer_copy_from_host(view.buffer, view.offset, values,
						   n * srt_dtype_bits(view.dtype) / 8, r->stream);
	if (input->is_counted)
		r->divisor = (double)ncounted;
	free(recorded);
	free(values);
	return status;
}

/* The loss of this rank's micro-batch, rounded to its dtype. */
static srt_status_t read_loss(replay_t *r, double *loss)
{
	size_t n = (size_t)srt_tensor_rows(r->loss);
	srt_view_t view = srt_tensor_view(r->loss);
	float *rows = srt_calloc(n + 1, sizeof(*rows), "losses");
	srt_status_t status;

	if (rows == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_buffer_copy_to_host(rows, view.buffer, view.offset, n * sizeof(*rows),
					 r->stream);
	*loss = 0;
	for (size_t i = 0; i < n; i++)
		*loss += (double)rows[i];
	*loss = (double)half_round(r->loss_dtype, (float)(*loss / r->divisor));
	free(rows);
	return status;
}

static srt_status_t compare_loss(replay_t *r, int s, int m)
{
	const int rank = srt_context_rank(r->context);
	const json_t *of_rank =
		json_array_get(json_object_get(replay_step_of(r, s), "ranks"), (size_t)rank);
	const json_t *losses = json_object_get(of_rank, "loss");
	const json_t *recorded = json_array_get(losses, (size_t)m);
	const char *dtype = golden_text(recorded, "dtype");
	char key[96];
	double loss;

	SRT_TRY(read_loss(r, &loss));
	if (json_array_size(losses) != (size_t)r->golden->accum)
		return srt_fail(SRT_ERR_FORMAT, "step %d has not one loss a micro-batch", s);
	snprintf(key, sizeof(key), "step%d.loss.rank%d.%d", s, rank, m);
	verdict_scalar(r->verdict, r->golden, key, loss, golden_scalar(recorded));
	verdict_exact(r->verdict, dtype != NULL && !strcmp(dtype, srt_dtype_name(r->loss_dtype)),
		      "%s is %s", key, srt_dtype_name(r->loss_dtype));
	return SRT_OK;
}

static srt_status_t run_microbatch(replay_t *r, int s, int m)
{
	const int accum = r->golden->accum;
	const char *sync = golden_text(r->golden->json, "accum_sync");
	srt_view_t scale = { 0 };
	char key[96];

	SRT_TRY(srt_engine_microbatch(r->engine, m, accum));
	if (r->ignored != NULL)
		SRT_TRY(srt_engine_microbatch(r->ignored, m, accum));
	for (int i = 0; i < r->ninputs; i++) {
		snprintf(key, sizeof(key), "step%d.micro%d.%s", s, m, r->inputs[i].name);
		SRT_TRY(feed(r, key, &r->inputs[i]));
	}
	SRT_TRY(replay_buffers_broadcast(r));
	SRT_TRY(srt_tape_forward(r->tape, r->stream));
	replay_buffers_count(r);
	if (r->scaler != NULL)
		scale = test_scaler_view(r->scaler);
	SRT_TRY(srt_tape_backward(r->tape, (float)(1 / (r->divisor * accum)), scale, r->stream));
	r->is_reduced = m == accum - 1 || sync == NULL || strcmp(sync, "last");
	return compare_loss(r, s, m);
}

/* ---- a step ------------------------------------------------------------------------------- */

/* The scale before a step, and what the step's gradients were found to be. */
static srt_status_t unscale(replay_t *r, int s)
{
	const json_t *step = replay_step_of(r, s), *ranks = json_object_get(step, "ranks"), *rank;
	srt_scaler_state_t state;
	float found;
	size_t k;

	SRT_TRY(srt_scaler_get_state(r->scaler, &state, r->stream));
	verdict_exact(r->verdict,
		      (double)state.scale == golden_scalar(json_object_get(step, "scale_before")),
		      "step %d: the scale is %g before", s, (double)state.scale);
	SRT_TRY(srt_scaler_unscale(r->scaler, r->engine, r->stream));
	SRT_TRY(srt_scaler_get_found_inf(r->scaler, &found, r->stream));
	json_array_foreach(ranks, k, rank)
	{
		double want = golden_scalar(json_object_get(rank, "found_inf"));

		verdict_exact(r->verdict, (found != 0) == (want != 0),
			      "step %d: found_inf is %g, recorded %g on rank %zu", s, (double)found,
			      want, k);
	}
	return SRT_OK;
}

static srt_status_t update_scale(replay_t *r, int s)
{
	const json_t *step = replay_step_of(r, s);
	srt_scaler_state_t state;

	SRT_TRY(srt_scaler_update(r->scaler, r->stream));
	SRT_TRY(srt_scaler_get_state(r->scaler, &state, r->stream));
	verdict_exact(r->verdict,
		      (double)state.scale == golden_scalar(json_object_get(step, "scale_after")),
		      "step %d: the scale is %g after", s, (double)state.scale);
	verdict_exact(r->verdict,
		      state.growth_tracker == (int)golden_number(step, "growth_tracker_after", -1),
		      "step %d: the growth tracker is %d", s, (int)state.growth_tracker);
	return SRT_OK;
}

/* From the last backward pass to the updated parameters. */
static srt_status_t finish_step(replay_t *r, int s)
{
	const json_t *clip = json_object_get(r->golden->json, "clip");

	SRT_TRY(srt_engine_finish_backward(r->engine, r->stream));
	if (r->ignored != NULL)
		SRT_TRY(srt_engine_finish_backward(r->ignored, r->stream));
	SRT_TRY(replay_inject(r, s));
	SRT_TRY(replay_compare_finite(r, s));
	SRT_TRY(replay_compare_kinds(r, s, "grad_scaled", 1));
	if (r->scaler != NULL)
		SRT_TRY(unscale(r, s));
	SRT_TRY(replay_compare_kinds(r, s, "grad", 1));
	SRT_TRY(replay_compare_grads(r, s));
	if (golden_is_set(r->golden->json, "clip") && !r->clip_in_step) {
		SRT_TRY(srt_engine_clip(r->engine, norm_p(clip),
					(float)golden_number(clip, "max_norm", 0), r->stream));
		SRT_TRY(replay_compare_kinds(r, s, "grad_clipped", 1));
	}
	SRT_TRY(replay_rounding_begin(r));
	if (r->scaler != NULL) {
		SRT_TRY(srt_scaler_step(r->scaler, r->engine, r->stream));
		SRT_TRY(update_scale(r, s));
	} else {
		SRT_TRY(srt_engine_step(r->engine, r->stream));
	}
	SRT_TRY(replay_ignored_step(r));
	if (!replay_is_skipped(r, s))
		SRT_TRY(replay_rounding_end(r, s - r->nskipped));
	SRT_TRY(replay_compare_step(r, s));
	return srt_engine_check(r->engine);
}

static srt_status_t run(replay_t *r)
{
	SRT_TRY(find_ranks(r));
	SRT_TRY(replay_precision(r));
	SRT_TRY(create_engine(r));
	SRT_TRY(create_scaler(r));
	SRT_TRY(r->model->declare(r));
	SRT_TRY(srt_engine_build(r->engine));
	SRT_TRY(replay_ignored_build(r));
	SRT_TRY(check_tied(r));
	SRT_TRY(set_params(r));
	SRT_TRY(replay_buffers_create(r));
	SRT_TRY(record(r));
	SRT_TRY(r->first_step > 0 ? replay_resume(r) : replay_compare_start(r));
	r->is_reduced = true;
	for (int s = r->first_step + 1; s <= r->golden->nsteps; s++) {
		for (int m = 0; m < r->golden->accum; m++)
			SRT_TRY(run_microbatch(r, s, m));
		SRT_TRY(finish_step(r, s));
	}
	SRT_TRY(replay_compare_movement(r));
	if (r->engine->comms.group != NULL)
		verdict_exact(r->verdict, r->engine->comms.group->nstarts > 0,
			      "nothing was gathered within groups of %d ranks", r->reshard);
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
	for (size_t i = 0; g->expect != NULL && i < srt_safetensors_count(g->expect); i++)
		verdict_exact(r->verdict, g->seen[i], "%s was not compared",
			      srt_safetensors_tensor(g->expect, i)->name);
	for (size_t i = 0; g->expect_rank != NULL && i < srt_safetensors_count(g->expect_rank); i++)
		verdict_exact(r->verdict, g->seen_rank[i], "%s of the rank was not compared",
			      srt_safetensors_tensor(g->expect_rank, i)->name);
	srt_stream_destroy(r->stream);
	srt_stream_destroy(r->home);
	srt_tape_destroy(r->tape);
	srt_buffer_destroy(r->arena);
	replay_buffers_destroy(r);
	srt_decoder_destroy(r->decoder);
	srt_transformer_destroy(r->transformer);
	srt_scaler_destroy(r->scaler);
	srt_engine_destroy(r->engine);
	replay_ignored_destroy(r);
	srt_mesh_destroy(r->mesh);
	srt_comm_destroy(r->own);
	replay_rounding_free(r);
	free(r->units);
	return status;
}
