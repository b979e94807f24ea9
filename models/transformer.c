/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transformer: modules and units, and the tape. Within the tape the tokens of an
 * item are consecutive rows.
 */
#include "models/transformer.h"

#include <stdio.h>
#include <stdlib.h>

#include <shardrt/models/layers.h>
#include "models/try.h"

#define EPS 1e-5f

/* The parameters of a layer in the order of declaration: those of the encoder leave some out. */
enum layer_param {
	SELF_IN_WEIGHT,
	SELF_IN_BIAS,
	SELF_OUT_WEIGHT,
	SELF_OUT_BIAS,
	CROSS_IN_WEIGHT,
	CROSS_IN_BIAS,
	CROSS_OUT_WEIGHT,
	CROSS_OUT_BIAS,
	LINEAR1_WEIGHT,
	LINEAR1_BIAS,
	LINEAR2_WEIGHT,
	LINEAR2_BIAS,
	NORM1_WEIGHT,
	NORM1_BIAS,
	NORM2_WEIGHT,
	NORM2_BIAS,
	NORM3_WEIGHT,
	NORM3_BIAS,
	LAYER_PARAMS
};

typedef struct layer {
	srt_unit_t *unit;
	srt_param_t *param[LAYER_PARAMS];
} layer_t;

struct srt_transformer {
	srt_transformer_config_t config;
	int recompute;
	srt_unit_t *root;
	srt_param_t *embed, *bias, *bn_weight, *bn_bias;
	srt_param_t *encoder_norm[2], *decoder_norm[2]; /* weight, bias */
	layer_t layers[];                               /* config.layers of each, encoder first */
};

/* Sizes: rows and n in units of width or of ff; n_unit NONE: a vector. */
enum size_unit { NONE, WIDTH, FF };

static const struct {
	const char *name, *kind;
	int rows;
	enum size_unit rows_unit, n_unit;
	int decoder_only;
} layer_table[LAYER_PARAMS] = {
	[SELF_IN_WEIGHT] = { "self_attn.in_proj_weight", "MultiheadAttention", 3, WIDTH, WIDTH, 0 },
	[SELF_IN_BIAS] = { "self_attn.in_proj_bias", "MultiheadAttention", 3, WIDTH, NONE, 0 },
	[SELF_OUT_WEIGHT] = { "self_attn.out_proj.weight", "Linear", 1, WIDTH, WIDTH, 0 },
	[SELF_OUT_BIAS] = { "self_attn.out_proj.bias", "Linear", 1, WIDTH, NONE, 0 },
	[CROSS_IN_WEIGHT] = { "multihead_attn.in_proj_weight", "MultiheadAttention", 3, WIDTH,
			      WIDTH, 1 },
	[CROSS_IN_BIAS] = { "multihead_attn.in_proj_bias", "MultiheadAttention", 3, WIDTH, NONE,
			    1 },
	[CROSS_OUT_WEIGHT] = { "multihead_attn.out_proj.weight", "Linear", 1, WIDTH, WIDTH, 1 },
	[CROSS_OUT_BIAS] = { "multihead_attn.out_proj.bias", "Linear", 1, WIDTH, NONE, 1 },
	[LINEAR1_WEIGHT] = { "linear1.weight", "Linear", 1, FF, WIDTH, 0 },
	[LINEAR1_BIAS] = { "linear1.bias", "Linear", 1, FF, NONE, 0 },
	[LINEAR2_WEIGHT] = { "linear2.weight", "Linear", 1, WIDTH, FF, 0 },
	[LINEAR2_BIAS] = { "linear2.bias", "Linear", 1, WIDTH, NONE, 0 },
	[NORM1_WEIGHT] = { "norm1.weight", "LayerNorm", 1, WIDTH, NONE, 0 },
	[NORM1_BIAS] = { "norm1.bias", "LayerNorm", 1, WIDTH, NONE, 0 },
	[NORM2_WEIGHT] = { "norm2.weight", "LayerNorm", 1, WIDTH, NONE, 0 },
	[NORM2_BIAS] = { "norm2.bias", "LayerNorm", 1, WIDTH, NONE, 0 },
	[NORM3_WEIGHT] = { "norm3.weight", "LayerNorm", 1, WIDTH, NONE, 1 },
	[NORM3_BIAS] = { "norm3.bias", "LayerNorm", 1, WIDTH, NONE, 1 },
};

/* Layers of encoder and decoder: each is a unit. */
static const char *const layer_kinds[] = { "TransformerEncoderLayer", "TransformerDecoderLayer",
					   NULL };

