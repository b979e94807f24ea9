/* SPDX-License-Identifier: BSD-3-Clause */
/* The families in GGUF: a row each, their keys, and what readers of GGUF cannot compute. */
#include "models/gguf.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "models/try.h"

#define PART(part) (1u << SRT_DECODER_##part)
#define ATTENTION (PART(Q) | PART(K) | PART(V) | PART(O))
#define MLP (PART(GATE) | PART(UP) | PART(DOWN))
#define ALL (PART(QKV) | PART(O) | PART(UP) | PART(DOWN))
#define ACT(act) (1u << SRT_GLU_##act)
/* Readers compute the tanh form of both. */
#define GELU (ACT(GELU_TANH) | ACT(GELU_ERF))

/* A Llama whose rotary pairs are neighbours; readers have no windows for it. */
#define LLAMA                                                                                      \
	.arch = "llama", .pairs = true, .factors = true, .biases = ATTENTION | MLP,                \
	.acts = ACT(SILU)

static const srt_gguf_family_t families[] = {
	{ .name = "llama", LLAMA },
	{ .name = "mistral", LLAMA },
	{ .name = "qwen2",
	  .arch = "qwen2",
	  .biases = PART(Q) | PART(K) | PART(V),
	  .acts = ACT(SILU) },
	{ .name = "qwen3", .arch = "qwen3", .acts = ACT(SILU) },
	{ .name = "olmo2", .arch = "olmo2", .needs_head = true, .acts = ACT(SILU) },
	{ .name = "gemma3_text", .arch = "gemma3", .windows = true, .acts = ACT(GELU_TANH) },
	{ .name = "gpt_neox",
	  .arch = "gptneox",
	  .part = true,
	  .needs_head = true,
	  .biases = ALL,
	  .zeros = PART(QKV) | PART(O),
	  .acts = GELU },
	{ .name = "gpt2", .arch = "gpt2", .biases = ALL, .acts = GELU },
};

#define NFAMILIES (sizeof(families) / sizeof(families[0]))

/* ---- what readers lack ------------------------------------------------------------------ */

static srt_status_t refuse(const char *path, const char *key, const char *why)
{
	return srt_model_fail(SRT_ERR_UNSUPPORTED, "%s: '%s': %s; it cannot be a GGUF file", path,
			      key, why);
}

/* Every n-th layer has no window: n, from 1 on; 0: the layers have another pattern. */
static int64_t find_pattern(const srt_decoder_config_t *c)
{
	int64_t n = 0;

	while (n < c->layers && !(c->full[n / 64] >> n % 64 & 1))
		n++;
	n++;
	for (int64_t i = 0; i < c->layers; i++)
		if ((int)(c->full[i / 64] >> i % 64 & 1) != ((i + 1) % n == 0))
			return 0;
	return n;
}

static srt_status_t check_windows(const srt_gguf_family_t *row, const char *path,
				  const srt_decoder_config_t *c)
{
	if (!row->windows || c->window == 0)
		return SRT_OK;
	if (c->layers > SRT_DECODER_MAX_PATTERN || find_pattern(c) == 0)
		return refuse(path, "layer_types",
			      "readers of GGUF know layers without a window only as each n-th one");
	if (c->has_window_rope && c->window_rope.kind != SRT_ROPE_NONE)
		return refuse(path, "rope_parameters.sliding_attention",
			      "readers of GGUF do not scale the frequencies of layers with a "
			      "window");
	return SRT_OK;
}

static srt_status_t check_rope(const srt_gguf_family_t *row, const char *path,
			       const srt_decoder_config_t *c)
{
	if (!c->rotary)
		return SRT_OK;
	if (c->rope.kind == SRT_ROPE_LLAMA3 && !row->factors)
		return refuse(path, "rope_type",
			      "readers of GGUF have llama3 only for models of type llama and "
			      "mistral");
	if (c->rope.dim != c->head_dim && !row->part)
		return refuse(path, "partial_rotary_factor",
			      "readers of GGUF rotate all of a head for this type");
	return SRT_OK;
}

