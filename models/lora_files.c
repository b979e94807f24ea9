/* SPDX-License-Identifier: BSD-3-Clause */
/* The adapters of a decoder in a folder of PEFT: loaded and saved. */
#include "models/decoder_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "models/families_impl.h"
#include "models/string.h"
#include "models/try.h"

/* In front of the names of modules in PEFT's files. */
#define PREFIX "base_model.model."
#define PATH_NBYTES 2048

/* Adapters in a file; the argument of functions for names. */
typedef struct adapter_names {
	const srt_decoder_config_t *config;
	const srt_family_t *family;
	char name[256];
} adapter_names_t;

static int ends_with(const char *name, const char *end)
{
	const size_t n = strlen(name), nend = strlen(end);

	return n > nend && strcmp(name + n - nend, end) == 0;
}

int srt_lora_is_adapter(const char *name)
{
	return ends_with(name, ".lora_A.weight") || ends_with(name, ".lora_B.weight");
}

/* Rows of B are those of its base, which a file may have by heads. */
static int64_t find_heads(const adapter_names_t *a, const char *name)
{
	const char *joint = a->config->names->part[SRT_DECODER_QKV];
	char end[96];

	if (a->family == NULL || !a->family->interleaved || joint == NULL)
		return 0;
	snprintf(end, sizeof(end), ".%s.lora_B.weight", joint);
	return ends_with(name, end) ? a->config->heads : 0;
}

/* ---- loading ---------------------------------------------------------------------------- */

static int find_name(const char *name, srt_file_source_t *source, void *arg)
{
	adapter_names_t *a = arg;

	snprintf(a->name, sizeof(a->name), PREFIX "%s", name);
	source->name = a->name;
	source->interleaved_heads = find_heads(a, name);
	return 1;
}

static int keeps_base(const char *name, void *arg)
{
	(void)arg;
	return !srt_lora_is_adapter(name);
}

/* Each tensor of the file must be one of the decoder: what is left out would change results. */
static srt_status_t check_tensors(const srt_decoder_t *d, const char *path)
{
	srt_file_tensor_t t = SRT_FILE_TENSOR_INIT;
	srt_status_t status = SRT_OK;
	srt_file_t *file;

	SRT_TRY(srt_file_open(path, &file));
	for (size_t i = 0; status == SRT_OK && srt_file_at(file, i, &t) == SRT_OK; i++) {
		const int known = strncmp(t.name, PREFIX, strlen(PREFIX)) == 0 &&
				  srt_lora_is_adapter(t.name) &&
				  srt_engine_param_find(d->engine, t.name + strlen(PREFIX)) != NULL;

		if (!known)
			status = srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
						"%s has tensor '%s', which is no adapter of the "
						"model by its adapter_config.json",
						path, srt_string_show(t.name).text);
	}
	srt_file_close(file);
	return status;
}

