/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * config.json of Hugging Face as a description: the keys that all families have, then those of one.
 * Names of keys and defaults are those of transformers' configuration classes.
 */
#include "config.h"

#include "models/families_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/try.h"

#ifndef HAVE_JANSSON

srt_status_t srt_family_parse_config(const char *text, size_t nbytes, const char *path,
				     const srt_family_t **family, srt_decoder_config_t *config)
{
	(void)text;
	(void)nbytes;
	(void)family;
	(void)config;
	return srt_model_fail(SRT_ERR_UNSUPPORTED,
			      "cannot read %s: the library was built without jansson", path);
}

#else
#include <jansson.h>

typedef struct family_reader {
	const json_t *json;
	const char *path;
	const char *type; /* model_type */
} family_reader_t;

/* ---- values ----------------------------------------------------------------------------- */

static srt_status_t fail_type(const family_reader_t *r, const char *key, const char *wanted)
{
	return srt_model_fail(SRT_ERR_FORMAT, "%s: '%s' must be %s", r->path, key, wanted);
}

/* What the library does not have; the text is `key` with its value. */
static srt_status_t fail_value(const family_reader_t *r, const char *key, const json_t *value,
			       const char *possible)
{
	char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
	srt_status_t status;

	for (char *c = text; c != NULL && *c; c++)
		*c = (char)(*c == 0x7f ? '?' : *c); /* the control byte that is not escaped */
	status = srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: '%s' is %.60s; of a model of type %s it can be %s", r->path,
				key, text != NULL ? text : "?", r->type, possible);
	free(text);
	return status;
}

/* A key that is missing or null is NULL. */
static const json_t *get(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	return json_is_null(value) ? NULL : value;
}

/* Integer, of which the default stays without the key. */
static srt_status_t read_int(const family_reader_t *r, const char *key, int64_t *value)
{
	const json_t *json = get(r->json, key);

	if (json == NULL)
		return SRT_OK;
	if (!json_is_integer(json))
		return fail_type(r, key, "a whole number");
	*value = json_integer_value(json);
	return SRT_OK;
}

static srt_status_t read_float_of(const family_reader_t *r, const json_t *object, const char *key,
				  float *value)
{
	const json_t *json = get(object, key);

	if (json == NULL)
		return SRT_OK;
	if (!json_is_number(json) || !isfinite((float)json_number_value(json)))
		return fail_type(r, key, "a number");
	*value = (float)json_number_value(json);
	return SRT_OK;
}

static srt_status_t read_float(const family_reader_t *r, const char *key, float *value)
{
	return read_float_of(r, r->json, key, value);
}

static srt_status_t read_bool(const family_reader_t *r, const char *key, int *value)
{
	const json_t *json = get(r->json, key);

	if (json == NULL)
		return SRT_OK;
	if (!json_is_boolean(json))
		return fail_type(r, key, "true or false");
	*value = json_is_true(json);
	return SRT_OK;
}

/* A switch whose other position the library does not have. */
static srt_status_t refuse_bool(const family_reader_t *r, const char *key, int possible)
{
	int value = possible;

	SRT_TRY(read_bool(r, key, &value));
	return value == possible ?
		       SRT_OK :
		       fail_value(r, key, get(r->json, key), possible ? "true" : "false");
}

/* ---- keys of all families --------------------------------------------------------------- */

