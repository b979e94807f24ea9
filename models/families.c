/* SPDX-License-Identifier: BSD-3-Clause */
/* Presets, and the table of families: how they differ, and how their files have the parameters. */
#include "models/families_impl.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/presets.h"
#include "models/try.h"

/* ---- presets ---------------------------------------------------------------------------- */

const srt_decoder_names_t srt_decoder_preset_names = {
	.root = "GPT",
	.block = "Block",
	.blocks = "blocks",
	.embedding = "wte",
	.positions = "wpe",
	.norm = "lnf",
	.head = "head",
	.part = { [SRT_DECODER_NORM1] = "ln1",
		  [SRT_DECODER_QKV] = "attn.qkv",
		  [SRT_DECODER_O] = "attn.proj",
		  [SRT_DECODER_NORM2] = "ln2",
		  [SRT_DECODER_UP] = "fc",
		  [SRT_DECODER_DOWN] = "out" },
};

#define PRESET(l, h, w, c, bias)                                                                   \
	{                                                                                          \
		SRT_DECODER_GPT, .layers = (l), .heads = (h), .width = (w), .context = (c),        \
				 .vocab = 256, .qkv_bias = (bias), .tied = 1                       \
	}

static const struct {
	const char *name;
	srt_decoder_config_t config;
} presets[] = {
	{ "nano", PRESET(4, 4, 128, 64, 0) },
	{ "char", PRESET(6, 6, 384, 256, 0) },
	{ "gpt2-124m", PRESET(12, 12, 768, 1024, 1) },
};

#define NPRESETS (sizeof(presets) / sizeof(presets[0]))

const char *srt_decoder_preset_name(size_t i)
{
	return i < NPRESETS ? presets[i].name : NULL;
}

srt_status_t srt_decoder_preset(const char *name, srt_decoder_config_t *config)
{
	for (size_t i = 0; i < NPRESETS; i++) {
		if (strcmp(presets[i].name, name) == 0) {
			*config = presets[i].config;
			return SRT_OK;
		}
	}
	return srt_model_fail(SRT_ERR_NOT_FOUND,
			      "no preset is named '%s'; the presets are nano, char and gpt2-124m",
			      name);
}

/* ---- families --------------------------------------------------------------------------- */

/* Names of Llama, which most families share. */
#define LLAMA_NAMES(kind)                                                                          \
	.root = kind "ForCausalLM", .block = kind "DecoderLayer", .blocks = "model.layers",        \
	.embedding = "model.embed_tokens", .norm = "model.norm", .head = "lm_head"
#define LLAMA_PARTS                                                                                \
	[SRT_DECODER_Q] = "self_attn.q_proj", [SRT_DECODER_K] = "self_attn.k_proj",                \
	[SRT_DECODER_V] = "self_attn.v_proj", [SRT_DECODER_O] = "self_attn.o_proj",                \
	[SRT_DECODER_GATE] = "mlp.gate_proj", [SRT_DECODER_UP] = "mlp.up_proj",                    \
	[SRT_DECODER_DOWN] = "mlp.down_proj"
#define LLAMA_NORMS                                                                                \
	[SRT_DECODER_NORM1] = "input_layernorm", [SRT_DECODER_NORM2] = "post_attention_layernorm"
#define QK_NORMS                                                                                   \
	[SRT_DECODER_Q_NORM] = "self_attn.q_norm", [SRT_DECODER_K_NORM] = "self_attn.k_norm"

#define ROPE(theta)                                                                                \
	{                                                                                          \
		.size = sizeof(srt_rope_t), .base = (theta), .factor = 1, .low = 1, .high = 4,     \
		.old_context = 8192                                                                \
	}

/* The values that no key changes, or a key that is missing leaves. */
#define LLAMA(family, eps)                                                                         \
	.names = &(family), .rotary = 1, .gated = 1, .act = SRT_GLU_SILU, .norm_eps = (eps),       \
	.rope = ROPE(10000.0f)

