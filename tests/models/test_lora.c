/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * LoRA adapters: which modules targets match, adapter_config.json with all that is refused, memory
 * of a decoder with a frozen base, rounding of merged weights. Results of training are compared
 * with recordings of PEFT by tests/golden/test_hf.sh, and runs by tests/tools/test_lora.sh.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shardrt/models/lora.h>
#include "tests/harness/check.h"

/* ---- targets ---------------------------------------------------------------------------- */

static srt_decoder_config_t get_preset(void)
{
	srt_decoder_config_t c;

	CHECK_OK_OR_DIE(srt_decoder_preset("nano", &c));
	c.layers = 2;
	return c;
}

/* The parts that match, a letter for each: qkv, o, up, down; of both layers. */
static const char *match(const srt_lora_t *lora)
{
	static const srt_decoder_part_t parts[] = { SRT_DECODER_QKV, SRT_DECODER_O, SRT_DECODER_UP,
						    SRT_DECODER_DOWN };
	static char text[16];
	unsigned char flags[2 * SRT_DECODER_PARTS];
	srt_decoder_config_t c = get_preset();
	size_t n = 0;
	int others = 0;

	CHECK_OK_OR_DIE(srt_lora_match(lora, &c, flags));
	for (int i = 0; i < 2; i++) {
		for (int k = 0; k < 4; k++) {
			unsigned char *flag = &flags[i * SRT_DECODER_PARTS + (int)parts[k]];

			text[n++] = *flag ? "qoud"[k] : '-';
			*flag = 0;
		}
	}
	text[n] = '\0';
	for (size_t i = 0; i < sizeof(flags); i++)
		others += flags[i];
	CHECK_INT(others, 0);
	return text;
}

static const char *match_names(const char *a, const char *b)
{
	const char *const targets[] = { a, b };
	const srt_lora_t lora = {
		.r = 4, .alpha = 8, .targets = targets, .ntargets = b != NULL ? 2 : 1
	};

	return match(&lora);
}

