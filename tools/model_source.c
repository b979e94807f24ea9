/* SPDX-License-Identifier: BSD-3-Clause */
/* See model_source.h. */
#include "tools/model_source.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <shardrt/models/lora.h>
#include "models/gpt_hf.h"
#include "models/try.h"
#include "tools/checkpoint_path.h"
#include "tools/model_folder.h"
#include "tools/model_sizes.h"

/* For "%s%s%s": the path as the command line has it. */
#define NAMED(m) (m)->option, (m)->option[0] ? " " : "", (m)->path
/* For "%s%s%s": the library's message, which has the path, after the option. */
#define FAILED(m) (m)->option, (m)->option[0] ? ": " : "", srt_error_last()

/* ---- sizes ------------------------------------------------------------------------------ */

/* The description in m->config_text. @param path for messages. */
static int parse_config(tool_model_t *m, const char *path, tool_why_t *why)
{
	if (srt_family_parse_config(m->config_text, strlen(m->config_text), path, &m->family,
				    &m->config) != SRT_OK)
		return tool_why_usage(why, "%s%s%s", FAILED(m));
	m->has_sizes = true;
	return 0;
}

/* The folder of a file. @return freed by the caller; NULL without memory. */
static char *copy_folder(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? strndup(path, (size_t)(slash - path)) : strdup(".");
}

/* The description in the config.json of a folder of Hugging Face, or in that file. */
static int read_family(tool_model_t *m, tool_why_t *why)
{
	char path[TOOL_CONFIG_NBYTES];
	size_t n;

	tool_find_config(m->path, path);
	if (srt_family_read_text(path, &m->config_text, &n) != SRT_OK)
		return tool_why_usage(why, "%s%s%s", FAILED(m));
	if (strlen(m->config_text) != n)
		return tool_why_usage(why, "%s%s%s has a byte of value 0", m->option,
				      m->option[0] ? ": " : "", path);
	m->folder = copy_folder(path);
	if (m->folder == NULL)
		return tool_why_usage(why, "no memory for the path of a folder");
	return parse_config(m, path, why);
}

/* The config.json in a checkpoint. */
static int copy_family(tool_model_t *m, const char *config, tool_why_t *why)
{
	m->config_text = strdup(config);
	return m->config_text != NULL ?
		       parse_config(m, m->path, why) :
		       tool_why_usage(why, "no memory for the config.json of %s", m->path);
}

/* The sizes in the metadata of shardrt-train. */
static int parse_sizes(tool_model_t *m, const char *sizes, tool_why_t *why)
{
	if (tool_parse_sizes(sizes, &m->config) != 0)
		return tool_why_usage(why,
				      "%s%s%s: cannot parse the model size in its metadata: '%s'",
				      NAMED(m), sizes);
	m->has_sizes = true;
	if (m->sizes.heads == 0 || m->sizes.heads == m->config.heads)
		return 0;
	return tool_why_usage(why,
			      "--heads is %" PRId64 ", but the model in %s%s%s has %" PRId64
			      " heads",
			      m->sizes.heads, NAMED(m), m->config.heads);
}

/* The base alone is not the model of a run that trains adapters. */
static int check_checkpoint(const tool_model_t *m, const srt_file_t *file, tool_why_t *why)
{
	srt_file_tensor_t t = SRT_FILE_TENSOR_INIT;

	if (m->has_adapters)
		return tool_why_usage(why,
				      "%s%s%s is a checkpoint: adapters need a folder or file of "
				      "their base; shardrt-ckpt convert makes one",
				      NAMED(m));
	for (size_t i = 0; srt_file_at(file, i, &t) == SRT_OK; i++)
		if (strstr(t.name, ".lora_A.weight") != NULL)
			return tool_why_usage(why,
					      "%s%s%s is a checkpoint of a run that trains "
					      "adapters: go on with --resume, or name the folder "
					      "that --save has written by --adapter",
					      NAMED(m));
	return 0;
}

/* The sizes of an open file or checkpoint. Without metadata of ours and names of Hugging Face, the
 * sizes of the preset stay. */
