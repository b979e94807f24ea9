/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Replays cases of kind "table" (replay.h): optimizer traces through the library's optimizer steps,
 * casts in replay_casts.c, tables of shards in replay_shards.c.
 */
#include "config.h"
#include "runtime/ops/step.h"

#include <stdlib.h>
#include <string.h>

#include "tests/golden/replay.h"
#include "tests/golden/replay_net.h"
#include "tests/harness/half.h"

/* ---- optimizer traces ------------------------------------------------------------------- */

enum { NSEGMENTS = 3 }; /* the tensor in pieces, as shards are */

enum { STATE, PARAMS, SEGMENTS, GROUPS, PARAM, GRAD, MOMENT1, MOMENT2, MAX2, NBUFFERS };

/* The device side of one optimizer run. */
typedef struct bench {
	srt_stream_t *stream;
	srt_buffer_t *buffers[NBUFFERS];
	srt_optim_args_t args;
	size_t n;
	srt_dtype_t dtype; /* of parameters, gradients and moments */
	replay_tail_t tail;
} bench_t;

static srt_status_t upload(bench_t *b, int which, const void *data, size_t nbytes)
{
	return srt_buffer_copy_from_host(b->buffers[which], 0, data, nbytes, b->stream);
}

static srt_status_t make_bench(bench_t *b, srt_context_t *context, size_t n, srt_dtype_t dtype)
{
	const size_t nbytes = n * srt_dtype_bits(dtype) / 8;
	const size_t sizes[NBUFFERS] = { sizeof(srt_k_step_state_t),
					 sizeof(srt_k_param_state_t),
					 NSEGMENTS * sizeof(srt_k_segment_t),
					 sizeof(srt_k_group_t),
					 nbytes,
					 nbytes,
					 nbytes,
					 nbytes,
					 nbytes };
	srt_device_t *device = srt_context_device(context);
	srt_k_segment_t segments[NSEGMENTS] = { { 0 } };
	int64_t at = 0;

	b->n = n;
	b->dtype = dtype;
	SRT_TRY(srt_stream_create(device, 0, "optimizer", &b->stream));
	for (int i = 0; i < NBUFFERS; i++)
		SRT_TRY(srt_buffer_create(device, SRT_MEM_DEVICE, sizes[i], "optimizer",
					  &b->buffers[i]));
	for (int i = 0; i < NSEGMENTS; i++) {
		int64_t rest = (int64_t)n - at, nelem = i + 1 < NSEGMENTS ? rest / 3 : rest;

		segments[i] = (srt_k_segment_t){ .offset = at, .nelem = nelem };
		at += nelem;
	}
	b->args.nsegments = NSEGMENTS;
	b->args.nelem = at;
	b->args.state = srt_view(b->buffers[STATE], 0, SRT_U8);
	b->args.params = srt_view(b->buffers[PARAMS], 0, SRT_U8);
	b->args.segments = srt_view(b->buffers[SEGMENTS], 0, SRT_U8);
	b->args.groups = srt_view(b->buffers[GROUPS], 0, SRT_U8);
	b->args.param = srt_view(b->buffers[PARAM], 0, dtype);
	b->args.grad = srt_view(b->buffers[GRAD], 0, dtype);
	b->args.v = srt_view(b->buffers[MOMENT2], 0, dtype);
	b->args.vmax = srt_view(b->buffers[MAX2], 0, dtype);
	return upload(b, SEGMENTS, segments, sizeof(segments));
}

static void free_bench(bench_t *b)
{
	srt_stream_destroy(b->stream);
	for (int i = 0; i < NBUFFERS; i++)
		srt_buffer_destroy(b->buffers[i]);
}

static bool same(float a, float b)
{
	return a == b || (a != a && b != b);
}

static float tail_value(const replay_element_t *e, int which)
{
	return which == PARAM ? e->p : which == MOMENT1 ? e->m : which == MOMENT2 ? e->v : e->top;
}