/* Ranks that read other folders would train other models. Collective. */
static srt_status_t compare_scaling(const srt_decoder_t *d, const char *folder)
{
	srt_comm_t *comm = srt_engine_comm(d->engine);
	const int nranks = srt_comm_size(comm);
	const double mine = srt_lora_scaling(&d->lora);
	double *all = calloc((size_t)nranks, sizeof(*all));
	srt_status_t status;

	if (all == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for %d ranks", nranks);
	status = srt_comm_oob_allgather(comm, &mine, sizeof(mine), all);
	for (int r = 1; r < nranks && status == SRT_OK; r++)
		if (all[r] != all[0])
			status = srt_model_fail(
				SRT_ERR_MISMATCH,
				"adapters are multiplied by %g on rank 0 and by %g on "
				"rank %d: the ranks have other adapter_config.json in %s",
				all[0], all[r], r, folder);
	free(all);
	return status;
}

srt_status_t srt_decoder_load_lora(srt_decoder_t *d, const srt_family_t *family, const char *folder,
				   srt_stream_t *stream)
{
	adapter_names_t a = { .config = &d->config, .family = family };
	const srt_file_names_t names = {
		.size = sizeof(names), .find = find_name, .keeps = keeps_base, .cast = 1, .arg = &a
	};
	char path[PATH_NBYTES];

	if (d->adapted == NULL)
		return srt_model_fail(SRT_ERR_STATE, "the decoder was declared without adapters");
	snprintf(path, sizeof(path), "%s/adapter_model.safetensors", folder);
	SRT_TRY(srt_decoder_share_status(d, check_tensors(d, path)));
	SRT_TRY(compare_scaling(d, folder));
	return srt_engine_load_named(d->engine, path, &names, stream);
}

/* ---- adapter_config.json ---------------------------------------------------------------- */

static const char *last_name(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot != NULL ? dot + 1 : name;
}

/* A name that matches the part, and no other one. */
static const char *short_name(const srt_decoder_config_t *c, int part)
{
	const char *const *names = c->names->part;
	const char *last = last_name(names[part]);

	for (int k = 0; k < SRT_DECODER_PARTS; k++)
		if (k != part && srt_decoder_has_part(c, k) &&
		    strcmp(last, last_name(names[k])) == 0)
			return names[part];
	return last;
}

/* The layers of a part by one name if all have adapters, else each by its own. */
static void print_part(const srt_decoder_t *d, int part, const char **separator, FILE *out)
{
	int64_t n = 0;

	for (int64_t i = 0; i < d->config.layers; i++)
		n += srt_decoder_is_adapted(d, i, part);
	for (int64_t i = 0; i < d->config.layers && n > 0; i++) {
		if (!srt_decoder_is_adapted(d, i, part) || (n == d->config.layers && i > 0))
			continue;
		if (n == d->config.layers)
			fprintf(out, "%s\"%s\"", *separator, short_name(&d->config, part));
		else
			fprintf(out, "%s\"%s.%lld.%s\"", *separator, d->config.names->blocks,
				(long long)i, d->config.names->part[part]);
		*separator = ", ";
	}
}

/* A text of UTF-8, or null. */
static void print_text(const char *text, FILE *out)
{
	if (text == NULL || srt_utf8_find_invalid(text, strlen(text)) != strlen(text)) {
		fputs("null", out);
		return;
	}
	fputc('"', out);
	for (const char *c = text; *c; c++) {
		if (*c == '"' || *c == '\\')
			fprintf(out, "\\%c", *c);
		else if ((unsigned char)*c < 0x20)
			fprintf(out, "\\u%04x", (unsigned)*c);
		else
			fputc(*c, out);
	}
	fputc('"', out);
}

static void print_config(const srt_decoder_t *d, const srt_lora_save_t *o, FILE *out)
{
	const char *separator = "";

	fputs("{\n  \"base_model_name_or_path\": ", out);
	print_text(o->base, out);
	fprintf(out,
		",\n  \"bias\": \"none\",\n  \"fan_in_fan_out\": %s,\n  \"inference_mode\": true,\n"
		"  \"init_lora_weights\": true,\n  \"lora_alpha\": %.17g,\n  \"lora_dropout\": 0.0,\n"
		"  \"modules_to_save\": null,\n  \"peft_type\": \"LORA\",\n  \"r\": %lld,\n"
		"  \"target_modules\": [",
		o->family != NULL && o->family->transposed ? "true" : "false", d->lora.alpha,
		(long long)d->lora.r);
	for (int k = 0; k < SRT_DECODER_PARTS; k++)
		print_part(d, k, &separator, out);
	fprintf(out,
		"],\n  \"task_type\": \"CAUSAL_LM\",\n  \"use_dora\": false,\n"
		"  \"use_rslora\": %s\n}\n",
		d->lora.rslora ? "true" : "false");
}

/* Writes a temporary file and renames it. */
static srt_status_t write_config(const srt_decoder_t *d, const srt_lora_save_t *o,
				 const char *folder)
{
	char path[PATH_NBYTES], temporary[PATH_NBYTES];
	int error = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/adapter_config.json", folder);
	snprintf(temporary, sizeof(temporary), "%s/.adapter_config.json.tmp", folder);
	f = fopen(temporary, "w");
	if (f == NULL)
		return srt_model_fail(SRT_ERR_IO, "cannot write %s: %s", temporary,
				      strerror(errno));
	print_config(d, o, f);
	if (fflush(f) != 0 || ferror(f) || fsync(fileno(f)) != 0)
		error = errno;
	if (fclose(f) != 0 && !error)
		error = errno;
	if (!error && rename(temporary, path) != 0)
		error = errno;
	if (!error)
		return SRT_OK;
	unlink(temporary);
	return srt_model_fail(SRT_ERR_IO, "cannot write %s: %s", path, strerror(error));
}

/* ---- adapter_model.safetensors ---------------------------------------------------------- */

/* A save of rank 0. The other ranks only take part in the gathering. */
typedef struct saving {
	srt_decoder_t *d;
	adapter_names_t names;
	srt_param_t **params; /* (n) */
	size_t n;
	char (*texts)[sizeof(((adapter_names_t *)0)->name)];
	srt_file_entry_t *entries;
	srt_file_writer_t *writer;
} saving_t;

static srt_status_t list_adapters(saving_t *s)
{
	const srt_decoder_config_t *c = &s->d->config;
	const size_t most = (size_t)c->layers * SRT_DECODER_PARTS * 2;

	s->params = calloc(most, sizeof(srt_param_t *));
	s->texts = calloc(most, sizeof(*s->texts));
	s->entries = calloc(most, sizeof(*s->entries));
	if (s->params == NULL || s->texts == NULL || s->entries == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory to save adapters");
	for (int64_t i = 0; i < c->layers; i++) {
		for (int k = 0; k < 2 * SRT_DECODER_PARTS; k++) {
			const srt_decoder_adapter_t *adapter = &s->d->blocks[i].adapter[k / 2];
			srt_param_t *p = k % 2 ? adapter->b : adapter->a;
			srt_file_entry_t *e = &s->entries[s->n];
			srt_unit_types_t types = SRT_UNIT_TYPES_INIT;

			if (p == NULL)
				continue;
			SRT_TRY(srt_unit_types(srt_param_unit(p), &types));
			snprintf(s->texts[s->n], sizeof(*s->texts), PREFIX "%s", srt_param_name(p));
			*e = (srt_file_entry_t){ .name = s->texts[s->n], .dtype = types.stored };
			e->ndim = srt_param_shape(p, e->shape);
			s->params[s->n++] = p;
		}
	}
	return SRT_OK;
}

/* Writes rows, those of all queries, keys and values by heads if the file has them so. */
static srt_status_t put_adapter(const saving_t *s, size_t i, const char *values)
{
	const srt_file_entry_t *e = &s->entries[i];
	const size_t heads = (size_t)find_heads(&s->names, srt_param_name(s->params[i]));
	const size_t nbytes = (size_t)(e->shape[0] * e->shape[1]) * (srt_dtype_bits(e->dtype) / 8);
	const size_t block = heads > 0 ? nbytes / (3 * heads) : nbytes;

	for (size_t to = 0; to * block < nbytes; to++) {
		const size_t from = heads > 0 ? to % 3 * heads + to / 3 : to;

		SRT_TRY(srt_file_writer_put(s->writer, i, to * block, values + from * block,
					    block));
	}
	return SRT_OK;
}

/* Gathers all adapters. After a failure of rank 0 its peers are not left alone. */
static srt_status_t put_adapters(const saving_t *s, int is_first, srt_status_t status,
				 srt_stream_t *stream)
{
	for (size_t i = 0; i < s->n; i++) {
		const srt_file_entry_t *e = &s->entries[i];
		char *values = is_first ?
				       calloc((size_t)(e->shape[0] * e->shape[1]), sizeof(float)) :
				       NULL;
		srt_status_t gathered;

		if (is_first && values == NULL && status == SRT_OK)
			status = srt_model_fail(SRT_ERR_OUT_OF_MEMORY,
						"no host memory to save adapters");
		gathered = srt_param_get(s->params[i], SRT_PARAM_VALUE, values, stream);
		if (gathered == SRT_OK && is_first && status == SRT_OK)
			status = put_adapter(s, i, values);
		free(values);
		SRT_TRY(gathered);
	}
	return status;
}

static srt_status_t create_file(saving_t *s, const char *folder)
{
	const srt_file_metadata_t metadata[] = { { "format", "pt" } };
	char path[PATH_NBYTES];

	if (mkdir(folder, 0777) != 0 && errno != EEXIST)
		return srt_model_fail(SRT_ERR_IO, "cannot make folder %s: %s", folder,
				      strerror(errno));
	snprintf(path, sizeof(path), "%s/adapter_model.safetensors", folder);
	return srt_file_writer_create(path, s->entries, s->n, metadata, 1, &s->writer);
}

srt_status_t srt_decoder_save_lora(srt_decoder_t *d, const srt_lora_save_t *options,
				   const char *folder, srt_stream_t *stream)
{
	saving_t s = { .d = d, .names = { .config = &d->config, .family = options->family } };
	srt_status_t status;

	if (d->adapted == NULL)
		return srt_model_fail(SRT_ERR_STATE, "the decoder was declared without adapters");
	status = list_adapters(&s);
	if (status == SRT_OK) {
		status = folder != NULL ? create_file(&s, folder) : SRT_OK;
		status = put_adapters(&s, folder != NULL, status, stream);
	}
	if (status == SRT_OK && folder != NULL)
		status = srt_file_writer_commit(s.writer);
	srt_file_writer_destroy(s.writer);
	if (status == SRT_OK && folder != NULL)
		status = write_config(d, options, folder);
	free(s.params);
	free(s.texts);
	free(s.entries);
	return status;
}
