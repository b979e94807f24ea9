/* SPDX-License-Identifier: BSD-3-Clause */
/* Decoders: their sizes, the declaration of units and parameters. */
#include "models/decoder_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/model.h"
#include "models/over_sqrt.h"
#include "models/try.h"

#define INIT_STD 0.02f

/* How a parameter's initial values are made. */
enum init_kind { INIT_NORMAL, INIT_RESIDUAL, INIT_ZERO, INIT_NORM };

/* What a tensor-parallel rank has of a weight: all, columns, rows, or the rows of its heads in each
 * of q, k and v. A bias is cut as the rows of its weight are. */
enum cut { WHOLE, COLUMNS, ROWS, HEADS };

enum size { NONE, WIDTH, FFN, Q_WIDTH, KV_WIDTH, QKV_WIDTH, Q_NORM, K_NORM };

/* Rows and columns (NONE: a vector) of a part's weight. */
static const struct part {
	enum size rows, n;
	enum init_kind init;
	enum cut cut;
} parts[SRT_DECODER_PARTS] = {
	[SRT_DECODER_NORM1] = { WIDTH, NONE, INIT_NORM, WHOLE },
	[SRT_DECODER_QKV] = { QKV_WIDTH, WIDTH, INIT_NORMAL, HEADS },
	[SRT_DECODER_Q] = { Q_WIDTH, WIDTH, INIT_NORMAL, ROWS },
	[SRT_DECODER_K] = { KV_WIDTH, WIDTH, INIT_NORMAL, ROWS },
	[SRT_DECODER_V] = { KV_WIDTH, WIDTH, INIT_NORMAL, ROWS },
	[SRT_DECODER_Q_NORM] = { Q_NORM, NONE, INIT_NORM, WHOLE },
	[SRT_DECODER_K_NORM] = { K_NORM, NONE, INIT_NORM, WHOLE },
	[SRT_DECODER_O] = { WIDTH, Q_WIDTH, INIT_RESIDUAL, COLUMNS },
	[SRT_DECODER_POST1] = { WIDTH, NONE, INIT_NORM, WHOLE },
	[SRT_DECODER_NORM2] = { WIDTH, NONE, INIT_NORM, WHOLE },
	[SRT_DECODER_GATE] = { FFN, WIDTH, INIT_NORMAL, ROWS },
	[SRT_DECODER_UP] = { FFN, WIDTH, INIT_NORMAL, ROWS },
	[SRT_DECODER_DOWN] = { WIDTH, FFN, INIT_RESIDUAL, COLUMNS },
	[SRT_DECODER_POST2] = { WIDTH, NONE, INIT_NORM, WHOLE },
};

/* ---- sizes ------------------------------------------------------------------------------ */

static int has_bias(const srt_decoder_config_t *c, int part)
{
	switch (part) {
	case SRT_DECODER_QKV:
	case SRT_DECODER_Q:
	case SRT_DECODER_K:
	case SRT_DECODER_V:
		return c->qkv_bias;
	case SRT_DECODER_O:
		return c->o_bias;
	case SRT_DECODER_GATE:
	case SRT_DECODER_UP:
	case SRT_DECODER_DOWN:
		return c->ffn_bias;
	case SRT_DECODER_Q_NORM:
	case SRT_DECODER_K_NORM:
		return 0;
	default:
		return c->norm == SRT_DECODER_LAYERNORM;
	}
}

static int64_t get_size(const srt_decoder_config_t *c, enum size size)
{
	const int by_head = c->qk_norm == SRT_DECODER_QK_HEAD;

	switch (size) {
	case WIDTH:
		return c->width;
	case FFN:
		return c->ffn_width;
	case Q_WIDTH:
		return c->heads * c->head_dim;
	case KV_WIDTH:
		return c->kv_heads * c->head_dim;
	case QKV_WIDTH:
		return (c->heads + 2 * c->kv_heads) * c->head_dim;
	case Q_NORM:
		return (by_head ? 1 : c->heads) * c->head_dim;
	case K_NORM:
		return (by_head ? 1 : c->kv_heads) * c->head_dim;
	default:
		return 0;
	}
}

