/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The first values: initial ones, or those of --init, which is a file of --save, one of a GPT-2 of
 * Hugging Face, a checkpoint, or the folder of --checkpoint. Each has the model's sizes.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/gpt_hf.h"
#include "models/try.h"
#include "tools/checkpoint_path.h"
#include "tools/model_folder.h"
#include "tools/train/train.h"

/* The description in t->config_text. @param path for messages. */
static int parse_config(trainer_t *t, const char *path)
{
	if (srt_family_parse_config(t->config_text, strlen(t->config_text), path, &t->family,
				    &t->config) != SRT_OK)
		return trainer_set_error(t, "--init: %s", srt_error_last());
	if (t->opt.generate > 0 || t->opt.sample > 0)
		return trainer_set_error(t,
					 "--generate and --sample print bytes, but the tokens of "
					 "--init %s are not bytes",
					 t->opt.init);
	return 0;
}

/* The description in the config.json of a folder of Hugging Face, or in that file. */
static int read_family(trainer_t *t)
{
	char path[TOOL_CONFIG_NBYTES];
	const char *slash;
	size_t n;

	tool_find_config(t->opt.init, path);
	if (srt_family_read_text(path, &t->config_text, &n) != SRT_OK)
		return trainer_set_error(t, "--init: %s", srt_error_last());
	if (strlen(t->config_text) != n)
		return trainer_set_error(t, "--init: %s has a byte of value 0", path);
	slash = strrchr(path, '/');
	t->model_folder = slash != NULL ? strndup(path, (size_t)(slash - path)) : strdup(".");
	if (t->model_folder == NULL)
		return trainer_set_error(t, "no memory for the path of a folder");
	return parse_config(t, path);
}

/* The sizes of an open file or checkpoint. Without metadata of ours and names of Hugging Face, the
 * sizes of the preset stay. */
static int find_sizes(trainer_t *t, const srt_file_t *file)
{
	const char *sizes, *config;

	if (t->init_is_checkpoint &&
	    srt_file_find_metadata(file, TRAIN_CONFIG_KEY, &config) == SRT_OK) {
		t->config_text = strdup(config);
		return t->config_text != NULL ?
			       parse_config(t, t->opt.init) :
			       trainer_set_error(t, "no memory for the config.json of %s",
						 t->opt.init);
	}
	if (srt_file_find_metadata(file, TRAIN_SIZES_KEY, &sizes) == SRT_OK) {
		if (train_parse_sizes(sizes, &t->config) != 0)
			return trainer_set_error(
				t, "--init %s: cannot parse the model size in its metadata: '%s'",
				t->opt.init, sizes);
		if (t->opt.heads && t->opt.heads != t->config.heads)
			return trainer_set_error(t,
						 "--heads is %" PRId64
						 ", but the model in --init %s has %" PRId64
						 " heads",
						 t->opt.heads, t->opt.init, t->config.heads);
		return 0;
	}
	if (t->init_is_checkpoint || !srt_gpt_hf_recognise(file, &t->hf_prefix))
		return 0;
	if (srt_gpt_hf_sizes(file, t->opt.init, t->hf_prefix, t->opt.heads, &t->config) != SRT_OK)
		return trainer_set_error(t, "--init: %s", srt_error_last());
	if (t->opt.generate > 0 || t->opt.sample > 0)
		return trainer_set_error(t,
					 "--generate and --sample print bytes, but the tokens of "
					 "--init %s, a GPT-2 of Hugging Face, are not bytes",
					 t->opt.init);
	return 0;
}

/* A preset that is named must be that of the file, but for the vocabulary and options that override
 * the preset. */
static int check_preset(trainer_t *t, const srt_decoder_config_t *preset)
{
	const train_options_t *o = &t->opt;
	const srt_decoder_config_t *c = &t->config;

	if ((o->layers || c->layers == preset->layers) && (o->heads || c->heads == preset->heads) &&
	    (o->width || c->width == preset->width) &&
	    (o->context || c->context == preset->context))
		return 0;
	return trainer_set_error(t,
				 "--preset %s has %" PRId64 " layers, %" PRId64
				 " heads, width %" PRId64 " and context %" PRId64
				 ", but the model in --init %s has %" PRId64 ", %" PRId64
				 ", %" PRId64 " and %" PRId64,
				 o->preset, preset->layers, preset->heads, preset->width,
				 preset->context, o->init, c->layers, c->heads, c->width,
				 c->context);
}

