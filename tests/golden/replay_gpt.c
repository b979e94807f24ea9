/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpt (replay.h): the model library's where the case has its units, which are the blocks and the
 * root; else its layers in the units of the case.
 */
#include "config.h"

#include <string.h>

#include "models/presets.h"
#include "tests/golden/replay.h"

static int64_t hyper_size(const replay_t *r, const char *key)
{
	return (int64_t)golden_number(replay_hyper(r), key, 0);
}

/* Whether the model library declares the same units. It cuts all layers or none: not those of a
 * case's plan. */
static bool is_library_gpt(const replay_t *r)
{
	const json_t *units = json_object_get(r->golden->json, "units"), *unit;
	int64_t nblocks = hyper_size(r, "layers");
	size_t i;

	if (golden_is_set(r->golden->json, "tp_plan"))
		return false;
	json_array_foreach(units, i, unit)
	{
		const char *module = golden_text(unit, "module");
		char want[32] = "";

		if ((int64_t)i < nblocks)
			snprintf(want, sizeof(want), "blocks.%zu", i);
		if (module == NULL || strcmp(module, want))
			return false;
	}
	return (int64_t)json_array_size(units) == nblocks + 1 && r->reshard == 0;
}

srt_status_t replay_declare_gpt(replay_t *r)
{
	const json_t *h = replay_hyper(r);
	const srt_decoder_config_t config = {
		SRT_DECODER_GPT,
		.layers = hyper_size(r, "layers"),
		.heads = hyper_size(r, "heads"),
		.width = hyper_size(r, "d"),
		.context = hyper_size(r, "T"),
		.vocab = hyper_size(r, "vocab"),
		.ffn_width = hyper_size(r, "mult") * hyper_size(r, "d"),
		.tied = golden_is_set(h, "tied"),
		.qkv_bias = golden_is_set(h, "attn_bias"),
	};
	srt_model_options_t options;

	if (!is_library_gpt(r))
		return replay_declare_units(r);
	SRT_TRY(replay_model_options(r, &options));
	return srt_decoder_declare(r->engine, &config, &options, &r->decoder);
}

static srt_status_t record_library(replay_t *r)
{
	const srt_safetensors_tensor_t *tokens =
		srt_safetensors_find(r->golden->input, "step1.micro0.tokens");
	srt_param_t *wte = srt_engine_param_find(r->engine, "wte.weight");
	srt_unit_types_t types = SRT_UNIT_TYPES_INIT;
	srt_decoder_io_t io;

	if (tokens == NULL || tokens->ndim != 2)
		return srt_fail(SRT_ERR_FORMAT, "the case has no tokens of shape (batch,context)");
	SRT_TRY(srt_decoder_record_loss(r->decoder, r->tape, tokens->shape[0], tokens->shape[1],
					&io));
	r->inputs[r->ninputs++] = (replay_input_t){ .name = "tokens", .tensor = io.ids };
	r->inputs[r->ninputs++] = (replay_input_t){ .name = "targets", .tensor = io.targets };
	r->loss = io.loss;
	r->loss_dtype = SRT_F32;
	r->divisor = (double)(tokens->shape[0] * tokens->shape[1]);
	/* the logits are not kept: they are what the root computes, or casts its output to */
	SRT_TRY(srt_precision_resolve(&r->root_precision, test_local(wte, SRT_PARAM_VALUE).dtype,
				      &types));
	r->output_dtype = replay_output_dtype(&types);
	return SRT_OK;
}

static srt_tensor_t *record_block(replay_t *r, srt_tensor_t *x, int64_t i)
{
	srt_tensor_t *y;
	char name[5][64];
	static const char *const modules[] = { "ln1", "attn.qkv", "attn.proj", "ln2", "fc" };

	for (size_t k = 0; k < SRT_ARRAY_LEN(modules); k++)
		snprintf(name[k], sizeof(name[k]), "blocks.%lld.%s", (long long)i, modules[k]);
	y = replay_layernorm(r, x, name[0]);
	y = replay_linear(r, y, name[1]);
	y = srt_layer_attention(r->tape, y, hyper_size(r, "T"), hyper_size(r, "heads"), 1);
	y = replay_linear(r, y, name[2]);
	x = srt_layer_add(r->tape, x, y);
	y = replay_layernorm(r, x, name[3]);
	y = replay_linear(r, y, name[4]);
	y = srt_layer_gelu(r->tape, y);
	snprintf(name[0], sizeof(name[0]), "blocks.%lld.out", (long long)i);
	y = replay_linear(r, y, name[0]);
	return srt_layer_add(r->tape, x, y);
}

srt_status_t replay_record_gpt(replay_t *r)
{
	srt_param_t *wpe, *wte;
	srt_tensor_t *x;

	if (r->decoder != NULL)
		return record_library(r);
	SRT_TRY(replay_input(r, "tokens", &x));
	replay_begin(r);
	wpe = replay_param(r, "wpe", "weight");
	wte = replay_param(r, "wte", "weight");
	x = wte != NULL && wpe != NULL ?
		    srt_layer_embedding(r->tape, x, wte, wpe, hyper_size(r, "T")) :
		    NULL;
	for (int64_t i = 0; i < hyper_size(r, "layers"); i++)
		x = record_block(r, x, i);
	x = replay_layernorm(r, x, "lnf");
	return replay_end(r, replay_linear(r, x, "head"));
}
