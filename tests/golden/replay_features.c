/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a training case asks for that the library or the replay cannot do (replay.h). The answer
 * comes from the fields of case.json alone: a feature that is ignored must not pass because its
 * values are the same. A field or a value that is not known here skips the case too.
 */
#include "config.h"

#include <stdarg.h>
#include <string.h>

#include "tests/golden/replay.h"

/* ---- fields ----------------------------------------------------------------------------- */

/* The fields of a case's objects; objects that are not listed have names of tensors as keys. */
static const struct {
	const char *object, *fields;
} known_fields[] = {
	{ "",
	  "format name kind scenario seed_test reference reference_note follows torch world_size "
	  "mesh dp_size data_index model params buffers tied units tp_plan mixed_precision "
	  "cpu_offload sharding_strategy use_orig_params reshard_after_forward broadcast_buffers "
	  "ignored resume_at optimizer scaler clip grad_reduction loss accum accum_sync inject "
	  "num_steps recorded files steps shards tolerance note versions movement" },
	{ ".mesh", "shape names" },
	{ ".model", "name hyper folder inputs cast_inputs_to" },
	{ ".params", "name shape dtype requires_grad" },
	{ ".buffers", "name shape dtype" },
	{ ".units", "module params" },
	{ ".mixed_precision",
	  "param_dtype reduce_dtype output_dtype buffer_dtype cast_forward_inputs" },
	{ ".optimizer", "name decay lr momentum dampening weight_decay nesterov betas eps" },
	{ ".scaler", "class init_scale growth_factor backoff_factor growth_interval" },
	{ ".clip", "max_norm p" },
	{ ".inject", "step ranks param unit local_index fill value" },
	{ ".recorded",
	  "params_at grads_at scaled_grads_at clipped_at optim_at shards_at buffers_at" },
	{ ".files", "init expect inputs expect_ranks" },
	{ ".steps", "step output_dtype grad_dtype grad_none grad_norm grad_norm_note scale_before "
		    "scale_after growth_tracker_after ranks" },
	{ ".steps.ranks", "loss local_nonfinite_grad found_inf skipped" },
	{ ".tolerance", "rule rtol atol lowest_dtype overrides outliers unstable_nonfinite "
			"measured_max_abs_deviation" },
	{ ".tolerance.outliers", "of min_count fraction atol" },
};

static const char *fields_of(const replay_model_t *model, const char *object)
{
	if (!strcmp(object, ".model.hyper"))
		return model != NULL ? model->hyper : NULL;
	for (size_t i = 0; i < SRT_ARRAY_LEN(known_fields); i++)
		if (!strcmp(known_fields[i].object, object))
			return known_fields[i].fields;
	return NULL;
}

/* Looks for an unknown field in the object at this path, or in the objects of an array. */
static bool find_unknown(const replay_model_t *model, json_t *value, const char *path,
			 char *unknown, size_t nunknown)
{
	const char *fields = fields_of(model, path), *key;
	char below[128];
	json_t *item;
	size_t i;

	if (fields == NULL)
		return false;
	json_array_foreach(value, i, item)
	{
		if (find_unknown(model, item, path, unknown, nunknown))
			return true;
	}
	json_object_foreach(value, key, item)
	{
		snprintf(below, sizeof(below), "%s.%s", path, key);
		if (!golden_is_one_of(fields, key)) {
			snprintf(unknown, nunknown, "%s", below + 1);
			return true;
		}
		if (find_unknown(model, item, below, unknown, nunknown))
			return true;
	}
	return false;
}

/* ---- features ---------------------------------------------------------------------------- */

/* The list of what is needed, written to `text`. */
typedef struct needs {
	char *text;
	size_t size, used;
} needs_t;

static void SRT_PRINTF(3, 4) need(needs_t *n, bool needed, const char *format, ...)
{
	va_list args;

	if (!needed)
		return;
	n->used += (size_t)snprintf(n->text + n->used, n->size - n->used, "%s",
				    n->used ? ", " : "needs ");
	n->used = n->used < n->size ? n->used : n->size - 1;
	va_start(args, format);
	n->used += (size_t)vsnprintf(n->text + n->used, n->size - n->used, format, args);
	va_end(args);
	n->used = n->used < n->size ? n->used : n->size - 1;
}

/* Another text than these, separated by spaces; a missing one is the default. */
static void need_value(needs_t *n, const json_t *object, const char *key, const char *known)
{
	const char *text = golden_text(object, key);

	if (golden_is_set(object, key))
		need(n, text == NULL || !golden_is_one_of(known, text), "%s %s", key,
		     text != NULL ? text : "(no text)");
}