/* ---- declaring ------------------------------------------------------------------------ */

static int is_valid(const srt_transformer_config_t *c)
{
	return c->layers >= 1 && c->heads >= 1 && c->width >= 1 && c->ff >= 1 && c->vocab >= 1 &&
	       c->batch >= 1 && c->width % c->heads == 0;
}

/* Adds a parameter of the root. */
static srt_status_t add_param(srt_module_t *root, const char *name, const char *kind, int64_t rows,
			      int64_t n, const srt_model_options_t *options)
{
	const srt_model_param_spec_t spec = { .name = name, .kind = kind, .rows = rows, .n = n };

	return srt_model_add_param(root, &spec, options);
}

static srt_status_t add_layer(const srt_transformer_t *t, srt_module_t *list, const char *name,
			      int is_decoder, const srt_model_options_t *options)
{
	const int64_t sizes[] = { [NONE] = 0, [WIDTH] = t->config.width, [FF] = t->config.ff };
	srt_module_t *layer;

	SRT_TRY(srt_module_create(list, name, layer_kinds[is_decoder], &layer));
	for (int k = 0; k < LAYER_PARAMS; k++) {
		if (layer_table[k].decoder_only && !is_decoder)
			continue;
		SRT_TRY(add_param(layer, layer_table[k].name, layer_table[k].kind,
				  layer_table[k].rows * sizes[layer_table[k].rows_unit],
				  sizes[layer_table[k].n_unit], options));
	}
	return SRT_OK;
}

/* The layers of the encoder or decoder, and its norm. */
static srt_status_t add_stack(const srt_transformer_t *t, srt_module_t *transformer, int is_decoder,
			      const srt_model_options_t *options)
{
	srt_module_t *stack, *list;
	char name[32];

	SRT_TRY(srt_module_create(transformer, is_decoder ? "decoder" : "encoder",
				  is_decoder ? "TransformerDecoder" : "TransformerEncoder",
				  &stack));
	SRT_TRY(srt_module_create(stack, "layers", "ModuleList", &list));
	for (int64_t i = 0; i < t->config.layers; i++) {
		snprintf(name, sizeof(name), "%lld", (long long)i);
		SRT_TRY(add_layer(t, list, name, is_decoder, options));
	}
	SRT_TRY(add_param(stack, "norm.weight", "LayerNorm", t->config.width, 0, options));
	return add_param(stack, "norm.bias", "LayerNorm", t->config.width, 0, options);
}

static srt_status_t add_modules(const srt_transformer_t *t, srt_module_t *root,
				const srt_model_options_t *options)
{
	const srt_transformer_config_t *c = &t->config;
	srt_module_t *transformer, *output;

	SRT_TRY(add_param(root, "embed_tokens.weight", "Embedding", c->vocab, c->width, options));
	SRT_TRY(srt_module_create(root, "transformer", "Transformer", &transformer));
	for (int is_decoder = 0; is_decoder < 2; is_decoder++)
		SRT_TRY(add_stack(t, transformer, is_decoder, options));
	SRT_TRY(srt_module_create(root, "output_proj", "Linear", &output));
	SRT_TRY(srt_module_tie(output, "weight", srt_module_find(root, "embed_tokens"), "weight"));
	SRT_TRY(add_param(root, "output_proj.bias", "Linear", c->vocab, 0, options));
	SRT_TRY(add_param(root, "bn.weight", "BatchNorm1d", c->batch, 0, options));
	return add_param(root, "bn.bias", "BatchNorm1d", c->batch, 0, options);
}

/* Units and parameters of the wrapped tree. */
static void find_params(srt_transformer_t *t, srt_engine_t *engine, srt_module_t *root)
{
	char path[64], name[128];

	t->root = srt_module_unit(root);
	t->embed = srt_engine_param_find(engine, "embed_tokens.weight");
	t->encoder_norm[0] = srt_engine_param_find(engine, "transformer.encoder.norm.weight");
	t->encoder_norm[1] = srt_engine_param_find(engine, "transformer.encoder.norm.bias");
	t->decoder_norm[0] = srt_engine_param_find(engine, "transformer.decoder.norm.weight");
	t->decoder_norm[1] = srt_engine_param_find(engine, "transformer.decoder.norm.bias");
	t->bias = srt_engine_param_find(engine, "output_proj.bias");
	t->bn_weight = srt_engine_param_find(engine, "bn.weight");
	t->bn_bias = srt_engine_param_find(engine, "bn.bias");
	for (int64_t i = 0; i < 2 * t->config.layers; i++) {
		snprintf(path, sizeof(path), "transformer.%s.layers.%lld",
			 i < t->config.layers ? "encoder" : "decoder",
			 (long long)(i % t->config.layers));
		t->layers[i].unit = srt_module_unit(srt_module_find(root, path));
		for (int k = 0; k < LAYER_PARAMS; k++) {
			snprintf(name, sizeof(name), "%s.%s", path, layer_table[k].name);
			t->layers[i].param[k] = srt_engine_param_find(engine, name);
		}
	}
}