/* Before the first step. */
static srt_status_t start_tail(golden_t *g, bench_t *b, const json_t *a, const char *class)
{
	const json_t *betas = json_object_get(a, "betas");
	replay_tail_t *t = &b->tail;
	float *values = NULL;

	*t = (replay_tail_t){ .dtype = b->dtype,
			      .n = b->n % REPLAY_TAIL_ALIGN,
			      .is_sgd = !strcmp(class, "SGD"),
			      .decoupled = !strcmp(class, "AdamW"),
			      .amsgrad = golden_is_set(a, "amsgrad"),
			      .nesterov = golden_is_set(a, "nesterov"),
			      .maximize = golden_is_set(a, "maximize"),
			      .lr = golden_number(a, "lr", 0),
			      .decay = golden_number(a, "weight_decay", 0),
			      .momentum = golden_number(a, "momentum", 0),
			      .dampening = golden_number(a, "dampening", 0),
			      .beta1 = json_number_value(json_array_get(betas, 0)),
			      .beta2 = json_number_value(json_array_get(betas, 1)),
			      .eps = golden_number(a, "eps", 0) };
	t->first = b->n - t->n;
	SRT_TRY(golden_floats(g->expect, "param0", b->n, &values));
	for (size_t i = 0; i < t->n; i++)
		t->ours[i].p = t->recorded[i].p = values[t->first + i];
	free(values);
	return SRT_OK;
}

static srt_status_t step_tail(golden_t *g, bench_t *b, const char *key, int step)
{
	float *grad = NULL;

	SRT_TRY(golden_floats(g->expect, key, b->n, &grad));
	replay_tail_step(&b->tail, grad + b->tail.first, step);
	free(grad);
	return SRT_OK;
}

/* Compares a device array with the recorded one. */
static srt_status_t compare_array(golden_t *g, verdict_t *v, bench_t *b, int which, const char *key)
{
	float *got = srt_calloc(b->n + 1, sizeof(*got), key), *want = NULL;
	void *stored = srt_calloc(b->n + 1, sizeof(*got), key);
	srt_status_t status = got != NULL && stored != NULL ?
				      golden_floats(g->expect, key, b->n, &want) :
				      SRT_ERR_OUT_OF_MEMORY;

	if (status == SRT_OK)
		status = srt_buffer_copy_to_host(stored, b->buffers[which], 0,
						 srt_buffer_nbytes(b->buffers[which]), b->stream);
	for (size_t i = 0; i < b->n && status == SRT_OK; i++)
		got[i] = half_get(b->dtype, stored, i);
	/* 16 bits: whole vectors of torch's loops are ours; the end of a tensor: replay_tail.c. */
	for (size_t i = 0; i < b->n && status == SRT_OK && b->dtype != SRT_F32; i++) {
		size_t at = i - b->tail.first;
		bool in_tail = i >= b->tail.first;
		float ours = in_tail ? tail_value(&b->tail.ours[at], which) : want[i];
		float theirs = in_tail ? tail_value(&b->tail.recorded[at], which) : want[i];

		verdict_exact(v, same(got[i], ours) && same(want[i], theirs),
			      "%s [%zu] is %.9g, not %.9g; recorded %.9g, not %.9g", key, i,
			      (double)got[i], (double)ours, (double)want[i], (double)theirs);
	}
	if (status == SRT_OK)
		verdict_values(v, g, key, got, want, b->dtype == SRT_F32 ? b->n : b->tail.first);
	free(stored);
	free(got);
	free(want);
	return status;
}

static srt_status_t upload_recorded(golden_t *g, bench_t *b, int which, const char *key)
{
	void *stored = srt_calloc(b->n + 1, sizeof(float), key);
	float *values = NULL;
	srt_status_t status = stored != NULL ? golden_floats(g->expect, key, b->n, &values) :
					       SRT_ERR_OUT_OF_MEMORY;

	for (size_t i = 0; i < b->n && status == SRT_OK; i++)
		half_put(b->dtype, stored, i, values[i]);
	if (status == SRT_OK)
		status = upload(b, which, stored, srt_buffer_nbytes(b->buffers[which]));
	free(stored);
	free(values);
	return status;
}