int64_t srt_decoder_ntensors(const srt_decoder_config_t *c)
{
	int64_t block = 0;

	for (int k = 0; k < SRT_DECODER_PARTS; k++)
		block += srt_decoder_has_part(c, k) ? 1 + has_bias(c, k) : 0;
	return c->layers * block + 2 + !c->rotary + has_bias(c, SRT_DECODER_NORM1) + !c->tied;
}

int64_t srt_decoder_nparams(const srt_decoder_config_t *config, int matmul_only)
{
	const srt_decoder_config_t c = srt_decoder_complete(config);
	const int64_t head = c.vocab * c.width;
	int64_t block = 0, norm = c.width * (1 + has_bias(&c, SRT_DECODER_NORM1));

	for (int k = 0; k < SRT_DECODER_PARTS; k++) {
		const int64_t rows = get_size(&c, parts[k].rows), n = get_size(&c, parts[k].n);

		if (!srt_decoder_has_part(&c, k))
			continue;
		block += n > 0 ? rows * n : matmul_only ? 0 : rows;
		block += has_bias(&c, k) && !matmul_only ? rows : 0;
	}
	if (matmul_only)
		return c.layers * block + head;
	return c.layers * block + head + norm + (c.rotary ? 0 : c.context * c.width) +
	       (c.tied ? 0 : head);
}

double srt_decoder_flops_per_token(const srt_decoder_config_t *config, int64_t context)
{
	const srt_decoder_config_t c = srt_decoder_complete(config);

	/* 2 for a multiply-add, 3 for forward and the two products of backward. Attention has q.k
	 * and p.v, which are counted in full as usual, although the causal half is skipped. */
	return 6.0 * (double)srt_decoder_nparams(&c, 1) +
	       12.0 * (double)c.layers * (double)(c.heads * c.head_dim) * (double)context;
}

/* ---- declaring ------------------------------------------------------------------------ */

/* normal_(0, std), or a constant. */
static srt_init_t init_of(const srt_decoder_t *d, enum init_kind kind)
{
	const float std = d->config.init_std > 0 ? d->config.init_std : INIT_STD;
	const float residual = srt_model_over_sqrt(std, 2 * d->config.layers);

	if (kind == INIT_ZERO || kind == INIT_NORM)
		return (srt_init_t){ .kind = SRT_INIT_CONSTANT,
				     .value = kind == INIT_NORM && !d->config.norm_one_plus };
	return (srt_init_t){ .kind = SRT_INIT_NORMAL,
			     .std = (double)(kind == INIT_RESIDUAL ? residual : std) };
}

srt_init_t srt_decoder_init_of(const srt_decoder_t *d, int part)
{
	return init_of(d, parts[part].init);
}

/* The weight of a module, without a name and initial values. */
static srt_model_param_spec_t describe_weight(const srt_decoder_config_t *c,
					      const struct part *part,
					      const srt_model_options_t *options)
{
	return (srt_model_param_spec_t){
		.kind = part->n != NONE                  ? "Linear" :
			c->norm == SRT_DECODER_LAYERNORM ? "LayerNorm" :
							   "RMSNorm",
		.rows = get_size(c, part->rows),
		.n = get_size(c, part->n),
		.is_cut = part->cut != WHOLE,
		.tensor_dim = part->cut == COLUMNS,
		.nblocks = part->cut == HEADS ? 3 : 1,
		.nparts = c->tensor_parts,
		.group = options != NULL && part->n != NONE ? options->linear_group : 0,
	};
}

/* Adds a module's weight, which may be in 8 bits, and, if it has one, its bias. */
static srt_status_t add_pair(const srt_decoder_t *d, srt_module_t *parent, const char *name,
			     const struct part *part, int with_bias, int is_int8,
			     const srt_model_options_t *options)
{
	const srt_decoder_config_t *c = &d->config;
	const srt_init_t init = init_of(d, part->init), zero = init_of(d, INIT_ZERO);
	srt_model_param_spec_t spec = describe_weight(c, part, options);
	char text[128];

	spec.name = text;
	spec.init = &init;
	snprintf(text, sizeof(text), "%s.weight", name);
	SRT_TRY(is_int8 ? srt_decoder_add_int8(d, parent, name, &spec, options) :
			  srt_model_add_param(parent, &spec, options));
	if (!with_bias)
		return SRT_OK;
	snprintf(text, sizeof(text), "%s.bias", name);
	spec.n = 0;
	spec.group = 0;
	spec.init = &zero;
	spec.is_cut = part->cut == ROWS || part->cut == HEADS;
	spec.tensor_dim = 0;
	return srt_model_add_param(parent, &spec, options);
}

