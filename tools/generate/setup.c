/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes a run from the options: model, tokenizer, engine, generator; see generate.h. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "models/try.h"
#include "tools/generate/generate.h"
#include "tools/model_folder.h"
#include "tools/precision.h"

/* ---- checking --------------------------------------------------------------------------- */

static int open_model(generate_run_t *run)
{
	const generate_options_t *o = &run->opt;
	tool_model_t *m = &run->model;

	if (tool_lora_open(&run->lora, NULL, o->adapter, &run->why) != 0)
		return -1;
	*m = (tool_model_t){ .path = o->model,
			     .option = "",
			     .has_adapters = run->lora.lora != NULL,
			     .sizes = { .preset = o->preset,
					.layers = o->layers,
					.heads = o->heads,
					.width = o->width,
					.vocab = o->vocab,
					.tensor_parts = o->tensor_parts } };
	if (tool_model_open(m, run->ranks.rank, &run->why) != 0)
		return -1;
	if (!m->has_sizes)
		m->sizes.context = o->context;
	if (tool_model_resize(m, 1, &run->why) != 0 ||
	    tool_lora_check(&run->lora, &m->config, &run->why) != 0)
		return -1;
	run->length = o->context ? o->context : m->config.context;
	if (run->length <= m->config.context)
		return 0;
	return tool_why_usage(&run->why,
			      "--context %" PRId64 ": the model in %s has %" PRId64 " positions",
			      run->length, m->path, m->config.context);
}

static int open_tokenizer(generate_run_t *run)
{
	char path[TOOL_CONFIG_NBYTES] = "a tokenizer.json";
	const bool found = tool_model_find_file(&run->model, "tokenizer.json", path);

	if (run->opt.tokenizer == NULL && !found) {
		if (tool_model_has_bytes(&run->model))
			return 0;
		return tool_why_usage(&run->why,
				      "there is no %s, and the tokens of %s are not bytes; "
				      "--tokenizer FOLDER may name one",
				      path, run->model.path);
	}
	if (srt_tokenizer_open(run->opt.tokenizer != NULL ? run->opt.tokenizer : path,
			       &run->tokenizer) == SRT_OK)
		return 0;
	return tool_why_usage(&run->why, "%s", srt_error_last());
}

/* The sizes of the generator, which are those of the longest prompt and the rank with the most. */
static void find_sizes(generate_run_t *run)
{
	const size_t world = (size_t)run->ranks.world;
	const int64_t rows = (int64_t)((run->nprompts + world - 1) / world);
	int64_t longest = 0;

	for (size_t i = 0; i < run->nprompts; i++)
		if ((int64_t)run->prompts[i].nids > longest)
			longest = (int64_t)run->prompts[i].nids;
	if (longest + run->opt.max_tokens < run->length)
		run->length = longest + run->opt.max_tokens;
	run->sequences = run->opt.batch < rows ? run->opt.batch : rows;
}

int generate_prepare(generate_run_t *run)
{
	if (open_model(run) != 0 || open_tokenizer(run) != 0 || generate_find_eos(run) != 0 ||
	    generate_read_prompts(run) != 0)
		return -1;
	find_sizes(run);
	run->streams = run->nprompts == 1 && !run->opt.json;
	return 0;
}

/* ---- building --------------------------------------------------------------------------- */

static srt_status_t declare_engine(generate_run_t *run)
{
	const tool_dtype_t dtype = (tool_dtype_t)run->opt.dtype;
	srt_engine_options_t options = SRT_ENGINE_OPTIONS_INIT;
	srt_optim_options_t optim = SRT_OPTIM_OPTIONS_INIT;
	srt_model_options_t model = { .recompute = 0 };
	tool_precision_t precision;

	tool_precision(dtype, dtype != TOOL_FP32, TOOL_REDUCE_DEFAULT, &precision, NULL, 0);
	optim.kind = SRT_OPTIM_NONE; /* has no state */
	options.strategy = SRT_STRATEGY_DDP;
	options.precision = &precision.policy;
	options.optim = &optim;
	model.dtype = precision.stored;
	model.lora = run->lora.lora;
	SRT_TRY(srt_comm_split(run->ranks.comm, run->ranks.rank, "alone", &run->alone));
	options.comm = run->alone; /* ranks have other prompts, so that their passes differ */
	SRT_TRY(srt_engine_create(run->context, &options, &run->engine));
	return srt_decoder_declare(run->engine, &run->model.config, &model, &run->decoder);
}

srt_status_t generate_build(generate_run_t *run)
{
	const srt_generator_options_t options = { .sequences = run->sequences,
						  .length = run->length };
	srt_device_t *device = srt_context_device(run->context);
	size_t arena, scratch;

	SRT_TRY(srt_stream_create(device, 0, "compute", &run->stream));
	SRT_TRY(declare_engine(run));
	SRT_TRY(srt_generator_create(run->decoder, device, &options, &run->generator));
	arena = srt_generator_arena_nbytes(run->generator);
	scratch = srt_generator_scratch_nbytes(run->generator);
	/* Before the engine is built, so that it can check that there is memory for everything. The
	 * generator has allocated its own. */
	SRT_TRY(srt_engine_plan_extra(run->engine, arena, scratch));
	SRT_TRY(srt_engine_build(run->engine));
	SRT_TRY(srt_stream_reserve(run->stream, scratch));
	SRT_TRY(srt_buffer_create(device, srt_decoder_mem_kind(run->decoder), arena, "activations",
				  &run->arena));
	SRT_TRY(srt_generator_bind(run->generator, run->arena));
	SRT_TRY(tool_model_load(&run->model, run->engine, run->decoder, run->stream, &run->why));
	if (run->lora.lora == NULL)
		return SRT_OK;
	return tool_lora_load(run->opt.adapter, run->model.family, run->decoder, run->stream,
			      &run->why);
}

void generate_destroy(generate_run_t *run)
{
	if (run->stream != NULL)
		srt_stream_sync(run->stream);
	srt_generator_destroy(run->generator);
	srt_buffer_destroy(run->arena);
	srt_decoder_destroy(run->decoder);
	srt_engine_destroy(run->engine);
	srt_comm_destroy(run->alone);
	srt_stream_destroy(run->stream);
	srt_context_destroy(run->context);
	srt_tokenizer_close(run->tokenizer);
	tool_model_close(&run->model);
	tool_lora_close(&run->lora);
	for (size_t i = 0; i < run->nprompts; i++)
		free(run->prompts[i].ids);
	free(run->prompts);
}
