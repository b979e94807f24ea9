/* SPDX-License-Identifier: BSD-3-Clause */
/* The tensors of a GGUF file: names, sizes, types and places, in the order of the model. */
#include "models/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/try.h"

#define PI 3.14159265358979323846

static const char *const part_names[SRT_DECODER_PARTS] = {
	[SRT_DECODER_NORM1] = "attn_norm",
	[SRT_DECODER_QKV] = "attn_qkv",
	[SRT_DECODER_Q] = "attn_q",
	[SRT_DECODER_K] = "attn_k",
	[SRT_DECODER_V] = "attn_v",
	[SRT_DECODER_Q_NORM] = "attn_q_norm",
	[SRT_DECODER_K_NORM] = "attn_k_norm",
	[SRT_DECODER_O] = "attn_output",
	[SRT_DECODER_POST1] = "post_attention_norm",
	[SRT_DECODER_NORM2] = "ffn_norm",
	[SRT_DECODER_GATE] = "ffn_gate",
	[SRT_DECODER_UP] = "ffn_up",
	[SRT_DECODER_DOWN] = "ffn_down",
	[SRT_DECODER_POST2] = "post_ffw_norm",
};

/* A list that is being made. */
typedef struct lister {
	const srt_gguf_family_t *row;
	const srt_decoder_config_t *config;
	srt_gguf_type_t type;
	srt_gguf_has_t has;
	void *arg;
	srt_gguf_tensors_t *tensors;
} lister_t;

/* ---- a tensor --------------------------------------------------------------------------- */

/* Vectors and tables of positions are F32, as readers expect them. */
static srt_gguf_type_t find_type(const lister_t *l, const srt_gguf_tensor_t *t)
{
	if (t->ndim == 1 || strcmp(t->name, "position_embd.weight") == 0)
		return SRT_GGUF_F32;
	if (l->type == SRT_GGUF_Q8_0 && t->columns % SRT_GGUF_Q8_VALUES != 0)
		return SRT_GGUF_F16;
	return l->type;
}

/* The next tensor: (rows,columns), or a vector without columns. Its parameter is set later. */
static srt_gguf_tensor_t *begin(const lister_t *l, const char *name, int64_t rows, int64_t columns)
{
	srt_gguf_tensor_t *t = &l->tensors->list[l->tensors->n];

	*t = (srt_gguf_tensor_t){ .ndim = columns > 0 ? 2 : 1,
				  .rows = rows,
				  .columns = columns > 0 ? columns : 1 };
	snprintf(t->name, sizeof(t->name), "%s", name);
	return t;
}

/* Gives it a place. */
static srt_status_t end(const lister_t *l, srt_gguf_tensor_t *t)
{
	srt_gguf_tensors_t *all = l->tensors;
	size_t n, stop;

	t->type = find_type(l, t);
	t->offset = all->nbytes;
	if (__builtin_mul_overflow((size_t)t->rows, (size_t)t->columns, &n) ||
	    (t->nbytes = srt_gguf_nbytes(t->type, n)) == 0 ||
	    __builtin_add_overflow(t->offset, t->nbytes, &stop) || stop > INT64_MAX / 2)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT, "tensor '%s' is too large",
				      t->name);
	all->nbytes = (stop + SRT_GGUF_ALIGNMENT - 1) / SRT_GGUF_ALIGNMENT * SRT_GGUF_ALIGNMENT;
	all->n++;
	return SRT_OK;
}

static srt_status_t add(const lister_t *l, const char *name, int64_t rows, int64_t columns,
			const char *parameter)
{
	srt_gguf_tensor_t *t = begin(l, name, rows, columns);

	snprintf(t->parameter, sizeof(t->parameter), "%s.weight", parameter);
	return end(l, t);
}

/* ---- blocks ----------------------------------------------------------------------------- */

/* Rows and columns (0: a vector) of a part's weight. */
static void find_sizes(const srt_decoder_config_t *c, int part, int64_t *rows, int64_t *columns)
{
	const int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
	const int by_head = c->qk_norm == SRT_DECODER_QK_HEAD;
	const int64_t sizes[SRT_DECODER_PARTS][2] = {
		[SRT_DECODER_NORM1] = { c->width },
		[SRT_DECODER_QKV] = { q + 2 * kv, c->width },
		[SRT_DECODER_Q] = { q, c->width },
		[SRT_DECODER_K] = { kv, c->width },
		[SRT_DECODER_V] = { kv, c->width },
		[SRT_DECODER_Q_NORM] = { by_head ? c->head_dim : q },
		[SRT_DECODER_K_NORM] = { by_head ? c->head_dim : kv },
		[SRT_DECODER_O] = { c->width, q },
		[SRT_DECODER_POST1] = { c->width },
		[SRT_DECODER_NORM2] = { c->width },
		[SRT_DECODER_GATE] = { c->ffn_width, c->width },
		[SRT_DECODER_UP] = { c->ffn_width, c->width },
		[SRT_DECODER_DOWN] = { c->width, c->ffn_width },
		[SRT_DECODER_POST2] = { c->width },
	};

	*rows = sizes[part][0];
	*columns = sizes[part][1];
}

