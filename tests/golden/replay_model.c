/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The models of the golden cases (replay.h): declared on the engine with the units that were
 * recorded, then recorded on a tape for the shapes of the case's inputs. GPT is the model library's
 * own; the chains of linear layers are put together here from its layers.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "tests/golden/replay.h"

static const json_t *find_spec(const golden_t *g, const char *name)
{
	const json_t *p;
	size_t i;

	json_array_foreach(json_object_get(g->json, "params"), i, p)
	{
		const char *n = golden_text(p, "name");

		if (n && !strcmp(n, name))
			return p;
	}
	return NULL;
}

static const json_t *hyper(const replay_t *r)
{
	return json_object_get(json_object_get(r->golden->json, "model"), "hyper");
}

static float decay(const replay_t *r)
{
	return (float)golden_number(json_object_get(r->golden->json, "optimizer"), "weight_decay",
				    0);
}

/* The input `name` of the first micro-batch. */
static const srt_safetensors_tensor_t *first_input(const replay_t *r, const char *name)
{
	char key[96];

	snprintf(key, sizeof(key), "step1.micro0.%s", name);
	return srt_safetensors_find(r->golden->input, key);
}

/* ---- gpt ------------------------------------------------------------------------------ */

static int is_frozen(const char *name, void *arg)
{
	const golden_t *g = arg;

	return !golden_is_set(find_spec(g, name), "requires_grad");
}

static srt_status_t declare_gpt(replay_t *r)
{
	const json_t *h = hyper(r);
	const srt_gpt_config_t config = {
		.layers = (int64_t)golden_number(h, "layers", 0),
		.heads = (int64_t)golden_number(h, "heads", 0),
		.width = (int64_t)golden_number(h, "d", 0),
		.context = (int64_t)golden_number(h, "T", 0),
		.vocab = (int64_t)golden_number(h, "vocab", 0),
		.mult = (int64_t)golden_number(h, "mult", 0),
		.tied = golden_is_set(h, "tied"),
		.attn_bias = golden_is_set(h, "attn_bias"),
	};
	const srt_model_options_t options = { .matrix_decay = decay(r),
					      .vector_decay = decay(r),
					      .frozen = is_frozen,
					      .arg = r->golden };

	return srt_gpt_declare(r->engine, &config, &options, &r->gpt);
}

static srt_status_t record_gpt(replay_t *r)
{
	const srt_safetensors_tensor_t *tokens = first_input(r, "tokens");
	srt_gpt_io_t io;

	if (!tokens || tokens->ndim != 2)
		return srt_fail(SRT_ERR_FORMAT, "the case has no tokens of shape (batch,context)");
	SRT_TRY(srt_gpt_record_loss(r->gpt, r->tape, tokens->shape[0], tokens->shape[1], &io));
	r->in[0] = io.ids;
	r->in[1] = io.targets;
	r->loss = io.loss;
	r->nmean = tokens->shape[0] * tokens->shape[1];
	return SRT_OK;
}

/* ---- chains of linear layers ------------------------------------------------------------ */

/* The i-th linear layer of a chain in forward order; false past the last. */
static bool chain_layer(const replay_t *r, size_t i, char *name, size_t nname, bool *relu)
{
	static const struct {
		const char *model;
		struct {
			const char *name;
			bool relu;
		} layers[6];
	} chains[] = {
		{ "nested",
		  { { "module.0", 0 },
		    { "module.1.0", 0 },
		    { "module.1.1", 0 },
		    { "module.2", 0 },
		    { "module.3", 0 } } },
		{ "nonuniform_nested",
		  { { "module.0", 0 },
		    { "module.1.0", 0 },
		    { "module.1.1", 0 },
		    { "module.2.0", 0 },
		    { "module.2.1", 0 } } },
		{ "unused", { { "a", 1 }, { "mid.lin1", 1 }, { "b", 0 } } },
	};
	const json_t *h = hyper(r);

	*relu = false;
	if (!strcmp(r->model->name, "linear_stack")) {
		snprintf(name, nname, "%zu", i);
		return i + 1 < json_array_size(json_object_get(h, "dims"));
	}
	if (!strcmp(r->model->name, "mlp_stack")) {
		snprintf(name, nname, "%zu.%s", i / 2, i % 2 ? "out_proj" : "in_proj");
		*relu = true;
		return (double)(i / 2) < golden_number(h, "n", 0);
	}
	for (size_t c = 0; c < SRT_ARRAY_LEN(chains); c++) {
		if (strcmp(r->model->name, chains[c].model) ||
		    i >= SRT_ARRAY_LEN(chains[c].layers) || !chains[c].layers[i].name)
			continue;
		snprintf(name, nname, "%s", chains[c].layers[i].name);
		*relu = chains[c].layers[i].relu;
		return true;
	}
	return false;
}

static srt_status_t declare_params(replay_t *r, srt_unit_t *unit, const json_t *names)
{
	const json_t *item;
	size_t i;

	json_array_foreach(names, i, item)
	{
		const char *name = json_string_value(item);
		const json_t *spec = name ? find_spec(r->golden, name) : NULL;
		const json_t *shape = json_object_get(spec, "shape");
		srt_param_options_t options = { .frozen = !golden_is_set(spec, "requires_grad"),
						.weight_decay = decay(r) };
		int64_t sizes[SRT_MAX_DIMS] = { 0 };
		srt_param_t *param;

		if (!spec || json_array_size(shape) > SRT_MAX_DIMS)
			return srt_fail(SRT_ERR_FORMAT, "parameter '%s' of a unit is not described",
					name ? name : "?");
		for (size_t d = 0; d < json_array_size(shape); d++)
			sizes[d] = json_integer_value(json_array_get(shape, d));
		SRT_TRY(srt_param_create(unit, name, SRT_F32, (int)json_array_size(shape), sizes,
					 &options, &param));
	}
	return SRT_OK;
}