static srt_status_t add_block(const srt_decoder_t *d, srt_module_t *root, int64_t i,
			      const srt_model_options_t *options)
{
	const srt_decoder_config_t *c = &d->config;
	srt_model_options_t base = options != NULL ? *options : (srt_model_options_t){ 0 };
	srt_module_t *block;
	char name[64];

	if (base.lora != NULL && base.base_dtype && !d->is_int8)
		base.dtype = base.base_dtype;
	snprintf(name, sizeof(name), "%s.%lld", c->names->blocks, (long long)i);
	SRT_TRY(srt_model_module(root, name, c->names->block, &block));
	for (int k = 0; k < SRT_DECODER_PARTS; k++) {
		const srt_model_param_spec_t weight = describe_weight(c, &parts[k], options);

		if (!srt_decoder_has_part(c, k))
			continue;
		SRT_TRY(add_pair(d, block, c->names->part[k], &parts[k], has_bias(c, k),
				 d->is_int8 && srt_decoder_is_linear(k), &base));
		if (srt_decoder_is_adapted(d, i, k))
			SRT_TRY(srt_decoder_add_adapter(d, block, c->names->part[k], &weight,
							options));
	}
	if (d->is_int8)
		SRT_TRY(srt_decoder_wrap_int8(d, block, options));
	return d->adapted != NULL ? srt_decoder_wrap_adapters(d, block, i, options) : SRT_OK;
}

/* A table, or the head: (rows,width). */
static srt_status_t add_matrix(const srt_decoder_t *d, srt_module_t *root, const char *name,
			       const char *kind, int64_t rows, int is_cut,
			       const srt_model_options_t *options)
{
	const srt_init_t normal = init_of(d, INIT_NORMAL);
	char text[128];
	const srt_model_param_spec_t spec = { .name = text,
					      .kind = kind,
					      .rows = rows,
					      .n = d->config.width,
					      .is_cut = is_cut,
					      .nblocks = 1,
					      .nparts = d->config.tensor_parts,
					      .init = &normal };

	snprintf(text, sizeof(text), "%s.weight", name);
	return srt_model_add_param(root, &spec, options);
}

/* The head is the embedding. */
static srt_status_t tie_head(const srt_decoder_names_t *names, srt_module_t *root)
{
	srt_module_t *head;

	SRT_TRY(srt_model_module(root, names->head, "Linear", &head));
	return srt_module_tie(head, "weight", srt_module_find(root, names->embedding), "weight");
}

static srt_status_t add_modules(const srt_decoder_t *d, srt_module_t *root,
				const srt_model_options_t *options)
{
	const srt_decoder_config_t *c = &d->config;
	const srt_decoder_names_t *names = c->names;

	SRT_TRY(add_matrix(d, root, names->embedding, "Embedding", c->vocab, 1, options));
	if (!c->rotary)
		SRT_TRY(add_matrix(d, root, names->positions, "Embedding", c->context, 0, options));
	for (int64_t i = 0; i < c->layers; i++)
		SRT_TRY(add_block(d, root, i, options));
	SRT_TRY(add_pair(d, root, names->norm, &parts[SRT_DECODER_NORM1],
			 has_bias(c, SRT_DECODER_NORM1), 0, options));
	if (c->tied)
		return tie_head(names, root);
	return add_matrix(d, root, names->head, "Linear", c->vocab, 1, options);
}

static srt_decoder_pair_t find_pair(srt_engine_t *engine, const char *prefix, const char *name)
{
	srt_decoder_pair_t pair;
	char text[192];

	snprintf(text, sizeof(text), "%s%s.weight", prefix, name);
	pair.weight = srt_engine_param_find(engine, text);
	snprintf(text, sizeof(text), "%s%s.bias", prefix, name);
	pair.bias = srt_engine_param_find(engine, text);
	return pair;
}

