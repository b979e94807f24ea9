/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the models of the golden cases have in common (replay.h): units and parameters declared as
 * they were recorded, layers recorded on a tape with the unit of their parameters open, inputs and
 * losses.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/engine/engine.h"
#include "tests/golden/replay.h"

const json_t *replay_hyper(const replay_t *r)
{
	return json_object_get(json_object_get(r->golden->json, "model"), "hyper");
}

static int is_frozen(const char *name, void *arg)
{
	return !golden_is_set(golden_param(arg, name), "requires_grad");
}

srt_status_t replay_model_options(replay_t *r, srt_model_options_t *options)
{
	const json_t *optimizer = json_object_get(r->golden->json, "optimizer");
	const json_t *params = json_object_get(r->golden->json, "params");
	float decay = (float)golden_number(optimizer, "weight_decay", 0);

	*options = (srt_model_options_t){
		.matrix_decay = decay,
		.vector_decay = decay,
		.frozen = is_frozen,
		.arg = r->golden,
		.flat = r->flat,
	};
	if (!golden_dtype(golden_text(json_array_get(params, 0), "dtype"), &options->dtype))
		return srt_fail(SRT_ERR_FORMAT, "the case has no parameters with a dtype");
	return SRT_OK;
}

/* ---- declaring -------------------------------------------------------------------------- */

/* Other names of a parameter. */
static srt_status_t declare_aliases(replay_t *r, srt_unit_t *unit, srt_param_t *param)
{
	const json_t *pair;
	size_t i;

	json_array_foreach(json_object_get(r->golden->json, "tied"), i, pair)
	{
		const char *alias = json_string_value(json_array_get(pair, 0));
		const char *name = json_string_value(json_array_get(pair, 1));

		if (alias != NULL && name != NULL && !strcmp(name, srt_param_name(param)))
			SRT_TRY(srt_param_tie(unit, param, alias));
	}
	return SRT_OK;
}

srt_status_t replay_param_options(replay_t *r, const char *name, srt_dtype_t *dtype, int *ndim,
				  int64_t *sizes, srt_param_options_t *options)
{
	const json_t *optimizer = json_object_get(r->golden->json, "optimizer");
	const json_t *spec = name != NULL ? golden_param(r->golden, name) : NULL;
	const json_t *shape = json_object_get(spec, "shape");
	const int cut = name != NULL ? golden_cut_dim(r->golden, name) : -1;

	if (spec == NULL || json_array_size(shape) > SRT_MAX_DIMS ||
	    !golden_dtype(golden_text(spec, "dtype"), dtype))
		return srt_fail(SRT_ERR_FORMAT, "parameter '%s' of a unit is not described",
				name != NULL ? name : "?");
	*ndim = (int)json_array_size(shape);
	for (int d = 0; d < *ndim; d++)
		sizes[d] = json_integer_value(json_array_get(shape, (size_t)d));
	*options = (srt_param_options_t){ .size = sizeof(srt_param_options_t),
					  .lr_scale = 1.0f,
					  .frozen = !golden_is_set(spec, "requires_grad"),
					  .weight_decay = (float)golden_number(optimizer,
									       "weight_decay", 0) };
	if (cut >= 0)
		options->placement = (srt_placement_t){ "tp", cut, 0, 0 };
	return SRT_OK;
}

static srt_status_t declare_params(replay_t *r, srt_unit_t *unit, const json_t *names)
{
	const json_t *item;
	size_t i;

	json_array_foreach(names, i, item)
	{
		const char *name = json_string_value(item);
		int64_t shape[SRT_MAX_DIMS];
		srt_param_options_t options;
		srt_param_t *param;
		srt_dtype_t dtype;
		int ndim;

		SRT_TRY(replay_param_options(r, name, &dtype, &ndim, shape, &options));
		SRT_TRY(srt_param_create(unit, name, dtype, ndim, shape, &options, &param));
		SRT_TRY(declare_aliases(r, unit, param));
	}
	return SRT_OK;
}

