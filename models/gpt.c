/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPT: presets, declaration of units and parameters, initial values, and the tape.
 */
#include "models/gpt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shardrt/models/layers.h>
#include "models/over_sqrt.h"
#include "models/try.h"

#define LN_EPS 1e-5f
#define INIT_STD 0.02f

/* The parameters of a block, in the order of declaration. */
enum block_param {
	LN1_WEIGHT,
	LN1_BIAS,
	QKV_WEIGHT,
	QKV_BIAS,
	PROJ_WEIGHT,
	PROJ_BIAS,
	LN2_WEIGHT,
	LN2_BIAS,
	FC_WEIGHT,
	FC_BIAS,
	OUT_WEIGHT,
	OUT_BIAS,
	BLOCK_PARAMS
};

typedef struct gpt_block {
	srt_unit_t *unit;
	srt_param_t *param[BLOCK_PARAMS]; /* QKV_BIAS may be NULL */
} gpt_block_t;

struct srt_gpt {
	srt_gpt_config_t config;
	int recompute;
	const srt_mesh_t *mesh;
	int tensor_ranks; /* that the blocks are cut over */
	srt_module_t *module;
	srt_unit_t *root;
	srt_param_t *wte, *wpe, *lnf_weight, *lnf_bias, *head;
	gpt_block_t blocks[]; /* config.layers */
};

/* How a parameter's initial values are made. */
enum init_kind { INIT_NORMAL, INIT_RESIDUAL, INIT_ZERO, INIT_ONE };

/* What a tensor-parallel rank has of a parameter: all, columns, rows, or the rows of its heads in
 * each of q, k and v. */
enum cut { WHOLE, COLUMNS, ROWS, HEADS };

/* Sizes in units of width; n = 0: a vector. */
static const struct {
	const char *name, *kind;
	int rows, n, rows_times_mult, n_times_mult;
	enum init_kind init;
	enum cut cut;
} block_table[BLOCK_PARAMS] = {
	[LN1_WEIGHT] = { "ln1.weight", "LayerNorm", 1, 0, 0, 0, INIT_ONE, WHOLE },
	[LN1_BIAS] = { "ln1.bias", "LayerNorm", 1, 0, 0, 0, INIT_ZERO, WHOLE },
	[QKV_WEIGHT] = { "attn.qkv.weight", "Linear", 3, 1, 0, 0, INIT_NORMAL, HEADS },
	[QKV_BIAS] = { "attn.qkv.bias", "Linear", 3, 0, 0, 0, INIT_ZERO, HEADS },
	[PROJ_WEIGHT] = { "attn.proj.weight", "Linear", 1, 1, 0, 0, INIT_RESIDUAL, COLUMNS },
	[PROJ_BIAS] = { "attn.proj.bias", "Linear", 1, 0, 0, 0, INIT_ZERO, WHOLE },
	[LN2_WEIGHT] = { "ln2.weight", "LayerNorm", 1, 0, 0, 0, INIT_ONE, WHOLE },
	[LN2_BIAS] = { "ln2.bias", "LayerNorm", 1, 0, 0, 0, INIT_ZERO, WHOLE },
	[FC_WEIGHT] = { "fc.weight", "Linear", 1, 1, 1, 0, INIT_NORMAL, ROWS },
	[FC_BIAS] = { "fc.bias", "Linear", 1, 0, 1, 0, INIT_ZERO, ROWS },
	[OUT_WEIGHT] = { "out.weight", "Linear", 1, 1, 0, 1, INIT_RESIDUAL, COLUMNS },
	[OUT_BIAS] = { "out.bias", "Linear", 1, 0, 0, 0, INIT_ZERO, WHOLE },
};

static const struct {
	const char *name;
	srt_gpt_config_t config;
} presets[] = {
	{ "nano", { 4, 4, 128, 64, 256, 4, 1, 0 } },
	{ "char", { 6, 6, 384, 256, 256, 4, 1, 0 } },
	{ "gpt2-124m", { 12, 12, 768, 1024, 256, 4, 1, 1 } },
};

#define NPRESETS (sizeof(presets) / sizeof(presets[0]))