static int find_sizes(tool_model_t *m, const srt_file_t *file, tool_why_t *why)
{
	const char *sizes, *config;

	if (m->is_checkpoint && check_checkpoint(m, file, why) != 0)
		return -1;
	if (m->is_checkpoint && srt_file_find_metadata(file, TOOL_CONFIG_KEY, &config) == SRT_OK)
		return copy_family(m, config, why);
	if (srt_file_find_metadata(file, TOOL_SIZES_KEY, &sizes) == SRT_OK)
		return parse_sizes(m, sizes, why);
	if (m->is_checkpoint || !srt_gpt_hf_recognise(file, &m->hf_prefix))
		return 0;
	if (srt_gpt_hf_sizes(file, m->path, m->hf_prefix, m->sizes.heads, &m->config) != SRT_OK)
		return tool_why_usage(why, "%s%s%s", FAILED(m));
	m->has_sizes = true;
	return 0;
}

/* A preset that is named must be that of the file, but for the vocabulary and options that override
 * the preset. */
static int check_preset(const tool_model_t *m, const srt_decoder_config_t *preset, tool_why_t *why)
{
	const tool_sizes_t *o = &m->sizes;
	const srt_decoder_config_t *c = &m->config;

	if ((o->layers || c->layers == preset->layers) && (o->heads || c->heads == preset->heads) &&
	    (o->width || c->width == preset->width) &&
	    (o->context || c->context == preset->context))
		return 0;
	return tool_why_usage(why,
			      "--preset %s has %" PRId64 " layers, %" PRId64
			      " heads, width %" PRId64 " and context %" PRId64
			      ", but the model in %s%s%s has %" PRId64 ", %" PRId64 ", %" PRId64
			      " and %" PRId64,
			      o->preset, preset->layers, preset->heads, preset->width,
			      preset->context, NAMED(m), c->layers, c->heads, c->width, c->context);
}

/* A folder of checkpoints means the latest one. */
static int find_path(tool_model_t *m, int rank, tool_why_t *why)
{
	static tool_found_t found; /* too large for the stack */

	if (access(m->path, R_OK) != 0)
		return tool_why_system(why, errno, "cannot read %s%s%s", NAMED(m));
	if (tool_find_checkpoint(m->path, &found) != 0)
		return tool_why_usage(why, "%s%s%s", m->option, m->option[0] ? ": " : "",
				      found.why);
	if (rank == 0)
		tool_report_found(m->path, &found);
	memcpy(m->found, found.path, sizeof(m->found));
	m->path = m->found;
	return 0;
}

int tool_model_open(tool_model_t *m, int rank, tool_why_t *why)
{
	const char *name = m->sizes.preset != NULL ? m->sizes.preset : "nano";
	srt_file_checkpoint_t checkpoint = SRT_FILE_CHECKPOINT_INIT;
	srt_decoder_config_t preset;
	srt_file_t *file;
	int failed;

	if (srt_decoder_preset(name, &m->config) != SRT_OK)
		return tool_why_usage(
			why, "unknown --preset '%s'; the presets are nano, char and gpt2-124m",
			name);
	preset = m->config;
	if (m->path == NULL)
		return 0;
	if (m->random)
		return read_family(m, why);
	if (find_path(m, rank, why) != 0)
		return -1;
	if (srt_file_open(m->path, &file) != SRT_OK)
		return tool_why_usage(why, "%s%s%s: %s", NAMED(m), srt_error_last());
	m->ntensors = srt_file_count(file);
	m->is_checkpoint = srt_file_get_checkpoint(file, &checkpoint) == SRT_OK;
	failed = tool_has_model(m->path) ? read_family(m, why) : find_sizes(m, file, why);
	srt_file_close(file);
	return failed || m->sizes.preset == NULL ? failed : check_preset(m, &preset, why);
}

/* The file must have the tensors of the model: sizes in its metadata may claim any number, which
 * would all be declared. */
static int check_ntensors(const tool_model_t *m, tool_why_t *why)
{
	const int64_t needed = srt_decoder_ntensors(&m->config);

	if ((uint64_t)needed <= m->ntensors)
		return 0;
	return tool_why_usage(why,
			      "%s%s%s: it has %zu tensors, but a model of %" PRId64
			      " layers has %" PRId64,
			      NAMED(m), m->ntensors, m->config.layers, needed);
}