/* All units are below the root, which is the last one recorded (module ""). */
static srt_status_t declare_groups(replay_t *r)
{
	const srt_unit_options_t of_root = { .size = sizeof(of_root),
					     .precision = &r->root_precision,
					     .flat = r->flat };
	const srt_unit_options_t of_others = { .size = sizeof(of_others),
					       .precision = &r->precision,
					       .reshard = r->reshard,
					       .flat = r->flat };
	const json_t *units = json_object_get(r->golden->json, "units");
	size_t n = json_array_size(units);
	const json_t *root = n > 0 ? json_array_get(units, n - 1) : NULL;

	r->units = srt_calloc(n + 1, sizeof(*r->units), "units");
	if (r->units == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	if (root == NULL ||
	    strcmp(golden_text(root, "module") != NULL ? golden_text(root, "module") : "?", ""))
		return srt_fail(SRT_ERR_FORMAT, "the last unit of the case is not the root");
	SRT_TRY(srt_unit_create(r->engine, NULL, "root", &of_root, &r->units[n - 1]));
	SRT_TRY(declare_params(r, r->units[n - 1], json_object_get(root, "params")));
	for (size_t i = 0; i + 1 < n; i++) {
		const json_t *u = json_array_get(units, i);
		const char *name = golden_text(u, "module");

		if (name == NULL)
			return srt_fail(SRT_ERR_FORMAT, "unit %zu has no module", i);
		SRT_TRY(srt_unit_create(r->engine, r->units[n - 1], name, &of_others,
					&r->units[i]));
		SRT_TRY(declare_params(r, r->units[i], json_object_get(u, "params")));
	}
	return SRT_OK;
}

srt_status_t replay_declare_units(replay_t *r)
{
	return replay_has_modules(r) ? replay_declare_modules(r) : declare_groups(r);
}

/* ---- recording -------------------------------------------------------------------------- */

/* The unit above, NULL for the root. */
static srt_unit_t *find_above(const srt_unit_t *unit)
{
	return unit->parent->parent != NULL ? unit->parent : NULL;
}

static bool is_inside(const srt_unit_t *unit, const srt_unit_t *above)
{
	while (unit != NULL && unit != above)
		unit = find_above(unit);
	return unit == above;
}

/* Opens a unit below the root, with those above it, instead of the one that is open; NULL: none. */
static void open_unit(replay_t *r, srt_unit_t *unit)
{
	for (; r->open != NULL && !is_inside(unit, r->open); r->open = find_above(r->open))
		srt_tape_unit_end(r->tape);
	if (unit == r->open)
		return;
	if (find_above(unit) != r->open)
		open_unit(r, find_above(unit));
	srt_tape_unit_begin(r->tape, unit);
	r->open = unit;
}

/* The unit that owns a parameter, NULL for the root (which is unsharded throughout). */
static srt_unit_t *find_owner(const replay_t *r, const char *param)
{
	const json_t *units = json_object_get(r->golden->json, "units");

	for (size_t i = 0; i + 1 < json_array_size(units); i++)
		if (golden_has(json_object_get(json_array_get(units, i), "params"), param))
			return r->units[i];
	return NULL;
}

srt_param_t *replay_param(replay_t *r, const char *module, const char *what)
{
	srt_param_t *param;
	char name[128];

	snprintf(name, sizeof(name), "%s.%s", module, what);
	param = replay_find(r, name);
	if (param != NULL && !replay_is_ignored(r, param)) /* whose unit is open throughout */
		open_unit(r, find_owner(r, srt_param_name(param)));
	return param;
}

srt_tensor_t *replay_linear(replay_t *r, srt_tensor_t *x, const char *module)
{
	const char *plan = golden_text(json_object_get(r->golden->json, "tp_plan"), module);
	/* last the weight: a tied one may be another unit's than the bias */
	srt_param_t *bias = replay_param(r, module, "bias");
	srt_param_t *weight = replay_param(r, module, "weight");

	if (weight == NULL)
		return NULL;
	if (plan == NULL)
		return srt_layer_linear(r->tape, x, weight, bias);
	return !strcmp(plan, "colwise") ? srt_layer_linear_colwise(r->tape, x, weight, bias) :
					  srt_layer_linear_rowwise(r->tape, x, weight, bias);
}

srt_tensor_t *replay_layernorm(replay_t *r, srt_tensor_t *x, const char *module)
{
	srt_param_t *bias = replay_param(r, module, "bias");
	srt_param_t *weight = replay_param(r, module, "weight");

	return weight != NULL ? srt_layer_layernorm(r->tape, x, weight, bias, 1e-5f) : NULL;
}

void replay_begin(replay_t *r)
{
	const json_t *units = json_object_get(r->golden->json, "units");

	if (r->ignored != NULL)
		srt_tape_unit_begin(r->tape, r->ignored_unit);
	srt_tape_unit_begin(r->tape, r->units[json_array_size(units) - 1]);
}

/* ---- inputs ----------------------------------------------------------------------------- */

/* A model's float inputs are cast before the first layer, targets are not. */
static srt_dtype_t float_dtype(const replay_t *r, const char *name)
{
	const json_t *model = json_object_get(r->golden->json, "model");
	srt_dtype_t dtype;

	if (golden_has(json_object_get(model, "inputs"), name) &&
	    golden_dtype(golden_text(model, "cast_inputs_to"), &dtype))
		return dtype;
	return SRT_F32;
}

srt_status_t replay_input(replay_t *r, const char *name, srt_tensor_t **x)
{
	const srt_safetensors_tensor_t *t;
	char key[96];
	int64_t n;

	snprintf(key, sizeof(key), "step1.micro0.%s", name);
	t = srt_safetensors_find(r->golden->input, key);
	if (t == NULL || t->ndim < 1 || t->nelem == 0 ||
	    (t->dtype != SRT_F32 && t->dtype != SRT_I64))
		return srt_fail(SRT_ERR_FORMAT, "the case has no input '%s' of f32 or i64", name);
	if (r->ninputs == REPLAY_MAX_INPUTS)
		return srt_fail(SRT_ERR_FORMAT, "more than %d inputs", REPLAY_MAX_INPUTS);
	n = t->dtype == SRT_F32 ? t->shape[t->ndim - 1] : 1;
	*x = srt_tape_input(r->tape, t->dtype == SRT_F32 ? float_dtype(r, name) : SRT_I32,
			    (int64_t)t->nelem / n, n);
	r->inputs[r->ninputs++] = (replay_input_t){ .name = name, .tensor = *x };
	return SRT_OK;
}

/* ---- losses ----------------------------------------------------------------------------- */

static srt_status_t record_loss(replay_t *r, srt_tensor_t *y, const char *loss)
{
	srt_tensor_t *target;

	r->loss_dtype = SRT_F32;
	r->divisor = 1;
	if (!strcmp(loss, "sum")) {
		r->loss = srt_layer_sum(r->tape, y);
		r->loss_dtype = r->output_dtype;
	} else if (!strcmp(loss, "mse")) {
		SRT_TRY(replay_input(r, "target", &target));
		r->loss = srt_layer_mse(r->tape, y, target);
		r->divisor = (double)(srt_tensor_rows(y) * srt_tensor_cols(y));
	} else {
		SRT_TRY(replay_input(r, "targets", &target));
		r->loss = srt_layer_cross_entropy(r->tape, y, target);
		r->divisor = (double)srt_tensor_rows(y);
	}
	return SRT_OK;
}

srt_status_t replay_end(replay_t *r, srt_tensor_t *y)
{
	open_unit(r, NULL);
	y = srt_tape_unit_output(r->tape, y);
	/* the first failure of recording, which the tape remembers */
	if (y == NULL)
		return srt_tape_finish(r->tape);
	r->output_dtype = srt_tensor_dtype(y);
	SRT_TRY(record_loss(r, y, golden_text(r->golden->json, "loss")));
	srt_tape_keep(r->tape, r->loss);
	srt_tape_unit_end(r->tape);
	if (r->ignored != NULL)
		srt_tape_unit_end(r->tape);
	return SRT_OK;
}

bool golden_can_keep(const golden_t *g)
{
	return strcmp(golden_text(json_object_get(g->json, "model"), "name"),
		      "transformer_shared") != 0;
}

const replay_model_t *replay_model_find(const char *name, const char *loss)
{
	static const replay_model_t models[] = {
		{ "gpt", "ce_mean", "vocab layers heads d T mult tied attn_bias", "tokens",
		  replay_declare_gpt, replay_record_gpt },
		{ "hf", "ce_mean over the targets that are not -100, logits first cast to fp32", "",
		  "input_ids", replay_declare_decoder, replay_record_decoder },
		{ "linear_stack", "mse sum", "dims bias", "x", replay_declare_units,
		  replay_record_chain },
		{ "mlp_stack", "mse sum", "dim n", "x", replay_declare_units, replay_record_chain },
		{ "nested", "mse sum", "d0 d1 d2", "x", replay_declare_units, replay_record_chain },
		{ "nonuniform_nested", "mse sum", "d0 d1 d2", "x", replay_declare_units,
		  replay_record_chain },
		{ "unused", "mse sum", "d", "x", replay_declare_units, replay_record_chain },
		{ "bn_mlp", "mse sum", "d0 h d1", "x", replay_declare_units, replay_record_chain },
		{ "sharded_linear", "mse sum", "d0 d1 d2", "x", replay_declare_units,
		  replay_record_chain },
		{ "meta_mymodel", "mse sum", "d buf", "x", replay_declare_units,
		  replay_record_chain },
		{ "meta_nested", "mse sum", "d buf", "x", replay_declare_units,
		  replay_record_chain },
		{ "tied_ae", "mse sum", "d", "x", replay_declare_units, replay_record_tied_ae },
		{ "transformer_shared", "ce_sum_tgt", "d_vocab d_model nhead ff layers bs",
		  "src tgt", replay_declare_transformer, replay_record_transformer },
	};

	for (size_t i = 0; i < SRT_ARRAY_LEN(models); i++)
		if (!strcmp(models[i].name, name) &&
		    (golden_is_one_of(models[i].losses, loss) || !strcmp(models[i].losses, loss)))
			return &models[i];
	return NULL;
}