static const srt_decoder_names_t llama_names = { LLAMA_NAMES("Llama"),
						 .part = { LLAMA_PARTS, LLAMA_NORMS } };
static const srt_decoder_names_t mistral_names = { LLAMA_NAMES("Mistral"),
						   .part = { LLAMA_PARTS, LLAMA_NORMS } };
static const srt_decoder_names_t qwen2_names = { LLAMA_NAMES("Qwen2"),
						 .part = { LLAMA_PARTS, LLAMA_NORMS } };
static const srt_decoder_names_t qwen3_names = { LLAMA_NAMES("Qwen3"),
						 .part = { LLAMA_PARTS, LLAMA_NORMS, QK_NORMS } };
static const srt_decoder_names_t olmo2_names = {
	LLAMA_NAMES("Olmo2"),
	.part = { LLAMA_PARTS, QK_NORMS, [SRT_DECODER_POST1] = "post_attention_layernorm",
		  [SRT_DECODER_POST2] = "post_feedforward_layernorm" }
};
static const srt_decoder_names_t gemma3_names = {
	LLAMA_NAMES("Gemma3"),
	.part = { LLAMA_PARTS, QK_NORMS, [SRT_DECODER_NORM1] = "input_layernorm",
		  [SRT_DECODER_POST1] = "post_attention_layernorm",
		  [SRT_DECODER_NORM2] = "pre_feedforward_layernorm",
		  [SRT_DECODER_POST2] = "post_feedforward_layernorm" }
};
static const srt_decoder_names_t gpt_neox_names = {
	.root = "GPTNeoXForCausalLM",
	.block = "GPTNeoXLayer",
	.blocks = "gpt_neox.layers",
	.embedding = "gpt_neox.embed_in",
	.norm = "gpt_neox.final_layer_norm",
	.head = "embed_out",
	.part = { [SRT_DECODER_NORM1] = "input_layernorm",
		  [SRT_DECODER_QKV] = "attention.query_key_value",
		  [SRT_DECODER_O] = "attention.dense",
		  [SRT_DECODER_NORM2] = "post_attention_layernorm",
		  [SRT_DECODER_UP] = "mlp.dense_h_to_4h",
		  [SRT_DECODER_DOWN] = "mlp.dense_4h_to_h" },
};
static const srt_decoder_names_t gpt2_names = {
	.root = "GPT2LMHeadModel",
	.block = "GPT2Block",
	.blocks = "transformer.h",
	.embedding = "transformer.wte",
	.positions = "transformer.wpe",
	.norm = "transformer.ln_f",
	.head = "lm_head",
	.part = { [SRT_DECODER_NORM1] = "ln_1",
		  [SRT_DECODER_QKV] = "attn.c_attn",
		  [SRT_DECODER_O] = "attn.c_proj",
		  [SRT_DECODER_NORM2] = "ln_2",
		  [SRT_DECODER_UP] = "mlp.c_fc",
		  [SRT_DECODER_DOWN] = "mlp.c_proj" },
};