/* Loads the values of a folder of Hugging Face. */
static srt_status_t load_family(trainer_t *t)
{
	srt_family_file_t match;
	srt_file_names_t names;
	srt_file_t *file;
	srt_status_t status;

	SRT_TRY(srt_file_open(t->opt.init, &file));
	status = srt_family_match(t->family, &t->config, file, t->opt.init, &match);
	srt_file_close(file);
	SRT_TRY(status);
	names = srt_family_names(&match);
	return srt_engine_load_named(t->engine, t->opt.init, &names, t->stream);
}

/* --init of a folder of checkpoints means the latest one. */
static int find_init(trainer_t *t)
{
	static tool_found_t found; /* too large for the stack */

	if (access(t->opt.init, R_OK) != 0)
		return trainer_set_system_error(t, errno, "cannot read --init %s", t->opt.init);
	if (tool_find_checkpoint(t->opt.init, &found) != 0)
		return trainer_set_error(t, "--init: %s", found.why);
	if (t->rank == 0)
		tool_report_found(t->opt.init, &found);
	memcpy(t->init_path, found.path, sizeof(t->init_path));
	t->opt.init = t->init_path;
	return 0;
}

int trainer_read_sizes(trainer_t *t)
{
	const srt_decoder_config_t preset = t->config;
	srt_file_checkpoint_t checkpoint = SRT_FILE_CHECKPOINT_INIT;
	srt_file_t *file;
	int failed;

	if (t->opt.init_random)
		return read_family(t);
	if (find_init(t) != 0)
		return -1;
	if (srt_file_open(t->opt.init, &file) != SRT_OK)
		return trainer_set_error(t, "--init %s: %s", t->opt.init, srt_error_last());
	t->init_ntensors = srt_file_count(file);
	t->init_is_checkpoint = srt_file_get_checkpoint(file, &checkpoint) == SRT_OK;
	failed = tool_has_model(t->opt.init) ? read_family(t) : find_sizes(t, file);
	srt_file_close(file);
	return failed || t->opt.preset == NULL ? failed : check_preset(t, &preset);
}

int trainer_check_ntensors(trainer_t *t)
{
	const int64_t needed = srt_decoder_ntensors(&t->config);

	if ((uint64_t)needed <= t->init_ntensors)
		return 0;
	return trainer_set_error(t,
				 "--init %s: it has %zu tensors, but a model of %" PRId64
				 " layers has %" PRId64,
				 t->opt.init, t->init_ntensors, t->config.layers, needed);
}

srt_status_t trainer_start_values(trainer_t *t)
{
	const srt_checkpoint_options_t values = { .size = sizeof(srt_checkpoint_options_t),
						  .values_only = 1 };
	const int has_sizes = t->opt.layers || t->opt.width || t->opt.context;
	srt_file_names_t names;
	srt_status_t status;

	if (t->opt.init == NULL || t->opt.init_random)
		return srt_decoder_init(t->decoder, (uint64_t)t->opt.seed, t->stream);
	if (t->init_is_checkpoint) {
		status = srt_checkpoint_load(t->engine, t->opt.init, &values, t->stream);
	} else if (t->family != NULL) {
		status = load_family(t);
	} else if (t->hf_prefix != NULL) {
		names = srt_gpt_hf_names(t->hf_prefix);
		status = srt_engine_load_named(t->engine, t->opt.init, &names, t->stream);
	} else {
		status = srt_engine_load(t->engine, t->opt.init, t->stream);
	}
	if (status == SRT_ERR_FORMAT || status == SRT_ERR_INVALID_ARGUMENT ||
	    status == SRT_ERR_NOT_FOUND)
		trainer_set_error(t, "--init %s: %s%s", t->opt.init, srt_error_last(),
				  has_sizes && status == SRT_ERR_INVALID_ARGUMENT ?
					  "; without --layers, --width and --context the model has "
					  "the sizes of the file" :
					  "");
	if (status == SRT_ERR_FORMAT) /* it is damaged: its sizes could be read */
		t->why_status = EXIT_FAILURE;
	return status;
}