/* Units and parameters of the wrapped tree. */
static void find_params(srt_decoder_t *d, srt_engine_t *engine, srt_module_t *root)
{
	const srt_decoder_names_t *names = d->config.names;
	char prefix[64];

	d->module = root;
	d->root = srt_module_unit(root);
	d->embedding = find_pair(engine, "", names->embedding).weight;
	if (!d->config.rotary)
		d->positions = find_pair(engine, "", names->positions).weight;
	d->norm = find_pair(engine, "", names->norm);
	d->head = find_pair(engine, "", names->head).weight;
	for (int64_t i = 0; i < d->config.layers; i++) {
		snprintf(prefix, sizeof(prefix), "%s.%lld", names->blocks, (long long)i);
		d->blocks[i].unit = srt_module_unit(srt_module_find(root, prefix));
		strcat(prefix, ".");
		for (int k = 0; k < SRT_DECODER_PARTS; k++)
			if (srt_decoder_has_part(&d->config, k))
				d->blocks[i].part[k] = find_pair(engine, prefix, names->part[k]);
		if (d->is_int8)
			srt_decoder_find_int8(d, engine, i);
		srt_decoder_find_adapters(d, engine, i);
	}
}

static srt_status_t declare(srt_decoder_t *d, srt_engine_t *engine,
			    const srt_model_options_t *options)
{
	const char *const kinds[] = { d->config.names->block, NULL };
	const srt_wrap_policy_t policy = { .size = sizeof(policy),
					   .rule = SRT_WRAP_KINDS,
					   .kinds = kinds };
	srt_module_t *root;
	srt_status_t status;

	SRT_TRY(srt_module_create(NULL, NULL, d->config.names->root, &root));
	status = add_modules(d, root, options);
	if (status != SRT_OK) {
		srt_module_destroy(root);
		return status;
	}
	SRT_TRY(srt_model_wrap(engine, root, &policy, options));
	find_params(d, engine, root);
	return SRT_OK;
}

static srt_status_t check_rows(const srt_decoder_config_t *c, const srt_model_options_t *options,
			       int tensor_ranks)
{
	if (options == NULL || !options->sequence_parallel || tensor_ranks == 1)
		return SRT_OK;
	if (c->tensor_parts < 2)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "decoder: sequence parallelism over %d tensor-parallel ranks "
				      "needs tensor parts, a multiple of the ranks",
				      tensor_ranks);
	if (options->lora != NULL)
		return srt_model_fail(SRT_ERR_UNSUPPORTED,
				      "decoder: adapters are not for sequence parallelism");
	return SRT_OK;
}

srt_status_t srt_decoder_declare(srt_engine_t *engine, const srt_decoder_config_t *config,
				 const srt_model_options_t *options, srt_decoder_t **decoder)
{
	const int tensor_ranks = srt_model_tensor_ranks(options);
	srt_status_t status;
	srt_decoder_t *d;

	SRT_TRY(srt_decoder_check(config, tensor_ranks));
	SRT_TRY(check_rows(config, options, tensor_ranks));
	d = calloc(1, sizeof(*d) + (size_t)config->layers * sizeof(d->blocks[0]));
	if (d == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY,
				      "no host memory for a decoder of %lld layers",
				      (long long)config->layers);
	d->engine = engine;
	d->config = srt_decoder_complete(config);
	d->is_int8 = options != NULL && options->lora != NULL && options->base_dtype == SRT_U8;
	d->sequence_parallel = options != NULL && options->sequence_parallel;
	d->recompute = options != NULL && options->recompute;
	d->mesh = options != NULL ? options->mesh : NULL;
	d->tensor_ranks = tensor_ranks;
	status = options != NULL && options->lora != NULL ?
			 srt_decoder_match_lora(d, options->lora) :
			 SRT_OK;
	if (status == SRT_OK)
		status = declare(d, engine, options);
	if (status != SRT_OK) {
		srt_decoder_destroy(d);
		return status;
	}
	*decoder = d;
	return SRT_OK;
}

void srt_decoder_destroy(srt_decoder_t *decoder)
{
	if (decoder == NULL)
		return;
	srt_decoder_tables_destroy(decoder->tables);
	free(decoder->adapted);
	free(decoder);
}

const srt_decoder_config_t *srt_decoder_config(const srt_decoder_t *decoder)
{
	return &decoder->config;
}