static void refuse_name(const char *name, const char *words)
{
	const srt_lora_t lora = { .r = 4, .alpha = 8, .targets = &name, .ntargets = 1 };
	unsigned char flags[2 * SRT_DECODER_PARTS];
	srt_decoder_config_t c = get_preset();

	CHECK_STATUS(srt_lora_match(&lora, &c, flags), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS(words);
}

static void test_targets(void)
{
	const srt_lora_t all = { .r = 4, .alpha = 8 };

	CHECK_STR(match(&all), "qoudqoud");
	CHECK_STR(match_names("fc", NULL), "--u---u-");
	CHECK_STR(match_names("attn.qkv", "out"), "q--dq--d");
	CHECK_STR(match_names("blocks.1.attn.proj", NULL), "-----o--");
	CHECK_STR(match_names("0.fc", "1.out"), "--u----d");
	refuse_name("c", "target 'c' matches no module of GPT"); /* the end of fc, but no name */
	refuse_name("", "matches no module");
	refuse_name("attn", "matches no module");
	refuse_name("head", "only the Linear layers of blocks");
	refuse_name("wte", "only the Linear layers of blocks");
	refuse_name("ln1", "which is a norm");
	refuse_name("a\x1b[2J", "target 'a?[2J'");
}

static void test_expressions(void)
{
	srt_lora_t lora = { .r = 4, .alpha = 8, .pattern = "blocks\\.1\\.(attn\\.qkv|fc)" };
	unsigned char flags[2 * SRT_DECODER_PARTS];
	srt_decoder_config_t c = get_preset();
	const srt_status_t status = srt_lora_match(&lora, &c, flags);

	if (status == SRT_ERR_UNSUPPORTED) {
		printf("skipped: expressions: %s\n", srt_error_last());
		return;
	}
	CHECK_STR(match(&lora), "----q-u-");
	lora.pattern =
		".*attn.*|blocks.0.out"; /* the whole name, whatever is in the alternatives */
	CHECK_STR(match(&lora), "qo-dqo--");
	lora.pattern = "attn.qkv";
	CHECK_STATUS(srt_lora_match(&lora, &c, flags), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("matches no module");
	lora.pattern = "(";
	CHECK_STATUS(srt_lora_match(&lora, &c, flags), SRT_ERR_UNSUPPORTED);
}

static void test_sizes(void)
{
	srt_lora_t lora = { .r = 16, .alpha = 8 };
	unsigned char flags[2 * SRT_DECODER_PARTS];
	srt_decoder_config_t c = get_preset();
	static const int64_t sizes[] = { 0, -1, SRT_LORA_MAX_R + 1, INT64_MAX };
	static const double alphas[] = { 0, 1e-300, 1e300, (double)INFINITY, (double)NAN };

	CHECK(srt_lora_scaling(&lora) == 0.5);
	lora.rslora = 1;
	CHECK(srt_lora_scaling(&lora) == 2.0);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		lora.r = sizes[i];
		CHECK_STATUS(srt_lora_match(&lora, &c, flags), SRT_ERR_INVALID_ARGUMENT);
		CHECK_ERROR_HAS("r must be from 1 to 65536");
	}
	lora.r = 16;
	for (size_t i = 0; i < sizeof(alphas) / sizeof(alphas[0]); i++) {
		lora.alpha = alphas[i];
		CHECK_STATUS(srt_lora_match(&lora, &c, flags), SRT_ERR_INVALID_ARGUMENT);
		CHECK_ERROR_HAS("alpha is");
	}
}

/* ---- adapter_config.json ---------------------------------------------------------------- */

static srt_status_t parse(const char *members, srt_lora_t **lora)
{
	char text[1024];

	*lora = NULL;
	snprintf(text, sizeof(text), "{\"peft_type\":\"LORA\",\"target_modules\":[\"fc\"]%s}",
		 members);
	return srt_lora_parse(text, strlen(text), "adapter_config.json", lora);
}

static void refuse(const char *members, srt_status_t status, const char *words)
{
	srt_lora_t *lora;

	CHECK_STATUS(parse(members, &lora), status);
	CHECK_ERROR_HAS(words);
	CHECK(lora == NULL);
}

static void test_config(void)
{
	static const char *const off[] = { "modules_to_save",
					   "layers_to_transform",
					   "exclude_modules",
					   "rank_pattern",
					   "alpha_pattern",
					   "layer_replication",
					   "use_dora",
					   "lora_bias",
					   "use_qalora",
					   "trainable_token_indices",
					   "eva_config",
					   "target_parameters",
					   "key_of_a_later_version" };
	srt_lora_t *lora;
	char text[256];

	if (parse("", &lora) == SRT_ERR_UNSUPPORTED) {
		printf("skipped: adapter_config.json: %s\n", srt_error_last());
		return;
	}
	CHECK(lora->r == 8 && lora->alpha == 8 && !lora->rslora && lora->ntargets == 1);
	srt_lora_destroy(lora);
	CHECK_OK_OR_DIE(parse(",\"r\":16,\"lora_alpha\":32.5,\"use_rslora\":true,\"bias\":\"none\","
			      "\"lora_dropout\":0.05,\"fan_in_fan_out\":true,"
			      "\"init_lora_weights\":\"gaussian\",\"use_dora\":false,"
			      "\"rank_pattern\":{},\"modules_to_save\":[],\"eva_config\":null",
			      &lora));
	CHECK(lora->r == 16 && lora->alpha == 32.5 && lora->rslora);
	CHECK_STR(match(lora), "--u---u-");
	srt_lora_destroy(lora);
	for (size_t i = 0; i < sizeof(off) / sizeof(off[0]); i++) {
		static const char *const values[] = { "true", "1", "\"x\"", "[\"x\"]",
						      "{\"x\":1}" };

		for (size_t k = 0; k < sizeof(values) / sizeof(values[0]); k++) {
			snprintf(text, sizeof(text), ",\"%s\":%s", off[i], values[k]);
			refuse(text, SRT_ERR_INVALID_ARGUMENT, off[i]);
		}
	}
	refuse(",\"bias\":\"all\"", SRT_ERR_INVALID_ARGUMENT, "'bias' is \"all\"");
	refuse(",\"init_lora_weights\":\"pissa\"", SRT_ERR_INVALID_ARGUMENT, "\"pissa\"");
	refuse(",\"r\":0", SRT_ERR_INVALID_ARGUMENT, "'r' is 0");
	refuse(",\"r\":65537", SRT_ERR_INVALID_ARGUMENT, "'r' is 65537");
	refuse(",\"r\":1e3", SRT_ERR_FORMAT, "'r' must be a whole number");
	refuse(",\"lora_alpha\":\"8\"", SRT_ERR_FORMAT, "'lora_alpha' must be a number");
	refuse(",\"use_rslora\":1", SRT_ERR_FORMAT, "'use_rslora' must be true or false");
	refuse(",\"r\":1,\"r\":2", SRT_ERR_FORMAT, "duplicate");
	CHECK_STATUS(srt_lora_parse("[1]", 3, "a.json", &lora), SRT_ERR_FORMAT);
	CHECK_STATUS(srt_lora_parse("{\"peft_type\":\"IA3\"}", 19, "a.json", &lora),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("'peft_type' is \"IA3\"");
	CHECK_STATUS(srt_lora_parse("{\"target_modules\":[]}", 21, "a.json", &lora),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_lora_parse("{\"target_modules\":[1]}", 22, "a.json", &lora),
		     SRT_ERR_FORMAT);
	CHECK_STATUS(srt_lora_parse("{}", 2, "a.json", &lora), SRT_ERR_FORMAT);
	CHECK_OK_OR_DIE(srt_lora_parse("{\"target_modules\":\"all-linear\"}", 31, "a.json", &lora));
	CHECK_STR(match(lora), "qoudqoud");
	srt_lora_destroy(lora);
}

/* ---- memory ----------------------------------------------------------------------------- */

typedef struct sizes {
	srt_plan_t plan;
	size_t arena;
	int64_t adapters;
} sizes_t;

/* What training needs on one rank. */
static sizes_t measure(srt_context_t *context, const srt_lora_t *lora, srt_dtype_t base)
{
	const srt_model_options_t model = { .lora = lora, .base_dtype = base };
	srt_engine_options_t options = SRT_ENGINE_OPTIONS_INIT;
	srt_decoder_config_t c = get_preset();
	sizes_t s = { .plan = SRT_PLAN_INIT };
	srt_decoder_t *decoder;
	srt_engine_t *engine;
	size_t scratch;

	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_OK_OR_DIE(srt_decoder_declare(engine, &c, &model, &decoder));
	CHECK_OK_OR_DIE(srt_decoder_memory(decoder, srt_context_device(context), 2, 64, &s.arena,
					   &scratch));
	CHECK_OK(srt_engine_plan(engine, 0, 0, &s.plan));
	s.adapters = srt_decoder_lora_nparams(decoder);
	CHECK((srt_decoder_lora(decoder) != NULL) == (lora != NULL));
	srt_decoder_destroy(decoder);
	srt_engine_destroy(engine);
	return s;
}

/* Gradients and state are those of adapters alone; a base of 16 bits has half the bytes. */
static void test_memory(void)
{
	const char *const q[] = { "qkv" };
	const srt_lora_t all = { .r = 4, .alpha = 8 };
	const srt_lora_t few = { .r = 4, .alpha = 8, .targets = q, .ntargets = 1 };
	const int64_t w = 128, expected = 2 * 4 * (w + 3 * w + w + w + w + 4 * w + 4 * w + w);
	const size_t base_nbytes = 2 * (size_t)(12 * w * w + 9 * w) * sizeof(float);
	srt_context_t *context;
	sizes_t whole, fp32, bf16, less;

	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	whole = measure(context, NULL, SRT_DTYPE_NONE);
	fp32 = measure(context, &all, SRT_DTYPE_NONE);
	bf16 = measure(context, &all, SRT_BF16);
	less = measure(context, &few, SRT_DTYPE_NONE);
	CHECK_INT(whole.adapters, 0);
	CHECK_INT(fp32.adapters, expected);
	CHECK_INT(less.adapters, 2 * 4 * (w + 3 * w));
	/* shards begin at multiples of some bytes */
	CHECK(fp32.plan.grad_shards >= (size_t)expected * sizeof(float));
	CHECK(fp32.plan.grad_shards < (size_t)expected * sizeof(float) * 11 / 10);
	CHECK(fp32.plan.optimizer_state < 3 * (size_t)expected * sizeof(float));
	CHECK(fp32.plan.param_shards > whole.plan.param_shards);
	CHECK(bf16.plan.param_shards < fp32.plan.param_shards - base_nbytes * 9 / 20);
	CHECK_INT(bf16.plan.grad_shards, fp32.plan.grad_shards);
	/* what no gradient needs is not kept: the inputs of frozen layers without an adapter */
	CHECK(less.arena + 2 * 2 * 64 * 4 * (size_t)w * sizeof(float) <= whole.arena);
	srt_context_destroy(context);
}

int main(void)
{
	test_targets();
	test_expressions();
	test_sizes();
	test_config();
	test_memory();
	return check_done();
}
