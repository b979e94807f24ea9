/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * config.json of Hugging Face as descriptions: defaults, both spellings, what is refused and how;
 * names of parameters in files of each family. The results of such models are compared with
 * recordings by tests/golden/test_hf.sh.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shardrt/models/families.h>
#include "tests/harness/check.h"

#ifdef HAVE_JANSSON

#define SIZES                                                                                      \
	"\"hidden_size\":24,\"num_hidden_layers\":3,\"num_attention_heads\":4,"                    \
	"\"intermediate_size\":40,\"max_position_embeddings\":64,\"vocab_size\":67"
#define GPT2                                                                                       \
	"\"model_type\":\"gpt2\",\"n_embd\":24,\"n_layer\":2,\"n_head\":4,\"n_positions\":40,"     \
	"\"vocab_size\":67"

static srt_decoder_config_t read_ok(const char *members)
{
	const srt_family_t *family = NULL;
	srt_decoder_config_t c = { 0 };
	char text[2048];

	snprintf(text, sizeof(text), "{%s}", members);
	CHECK_OK(srt_family_parse_config(text, strlen(text), "config.json", &family, &c));
	CHECK(family != NULL);
	return c;
}

static void check_refused(const char *members, srt_status_t status, const char *message)
{
	srt_decoder_config_t c = { .layers = -7 };
	const srt_family_t *family = NULL;
	char text[2048];

	snprintf(text, sizeof(text), "{%s}", members);
	CHECK_STATUS(srt_family_parse_config(text, strlen(text), "config.json", &family, &c),
		     status);
	CHECK_ERROR_HAS(message);
	CHECK(family == NULL && c.layers == -7);
}

/* A key that is missing has the default of the family. */
static void test_defaults(void)
{
	srt_decoder_config_t c = read_ok("\"model_type\":\"llama\"," SIZES);

	CHECK(c.kv_heads == 0 && c.head_dim == 0 && c.rope.dim == 6 && !c.tied && !c.has_padding);
	CHECK(c.rope.base == 10000.0f && c.norm_eps == 1e-6f && c.act == SRT_GLU_SILU && c.gated);
	CHECK(c.window == 0 && !c.qkv_bias && !c.o_bias && !c.ffn_bias);
	c = read_ok("\"model_type\":\"mistral\",\"num_key_value_heads\":2," SIZES);
	CHECK(c.window == 4096 && c.full[0] == 0);
	c = read_ok("\"model_type\":\"mistral\",\"num_key_value_heads\":null,"
		    "\"sliding_window\":null," SIZES);
	CHECK(c.window == 0 && c.kv_heads == 0);
	c = read_ok("\"model_type\":\"qwen2\",\"num_key_value_heads\":2," SIZES);
	CHECK(c.window == 0 && c.qkv_bias && !c.o_bias && c.kv_heads == 2);
	c = read_ok("\"model_type\":\"qwen3\",\"num_key_value_heads\":2," SIZES);
	CHECK(c.head_dim == 128 && c.rope.dim == 128 && c.qk_norm == SRT_DECODER_QK_HEAD);
	c = read_ok("\"model_type\":\"olmo2\"," SIZES);
	CHECK(c.placement == SRT_DECODER_POST && c.norm_eps == 1e-5f);
	c = read_ok("\"model_type\":\"gemma3_text\"," SIZES);
	CHECK(c.head_dim == 256 && c.tied && c.norm_one_plus && c.scale == 1.0f / 16);
	CHECK(c.rope.base == 1000000.0f && c.window_rope.base == 10000.0f && c.window == 4096);
	CHECK(c.full[0] == 0); /* of three layers none is a sixth */
	c = read_ok("\"model_type\":\"gpt_neox\"," SIZES);
	CHECK(c.parallel && c.qkv_bias && c.o_bias && c.ffn_bias && !c.has_padding);
	c = read_ok(GPT2);
	CHECK(c.tied && c.ffn_width == 0 && !c.rotary && c.act == SRT_GLU_GELU_TANH);
	CHECK_INT(srt_decoder_nparams(&c, 0),
		  67 * 24 + 40 * 24 + 2 * (12 * 24 * 24 + 13 * 24) + 2 * 24);
}

