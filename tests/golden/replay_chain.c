/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The models of the cases that are chains of linear layers, and tied_ae (replay.h).
 */
#include "config.h"

#include <string.h>

#include "tests/golden/replay.h"

typedef srt_tensor_t *activation_fn(srt_tape_t *tape, srt_tensor_t *x);

typedef struct chain_layer {
	const char *name;
	activation_fn *activation; /* NULL: none */
	bool is_batchnorm;
} chain_layer_t;

#define CHAIN_MAX_LAYERS 6

static const struct {
	const char *model;
	chain_layer_t layers[CHAIN_MAX_LAYERS];
} chains[] = {
	{ "nested",
	  { { .name = "module.0" },
	    { .name = "module.1.0" },
	    { .name = "module.1.1" },
	    { .name = "module.2" },
	    { .name = "module.3" } } },
	{ "nonuniform_nested",
	  { { .name = "module.0" },
	    { .name = "module.1.0" },
	    { .name = "module.1.1" },
	    { .name = "module.2.0" },
	    { .name = "module.2.1" } } },
	{ "unused",
	  { { .name = "a", .activation = srt_layer_relu },
	    { .name = "mid.lin1", .activation = srt_layer_relu },
	    { .name = "b" } } },
	{ "bn_mlp",
	  { { .name = "fc1" },
	    { .name = "bn", .activation = srt_layer_relu, .is_batchnorm = true },
	    { .name = "fc2" } } },
	{ "sharded_linear",
	  { { .name = "linear1", .activation = srt_layer_gelu_erf }, { .name = "linear2" } } },
	{ "meta_mymodel", { { .name = "lin1" }, { .name = "lin2" } } },
	{ "meta_nested",
	  { { .name = "lin1" },
	    { .name = "lin2" },
	    { .name = "l3.lin1" },
	    { .name = "l3.lin2" } } },
};

/* The i-th layer in forward order, its name in `name`; false past the last. */
static bool find_layer(const replay_t *r, size_t i, char *name, size_t nname, chain_layer_t *layer)
{
	const json_t *h = replay_hyper(r);

	*layer = (chain_layer_t){ .name = name };
	if (!strcmp(r->model->name, "linear_stack")) {
		snprintf(name, nname, "%zu", i);
		return i + 1 < json_array_size(json_object_get(h, "dims"));
	}
	if (!strcmp(r->model->name, "mlp_stack")) {
		snprintf(name, nname, "%zu.%s", i / 2, i % 2 ? "out_proj" : "in_proj");
		layer->activation = srt_layer_relu;
		return (double)(i / 2) < golden_number(h, "n", 0);
	}
	for (size_t c = 0; c < SRT_ARRAY_LEN(chains); c++) {
		if (strcmp(r->model->name, chains[c].model) || i >= CHAIN_MAX_LAYERS ||
		    chains[c].layers[i].name == NULL)
			continue;
		*layer = chains[c].layers[i];
		return true;
	}
	return false;
}

/* BatchNorm in training mode. */
static srt_tensor_t *record_batchnorm(replay_t *r, srt_tensor_t *x, const char *module)
{
	srt_param_t *bias = replay_param(r, module, "bias");
	srt_param_t *weight = replay_param(r, module, "weight");
	const replay_buffer_t *mean, *var;
	srt_batchnorm_in_t in = { .eps = 1e-5f, .momentum = 0.1f };
	char name[96];

	snprintf(name, sizeof(name), "%s.running_mean", module);
	mean = replay_buffer_find(r, name);
	snprintf(name, sizeof(name), "%s.running_var", module);
	var = replay_buffer_find(r, name);
	if (weight == NULL || mean == NULL || var == NULL)
		return NULL;
	in.running_mean = mean->view;
	in.running_var = var->view;
	return srt_layer_batchnorm(r->tape, x, weight, bias, &in);
}

srt_status_t replay_record_chain(replay_t *r)
{
	chain_layer_t layer;
	srt_tensor_t *y;
	char name[64];

	SRT_TRY(replay_input(r, "x", &y));
	replay_begin(r);
	for (size_t i = 0; find_layer(r, i, name, sizeof(name), &layer) && y != NULL; i++) {
		y = layer.is_batchnorm ? record_batchnorm(r, y, layer.name) :
					 replay_linear(r, y, layer.name);
		if (layer.activation != NULL)
			y = layer.activation(r->tape, y);
	}
	if (y == NULL)
		return srt_fail(SRT_ERR_FORMAT, "the case lacks parameters or buffers of '%s': %s",
				layer.name, srt_error_last());
	return replay_end(r, y);
}

/* y = dec(relu(enc(x))) + enc(x); the weight of dec is that of enc. */
srt_status_t replay_record_tied_ae(replay_t *r)
{
	srt_tensor_t *x, *y;

	SRT_TRY(replay_input(r, "x", &x));
	replay_begin(r);
	y = srt_layer_relu(r->tape, replay_linear(r, x, "enc"));
	y = replay_linear(r, y, "dec");
	y = srt_layer_add(r->tape, y, replay_linear(r, x, "enc"));
	return replay_end(r, y);
}