/* A weight, or a bias: that of the file, or zeros where readers expect one. */
static srt_status_t add_part(const lister_t *l, int64_t block, int part, bool is_bias)
{
	const srt_decoder_names_t *names = l->config->names;
	const char *kind = is_bias ? "bias" : "weight";
	srt_gguf_tensor_t *t;
	int64_t rows, columns;
	char name[64];

	find_sizes(l->config, part, &rows, &columns);
	snprintf(name, sizeof(name), "blk.%lld.%s.%s", (long long)block, part_names[part], kind);
	t = begin(l, name, rows, is_bias ? 0 : columns);
	snprintf(t->parameter, sizeof(t->parameter), "%s.%lld.%s.%s", names->blocks,
		 (long long)block, names->part[part], kind);
	if (is_bias && !l->has(t->parameter, l->arg)) {
		if (!(l->row->zeros >> part & 1))
			return SRT_OK;
		t->source = SRT_GGUF_ZEROS;
	}
	if (l->row->pairs && (part == SRT_DECODER_Q || part == SRT_DECODER_K))
		t->head = l->config->head_dim;
	if (!is_bias && columns == 0 && l->config->norm_one_plus)
		t->added = 1.0f;
	return end(l, t);
}

static srt_status_t add_block(const lister_t *l, int64_t block)
{
	for (int part = 0; part < SRT_DECODER_PARTS; part++) {
		if (l->config->names->part[part] == NULL)
			continue;
		SRT_TRY(add_part(l, block, part, false));
		SRT_TRY(add_part(l, block, part, true));
	}
	return SRT_OK;
}

/* ---- the model -------------------------------------------------------------------------- */

static srt_status_t add_factors(const lister_t *l)
{
	srt_gguf_tensor_t *t = begin(l, "rope_freqs.weight", l->config->rope.dim / 2, 0);

	t->source = SRT_GGUF_FACTORS;
	return end(l, t);
}

/* The norm after the blocks. */
static srt_status_t add_norm(const lister_t *l)
{
	const srt_decoder_config_t *c = l->config;
	srt_gguf_tensor_t *t = begin(l, "output_norm.weight", c->width, 0);

	t->added = c->norm_one_plus ? 1.0f : 0;
	snprintf(t->parameter, sizeof(t->parameter), "%s.weight", c->names->norm);
	SRT_TRY(end(l, t));
	if (c->norm != SRT_DECODER_LAYERNORM)
		return SRT_OK;
	t = begin(l, "output_norm.bias", c->width, 0);
	snprintf(t->parameter, sizeof(t->parameter), "%s.bias", c->names->norm);
	return end(l, t);
}

static srt_status_t add_all(const lister_t *l)
{
	const srt_decoder_config_t *c = l->config;

	SRT_TRY(add(l, "token_embd.weight", c->vocab, c->width, c->names->embedding));
	if (!c->rotary)
		SRT_TRY(add(l, "position_embd.weight", c->context, c->width, c->names->positions));
	if (c->rotary && c->rope.kind == SRT_ROPE_LLAMA3)
		SRT_TRY(add_factors(l));
	for (int64_t i = 0; i < c->layers; i++)
		SRT_TRY(add_block(l, i));
	SRT_TRY(add_norm(l));
	if (c->tied && !l->row->needs_head)
		return SRT_OK;
	return add(l, "output.weight", c->vocab, c->width,
		   c->tied ? c->names->embedding : c->names->head);
}

srt_status_t srt_gguf_list_tensors(const srt_gguf_family_t *row, const srt_decoder_config_t *config,
				   srt_gguf_type_t type, srt_gguf_has_t has, void *arg,
				   srt_gguf_tensors_t *tensors)
{
	const lister_t l = { row, config, type, has, arg, tensors };
	const size_t most = (size_t)config->layers * 2 * SRT_DECODER_PARTS + 8;

	tensors->list = calloc(most, sizeof(*tensors->list));
	if (tensors->list == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for %zu tensors",
				      most);
	return add_all(&l);
}

void srt_gguf_clear_tensors(srt_gguf_tensors_t *tensors)
{
	free(tensors->list);
	*tensors = (srt_gguf_tensors_t){ .n = 0 };
}

srt_status_t srt_gguf_rope_factors(const srt_rope_t *rope, float *factors)
{
	const double long_wave = (double)rope->old_context / (double)rope->low;
	const double short_wave = (double)rope->old_context / (double)rope->high;
	srt_rope_t plain = *rope;

	plain.kind = SRT_ROPE_NONE;
	SRT_TRY(srt_rope_inv_freq(&plain, factors));
	for (int64_t i = 0; i < rope->dim / 2; i++) {
		const double wave = 2 * PI / (double)factors[i], factor = (double)rope->factor;
		const double mix = ((double)rope->old_context / wave - (double)rope->low) /
				   ((double)rope->high - (double)rope->low);

		factors[i] = wave < short_wave ? 1.0f :
			     wave > long_wave  ? rope->factor :
						 (float)(1 / ((1 - mix) / factor + mix));
	}
	return SRT_OK;
}