/* The recorded units, all below the root, which is the last one recorded (module ""). */
static srt_status_t declare_chain(replay_t *r)
{
	const json_t *units = json_object_get(r->golden->json, "units");
	size_t n = json_array_size(units);
	const json_t *root = n > 0 ? json_array_get(units, n - 1) : NULL;

	r->units = srt_calloc(n + 1, sizeof(*r->units), "units");
	if (!r->units)
		return SRT_ERR_OUT_OF_MEMORY;
	if (!root || strcmp(golden_text(root, "module") ? golden_text(root, "module") : "?", ""))
		return srt_fail(SRT_ERR_FORMAT, "the last unit of the case is not the root");
	SRT_TRY(srt_unit_create(r->engine, NULL, "root", NULL, &r->units[n - 1]));
	SRT_TRY(declare_params(r, r->units[n - 1], json_object_get(root, "params")));
	for (size_t i = 0; i + 1 < n; i++) {
		const json_t *u = json_array_get(units, i);
		const char *name = golden_text(u, "module");

		if (!name)
			return srt_fail(SRT_ERR_FORMAT, "unit %zu has no module", i);
		SRT_TRY(srt_unit_create(r->engine, r->units[n - 1], name, NULL, &r->units[i]));
		SRT_TRY(declare_params(r, r->units[i], json_object_get(u, "params")));
	}
	return SRT_OK;
}

/* The unit that owns a parameter, NULL for the root (which is whole throughout). */
static srt_unit_t *owner(const replay_t *r, const char *param)
{
	const json_t *units = json_object_get(r->golden->json, "units");

	for (size_t i = 0; i + 1 < json_array_size(units); i++)
		if (golden_has(json_object_get(json_array_get(units, i), "params"), param))
			return r->units[i];
	return NULL;
}

static srt_status_t record_chain(replay_t *r)
{
	const json_t *units = json_object_get(r->golden->json, "units");
	const srt_safetensors_tensor_t *x = first_input(r, "x"), *target = first_input(r, "target");
	srt_unit_t *open = NULL;
	srt_tensor_t *y;
	char name[64], key[80];
	bool relu;

	if (!x || !target || x->ndim != 2 || target->ndim != 2)
		return srt_fail(SRT_ERR_FORMAT, "the case has no x and target of two dimensions");
	y = r->in[0] = srt_tape_input(r->tape, SRT_F32, x->shape[0], x->shape[1]);
	r->in[1] = srt_tape_input(r->tape, SRT_F32, target->shape[0], target->shape[1]);
	srt_tape_unit_begin(r->tape, r->units[json_array_size(units) - 1]);
	for (size_t i = 0; chain_layer(r, i, name, sizeof(name), &relu); i++) {
		srt_param_t *weight, *bias;
		srt_unit_t *unit;

		snprintf(key, sizeof(key), "%s.bias", name);
		bias = srt_engine_find(r->engine, key);
		snprintf(key, sizeof(key), "%s.weight", name);
		weight = srt_engine_find(r->engine, key);
		if (!weight)
			return srt_fail(SRT_ERR_FORMAT, "the case has no parameter '%s'", key);
		unit = owner(r, key);
		if (unit != open && open)
			srt_tape_unit_end(r->tape);
		if (unit != open && unit)
			srt_tape_unit_begin(r->tape, unit);
		open = unit;
		y = srt_layer_linear(r->tape, y, weight, bias);
		if (relu)
			y = srt_layer_relu(r->tape, y);
	}
	if (open)
		srt_tape_unit_end(r->tape);
	r->loss = srt_layer_mse(r->tape, y, r->in[1]);
	srt_tape_keep(r->tape, r->loss);
	srt_tape_unit_end(r->tape);
	r->nmean = target->shape[0] * target->shape[1];
	return SRT_OK;
}

const replay_model_t *replay_model_find(const char *name, const char *loss)
{
	static const replay_model_t models[] = {
		{ "gpt",
		  "ce_mean",
		  "vocab layers heads d T mult tied attn_bias",
		  { "tokens", "targets" },
		  declare_gpt,
		  record_gpt },
		{ "linear_stack",
		  "mse",
		  "dims bias",
		  { "x", "target" },
		  declare_chain,
		  record_chain },
		{ "mlp_stack", "mse", "dim n", { "x", "target" }, declare_chain, record_chain },
		{ "nested", "mse", "d0 d1 d2", { "x", "target" }, declare_chain, record_chain },
		{ "nonuniform_nested",
		  "mse",
		  "d0 d1 d2",
		  { "x", "target" },
		  declare_chain,
		  record_chain },
		{ "unused", "mse", "d", { "x", "target" }, declare_chain, record_chain },
	};

	for (size_t i = 0; i < SRT_ARRAY_LEN(models); i++)
		if (!strcmp(models[i].name, name) && !strcmp(models[i].loss, loss))
			return &models[i];
	return NULL;
}