/* A dtype that parameters or casts cannot have. */
static void need_dtype(needs_t *n, const json_t *object, const char *key)
{
	srt_dtype_t dtype;

	need(n, golden_is_set(object, key) && !golden_dtype(golden_text(object, key), &dtype),
	     "%s %s", key,
	     golden_text(object, key) != NULL ? golden_text(object, key) : "(no text)");
}

static void need_dtypes(needs_t *n, const golden_t *g)
{
	static const char *const casts[] = { "param_dtype", "reduce_dtype", "output_dtype",
					     "buffer_dtype" };
	bool is_half = false;
	srt_dtype_t dtype;
	const json_t *p;
	size_t i;

	for (i = 0; i < SRT_ARRAY_LEN(casts); i++)
		need_dtype(n, json_object_get(g->json, "mixed_precision"), casts[i]);
	json_array_foreach(json_object_get(g->json, "params"), i, p)
	{
		need_dtype(n, p, "dtype");
		is_half |= golden_dtype(golden_text(p, "dtype"), &dtype) && dtype != SRT_F32;
	}
	/* whose rounding at the ends of cells is not known */
	need(n, is_half && golden_is_tensor(g), "tensor parallelism of 16-bit parameters");
	need_dtype(n, json_object_get(g->json, "model"), "cast_inputs_to");
}

/* Whether the mesh has these dimensions, in this order, and all ranks. */
static bool has_dims(const golden_t *g, const char *first, const char *second)
{
	const json_t *mesh = json_object_get(g->json, "mesh");
	const json_t *names = json_object_get(mesh, "names"),
		     *shape = json_object_get(mesh, "shape");
	const char *const dims[] = { first, second };
	const size_t ndim = second != NULL ? 2 : 1;
	json_int_t nranks = 1;

	for (size_t i = 0; i < ndim; i++) {
		const char *name = json_string_value(json_array_get(names, i));

		if (name == NULL || strcmp(name, dims[i]))
			return false;
		nranks *= json_integer_value(json_array_get(shape, i));
	}
	return json_array_size(names) == ndim && json_array_size(shape) == ndim &&
	       nranks == g->world_size;
}

bool golden_is_hybrid(const golden_t *g)
{
	return has_dims(g, "replicate", "shard");
}

bool golden_is_tensor(const golden_t *g)
{
	return has_dims(g, "dp", "tp");
}

/* Linear layers that are cut as a whole, each rank with the data of its dp coordinate. */
static void need_tensor(needs_t *n, const golden_t *g)
{
	const char *data = golden_text(g->json, "data_index"), *key;
	json_t *shape = json_object_get(json_object_get(g->json, "mesh"), "shape");
	json_t *plan = json_object_get(g->json, "tp_plan"), *item;

	/* with one tensor-parallel rank the coordinate is the rank */
	need(n,
	     !golden_is_tensor(g) || strcmp(g->reference, "fsdp2") || data == NULL ||
		     (strcmp(data, "mesh coordinate 0 (dp)") &&
		      (strcmp(data, "rank") || g->dp_size != g->world_size)) ||
		     json_integer_value(json_array_get(shape, 0)) != g->dp_size,
	     "a mesh of another kind");
	need(n, json_object_size(plan) == 0, "a plan of tensor parallelism");
	json_object_foreach(plan, key, item)
	{
		char weight[128];

		snprintf(weight, sizeof(weight), "%s.weight", key);
		need(n, golden_param(g, weight) == NULL, "tensor parallelism of the module %s",
		     key);
		need_value(n, plan, key, "colwise rowwise");
	}
}

/* Each rank has data. */
static void need_mesh(needs_t *n, const golden_t *g)
{
	const char *strategy = golden_text(g->json, "sharding_strategy");
	const char *data = golden_text(g->json, "data_index");
	const json_t *names = json_object_get(json_object_get(g->json, "mesh"), "names");
	bool tensor = golden_has(names, "tp") || golden_is_set(g->json, "tp_plan");
	bool all_have_data = g->dp_size == g->world_size && data != NULL && !strcmp(data, "rank");

	if (tensor)
		need_tensor(n, g);
	need(n, !golden_is_hybrid(g) && strategy != NULL && strstr(strategy, "HYBRID") != NULL,
	     "hybrid sharding without replicate and shard");
	need(n, !tensor && !(all_have_data && (has_dims(g, "dp", NULL) || golden_is_hybrid(g))),
	     "a mesh of another kind");
}

/* Whether micro-batches are added up in 16 bits, on a mesh that has not both replicas and shards:
 * without them SRT_ACCUMULATE_LAST_ALL_REDUCE adds in the stored dtype. */