const char *srt_gpt_preset_name(size_t i)
{
	return i < NPRESETS ? presets[i].name : NULL;
}

srt_status_t srt_gpt_preset(const char *name, srt_gpt_config_t *config)
{
	for (size_t i = 0; i < NPRESETS; i++) {
		if (strcmp(presets[i].name, name) == 0) {
			*config = presets[i].config;
			return SRT_OK;
		}
	}
	return srt_model_fail(SRT_ERR_NOT_FOUND,
			      "no GPT preset is named '%s'; the presets are nano, char and "
			      "gpt2-124m",
			      name);
}

srt_status_t srt_gpt_check(const srt_gpt_config_t *c, int tensor_ranks)
{
	const struct {
		const char *name;
		int64_t value;
	} sizes[] = { { "layers", c->layers },   { "heads", c->heads }, { "width", c->width },
		      { "context", c->context }, { "vocab", c->vocab }, { "mult", c->mult } };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		if (sizes[i].value >= 1 && sizes[i].value <= INT32_MAX)
			continue;
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "GPT: %s must be from 1 to %d, not %lld", sizes[i].name,
				      INT32_MAX, (long long)sizes[i].value);
	}
	/* 2^60 elements: products of the sizes do not overflow */
	if ((double)c->layers * (double)c->width * (double)c->width * (double)c->mult * 12.0 +
		    (double)c->width * (2.0 * (double)c->vocab + (double)c->context) >
	    0x1p60)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "GPT: a model of %lld layers that are %lld wide is too large",
				      (long long)c->layers, (long long)c->width);
	if (c->width % c->heads != 0)
		return srt_model_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"GPT: a width of %lld cannot be divided among %lld heads; it must be a "
			"multiple of heads",
			(long long)c->width, (long long)c->heads);
	if (c->heads % tensor_ranks != 0)
		return srt_model_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"GPT: %lld heads cannot be divided among %d tensor-parallel ranks",
			(long long)c->heads, tensor_ranks);
	/* in chunks of ceil(vocab / ranks) */
	if ((c->vocab + tensor_ranks - 1) / tensor_ranks * (tensor_ranks - 1) >= c->vocab)
		return srt_model_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"GPT: a vocabulary of %lld gives nothing to the last of %d tensor-parallel "
			"ranks",
			(long long)c->vocab, tensor_ranks);
	return SRT_OK;
}

/* ---- declaring ------------------------------------------------------------------------ */

/* normal_(0, std), or a constant. */
static srt_init_t init_of(const srt_gpt_t *g, enum init_kind kind)
{
	const float residual = srt_model_over_sqrt(INIT_STD, 2 * g->config.layers);

	if (kind == INIT_ZERO || kind == INIT_ONE)
		return (srt_init_t){ .kind = SRT_INIT_CONSTANT, .value = kind == INIT_ONE };
	return (srt_init_t){ .kind = SRT_INIT_NORMAL,
			     .std = (double)(kind == INIT_RESIDUAL ? residual : INIT_STD) };
}

static srt_status_t add_block(const srt_gpt_t *g, srt_module_t *root, int64_t i,
			      const srt_model_options_t *options)
{
	const srt_gpt_config_t *c = &g->config;
	srt_module_t *block;
	char name[64];

	snprintf(name, sizeof(name), "blocks.%lld", (long long)i);
	SRT_TRY(srt_model_module(root, name, "Block", &block));
	for (int k = 0; k < BLOCK_PARAMS; k++) {
		const enum cut cut = block_table[k].cut;
		const srt_init_t init = init_of(g, block_table[k].init);
		const srt_model_param_spec_t spec = {
			.name = block_table[k].name,
			.kind = block_table[k].kind,
			.rows = block_table[k].rows * c->width *
				(block_table[k].rows_times_mult ? c->mult : 1),
			.n = block_table[k].n * c->width *
			     (block_table[k].n_times_mult ? c->mult : 1),
			.is_cut = cut != WHOLE,
			.tensor_dim = cut == COLUMNS,
			.nblocks = cut == HEADS ? 3 : 1,
			.init = &init,
		};

		if (k != QKV_BIAS || c->attn_bias)
			SRT_TRY(srt_model_add_param(block, &spec, options));
	}
	return SRT_OK;
}