/* One configuration: all steps, then the state. */
static srt_status_t run_config(golden_t *g, verdict_t *v, bench_t *b, const json_t *config)
{
	const char *name = golden_text(config, "name"), *class = golden_text(config, "class");
	const json_t *a = json_object_get(config, "args"), *betas = json_object_get(a, "betas");
	const srt_adam_t adam = { .beta1 = json_number_value(json_array_get(betas, 0)),
				  .beta2 = json_number_value(json_array_get(betas, 1)),
				  .eps = (float)golden_number(a, "eps", 0),
				  .decoupled = !strcmp(class, "AdamW"),
				  .amsgrad = golden_is_set(a, "amsgrad"),
				  .maximize = golden_is_set(a, "maximize") };
	const srt_sgd_t sgd = { .momentum = (float)golden_number(a, "momentum", 0),
				.dampening = (float)golden_number(a, "dampening", 0),
				.nesterov = golden_is_set(a, "nesterov"),
				.maximize = golden_is_set(a, "maximize") };
	const srt_k_group_t group = { 1, (float)golden_number(a, "weight_decay", 0) };
	const srt_k_step_state_t state = { .base_lr = (float)golden_number(a, "lr", 0),
					   .scale = 1,
					   .inv_scale = 1,
					   .clip_coef = 1 };
	srt_k_param_state_t param = { .used = 1 };
	int nsteps = (int)golden_number(g->json, "steps", 0);
	bool is_sgd = !strcmp(class, "SGD");
	srt_view_t none = { NULL, 0, SRT_F32 };
	char key[128];

	b->args.m = is_sgd && sgd.momentum == 0 ? none : srt_view(b->buffers[MOMENT1], 0, b->dtype);
	SRT_TRY(upload(b, GROUPS, &group, sizeof(group)));
	SRT_TRY(upload(b, STATE, &state, sizeof(state)));
	SRT_TRY(upload(b, PARAMS, &param, sizeof(param)));
	SRT_TRY(upload_recorded(g, b, PARAM, "param0"));
	SRT_TRY(start_tail(g, b, a, class));
	SRT_TRY(srt_buffer_zero(b->buffers[MOMENT1], 0, srt_buffer_nbytes(b->buffers[MOMENT1]),
				b->stream));
	SRT_TRY(srt_buffer_zero(b->buffers[MOMENT2], 0, srt_buffer_nbytes(b->buffers[MOMENT2]),
				b->stream));
	SRT_TRY(srt_buffer_zero(b->buffers[MAX2], 0, srt_buffer_nbytes(b->buffers[MAX2]),
				b->stream));
	for (int s = 1; s <= nsteps; s++) {
		snprintf(key, sizeof(key), "grad%d", s);
		SRT_TRY(upload_recorded(g, b, GRAD, key));
		SRT_TRY(step_tail(g, b, key, s));
		SRT_TRY(srt_op_step_advance(&(srt_step_advance_t){ .state = b->args.state,
								   .params = b->args.params,
								   .nparams = 1,
								   .beta1 = adam.beta1,
								   .beta2 = adam.beta2 },
					    b->stream));
		SRT_TRY(is_sgd ? srt_op_sgd(&b->args, &sgd, b->stream) :
				 srt_op_adam(&b->args, &adam, b->stream));
		snprintf(key, sizeof(key), "%s.step%d.param", name, s);
		SRT_TRY(compare_array(g, v, b, PARAM, key));
	}
	SRT_TRY(srt_buffer_copy_to_host(&param, b->buffers[PARAMS], 0, sizeof(param), b->stream));
	for (size_t i = 0; i < srt_safetensors_count(g->expect); i++) {
		const char *k = srt_safetensors_tensor(g->expect, i)->name, *what;
		float *want;

		snprintf(key, sizeof(key), "%s.state.", name);
		if (strncmp(k, key, strlen(key)))
			continue;
		what = k + strlen(key);
		if (!strcmp(what, "momentum_buffer") || !strcmp(what, "exp_avg")) {
			SRT_TRY(compare_array(g, v, b, MOMENT1, k));
		} else if (!strcmp(what, "exp_avg_sq")) {
			SRT_TRY(compare_array(g, v, b, MOMENT2, k));
		} else if (!strcmp(what, "max_exp_avg_sq")) {
			SRT_TRY(compare_array(g, v, b, MAX2, k));
		} else if (!strcmp(what, "step")) {
			SRT_TRY(golden_floats(g->expect, k, 1, &want));
			verdict_exact(v, want[0] == (float)param.step, "%s: %d steps", k,
				      (int)param.step);
			free(want);
		} else {
			return srt_fail(SRT_ERR_FORMAT, "'%s' is an unknown state", k);
		}
	}
	return SRT_OK;
}