static srt_status_t read_sizes(const family_reader_t *r, const srt_family_t *family,
			       srt_decoder_config_t *c)
{
	static const char *const keys[FAMILY_SIZES] = { "hidden_size", "num_hidden_layers",
							"num_attention_heads",
							"max_position_embeddings",
							"intermediate_size" };
	int64_t *const values[FAMILY_SIZES] = { &c->width, &c->layers, &c->heads, &c->context,
						&c->ffn_width };
	const int is_gpt2 = family->size_keys[FAMILY_FFN] != NULL;

	for (int i = 0; i < FAMILY_SIZES; i++) {
		const char *key = is_gpt2 ? family->size_keys[i] : keys[i];

		SRT_TRY(read_int(r, key, values[i]));
		/* 4 * width without n_inner */
		if (get(r->json, key) == NULL && !(is_gpt2 && i == FAMILY_FFN))
			return srt_model_fail(SRT_ERR_INVALID_ARGUMENT, "%s has no '%s'", r->path,
					      key);
		if (get(r->json, key) != NULL && *values[i] < 1)
			return fail_value(r, key, get(r->json, key), "1 or more");
	}
	if (get(r->json, "vocab_size") == NULL)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT, "%s has no 'vocab_size'", r->path);
	SRT_TRY(read_int(r, "vocab_size", &c->vocab));
	/* null: every query head has its own key and value */
	if (json_is_null(json_object_get(r->json, "num_key_value_heads")))
		c->kv_heads = 0;
	SRT_TRY(read_int(r, "num_key_value_heads", &c->kv_heads));
	if (json_is_null(json_object_get(r->json, "head_dim")))
		c->head_dim = 0;
	return read_int(r, "head_dim", &c->head_dim);
}

static srt_status_t read_activation(const family_reader_t *r, const srt_family_t *family,
				    srt_decoder_config_t *c)
{
	static const struct {
		const char *name;
		srt_glu_t act;
	} names[] = {
		{ "silu", SRT_GLU_SILU },           { "swish", SRT_GLU_SILU },
		{ "gelu", SRT_GLU_GELU_ERF },       { "gelu_new", SRT_GLU_GELU_TANH },
		{ "gelu_fast", SRT_GLU_GELU_TANH }, { "gelu_pytorch_tanh", SRT_GLU_GELU_TANH },
	};
	const char *key = family->act_key != NULL ? family->act_key : "hidden_act";
	const json_t *json = get(r->json, key);

	if (json == NULL)
		return SRT_OK;
	for (size_t i = 0; json_is_string(json) && i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(json_string_value(json), names[i].name) == 0) {
			c->act = names[i].act;
			return SRT_OK;
		}
	}
	return fail_value(r, key, json,
			  "silu, swish, gelu, gelu_new, gelu_fast or gelu_pytorch_tanh");
}

static srt_status_t read_biases(const family_reader_t *r, const srt_family_t *family,
				srt_decoder_config_t *c)
{
	int attention = c->qkv_bias, mlp = c->ffn_bias;

	if (family->biases & FAMILY_BIAS_QKV)
		SRT_TRY(read_bool(r, "attention_bias", &attention));
	if (family->biases & FAMILY_BIAS_MLP)
		SRT_TRY(read_bool(r, "mlp_bias", &mlp));
	c->qkv_bias = attention;
	if (family->biases & FAMILY_BIAS_O)
		c->o_bias = attention;
	c->ffn_bias = mlp;
	return SRT_OK;
}

static srt_status_t read_padding(const family_reader_t *r, srt_decoder_config_t *c)
{
	c->has_padding = get(r->json, "pad_token_id") != NULL;
	SRT_TRY(read_int(r, "pad_token_id", &c->padding));
	if (!c->has_padding || (c->padding >= 0 && c->padding < c->vocab))
		return SRT_OK;
	return fail_value(r, "pad_token_id", get(r->json, "pad_token_id"),
			  "null or below vocab_size");
}

/* ---- rotary positions ------------------------------------------------------------------- */