/* Scores are divided by the root of head_dim. Gemma 3 of 27B, which readers know by its layers, has
 * that of width / heads. */
static srt_status_t check_scale(const srt_gguf_family_t *row, const char *path,
				const srt_decoder_config_t *c)
{
	const int is_27b = row->windows && c->layers == 62;
	const double size = is_27b ? (double)c->width / (double)c->heads : (double)c->head_dim;

	if (fabs((c->scale > 0 ? (double)c->scale : 1 / sqrt((double)c->head_dim)) * sqrt(size) -
		 1) < 1e-6)
		return SRT_OK;
	return refuse(path, row->windows ? "query_pre_attn_scalar" : "scale_attn_weights",
		      is_27b ? "readers of GGUF divide scores of a Gemma of 62 layers by the root "
			       "of hidden_size / num_attention_heads" :
			       "readers of GGUF divide scores by the root of head_dim");
}

static srt_status_t check_biases(const srt_gguf_family_t *row, const char *path,
				 const srt_decoder_config_t *c)
{
	const unsigned qkv =
		c->names->part[SRT_DECODER_QKV] != NULL ? PART(QKV) : PART(Q) | PART(K) | PART(V);

	if ((c->qkv_bias && (row->biases & qkv) != qkv) || (c->o_bias && !(row->biases & PART(O))))
		return refuse(path, "attention_bias",
			      "readers of GGUF have no such bias for this type");
	if (c->ffn_bias && !(row->biases & PART(UP)))
		return refuse(path, "mlp_bias", "readers of GGUF have no such bias for this type");
	return SRT_OK;
}

srt_status_t srt_gguf_find_family(const srt_family_t *family, const char *path,
				  srt_decoder_config_t *config, const srt_gguf_family_t **row)
{
	srt_decoder_config_t *c = config;
	const srt_gguf_family_t *r = families;

	while (r < families + NFAMILIES && strcmp(r->name, srt_family_name(family)) != 0)
		r++;
	if (r == families + NFAMILIES)
		return refuse(path, "model_type", "GGUF has no architecture for it");
	c->kv_heads = c->kv_heads ? c->kv_heads : c->heads;
	c->head_dim = c->head_dim ? c->head_dim : c->width / c->heads;
	c->ffn_width = c->ffn_width ? c->ffn_width : 4 * c->width;
	if (!(r->acts >> c->act & 1))
		return refuse(path, "hidden_act",
			      r->windows ? "readers of GGUF have gelu_pytorch_tanh for this type" :
					   "readers of GGUF have silu for this type");
	SRT_TRY(check_biases(r, path, c));
	SRT_TRY(check_rope(r, path, c));
	SRT_TRY(check_scale(r, path, c));
	SRT_TRY(check_windows(r, path, c));
	*row = r;
	return SRT_OK;
}

int64_t srt_gguf_context(const srt_gguf_family_t *row, const srt_decoder_config_t *config)
{
	return !row->windows && config->window > 0 && config->window < config->context ?
		       config->window :
		       config->context;
}

/* ---- keys ------------------------------------------------------------------------------- */

/** A key of the architecture: "llama.block_count". */
typedef struct key {
	char text[80];
} arch_key_t;

static arch_key_t make_key(const srt_gguf_family_t *row, const char *name)
{
	arch_key_t key;

	snprintf(key.text, sizeof(key.text), "%s.%s", row->arch, name);
	return key;
}

static srt_status_t put_size(srt_gguf_keys_t *keys, const srt_gguf_family_t *row, const char *name,
			     int64_t value)
{
	return srt_gguf_put_u32(keys, make_key(row, name).text, (uint32_t)value);
}

