/* SPDX-License-Identifier: BSD-3-Clause */
/* The sizes, and the first values: initial ones, or those of --init (tools/model_source.h). */
#include <inttypes.h>

#include "tools/model_folder.h"
#include "tools/train/train.h"

/* Tokens of a sequence for a folder of Hugging Face, which has all other sizes. */
static int find_length(trainer_t *t)
{
	const train_options_t *o = &t->opt;

	if (o->context > t->config.context)
		return tool_why_usage(&t->why,
				      "--context %" PRId64 ": the model in --init %s has %" PRId64
				      " positions",
				      o->context, o->init, t->config.context);
	t->length = tool_find_length(o->context, t->config.context);
	return 0;
}

/* The text of --generate and --sample is that of a tokenizer, or bytes. */
static int check_tokens(trainer_t *t)
{
	char path[TOOL_CONFIG_NBYTES];

	if ((t->opt.generate == 0 && t->opt.sample == 0) || tool_model_has_bytes(&t->model) ||
	    tool_model_find_file(&t->model, "tokenizer.json", path))
		return 0;
	return tool_why_usage(&t->why,
			      "--generate and --sample print bytes, but the tokens of "
			      "--init %s%s are not bytes, and there is no %s",
			      t->opt.init,
			      t->model.hf_prefix != NULL ? ", a GPT-2 of Hugging Face," : "", path);
}

int trainer_find_sizes(trainer_t *t)
{
	const train_options_t *o = &t->opt;
	tool_model_t *m = &t->model;

	if (tool_lora_open(&t->lora, o->lora, o->adapter, &t->why) != 0)
		return -1;
	*m = (tool_model_t){ .path = o->init,
			     .option = "--init",
			     .has_adapters = t->lora.lora != NULL,
			     .random = o->init_random,
			     .sizes = { .preset = o->preset,
					.layers = o->layers,
					.heads = o->heads,
					.width = o->width,
					.context = o->context,
					.vocab = o->vocab,
					.tensor_parts = o->tensor_parts } };
	if (tool_model_open(m, t->rank, &t->why) != 0)
		return -1;
	if (t->lora.lora != NULL && m->hf_prefix != NULL)
		return tool_why_usage(
			&t->why,
			"--init %s is a file of Hugging Face: name its folder, so that "
			"adapters get the names that PEFT knows",
			o->init);
	t->opt.init = m->path;
	if (tool_model_resize(m, t->tensor_ranks, &t->why) != 0 ||
	    tool_lora_check(&t->lora, &m->config, &t->why) != 0)
		return -1;
	t->config = m->config;
	t->length = t->config.context;
	if (m->family != NULL && find_length(t) != 0)
		return -1;
	if (m->family == NULL && (o->max_shard_size > 0 || o->save_dtype >= 0))
		return tool_why_usage(&t->why,
				      "--max-shard-size and --save-dtype are for a model of "
				      "Hugging Face, which --init names");
	return check_tokens(t);
}

srt_status_t trainer_start_values(trainer_t *t)
{
	const uint64_t seed = (uint64_t)t->opt.seed;
	srt_status_t status;

	if (t->opt.init == NULL || t->opt.init_random)
		status = srt_decoder_init(t->decoder, seed, t->stream);
	else
		status = tool_model_load(&t->model, t->engine, t->decoder, t->stream, &t->why);
	if (status != SRT_OK || t->lora.lora == NULL)
		return status;
	if (t->opt.adapter == NULL)
		return srt_decoder_init_lora(t->decoder, seed, t->stream);
	return tool_lora_load(t->opt.adapter, t->model.family, t->decoder, t->stream, &t->why);
}