/* Scaling: rope_scaling of version 4, or an entry of rope_parameters; `factor` and the others. */
static srt_status_t read_scaling(const family_reader_t *r, const json_t *scaling, const char *key,
				 srt_rope_t *rope)
{
	const json_t *type = get(scaling, "rope_type");
	const char *name;

	if (type == NULL)
		type = get(scaling, "type");
	if (type == NULL && get(scaling, "factor") == NULL)
		return SRT_OK;
	name = json_string_value(type);
	if (name == NULL)
		return fail_type(r, key, "an object with a string 'rope_type'");
	if (strcmp(name, "default") == 0)
		return SRT_OK;
	rope->kind = strcmp(name, "llama3") == 0 ? SRT_ROPE_LLAMA3 : SRT_ROPE_LINEAR;
	if (strcmp(name, "linear") != 0 && strcmp(name, "llama3") != 0)
		return fail_value(r, "rope_type", type, "default, linear or llama3");
	SRT_TRY(read_float_of(r, scaling, "factor", &rope->factor));
	SRT_TRY(read_float_of(r, scaling, "low_freq_factor", &rope->low));
	SRT_TRY(read_float_of(r, scaling, "high_freq_factor", &rope->high));
	/* 0: it is missing, or not a whole number */
	rope->old_context = json_integer_value(get(scaling, "original_max_position_embeddings"));
	if (get(scaling, "factor") == NULL || !(rope->factor >= 1))
		return fail_type(r, key, "an object with a 'factor' of 1 or more");
	if (rope->kind == SRT_ROPE_LLAMA3 &&
	    (rope->old_context < 1 || !(rope->low > 0) || !(rope->high > rope->low)))
		return fail_type(r, key,
				 "an object with original_max_position_embeddings, low_freq_factor "
				 "and a larger high_freq_factor");
	return SRT_OK;
}

/* The part of a head that is turned. */
static srt_status_t set_part(const family_reader_t *r, float part, const srt_decoder_config_t *c,
			     srt_rope_t *rope)
{
	const int64_t head = c->head_dim ? c->head_dim : c->heads > 0 ? c->width / c->heads : 0;

	if (!(part > 0 && part <= 1))
		return fail_type(r, "partial_rotary_factor", "above 0 and at most 1");
	rope->dim = (int64_t)((double)head * (double)part);
	return SRT_OK;
}

/* One entry: {rope_theta, rope_type, ...} of version 5. */
static srt_status_t read_rope_entry(const family_reader_t *r, const json_t *entry, const char *key,
				    const srt_decoder_config_t *c, srt_rope_t *rope)
{
	float part = 1.0f;

	if (!json_is_object(entry))
		return fail_type(r, key, "an object");
	SRT_TRY(read_float(r, "partial_rotary_factor", &part));
	SRT_TRY(read_float_of(r, entry, "partial_rotary_factor", &part));
	SRT_TRY(read_float_of(r, entry, "rope_theta", &rope->base));
	SRT_TRY(set_part(r, part, c, rope));
	return read_scaling(r, entry, key, rope);
}

/* Version 4: keys of the whole configuration. */
static srt_status_t read_rope_keys(const family_reader_t *r, srt_decoder_config_t *c)
{
	const json_t *scaling = get(r->json, "rope_scaling");
	float part = 1.0f;

	SRT_TRY(read_float(r, "rotary_pct", &part));
	SRT_TRY(read_float(r, "partial_rotary_factor", &part));
	SRT_TRY(read_float(r, "rotary_emb_base", &c->rope.base));
	SRT_TRY(read_float(r, "rope_theta", &c->rope.base));
	SRT_TRY(read_float(r, "rope_local_base_freq", &c->window_rope.base));
	SRT_TRY(set_part(r, part, c, &c->rope));
	SRT_TRY(set_part(r, part, c, &c->window_rope));
	if (scaling == NULL)
		return SRT_OK;
	if (c->has_window_rope && get(scaling, "rope_type") == NULL)
		return fail_value(r, "rope_scaling", scaling,
				  "an object with 'rope_type'; transformers does not read 'type' "
				  "there");
	return read_scaling(r, scaling, "rope_scaling", &c->rope);
}