/* transformers 4 and 5 say the same in other words. */
static void test_spellings(void)
{
	const char *const llama3 = "\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4,"
				   "\"original_max_position_embeddings\":32";
	srt_decoder_config_t a, b;
	char text[1024];

	snprintf(text, sizeof(text),
		 "\"model_type\":\"llama\",\"rope_parameters\":{\"rope_type\":\"llama3\","
		 "\"rope_theta\":5e5,%s}," SIZES,
		 llama3);
	a = read_ok(text);
	snprintf(text, sizeof(text),
		 "\"model_type\":\"llama\",\"rope_theta\":5e5,\"rope_scaling\":{\"type\":"
		 "\"llama3\",%s}," SIZES,
		 llama3);
	b = read_ok(text);
	CHECK(a.rope.kind == SRT_ROPE_LLAMA3 && a.rope.old_context == 32);
	CHECK(b.rope.kind == a.rope.kind && b.rope.base == a.rope.base &&
	      b.rope.factor == a.rope.factor && b.rope.low == a.rope.low &&
	      b.rope.high == a.rope.high && b.rope.old_context == a.rope.old_context);
	a = read_ok("\"model_type\":\"gpt_neox\",\"rope_parameters\":{\"rope_theta\":10000.0,"
		    "\"partial_rotary_factor\":0.34,\"rope_type\":\"default\"}," SIZES);
	b = read_ok("\"model_type\":\"gpt_neox\",\"rotary_pct\":0.34," SIZES);
	CHECK(a.rope.dim == 2 && b.rope.dim == 2);
	a = read_ok(
		"\"model_type\":\"gemma3_text\",\"layer_types\":[\"sliding_attention\","
		"\"full_attention\",\"sliding_attention\"],\"_sliding_window_pattern\":3," SIZES);
	b = read_ok("\"model_type\":\"gemma3_text\",\"sliding_window_pattern\":2," SIZES);
	CHECK(a.full[0] == 2 && b.full[0] == 2);
	a = read_ok("\"model_type\":\"qwen2\",\"use_sliding_window\":true,\"sliding_window\":5,"
		    "\"max_window_layers\":1,\"num_key_value_heads\":2," SIZES);
	CHECK(a.window == 5 && a.full[0] == 1);
}

