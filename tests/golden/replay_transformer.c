/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transformer_shared (replay.h): the model library's Transformer, whose units are its layers and
 * the root.
 */
#include "config.h"

#include <string.h>

#include "tests/golden/replay.h"

static int64_t hyper_size(const replay_t *r, const char *key)
{
	return (int64_t)golden_number(replay_hyper(r), key, 0);
}

bool golden_is_library_transformer(const golden_t *g)
{
	const json_t *units = json_object_get(g->json, "units"), *unit;
	const json_t *h = json_object_get(json_object_get(g->json, "model"), "hyper");
	size_t nlayers = (size_t)golden_number(h, "layers", 0), i;

	json_array_foreach(units, i, unit)
	{
		const char *module = golden_text(unit, "module");
		char want[64] = "";

		if (i < 2 * nlayers)
			snprintf(want, sizeof(want), "transformer.%s.layers.%zu",
				 i < nlayers ? "encoder" : "decoder", i % nlayers);
		if (module == NULL || strcmp(module, want))
			return false;
	}
	return json_array_size(units) == 2 * nlayers + 1 &&
	       !json_is_false(json_object_get(g->json, "reshard_after_forward"));
}

srt_status_t replay_declare_transformer(replay_t *r)
{
	const srt_transformer_config_t config = {
		.layers = hyper_size(r, "layers"),
		.heads = hyper_size(r, "nhead"),
		.width = hyper_size(r, "d_model"),
		.ff = hyper_size(r, "ff"),
		.vocab = hyper_size(r, "d_vocab"),
		.batch = hyper_size(r, "bs"),
	};
	srt_model_options_t options;

	SRT_TRY(replay_model_options(r, &options));
	return srt_transformer_declare(r->engine, &config, &options, &r->transformer);
}

srt_status_t replay_record_transformer(replay_t *r)
{
	const srt_safetensors_t *file = r->golden->input;
	const srt_safetensors_tensor_t *src = srt_safetensors_find(file, "step1.micro0.src");
	const srt_safetensors_tensor_t *tgt = srt_safetensors_find(file, "step1.micro0.tgt");
	const replay_buffer_t *mean = replay_buffer_find(r, "bn.running_mean");
	const replay_buffer_t *var = replay_buffer_find(r, "bn.running_var");
	srt_transformer_io_t io;

	if (src == NULL || tgt == NULL || src->ndim != 2 || tgt->ndim != 2 || mean == NULL ||
	    var == NULL)
		return srt_fail(SRT_ERR_FORMAT, "the case has no src and tgt of shape "
						"(context,batch), or no running statistics");
	SRT_TRY(srt_transformer_record_loss(r->transformer, r->tape, src->shape[0], tgt->shape[0],
					    mean->view, var->view, &io));
	SRT_TRY(replay_buffer_fills(r, "vocab_bias", io.vocab_bias));
	SRT_TRY(replay_buffer_fills(r, "long_buffer", io.long_buffer));
	r->inputs[r->ninputs++] = (replay_input_t){ .name = "src", .tensor = io.src };
	r->inputs[r->ninputs++] = (replay_input_t){ .name = "tgt", .tensor = io.tgt };
	r->loss = io.loss;
	r->output_dtype = srt_tensor_dtype(io.logits);
	r->loss_dtype = r->output_dtype;
	r->divisor = 1;
	return SRT_OK;
}