/* Marks the keys of a configuration ("adam" marks "adam.step1.param") or of the inputs. */
static void mark(golden_t *g, const char *prefix)
{
	for (size_t i = 0; i < srt_safetensors_count(g->expect); i++) {
		const char *key = srt_safetensors_tensor(g->expect, i)->name;
		size_t n = strlen(prefix);

		if (!strncmp(key, prefix, n) && (key[n] == '.' || strchr(key, '.') == NULL))
			g->seen[i] = true;
	}
}

static srt_status_t run_optimizers(golden_t *g, srt_context_t *context, verdict_t *v, char *note,
				   size_t nnote)
{
	const srt_safetensors_tensor_t *start = srt_safetensors_find(g->expect, "param0");
	srt_status_t status = SRT_OK;
	bench_t b = { 0 };
	const json_t *config;
	size_t i;

	if (start == NULL)
		return srt_fail(SRT_ERR_FORMAT, "the case has no param0");
	status = make_bench(&b, context, start->nelem, start->dtype);
	mark(g, "param0");
	mark(g, "grad");
	json_array_foreach(json_object_get(g->json, "configs"), i, config)
	{
		const char *name = golden_text(config, "name"), *c = golden_text(config, "class");

		if (status != SRT_OK)
			break;
		if (name == NULL || c == NULL)
			status = srt_fail(SRT_ERR_FORMAT, "configuration %zu has no name", i);
		else if (strcmp(c, "SGD") && strcmp(c, "Adam") && strcmp(c, "AdamW"))
			snprintf(note + strlen(note), nnote - strlen(note), "%s%s",
				 note[0] ? ", " : "not built: ", name);
		else
			status = run_config(g, v, &b, config);
		if (name != NULL)
			mark(g, name);
	}
	for (i = 0; i < srt_safetensors_count(g->expect); i++)
		verdict_exact(v, g->seen[i], "%s was not compared",
			      srt_safetensors_tensor(g->expect, i)->name);
	free_bench(&b);
	return status;
}

srt_status_t replay_table(golden_t *g, srt_context_t *context, verdict_t *v, char *note,
			  size_t nnote)
{
	if (golden_is_named(g, "numerics_optim") && g->expect != NULL)
		return run_optimizers(g, context, v, note, nnote);
	if (golden_is_named(g, "numerics_casts") && g->expect != NULL)
		return replay_casts(g, context, v);
	if (golden_is_named(g, "meta_init_order"))
		return replay_meta(g, context, v);
	if (golden_is_named(g, "dtype_rules"))
		return replay_dtype_rules(g, v);
	if (golden_is_named(g, "init_distributions"))
		return replay_init(g, v);
	if (golden_is_named(g, "shard_table") || golden_is_named(g, "fsdp1_flat_shards"))
		return replay_shards(g, context, v);
	if (golden_is_named(g, "numerics_unscale") || golden_is_named(g, "sgs_sparse_unscale") ||
	    golden_is_named(g, "sgs_scale_outputs") || golden_is_named(g, "grad_divide_factors") ||
	    golden_is_named(g, "scaler_state_machine"))
		return replay_scaler(g, context, v, note, nnote);
	if (golden_is_named(g, "sharded_optimizer") && g->expect != NULL)
		return replay_sharded_optimizer(g, context, v);
	if (replay_is_sharded_add(g))
		return replay_sharded_add(g, context, v);
	if (golden_is_named(g, "errors_combined"))
		return replay_errors(g, context, v, note, nnote);
	return srt_fail(SRT_ERR_UNSUPPORTED, "needs a replay of its table");
}