static srt_status_t add_modules(const srt_gpt_t *g, srt_module_t *root,
				const srt_model_options_t *options)
{
	const srt_gpt_config_t *c = &g->config;
	const srt_init_t normal = init_of(g, INIT_NORMAL);
	const srt_init_t zero = init_of(g, INIT_ZERO), one = init_of(g, INIT_ONE);
	const srt_model_param_spec_t first[] = {
		{ "wte.weight", "Embedding", c->vocab, c->width, 1, 0, 1, &normal },
		{ "wpe.weight", "Embedding", c->context, c->width, 0, 0, 0, &normal },
	};
	const srt_model_param_spec_t last[] = {
		{ "lnf.weight", "LayerNorm", c->width, 0, 0, 0, 0, &one },
		{ "lnf.bias", "LayerNorm", c->width, 0, 0, 0, 0, &zero },
		{ "head.weight", "Linear", c->vocab, c->width, 1, 0, 1, &normal },
	};
	srt_module_t *head;

	for (int i = 0; i < 2; i++)
		SRT_TRY(srt_model_add_param(root, &first[i], options));
	for (int64_t i = 0; i < c->layers; i++)
		SRT_TRY(add_block(g, root, i, options));
	for (int i = 0; i < 3 - (c->tied != 0); i++)
		SRT_TRY(srt_model_add_param(root, &last[i], options));
	if (!c->tied)
		return SRT_OK;
	SRT_TRY(srt_model_module(root, "head", "Linear", &head));
	return srt_module_tie(head, "weight", srt_module_find(root, "wte"), "weight");
}

/* Units and parameters of the wrapped tree; a bias that the model does not have is NULL. */
static void find_params(srt_gpt_t *g, srt_engine_t *engine, srt_module_t *root)
{
	char name[64];

	g->module = root;
	g->root = srt_module_unit(root);
	g->wte = srt_engine_param_find(engine, "wte.weight");
	g->wpe = srt_engine_param_find(engine, "wpe.weight");
	g->lnf_weight = srt_engine_param_find(engine, "lnf.weight");
	g->lnf_bias = srt_engine_param_find(engine, "lnf.bias");
	g->head = srt_engine_param_find(engine, "head.weight");
	for (int64_t i = 0; i < g->config.layers; i++) {
		snprintf(name, sizeof(name), "blocks.%lld", (long long)i);
		g->blocks[i].unit = srt_module_unit(srt_module_find(root, name));
		for (int k = 0; k < BLOCK_PARAMS; k++) {
			snprintf(name, sizeof(name), "blocks.%lld.%s", (long long)i,
				 block_table[k].name);
			g->blocks[i].param[k] = srt_engine_param_find(engine, name);
		}
	}
}

static srt_status_t declare(srt_gpt_t *g, srt_engine_t *engine, const srt_model_options_t *options)
{
	static const char *const kinds[] = { "Block", NULL };
	const srt_wrap_policy_t policy = { .size = sizeof(policy),
					   .rule = SRT_WRAP_KINDS,
					   .kinds = kinds };
	srt_module_t *root;
	srt_status_t status;

	SRT_TRY(srt_module_create(NULL, NULL, "GPT", &root));
	status = add_modules(g, root, options);
	if (status != SRT_OK) {
		srt_module_destroy(root);
		return status;
	}
	SRT_TRY(srt_model_wrap(engine, root, &policy, options));
	find_params(g, engine, root);
	return SRT_OK;
}

srt_status_t srt_gpt_declare(srt_engine_t *engine, const srt_gpt_config_t *config,
			     const srt_model_options_t *options, srt_gpt_t **gpt)
{
	const int tensor_ranks = srt_model_tensor_ranks(options);
	srt_status_t status;
	srt_gpt_t *g;

	SRT_TRY(srt_gpt_check(config, tensor_ranks));
	g = calloc(1, sizeof(*g) + (size_t)config->layers * sizeof(g->blocks[0]));
	if (g == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY,
				      "no host memory for a GPT of %lld layers",
				      (long long)config->layers);
	g->config = *config;
	g->recompute = options != NULL && options->recompute;
	g->mesh = options != NULL ? options->mesh : NULL;
	g->tensor_ranks = tensor_ranks;
	status = declare(g, engine, options);
	if (status != SRT_OK) {
		free(g);
		return status;
	}
	*gpt = g;
	return SRT_OK;
}