static const srt_family_t families[] = {
	{ .name = "llama",
	  .config = { LLAMA(llama_names, 1e-6f) },
	  .biases = FAMILY_BIAS_QKV | FAMILY_BIAS_O | FAMILY_BIAS_MLP,
	  .has_padding = 1 },
	{ .name = "mistral",
	  .config = { LLAMA(mistral_names, 1e-6f), .kv_heads = 8, .window = 4096 },
	  .windows = FAMILY_WINDOW_ALL,
	  .has_padding = 1 },
	{ .name = "qwen2",
	  .config = { LLAMA(qwen2_names, 1e-6f), .kv_heads = 32, .window = 4096, .qkv_bias = 1 },
	  .windows = FAMILY_WINDOW_LAST,
	  .has_padding = 1 },
	{ .name = "qwen3",
	  .config = { LLAMA(qwen3_names, 1e-6f), .kv_heads = 32, .head_dim = 128, .window = 4096,
		      .qk_norm = SRT_DECODER_QK_HEAD },
	  .biases = FAMILY_BIAS_QKV | FAMILY_BIAS_O,
	  .windows = FAMILY_WINDOW_LAST,
	  .has_padding = 1 },
	{ .name = "olmo2",
	  .config = { LLAMA(olmo2_names, 1e-5f), .placement = SRT_DECODER_POST,
		      .qk_norm = SRT_DECODER_QK_WIDTH },
	  .biases = FAMILY_BIAS_QKV | FAMILY_BIAS_O,
	  .has_padding = 1 },
	{ .name = "gemma3_text",
	  .config = { .names = &gemma3_names,
		      .kv_heads = 4,
		      .head_dim = 256,
		      .rotary = 1,
		      .rope = ROPE(1000000.0f),
		      .has_window_rope = 1,
		      .window_rope = ROPE(10000.0f),
		      .gated = 1,
		      .act = SRT_GLU_GELU_TANH,
		      .norm_eps = 1e-6f,
		      .norm_one_plus = 1,
		      .placement = SRT_DECODER_BOTH,
		      .qk_norm = SRT_DECODER_QK_HEAD,
		      .window = 4096,
		      .tied = 1 },
	  .act_key = "hidden_activation",
	  .biases = FAMILY_BIAS_QKV | FAMILY_BIAS_O,
	  .windows = FAMILY_WINDOW_PATTERN,
	  .has_padding = 1,
	  .keys = FAMILY_KEYS_GEMMA3 },
	{ .name = "gpt_neox",
	  .config = { .names = &gpt_neox_names,
		      .norm = SRT_DECODER_LAYERNORM,
		      .norm_eps = 1e-5f,
		      .rotary = 1,
		      .rope = ROPE(10000.0f),
		      .qkv_bias = 1,
		      .o_bias = 1,
		      .act = SRT_GLU_GELU_ERF,
		      .ffn_bias = 1 },
	  .eps_key = "layer_norm_eps",
	  .biases = FAMILY_BIAS_QKV | FAMILY_BIAS_O,
	  .interleaved = 1,
	  .keys = FAMILY_KEYS_GPT_NEOX },
	{ .name = "gpt2",
	  .config = { .names = &gpt2_names, .qkv_bias = 1, .tied = 1, SRT_DECODER_GPT2 },
	  .act_key = "activation_function",
	  .eps_key = "layer_norm_epsilon",
	  .size_keys = { [FAMILY_WIDTH] = "n_embd",
			 [FAMILY_LAYERS] = "n_layer",
			 [FAMILY_HEADS] = "n_head",
			 [FAMILY_CONTEXT] = "n_positions",
			 [FAMILY_FFN] = "n_inner" },
	  .transposed = 1,
	  .keys = FAMILY_KEYS_GPT2 },
};

#define NFAMILIES (sizeof(families) / sizeof(families[0]))

const char *srt_family_name(const srt_family_t *family)
{
	return family->name;
}

const srt_family_t *srt_family_at(size_t i)
{
	return i < NFAMILIES ? &families[i] : NULL;
}

/* ---- files ------------------------------------------------------------------------------ */

/* The rest of a name after "BLOCKS.12.", NULL for another name. */
static const char *skip_block(const char *name, const char *blocks, int64_t *block)
{
	const size_t n = strlen(blocks);
	char *end;

	if (strncmp(name, blocks, n) != 0 || name[n] != '.' || !isdigit((unsigned char)name[n + 1]))
		return NULL;
	*block = strtol(name + n + 1, &end, 10);
	return *end == '.' ? end + 1 : NULL;
}

/* A name without its first part: "model.norm" is "norm". */
static const char *skip_part(const char *name)
{
	const char *dot = strchr(name, '.');

	return dot != NULL ? dot + 1 : name;
}

