/* SPDX-License-Identifier: BSD-3-Clause */
/* Linear stack and the model with an unused layer: declaration and tape. */
#include "models/mlp.h"

#include <stdio.h>
#include <stdlib.h>

#include "models/layers.h"
#include "models/try.h"

typedef struct mlp_layer {
	srt_unit_t *unit;
	srt_param_t *weight, *bias; /* bias may be NULL */
	int relu_after;
} mlp_layer_t;

struct srt_mlp {
	srt_unit_t *root;
	int nlayers; /* that are used */
	int64_t first, last;
	mlp_layer_t layers[SRT_MLP_MAX_LAYERS];
};

static srt_status_t allocate(srt_mlp_t **mlp)
{
	*mlp = calloc(1, sizeof(**mlp));
	if (*mlp)
		return SRT_OK;
	return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for an MLP");
}

/* Linear in -> out called `name`, of a unit that exists. */
static srt_status_t declare_linear(mlp_layer_t *layer, const char *name, int64_t in, int64_t out,
				   int bias, const srt_model_options_t *options)
{
	char full[64];

	snprintf(full, sizeof(full), "%s.weight", name);
	SRT_TRY(srt_model_param(layer->unit, full, out, in, options, &layer->weight));
	if (!bias)
		return SRT_OK;
	snprintf(full, sizeof(full), "%s.bias", name);
	return srt_model_param(layer->unit, full, out, 0, options, &layer->bias);
}

static srt_status_t declare_stack(srt_mlp_t *m, srt_engine_t *engine, const int64_t *dims, int bias,
				  const srt_model_options_t *options)
{
	SRT_TRY(srt_model_unit(engine, NULL, "root", options, &m->root));
	for (int i = 0; i < m->nlayers; i++) {
		char name[16];

		snprintf(name, sizeof(name), "%d", i);
		SRT_TRY(srt_model_unit(engine, m->root, name, options, &m->layers[i].unit));
		SRT_TRY(declare_linear(&m->layers[i], name, dims[i], dims[i + 1], bias, options));
	}
	return SRT_OK;
}

srt_status_t srt_mlp_declare_stack(srt_engine_t *engine, const int64_t *dims, int ndims, int bias,
				   const srt_model_options_t *options, srt_mlp_t **mlp)
{
	srt_mlp_t *m;
	srt_status_t status;

	if (ndims < 2 || ndims > SRT_MLP_MAX_LAYERS + 1)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "srt_mlp_declare_stack: ndims is %d, must be from 2 to %d",
				      ndims, SRT_MLP_MAX_LAYERS + 1);
	SRT_TRY(allocate(&m));
	m->nlayers = ndims - 1;
	m->first = dims[0];
	m->last = dims[ndims - 1];
	status = declare_stack(m, engine, dims, bias, options);
	if (status != SRT_OK) {
		free(m);
		return status;
	}
	*mlp = m;
	return SRT_OK;
}

static srt_status_t declare_unused(srt_mlp_t *m, srt_engine_t *engine, int64_t d,
				   const srt_model_options_t *options)
{
	mlp_layer_t *l = m->layers, unused = { 0 };

	SRT_TRY(srt_model_unit(engine, NULL, "root", options, &m->root));
	SRT_TRY(srt_model_unit(engine, m->root, "a", options, &l[0].unit));
	SRT_TRY(declare_linear(&l[0], "a", d, d, 1, options));
	SRT_TRY(srt_model_unit(engine, m->root, "mid", options, &l[1].unit));
	SRT_TRY(declare_linear(&l[1], "mid.lin1", d, d, 1, options));
	unused.unit = l[1].unit;
	SRT_TRY(declare_linear(&unused, "mid.lin2", d, d, 1, options));
	SRT_TRY(srt_model_unit(engine, m->root, "b", options, &l[2].unit));
	SRT_TRY(declare_linear(&l[2], "b", d, d, 1, options));
	l[0].relu_after = l[1].relu_after = 1;
	return SRT_OK;
}

srt_status_t srt_mlp_declare_unused(srt_engine_t *engine, int64_t d,
				    const srt_model_options_t *options, srt_mlp_t **mlp)
{
	srt_mlp_t *m;
	srt_status_t status;

	SRT_TRY(allocate(&m));
	m->nlayers = 3;
	m->first = m->last = d;
	status = declare_unused(m, engine, d, options);
	if (status != SRT_OK) {
		free(m);
		return status;
	}
	*mlp = m;
	return SRT_OK;
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