static srt_status_t read_rope(const family_reader_t *r, srt_decoder_config_t *c)
{
	const json_t *entries = get(r->json, "rope_parameters");

	if (!c->rotary)
		return SRT_OK;
	if (entries == NULL)
		return read_rope_keys(r, c);
	if (!c->has_window_rope)
		return read_rope_entry(r, entries, "rope_parameters", c, &c->rope);
	SRT_TRY(read_rope_entry(r, get(entries, "full_attention"), "rope_parameters.full_attention",
				c, &c->rope));
	return read_rope_entry(r, get(entries, "sliding_attention"),
			       "rope_parameters.sliding_attention", c, &c->window_rope);
}

/* ---- windows ---------------------------------------------------------------------------- */

static srt_status_t set_full(const family_reader_t *r, srt_decoder_config_t *c, int64_t layer)
{
	if (layer >= SRT_DECODER_MAX_PATTERN)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "%s: of %lld layers some have a window; at most %d can",
				      r->path, (long long)c->layers, SRT_DECODER_MAX_PATTERN);
	c->full[layer / 64] |= (uint64_t)1 << (layer % 64);
	return SRT_OK;
}

/* layer_types: "full_attention" or "sliding_attention" of each layer. */
static srt_status_t read_layer_types(const family_reader_t *r, const json_t *types,
				     srt_decoder_config_t *c)
{
	const json_t *type;
	size_t i;

	if (!json_is_array(types) || (int64_t)json_array_size(types) != c->layers)
		return fail_type(r, "layer_types", "an array of one string for each layer");
	json_array_foreach(types, i, type)
	{
		const char *text = json_is_string(type) ? json_string_value(type) : "";

		if (strcmp(text, "full_attention") == 0)
			SRT_TRY(set_full(r, c, (int64_t)i));
		else if (strcmp(text, "sliding_attention") != 0)
			return fail_value(r, "layer_types", type,
					  "full_attention or sliding_attention");
	}
	return SRT_OK;
}

/* The layers without a window, where no list has them. */
static srt_status_t set_pattern(const family_reader_t *r, const srt_family_t *family,
				srt_decoder_config_t *c)
{
	const int is_last = family->windows == FAMILY_WINDOW_LAST;
	const char *key = is_last ? "max_window_layers" : "sliding_window_pattern";
	int64_t n = is_last ? 28 : 6;

	SRT_TRY(read_int(r, key, &n));
	if (n < !is_last)
		return fail_value(r, key, get(r->json, key), is_last ? "0 or more" : "1 or more");
	for (int64_t i = 0; i < c->layers; i++)
		if (is_last ? i < n : (i + 1) % n == 0)
			SRT_TRY(set_full(r, c, i));
	return SRT_OK;
}

static srt_status_t read_windows(const family_reader_t *r, const srt_family_t *family,
				 srt_decoder_config_t *c)
{
	const json_t *types = get(r->json, "layer_types");
	int used = family->windows != FAMILY_WINDOW_LAST;

	if (family->windows == FAMILY_WINDOW_LAST)
		SRT_TRY(read_bool(r, "use_sliding_window", &used));
	if (json_is_null(json_object_get(r->json, "sliding_window")) || !used)
		c->window = 0;
	else if (c->window > 0)
		SRT_TRY(read_int(r, "sliding_window", &c->window));
	if (c->window < 0)
		return fail_value(r, "sliding_window", get(r->json, "sliding_window"),
				  "null or 1 and more");
	if (c->window == 0 || family->windows == FAMILY_WINDOW_ALL)
		return SRT_OK;
	return types != NULL ? read_layer_types(r, types, c) : set_pattern(r, family, c);
}

/* ---- keys of one family ------------------------------------------------------------------ */

static srt_status_t read_gemma3(const family_reader_t *r, srt_decoder_config_t *c)
{
	float scalar = 256.0f;

	SRT_TRY(read_float(r, "query_pre_attn_scalar", &scalar));
	if (!(scalar > 0))
		return fail_type(r, "query_pre_attn_scalar", "above 0");
	c->scale = (float)(1.0 / sqrt((double)scalar));
	c->embed_scale = (float)sqrt((double)c->width);
	SRT_TRY(read_float(r, "final_logit_softcapping", &c->softcap));
	return refuse_bool(r, "use_bidirectional_attention", 0);
}