srt_status_t srt_family_match(const srt_family_t *family, const srt_decoder_config_t *config,
			      const srt_file_t *file, const char *path, srt_family_file_t *match)
{
	const srt_decoder_names_t *names = family->config.names;
	srt_file_tensor_t t = SRT_FILE_TENSOR_INIT;
	srt_family_file_t m = { .family = family, .config = config };
	char name[128];

	snprintf(name, sizeof(name), "%s.weight", names->embedding);
	if (srt_file_find(file, name, &t) != SRT_OK) {
		m.bare = 1;
		if (srt_file_find(file, skip_part(name), &t) != SRT_OK)
			return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
					      "%s has no tensor '%s', which a model of type %s has",
					      path, name, family->name);
	}
	if (t.ndim != 2 || t.shape[0] != config->vocab || t.shape[1] != config->width)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "config.json has a vocabulary of %lld and a width of %lld, "
				      "but tensor '%s' of %s has %d dimensions, %lld by %lld: they "
				      "are of different models",
				      (long long)config->vocab, (long long)config->width, t.name,
				      path, t.ndim, (long long)t.shape[0],
				      t.ndim > 1 ? (long long)t.shape[1] : 1);
	for (size_t i = 0; srt_file_at(file, i, &t) == SRT_OK; i++) {
		const char *blocks = m.bare ? skip_part(names->blocks) : names->blocks;
		int64_t block;

		if (skip_block(t.name, blocks, &block) != NULL && block >= config->layers)
			return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
					      "config.json has %lld layers, but %s has tensor "
					      "'%s': they are of different models",
					      (long long)config->layers, path, t.name);
	}
	*match = m;
	return SRT_OK;
}

/* Whether a parameter, of which `rest` is the name in its block, is one of the part. */
static int is_part(const srt_family_file_t *m, const char *rest, srt_decoder_part_t part)
{
	const char *name = m->config->names->part[part];
	const size_t n = name != NULL ? strlen(name) : 0;

	return n > 0 && strncmp(rest, name, n) == 0 && rest[n] == '.';
}

/* How a file of the family has the parameter of a block. */
static void find_layout(const srt_family_file_t *m, const char *rest, srt_file_source_t *source)
{
	static const srt_decoder_part_t linear[] = { SRT_DECODER_QKV, SRT_DECODER_O, SRT_DECODER_UP,
						     SRT_DECODER_DOWN };
	const char *last = strrchr(rest, '.');

	for (size_t i = 0; i < sizeof(linear) / sizeof(linear[0]); i++)
		if (m->family->transposed && is_part(m, rest, linear[i]))
			source->transposed = strcmp(last, ".weight") == 0;
	if (m->family->interleaved && is_part(m, rest, SRT_DECODER_QKV))
		source->interleaved_heads = m->config->heads;
}

static int find_name(const char *name, srt_file_source_t *source, void *arg)
{
	const srt_family_file_t *m = arg;
	const srt_decoder_names_t *names = m->config->names;
	const int is_head = strncmp(name, names->head, strlen(names->head)) == 0;
	const char *rest;
	int64_t block;

	if (is_head && m->config->tied)
		return 0; /* whether the file has it or not */
	source->name = m->bare && !is_head ? skip_part(name) : name;
	rest = skip_block(name, names->blocks, &block);
	if (rest != NULL)
		find_layout(m, rest, source);
	return 1;
}

/* Constants that files of some versions have: masks, frequencies, and a tied head. */
static int ignore_name(const char *file_name, void *arg)
{
	static const char *const ends[] = { ".attn.bias", ".attention.bias", ".masked_bias",
					    ".rotary_emb.inv_freq" };
	const srt_family_file_t *m = arg;
	const char *head = m->config->names->head;
	const size_t n = strlen(file_name);

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (n > strlen(ends[i]) && strcmp(file_name + n - strlen(ends[i]), ends[i]) == 0)
			return 1;
	return m->config->tied && strncmp(file_name, head, strlen(head)) == 0;
}

srt_file_names_t srt_family_names(const srt_family_file_t *match)
{
	return (srt_file_names_t){ .size = sizeof(srt_file_names_t),
				   .find = find_name,
				   .ignores = ignore_name,
				   .cast = 1,
				   .arg = (void *)(uintptr_t)match };
}