int tool_model_resize(tool_model_t *m, int tensor_ranks, tool_why_t *why)
{
	const tool_sizes_t *o = &m->sizes;
	srt_decoder_config_t *c = &m->config;

	if (m->family == NULL) {
		c->layers = o->layers ? o->layers : c->layers;
		c->heads = o->heads ? o->heads : c->heads;
		c->width = o->width ? o->width : c->width;
		c->context = o->context ? o->context : c->context;
		c->vocab = o->vocab ? o->vocab : c->vocab;
	} else if (o->preset != NULL || o->layers || o->heads || o->width || o->vocab) {
		return tool_why_usage(why,
				      "%s%s%s has the sizes of the model in its config.json: "
				      "--preset, --layers, --heads, --width and --vocab cannot "
				      "change them",
				      NAMED(m));
	}
	c->tensor_parts = (int)o->tensor_parts;
	if (srt_decoder_check(c, tensor_ranks) != SRT_OK)
		return tool_why_usage(why, "%s", srt_error_last());
	return m->path != NULL && !m->random ? check_ntensors(m, why) : 0;
}

/* ---- tokens ----------------------------------------------------------------------------- */

bool tool_model_find_file(const tool_model_t *m, const char *name, char *path)
{
	char *folder = NULL;

	if (m->family == NULL && m->hf_prefix == NULL)
		return false;
	if (m->hf_prefix != NULL)
		folder = copy_folder(m->path);
	snprintf(path, TOOL_CONFIG_NBYTES, "%s/%s",
		 folder != NULL    ? folder :
		 m->folder != NULL ? m->folder :
				     m->path,
		 name);
	free(folder);
	return access(path, F_OK) == 0;
}

bool tool_model_has_bytes(const tool_model_t *m)
{
	return m->family != NULL ? m->config.vocab <= 256 : m->hf_prefix == NULL;
}

/* ---- values ----------------------------------------------------------------------------- */

/* Loads the values of a folder of Hugging Face. */
static srt_status_t load_family(const tool_model_t *m, srt_decoder_t *decoder, srt_stream_t *stream)
{
	srt_family_file_t match;
	srt_file_names_t names;
	srt_file_t *file;
	srt_status_t status;

	SRT_TRY(srt_file_open(m->path, &file));
	status = srt_family_match(m->family, &m->config, file, m->path, &match);
	srt_file_close(file);
	SRT_TRY(status);
	names = srt_family_names(&match);
	return srt_decoder_load_base(decoder, m->path, &names, stream);
}

static int same_name(const char *name, srt_file_source_t *source, void *arg)
{
	(void)arg;
	source->name = name;
	return 1;
}

static srt_status_t load_values(const tool_model_t *m, srt_engine_t *engine, srt_decoder_t *decoder,
				srt_stream_t *stream)
{
	const srt_checkpoint_options_t values = { .size = sizeof(srt_checkpoint_options_t),
						  .values_only = 1 };
	srt_file_names_t names = { .size = sizeof(names), .find = same_name };

	if (m->is_checkpoint)
		return srt_checkpoint_load(engine, m->path, &values, stream);
	if (m->family != NULL)
		return load_family(m, decoder, stream);
	if (m->hf_prefix == NULL && !m->has_adapters)
		return srt_engine_load(engine, m->path, stream);
	if (m->hf_prefix != NULL)
		names = srt_gpt_hf_names(m->hf_prefix);
	names.cast |= m->has_adapters; /* the base may be stored in another dtype */
	return srt_decoder_load_base(decoder, m->path, &names, stream);
}

srt_status_t tool_model_load(const tool_model_t *m, srt_engine_t *engine, srt_decoder_t *decoder,
			     srt_stream_t *stream, tool_why_t *why)
{
	const bool has_sizes = m->sizes.layers || m->sizes.width || m->sizes.context;
	const srt_status_t status = load_values(m, engine, decoder, stream);

	if (status == SRT_ERR_FORMAT || status == SRT_ERR_INVALID_ARGUMENT ||
	    status == SRT_ERR_NOT_FOUND)
		tool_why_usage(why, "%s%s%s: %s%s", NAMED(m), srt_error_last(),
			       has_sizes && status == SRT_ERR_INVALID_ARGUMENT ?
				       "; without --layers, --width and --context the model has "
				       "the sizes of the file" :
				       "");
	if (status == SRT_ERR_FORMAT) /* it is damaged: its sizes could be read */
		why->status = EXIT_FAILURE;
	return status;
}

void tool_model_close(tool_model_t *m)
{
	free(m->config_text);
	free(m->folder);
	m->config_text = m->folder = NULL;
}