static srt_status_t read_gpt_neox(const family_reader_t *r, srt_decoder_config_t *c)
{
	c->kv_heads = 0;
	c->head_dim = 0;
	c->parallel = 1;
	return read_bool(r, "use_parallel_residual", &c->parallel);
}

static srt_status_t read_gpt2(const family_reader_t *r, srt_decoder_config_t *c)
{
	int scaled = 1;

	c->kv_heads = 0;
	c->head_dim = 0;
	SRT_TRY(read_bool(r, "scale_attn_weights", &scaled));
	if (!scaled)
		c->scale = 1.0f;
	SRT_TRY(refuse_bool(r, "scale_attn_by_inverse_layer_idx", 0));
	return refuse_bool(r, "add_cross_attention", 0);
}

static srt_status_t read_own_keys(const family_reader_t *r, const srt_family_t *family,
				  srt_decoder_config_t *c)
{
	switch (family->keys) {
	case FAMILY_KEYS_GEMMA3:
		return read_gemma3(r, c);
	case FAMILY_KEYS_GPT_NEOX:
		return read_gpt_neox(r, c);
	case FAMILY_KEYS_GPT2:
		return read_gpt2(r, c);
	default:
		return SRT_OK;
	}
}

/* ---- the whole -------------------------------------------------------------------------- */

static srt_status_t find_family(family_reader_t *r, const srt_family_t **family)
{
	const json_t *type = get(r->json, "model_type");

	if (!json_is_string(type))
		return srt_model_fail(SRT_ERR_FORMAT, "%s has no 'model_type'", r->path);
	r->type = json_string_value(type);
	for (size_t i = 0; (*family = srt_family_at(i)) != NULL; i++)
		if (strcmp((*family)->name, r->type) == 0)
			return SRT_OK;
	r->type = "any";
	return fail_value(r, "model_type", type,
			  "llama, mistral, qwen2, qwen3, olmo2, gemma3_text, gpt_neox or gpt2");
}

static srt_status_t read_all(const family_reader_t *r, const srt_family_t *family,
			     srt_decoder_config_t *c)
{
	*c = family->config;
	if (get(r->json, "quantization_config") != NULL)
		return fail_value(r, "quantization_config", get(r->json, "quantization_config"),
				  "absent: weights are F32, F16 or BF16");
	SRT_TRY(read_sizes(r, family, c));
	SRT_TRY(read_activation(r, family, c));
	SRT_TRY(read_float(r, family->eps_key != NULL ? family->eps_key : "rms_norm_eps",
			   &c->norm_eps));
	SRT_TRY(read_float(r, "initializer_range", &c->init_std));
	SRT_TRY(read_bool(r, "tie_word_embeddings", &c->tied));
	SRT_TRY(read_biases(r, family, c));
	if (family->has_padding)
		SRT_TRY(read_padding(r, c));
	SRT_TRY(read_windows(r, family, c));
	SRT_TRY(read_own_keys(r, family, c));
	SRT_TRY(read_rope(r, c));
	return srt_decoder_check(c, 1);
}

srt_status_t srt_family_parse_config(const char *text, size_t nbytes, const char *path,
				     const srt_family_t **family, srt_decoder_config_t *config)
{
	family_reader_t r = { .path = path };
	const srt_family_t *found;
	srt_decoder_config_t c;
	json_error_t error;
	json_t *json = json_loadb(text, nbytes, JSON_REJECT_DUPLICATES, &error);
	srt_status_t status;

	if (json == NULL)
		return srt_model_fail(SRT_ERR_FORMAT, "%s is not JSON: line %d, column %d", path,
				      error.line, error.column);
	r.json = json;
	status = find_family(&r, &found);
	if (status == SRT_OK)
		status = read_all(&r, found, &c);
	json_decref(json);
	if (status != SRT_OK)
		return status;
	*family = found;
	*config = c;
	return SRT_OK;
}

#endif