void srt_gpt_destroy(srt_gpt_t *gpt)
{
	free(gpt);
}

const srt_gpt_config_t *srt_gpt_config(const srt_gpt_t *gpt)
{
	return &gpt->config;
}

srt_mem_kind_t srt_gpt_mem_kind(const srt_gpt_t *gpt)
{
	return gpt->tensor_ranks > 1 ?
		       srt_comm_mem_kind(srt_mesh_comm(gpt->mesh, SRT_MODEL_TENSOR_DIM)) :
		       SRT_MEM_DEVICE;
}

/* ---- sizes ------------------------------------------------------------------------------ */

int64_t srt_gpt_ntensors(const srt_gpt_config_t *c)
{
	return c->layers * (BLOCK_PARAMS - !c->attn_bias) + 4 + !c->tied;
}

int64_t srt_gpt_nparams(const srt_gpt_config_t *c, int matmul_only)
{
	int64_t w = c->width, block = 0, head = c->vocab * w;

	for (int k = 0; k < BLOCK_PARAMS; k++) {
		int64_t rows = block_table[k].rows * w, n = block_table[k].n * w;

		if ((k == QKV_BIAS && !c->attn_bias) || (matmul_only && n == 0))
			continue;
		rows *= block_table[k].rows_times_mult ? c->mult : 1;
		n *= block_table[k].n_times_mult ? c->mult : 1;
		block += n > 0 ? rows * n : rows;
	}
	if (matmul_only)
		return c->layers * block + head;
	return c->layers * block + head + c->context * w + 2 * w + (c->tied ? 0 : head);
}

double srt_gpt_flops_per_token(const srt_gpt_config_t *c, int64_t context)
{
	/* 2 for a multiply-add, 3 for forward and the two products of backward. Attention has q.k
	 * and p.v, which are counted in full as usual, although the causal half is skipped. */
	return 6.0 * (double)srt_gpt_nparams(c, 1) +
	       12.0 * (double)c->layers * (double)c->width * (double)context;
}

/* ---- initial values ----------------------------------------------------------------------- */

typedef struct init_args {
	uint64_t seed;
	srt_stream_t *stream;
} init_args_t;

static srt_status_t init_module(srt_module_t *module, void *arg)
{
	const init_args_t *args = arg;

	return srt_module_reset(module, args->seed, args->stream);
}

srt_status_t srt_gpt_init(srt_gpt_t *g, uint64_t seed, srt_stream_t *stream)
{
	init_args_t args = { seed, stream };

	return srt_module_apply(g->module, init_module, &args);
}

/* ---- the tape ----------------------------------------------------------------------------- */

static srt_tensor_t *record_block(const srt_gpt_t *g, srt_tape_t *tape, const gpt_block_t *b,
				  srt_tensor_t *x, int64_t context)
{
	srt_param_t *const *p = b->param;
	srt_tensor_t *y;

	srt_tape_unit_begin(tape, b->unit);
	if (g->recompute)
		srt_tape_recompute_begin(tape);
	y = srt_layer_layernorm(tape, x, p[LN1_WEIGHT], p[LN1_BIAS], LN_EPS);
	y = srt_layer_linear_colwise(tape, y, p[QKV_WEIGHT], p[QKV_BIAS]);
	y = srt_layer_attention(tape, y, context, g->config.heads / g->tensor_ranks, 1);
	y = srt_layer_linear_rowwise(tape, y, p[PROJ_WEIGHT], p[PROJ_BIAS]);
	x = srt_layer_add(tape, x, y);

	y = srt_layer_layernorm(tape, x, p[LN2_WEIGHT], p[LN2_BIAS], LN_EPS);
	y = srt_layer_linear_colwise(tape, y, p[FC_WEIGHT], p[FC_BIAS]);
	y = srt_layer_gelu(tape, y);
	y = srt_layer_linear_rowwise(tape, y, p[OUT_WEIGHT], p[OUT_BIAS]);
	x = srt_layer_add(tape, x, y);
	if (g->recompute)
		srt_tape_recompute_end(tape);
	srt_tape_unit_end(tape);
	return x;
}