static srt_status_t declare(srt_transformer_t *t, srt_engine_t *engine,
			    const srt_model_options_t *options)
{
	const srt_wrap_policy_t policy = { .size = sizeof(policy),
					   .rule = SRT_WRAP_KINDS,
					   .kinds = layer_kinds };
	srt_module_t *root;
	srt_status_t status;

	SRT_TRY(srt_module_create(NULL, NULL, "TransformerWithTiedEmbedding", &root));
	status = add_modules(t, root, options);
	if (status != SRT_OK) {
		srt_module_destroy(root);
		return status;
	}
	SRT_TRY(srt_model_wrap(engine, root, &policy, options));
	find_params(t, engine, root);
	return SRT_OK;
}

srt_status_t srt_transformer_declare(srt_engine_t *engine, const srt_transformer_config_t *config,
				     const srt_model_options_t *options,
				     srt_transformer_t **transformer)
{
	srt_transformer_t *t;
	srt_status_t status;

	if (!is_valid(config))
		return srt_model_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"Transformer: layers %lld, heads %lld, width %lld, ff %lld, vocab %lld, "
			"batch %lld: each must be 1 or more, and width a multiple of heads",
			(long long)config->layers, (long long)config->heads,
			(long long)config->width, (long long)config->ff, (long long)config->vocab,
			(long long)config->batch);
	t = calloc(1, sizeof(*t) + 2 * (size_t)config->layers * sizeof(t->layers[0]));
	if (t == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY,
				      "no host memory for a Transformer of %lld layers",
				      (long long)config->layers);
	t->config = *config;
	t->recompute = options != NULL && options->recompute;
	status = declare(t, engine, options);
	if (status != SRT_OK) {
		free(t);
		return status;
	}
	*transformer = t;
	return SRT_OK;
}

void srt_transformer_destroy(srt_transformer_t *transformer)
{
	free(transformer);
}

/* ---- the tape --------------------------------------------------------------------------- */

/* Attention of x to itself, or to `memory`, by the parameters from `first` on. */
static srt_tensor_t *record_attention(const srt_transformer_t *t, srt_tape_t *tape,
				      srt_param_t *const *first, srt_tensor_t *x,
				      srt_tensor_t *memory)
{
	const int64_t width = t->config.width;
	srt_attention_in_t in = { .batch = t->config.batch, .heads = t->config.heads };

	if (memory != NULL) {
		in.q = srt_layer_linear_rows(tape, x, first[0], first[1], 0, width);
		in.k = srt_layer_linear_rows(tape, memory, first[0], first[1], width, 2 * width);
		if (in.k == NULL)
			return NULL;
	} else {
		in.q = srt_layer_linear(tape, x, first[0], first[1]);
	}
	return srt_layer_linear(tape, srt_layer_attention_of(tape, &in), first[2], first[3]);
}

/* norm(x + y) by the parameters from `first` on. */
static srt_tensor_t *record_norm(srt_tape_t *tape, srt_param_t *const *first, srt_tensor_t *x,
				 srt_tensor_t *y)
{
	return srt_layer_layernorm(tape, srt_layer_add(tape, x, y), first[0], first[1], EPS);
}

/* A layer of the encoder, or with `memory` of the decoder. */
static srt_tensor_t *record_layer(const srt_transformer_t *t, srt_tape_t *tape,
				  const layer_t *layer, srt_tensor_t *x, srt_tensor_t *memory)
{
	srt_param_t *const *p = layer->param;
	srt_tensor_t *y;

	srt_tape_unit_begin(tape, layer->unit);
	if (t->recompute)
		srt_tape_recompute_begin(tape);
	y = record_attention(t, tape, p + SELF_IN_WEIGHT, x, NULL);
	x = record_norm(tape, p + NORM1_WEIGHT, x, y);
	if (memory != NULL) {
		y = record_attention(t, tape, p + CROSS_IN_WEIGHT, x, memory);
		x = record_norm(tape, p + NORM2_WEIGHT, x, y);
	}
	y = srt_layer_linear(tape, x, p[LINEAR1_WEIGHT], p[LINEAR1_BIAS]);
	y = srt_layer_relu(tape, y);
	y = srt_layer_linear(tape, y, p[LINEAR2_WEIGHT], p[LINEAR2_BIAS]);
	x = record_norm(tape, p + (memory != NULL ? NORM3_WEIGHT : NORM2_WEIGHT), x, y);
	if (t->recompute)
		srt_tape_recompute_end(tape);
	srt_tape_unit_end(tape);
	return x;
}