static srt_status_t put_float(srt_gguf_keys_t *keys, const srt_gguf_family_t *row, const char *name,
			      float value)
{
	return srt_gguf_put_f32(keys, make_key(row, name).text, value);
}

static srt_status_t put_sizes(srt_gguf_keys_t *keys, const srt_gguf_family_t *row,
			      const srt_decoder_config_t *c)
{
	SRT_TRY(put_size(keys, row, "vocab_size", c->vocab));
	SRT_TRY(put_size(keys, row, "context_length", srt_gguf_context(row, c)));
	SRT_TRY(put_size(keys, row, "embedding_length", c->width));
	SRT_TRY(put_size(keys, row, "block_count", c->layers));
	SRT_TRY(put_size(keys, row, "feed_forward_length", c->ffn_width));
	SRT_TRY(put_size(keys, row, "attention.head_count", c->heads));
	SRT_TRY(put_size(keys, row, "attention.head_count_kv", c->kv_heads));
	SRT_TRY(put_size(keys, row, "attention.key_length", c->head_dim));
	SRT_TRY(put_size(keys, row, "attention.value_length", c->head_dim));
	return put_float(keys, row,
			 c->norm == SRT_DECODER_LAYERNORM ? "attention.layer_norm_epsilon" :
							    "attention.layer_norm_rms_epsilon",
			 c->norm_eps);
}

static srt_status_t put_rope(srt_gguf_keys_t *keys, const srt_gguf_family_t *row,
			     const srt_decoder_config_t *c)
{
	if (!c->rotary)
		return SRT_OK;
	SRT_TRY(put_size(keys, row, "rope.dimension_count", c->rope.dim));
	SRT_TRY(put_float(keys, row, "rope.freq_base", c->rope.base));
	if (c->rope.kind != SRT_ROPE_LINEAR)
		return SRT_OK;
	SRT_TRY(srt_gguf_put_string(keys, make_key(row, "rope.scaling.type").text, "linear", 6));
	return put_float(keys, row, "rope.scaling.factor", c->rope.factor);
}

/* Layers with a window: all but each n-th one. */
static srt_status_t put_windows(srt_gguf_keys_t *keys, const srt_gguf_family_t *row,
				const srt_decoder_config_t *c)
{
	int64_t n;

	if (!row->windows || c->window == 0)
		return SRT_OK;
	n = find_pattern(c);
	if (n == 1)
		return SRT_OK;
	SRT_TRY(put_size(keys, row, "attention.sliding_window", c->window));
	SRT_TRY(put_size(keys, row, "attention.sliding_window_pattern", n));
	return put_float(keys, row, "rope.freq_base_swa", c->window_rope.base);
}

srt_status_t srt_gguf_put_model(srt_gguf_keys_t *keys, const srt_gguf_family_t *row,
				const srt_decoder_config_t *config, srt_gguf_type_t type)
{
	/* general.file_type of matrices of a type */
	static const uint32_t file_types[] = {
		[SRT_GGUF_F32] = 0, [SRT_GGUF_F16] = 1, [SRT_GGUF_Q8_0] = 7, [SRT_GGUF_BF16] = 32
	};

	SRT_TRY(srt_gguf_put_string(keys, "general.architecture", row->arch, strlen(row->arch)));
	SRT_TRY(srt_gguf_put_string(keys, "general.type", "model", 5));
	SRT_TRY(srt_gguf_put_u32(keys, "general.file_type", file_types[type]));
	SRT_TRY(srt_gguf_put_u32(keys, "general.quantization_version", 2));
	SRT_TRY(put_sizes(keys, row, config));
	SRT_TRY(put_rope(keys, row, config));
	SRT_TRY(put_windows(keys, row, config));
	if (config->softcap > 0)
		SRT_TRY(put_float(keys, row, "final_logit_softcapping", config->softcap));
	return row->part ? srt_gguf_put_bool(keys, make_key(row, "use_parallel_residual").text,
					     config->parallel) :
			   SRT_OK;
}