static void test_refused(void)
{
	static const struct {
		const char *members;
		srt_status_t status;
		const char *message;
	} rows[] = {
		{ "\"a\":", SRT_ERR_FORMAT, "config.json is not JSON: line 1" },
		{ SIZES, SRT_ERR_FORMAT, "has no 'model_type'" },
		{ "\"model_type\":\"bert\"," SIZES, SRT_ERR_INVALID_ARGUMENT,
		  "'model_type' is \"bert\"; of a model of type any it can be llama, mistral" },
		{ "\"model_type\":\"llama\",\"hidden_size\":24", SRT_ERR_INVALID_ARGUMENT,
		  "has no 'num_hidden_layers'" },
		{ "\"model_type\":\"llama\",\"num_key_value_heads\":3," SIZES,
		  SRT_ERR_INVALID_ARGUMENT, "4 heads of queries cannot share 3 heads" },
		{ "\"model_type\":\"mistral\",\"sliding_window\":3000000000," SIZES,
		  SRT_ERR_INVALID_ARGUMENT, "a window has 0 (all) to 2147483647 tokens" },
		{ "\"model_type\":\"llama\",\"num_key_value_heads\":\"2\"," SIZES, SRT_ERR_FORMAT,
		  "'num_key_value_heads' must be a whole number" },
		{ "\"model_type\":\"llama\",\"hidden_act\":\"relu\"," SIZES,
		  SRT_ERR_INVALID_ARGUMENT, "'hidden_act' is \"relu\"" },
		{ "\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4}," SIZES,
		  SRT_ERR_INVALID_ARGUMENT,
		  "'rope_type' is \"yarn\"; of a model of type llama it "
		  "can be default, linear or llama3" },
		{ "\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"llama3\",\"factor\":4}," SIZES,
		  SRT_ERR_FORMAT, "original_max_position_embeddings" },
		{ "\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"linear\"}," SIZES,
		  SRT_ERR_FORMAT, "'factor' of 1 or more" },
		{ "\"model_type\":\"gemma3_text\",\"rope_scaling\":{\"type\":\"linear\",\"factor\":"
		  "2}," SIZES,
		  SRT_ERR_INVALID_ARGUMENT, "does not read 'type'" },
		{ "\"model_type\":\"llama\",\"quantization_config\":{\"bits\":4}," SIZES,
		  SRT_ERR_INVALID_ARGUMENT, "'quantization_config' is {\"bits\":4}" },
		{ "\"model_type\":\"llama\",\"pad_token_id\":67," SIZES, SRT_ERR_INVALID_ARGUMENT,
		  "null or below vocab_size" },
		{ "\"model_type\":\"gemma3_text\",\"layer_types\":[\"full_attention\"]," SIZES,
		  SRT_ERR_FORMAT, "one string for each layer" },
		{ "\"model_type\":\"gemma3_text\",\"use_bidirectional_attention\":true," SIZES,
		  SRT_ERR_INVALID_ARGUMENT, "'use_bidirectional_attention' is true" },
		{ GPT2 ",\"scale_attn_by_inverse_layer_idx\":true", SRT_ERR_INVALID_ARGUMENT,
		  "'scale_attn_by_inverse_layer_idx' is true" },
		{ "\"model_type\":\"gpt_neox\",\"rotary_pct\":0.2," SIZES, SRT_ERR_INVALID_ARGUMENT,
		  "rotary positions turn 1 of 6 values" },
		{ "\"model_type\":\"llama\",\"model_type\":\"llama\"," SIZES, SRT_ERR_FORMAT,
		  "is not JSON" },
		{ "\"model_type\":\"llama\",\"rms_norm_eps\":1e400," SIZES, SRT_ERR_FORMAT,
		  "is not JSON" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		check_refused(rows[i].members, rows[i].status, rows[i].message);
}

/* What a file of the family has for a name. */
static srt_file_source_t find_source(const srt_family_file_t *match, const char *name)
{
	const srt_file_names_t names = srt_family_names(match);
	srt_file_source_t source = { .size = sizeof(source) };

	CHECK_MSG(names.find(name, &source, names.arg), "%s", name);
	return source;
}

static const srt_family_t *find_family(const char *name)
{
	const srt_family_t *family;

	for (size_t i = 0; (family = srt_family_at(i)) != NULL; i++)
		if (!strcmp(srt_family_name(family), name))
			return family;
	return NULL;
}

static void test_names(void)
{
	srt_decoder_config_t c = read_ok(GPT2);
	srt_family_file_t match = { .family = find_family("gpt2"), .config = &c };
	srt_file_names_t names = srt_family_names(&match);
	srt_file_source_t source = find_source(&match, "transformer.h.1.attn.c_attn.weight");

	CHECK(source.transposed && source.interleaved_heads == 0);
	CHECK_STR(source.name, "transformer.h.1.attn.c_attn.weight");
	CHECK(!find_source(&match, "transformer.h.1.attn.c_attn.bias").transposed);
	CHECK(!find_source(&match, "transformer.h.1.ln_1.weight").transposed);
	CHECK(!find_source(&match, "transformer.wte.weight").transposed);
	CHECK(!names.find("lm_head.weight", &source, names.arg)); /* tied */
	CHECK(names.ignores("lm_head.weight", names.arg));
	CHECK(names.ignores("transformer.h.0.attn.bias", names.arg));
	CHECK(!names.ignores("transformer.h.0.attn.c_attn.bias", names.arg));
	match.bare = 1;
	CHECK_STR(find_source(&match, "transformer.h.0.mlp.c_fc.weight").name,
		  "h.0.mlp.c_fc.weight");
	c = read_ok("\"model_type\":\"gpt_neox\"," SIZES);
	match = (srt_family_file_t){ .family = find_family("gpt_neox"), .config = &c };
	source = find_source(&match, "gpt_neox.layers.0.attention.query_key_value.bias");
	CHECK(source.interleaved_heads == 4 && !source.transposed);
	CHECK(find_source(&match, "gpt_neox.layers.0.attention.dense.weight").interleaved_heads ==
	      0);
	CHECK_STR(find_source(&match, "embed_out.weight").name, "embed_out.weight");
}

#endif

static void check_dtype(const char *text, srt_dtype_t dtype, const char *want)
{
	char *changed = NULL;

	CHECK_OK(srt_family_set_dtype(text, dtype, &changed));
	CHECK_STR(changed != NULL ? changed : "", want);
	free(changed);
}

/* config.json with another dtype: values of all types before the key, and the key elsewhere. */
static void test_dtype(void)
{
	check_dtype("{\"a\": 1}", SRT_F32, "{\n  \"torch_dtype\": \"float32\",\"a\": 1}");
	check_dtype("{\"dtype\" : null\n}", SRT_BF16, "{\"dtype\" : \"bfloat16\"\n}");
	check_dtype("{\"a\":[1,{\"dtype\":2}],\"torch_dtype\":\"x\",\"b\":{}}\n", SRT_F16,
		    "{\"a\":[1,{\"dtype\":2}],\"torch_dtype\":\"float16\",\"b\":{}}\n");
	check_dtype(" { \"a\\\"}\": 1, \"dtype\":\"f,}\" , \"torch_dtype\":1 }", SRT_F32,
		    " { \"a\\\"}\": 1, \"dtype\":\"float32\" , \"torch_dtype\":\"float32\" }");
}

static void test_presets(void)
{
	srt_decoder_config_t c;

	for (size_t i = 0; srt_decoder_preset_name(i) != NULL; i++) {
		CHECK_OK(srt_decoder_preset(srt_decoder_preset_name(i), &c));
		CHECK_OK(srt_decoder_check(&c, 1));
	}
	CHECK_STATUS(srt_decoder_preset("gpt5", &c), SRT_ERR_NOT_FOUND);
	CHECK_ERROR_HAS("'gpt5'; the presets are nano");
}

int main(void)
{
	test_presets();
	test_dtype();
#ifdef HAVE_JANSSON
	test_defaults();
	test_spellings();
	test_refused();
	test_names();
#else
	CHECK_STATUS(srt_family_parse_config("{}", 2, "config.json", NULL, NULL),
		     SRT_ERR_UNSUPPORTED);
#endif
	return check_done();
}