/* From the ids to the last block's output; the root stays open. */
static srt_tensor_t *record_body(const srt_gpt_t *g, srt_tape_t *tape, int64_t batch,
				 int64_t context, srt_gpt_io_t *io)
{
	srt_tensor_t *x;

	*io = (srt_gpt_io_t){ 0 };
	srt_tape_set_mesh(tape, g->mesh, SRT_MODEL_TENSOR_DIM);
	io->ids = srt_tape_input(tape, SRT_I32, batch * context, 1);
	srt_tape_unit_begin(tape, g->root);
	x = srt_layer_embedding_rowwise(tape, io->ids, g->wte, g->wpe, context);
	for (int64_t i = 0; i < g->config.layers; i++)
		x = record_block(g, tape, &g->blocks[i], x, context);
	return x;
}

/* The fused head has its logits in the dtype of x; that widens to fp32 without a change. Logits
 * that the root rounds to another dtype are made apart. */
static srt_tensor_t *record_loss(const srt_gpt_t *g, srt_tape_t *tape, srt_tensor_t *x,
				 srt_tensor_t *targets)
{
	const srt_dtype_t output = srt_tape_output_dtype(tape, x);

	if (x == NULL || output == srt_tensor_dtype(x) || output == SRT_F32)
		return srt_layer_head_loss_colwise(tape, x, g->head, targets, 0);
	x = srt_layer_linear_colwise(tape, x, g->head, NULL);
	return srt_layer_cross_entropy_colwise(tape, srt_tape_unit_output(tape, x), targets,
					       g->config.vocab);
}

srt_status_t srt_gpt_record_loss(const srt_gpt_t *g, srt_tape_t *tape, int64_t batch,
				 int64_t context, srt_gpt_io_t *io)
{
	srt_tensor_t *x = record_body(g, tape, batch, context, io);

	io->targets = srt_tape_input(tape, SRT_I32, batch * context, 1);
	x = srt_layer_layernorm(tape, x, g->lnf_weight, g->lnf_bias, LN_EPS);
	io->loss = record_loss(g, tape, x, io->targets);
	srt_tape_unit_end(tape);
	srt_tape_keep(tape, io->loss);
	return srt_tape_finish(tape);
}

srt_status_t srt_gpt_record_logits(const srt_gpt_t *g, srt_tape_t *tape, int64_t context,
				   const int64_t *row, srt_gpt_io_t *io)
{
	srt_tensor_t *x = record_body(g, tape, 1, context, io);

	x = srt_layer_row(tape, x, row);
	x = srt_layer_layernorm(tape, x, g->lnf_weight, g->lnf_bias, LN_EPS);
	x = srt_tape_unit_output(tape, srt_layer_linear_colwise(tape, x, g->head, NULL));
	x = srt_layer_gather_columns(tape, x, g->config.vocab);
	io->logits = srt_layer_cast(tape, x, SRT_F32);
	srt_tape_unit_end(tape);
	srt_tape_keep(tape, io->logits);
	return srt_tape_finish(tape);
}

srt_status_t srt_gpt_memory(const srt_gpt_t *g, srt_device_t *device, int64_t batch,
			    int64_t context, size_t *nbytes, size_t *scratch)
{
	srt_gpt_io_t io;
	srt_tape_t *tape;
	srt_status_t status;

	SRT_TRY(srt_tape_create(device, SRT_TAPE_TRAINING, &tape));
	status = srt_gpt_record_loss(g, tape, batch, context, &io);
	if (status == SRT_OK) {
		*nbytes = srt_tape_nbytes(tape);
		*scratch = srt_tape_scratch_nbytes(tape);
	}
	srt_tape_destroy(tape);
	return status;
}