static bool adds_in_half(const golden_t *g)
{
	const json_t *policy = json_object_get(g->json, "mixed_precision");
	const char *sync = golden_text(g->json, "accum_sync");
	const char *reduce = golden_text(policy, "reduce_dtype");
	const int nshards = golden_nshards(g);
	srt_dtype_t dtype = SRT_F32;

	golden_dtype(reduce != NULL ? reduce : golden_text(policy, "param_dtype"), &dtype);
	return sync != NULL && !strcmp(sync, "last_all_reduce") && dtype != SRT_F32 &&
	       (nshards == 1 || nshards == g->world_size);
}

static void need_sharding(needs_t *n, const golden_t *g)
{
	const json_t *c = g->json;
	const bool has_ignored = json_array_size(json_object_get(c, "ignored")) > 0;
	const json_t *reshard = json_object_get(c, "reshard_after_forward");

	need_value(n, c, "sharding_strategy",
		   "FULL_SHARD SHARD_GRAD_OP NO_SHARD HYBRID_SHARD _HYBRID_SHARD_ZERO2");
	need(n,
	     reshard != NULL && !json_is_boolean(reshard) && !json_is_null(reshard) &&
		     !(json_integer_value(reshard) > 0 && golden_can_keep(g)),
	     "resharding of this kind");
	need(n, golden_is_hybrid(g) && adds_in_half(g),
	     "16-bit sums of micro-batches without replicas of shards");
	need(n, has_ignored && (golden_is_set(c, "clip") || golden_is_set(c, "scaler")),
	     "clipping or scaling of ignored parameters");
	need(n, has_ignored && !golden_can_keep(g), "ignored parameters of this model");
}

static void need_optimizer(needs_t *n, const json_t *c)
{
	const json_t *clip = json_object_get(c, "clip");
	const char *norm = golden_text(clip, "p");
	double p = golden_number(clip, "p", 0);

	need_value(n, json_object_get(c, "optimizer"), "name", "SGD Adam AdamW");
	need_value(n, json_object_get(c, "optimizer"), "decay", "all");
	need(n,
	     golden_is_set(c, "clip") && p != 1 && p != 2 && p != 3 &&
		     !(norm != NULL && !strcmp(norm, "inf")),
	     "a norm with p = %s%.3g", norm != NULL ? norm : "", p);
}

/* Whether the case has the inputs of the model, in order. */
static bool has_inputs(const json_t *inputs, const char *known)
{
	char all[128] = "";
	const json_t *input;
	size_t i;

	json_array_foreach(inputs, i, input)
	{
		const char *name = json_string_value(input);

		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i ? " " : "",
			 name != NULL ? name : "?");
	}
	return !strcmp(all, known);
}

static void need_model(needs_t *n, const golden_t *g, const replay_model_t *model)
{
	const json_t *m = json_object_get(g->json, "model");
	const char *name = golden_text(m, "name"), *loss = golden_text(g->json, "loss");

	need(n, model == NULL, "model %s with loss %s", name != NULL ? name : "?",
	     loss != NULL ? loss : "?");
	need(n, model != NULL && !has_inputs(json_object_get(m, "inputs"), model->inputs),
	     "model %s with other inputs", name);
	need(n,
	     model != NULL && !strcmp(name, "transformer_shared") &&
		     !golden_is_library_transformer(g),
	     "transformer_shared in units that are not its layers");
}

/* Replicas of a parameter get the same values here. */
static bool splits_replicas(const golden_t *g)
{
	const json_t *injection;
	size_t i;

	json_array_foreach(json_object_get(g->json, "inject"), i, injection)
	{
		if (golden_is_replicated(g) &&
		    json_array_size(json_object_get(injection, "ranks")) != (size_t)g->world_size)
			return true;
	}
	return false;
}

bool golden_unsupported(const golden_t *g, char *why, size_t nwhy)
{
	const json_t *c = g->json, *m = json_object_get(c, "model");
	const char *name = golden_text(m, "name"), *loss = golden_text(c, "loss");
	const char *reduction = golden_text(c, "grad_reduction");
	const replay_model_t *model =
		name != NULL && loss != NULL ? replay_model_find(name, loss) : NULL;
	needs_t n = { .text = why, .size = nwhy };
	char unknown[128];

	if (find_unknown(model, g->json, "", unknown, sizeof(unknown))) {
		snprintf(why, nwhy, "the replay does not know the field %s", unknown);
		return true;
	}
	need_value(&n, c, "reference", "fsdp2 fsdp1 ddp single");
	need_mesh(&n, g);
	need_sharding(&n, g);
	need_dtypes(&n, g);
	need_value(&n, json_object_get(c, "scaler"), "class", "GradScaler ShardedGradScaler");
	need(&n, splits_replicas(g), "values injected into some replicas");
	need_value(&n, c, "grad_reduction", "mean none");
	need(&n, reduction == NULL, "a rule of averaging");
	need_value(&n, c, "accum_sync", "every last last_all_reduce");
	need_optimizer(&n, c);
	need_model(&n, g, model);
	return n.used > 0;
}