/* x (1,width), in the dtype of y, added to each row of y. */
static srt_tensor_t *record_constant(srt_tape_t *tape, srt_tensor_t *y, srt_tensor_t *x)
{
	if (y == NULL)
		return NULL;
	return srt_layer_add_row(tape, y, srt_layer_cast(tape, x, srt_tensor_dtype(y)));
}

static srt_tensor_t *record_encoder(const srt_transformer_t *t, srt_tape_t *tape, int64_t tokens,
				    srt_transformer_io_t *io)
{
	srt_tensor_t *x = srt_layer_transpose(tape, io->src, tokens, 1);

	x = srt_layer_embedding(tape, x, t->embed, NULL, 1);
	x = record_constant(tape, x, io->vocab_bias);
	x = record_constant(tape, x, io->long_buffer);
	for (int64_t i = 0; i < t->config.layers; i++)
		x = record_layer(t, tape, &t->layers[i], x, NULL);
	return srt_layer_layernorm(tape, x, t->encoder_norm[0], t->encoder_norm[1], EPS);
}

/* BatchNorm has the items of the batch as columns. */
static srt_tensor_t *record_decoder(const srt_transformer_t *t, srt_tape_t *tape, srt_tensor_t *ids,
				    srt_tensor_t *memory, int64_t tokens,
				    const srt_batchnorm_in_t *bn)
{
	const srt_transformer_config_t *c = &t->config;
	srt_tensor_t *x = srt_layer_embedding(tape, ids, t->embed, NULL, 1);

	x = srt_layer_transpose(tape, x, c->batch, c->batch);
	x = srt_layer_batchnorm(tape, x, t->bn_weight, t->bn_bias, bn);
	x = srt_layer_transpose(tape, x, tokens * c->width, c->width);
	for (int64_t i = c->layers; i < 2 * c->layers; i++)
		x = record_layer(t, tape, &t->layers[i], x, memory);
	return srt_layer_layernorm(tape, x, t->decoder_norm[0], t->decoder_norm[1], EPS);
}

srt_status_t srt_transformer_record_loss(const srt_transformer_t *t, srt_tape_t *tape,
					 int64_t src_tokens, int64_t tgt_tokens,
					 srt_view_t running_mean, srt_view_t running_var,
					 srt_transformer_io_t *io)
{
	const srt_transformer_config_t *c = &t->config;
	const srt_batchnorm_in_t bn = { .running_mean = running_mean,
					.running_var = running_var,
					.eps = EPS,
					.use_running = 1 };
	srt_tensor_t *memory, *targets, *x;

	*io = (srt_transformer_io_t){ 0 };
	io->src = srt_tape_input(tape, SRT_I32, src_tokens * c->batch, 1);
	io->tgt = srt_tape_input(tape, SRT_I32, tgt_tokens * c->batch, 1);
	io->vocab_bias = srt_tape_input(tape, SRT_F32, 1, c->width);
	io->long_buffer = srt_tape_input(tape, SRT_F32, 1, c->width);
	srt_tape_unit_begin(tape, t->root);
	memory = record_encoder(t, tape, src_tokens, io);
	targets = srt_layer_transpose(tape, io->tgt, tgt_tokens, 1);
	x = record_decoder(t, tape, targets, memory, tgt_tokens, &bn);
	x = srt_layer_linear(tape, x, t->embed, t->bias);
	io->logits = srt_tape_unit_output(tape, x);
	io->loss = srt_layer_cross_entropy(tape, io->logits, targets);
	if (io->loss != NULL)
		srt_tape_loss_dtype(tape, io->loss, srt_tensor_dtype(io->logits));
	srt_tape_unit_end(tape);
	srt_tape_keep(tape, io->logits);
	srt_tape_keep(tape, io->loss);
	return srt_tape_finish(tape);
}
