/* SPDX-License-Identifier: BSD-3-Clause */
/* Linear stack and the model with an unused layer: modules, units and tape. */
#include "models/mlp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shardrt/models/layers.h>
#include "models/try.h"

typedef struct mlp_layer {
	char path[16]; /* of its module */
	srt_unit_t *unit;
	srt_param_t *weight, *bias; /* bias may be NULL */
	int relu_after;
} mlp_layer_t;

struct srt_mlp {
	srt_module_t *module;
	srt_unit_t *root;
	int nlayers; /* that are used */
	int64_t first, last;
	mlp_layer_t layers[SRT_MLP_MAX_LAYERS];
};

static srt_status_t create(const char *kind, srt_mlp_t **mlp)
{
	srt_status_t status;

	*mlp = calloc(1, sizeof(**mlp));
	if (*mlp == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for an MLP");
	status = srt_module_create(NULL, NULL, kind, &(*mlp)->module);
	if (status != SRT_OK)
		free(*mlp);
	return status;
}

/* Linear in -> out at this path. */
static srt_status_t add_linear(srt_module_t *root, const char *path, int64_t in, int64_t out,
			       int bias, const srt_model_options_t *options)
{
	char name[64];
	srt_model_param_spec_t spec = { .name = name, .kind = "Linear", .rows = out, .n = in };

	snprintf(name, sizeof(name), "%s.weight", path);
	SRT_TRY(srt_model_add_param(root, &spec, options));
	if (!bias)
		return SRT_OK;
	snprintf(name, sizeof(name), "%s.bias", path);
	spec.n = 0;
	return srt_model_add_param(root, &spec, options);
}

/* A unit for each child of the root. */
static int is_child(const srt_module_t *module, srt_unit_options_t *options, void *arg)
{
	(void)options;
	(void)arg;
	return strchr(srt_module_path(module), '.') == NULL;
}

static srt_status_t wrap(srt_mlp_t *m, srt_engine_t *engine, const srt_model_options_t *options)
{
	const srt_wrap_policy_t policy = { .size = sizeof(policy),
					   .rule = SRT_WRAP_CALLBACK,
					   .callback = is_child };

	SRT_TRY(srt_model_wrap(engine, m->module, &policy, options));
	m->root = srt_module_unit(m->module);
	for (int i = 0; i < m->nlayers; i++) {
		mlp_layer_t *layer = &m->layers[i];
		const srt_module_t *module = srt_module_find(m->module, layer->path);

		layer->unit = srt_module_unit(module);
		layer->weight = srt_module_param(module, "weight");
		layer->bias = srt_module_param(module, "bias");
	}
	return SRT_OK;
}

/* `added`: whether the tree is complete. After a failure everything is freed. */
static srt_status_t finish(srt_mlp_t *m, srt_status_t added, srt_engine_t *engine,
			   const srt_model_options_t *options, srt_mlp_t **mlp)
{
	srt_status_t status = added;

	if (added == SRT_OK)
		status = wrap(m, engine, options);
	else
		srt_module_destroy(m->module);
	if (status == SRT_OK)
		*mlp = m;
	else
		free(m);
	return status;
}

static srt_status_t add_stack(srt_mlp_t *m, const int64_t *dims, int bias,
			      const srt_model_options_t *options)
{
	for (int i = 0; i < m->nlayers; i++) {
		snprintf(m->layers[i].path, sizeof(m->layers[i].path), "%d", i);
		SRT_TRY(add_linear(m->module, m->layers[i].path, dims[i], dims[i + 1], bias,
				   options));
	}
	return SRT_OK;
}

srt_status_t srt_mlp_declare_stack(srt_engine_t *engine, const int64_t *dims, int ndims, int bias,
				   const srt_model_options_t *options, srt_mlp_t **mlp)
{
	srt_mlp_t *m;

	if (ndims < 2 || ndims > SRT_MLP_MAX_LAYERS + 1)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "srt_mlp_declare_stack: ndims is %d, must be from 2 to %d",
				      ndims, SRT_MLP_MAX_LAYERS + 1);
	SRT_TRY(create("Sequential", &m));
	m->nlayers = ndims - 1;
	m->first = dims[0];
	m->last = dims[ndims - 1];
	return finish(m, add_stack(m, dims, bias, options), engine, options, mlp);
}

static srt_status_t add_unused(srt_module_t *root, int64_t d, const srt_model_options_t *options)
{
	SRT_TRY(add_linear(root, "a", d, d, 1, options));
	SRT_TRY(add_linear(root, "mid.lin1", d, d, 1, options));
	SRT_TRY(add_linear(root, "mid.lin2", d, d, 1, options));
	return add_linear(root, "b", d, d, 1, options);
}

srt_status_t srt_mlp_declare_unused(srt_engine_t *engine, int64_t d,
				    const srt_model_options_t *options, srt_mlp_t **mlp)
{
	srt_mlp_t *m;

	SRT_TRY(create("Unused", &m));
	m->nlayers = 3;
	m->first = m->last = d;
	m->layers[0] = (mlp_layer_t){ .path = "a", .relu_after = 1 };
	m->layers[1] = (mlp_layer_t){ .path = "mid.lin1", .relu_after = 1 };
	m->layers[2] = (mlp_layer_t){ .path = "b" };
	return finish(m, add_unused(m->module, d, options), engine, options, mlp);
}

void srt_mlp_destroy(srt_mlp_t *mlp)
{
	free(mlp);
}

srt_status_t srt_mlp_record(const srt_mlp_t *m, srt_tape_t *tape, int64_t rows, srt_mlp_io_t *io)
{
	srt_tensor_t *x;

	*io = (srt_mlp_io_t){ 0 };
	io->x = x = srt_tape_input(tape, SRT_F32, rows, m->first);
	io->target = srt_tape_input(tape, SRT_F32, rows, m->last);
	srt_tape_unit_begin(tape, m->root);
	for (int i = 0; i < m->nlayers; i++) {
		const mlp_layer_t *layer = &m->layers[i];

		srt_tape_unit_begin(tape, layer->unit);
		x = srt_layer_linear(tape, x, layer->weight, layer->bias);
		if (layer->relu_after)
			x = srt_layer_relu(tape, x);
		srt_tape_unit_end(tape);
	}
	io->loss = srt_layer_mse(tape, srt_tape_unit_output(tape, x), io->target);
	srt_tape_unit_end(tape);
	srt_tape_keep(tape, io->loss);
	return srt_tape_finish(tape);
}
