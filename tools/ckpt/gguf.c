/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shardrt-ckpt convert --to gguf: a folder of Hugging Face, or a checkpoint of such a model, as a
 * GGUF file (models/gguf.h). Tensors are read, converted and written in groups of rows.
 */
#include "tools/ckpt/ckpt.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <shardrt/models/families.h>
#include "models/gguf.h"
#include "models/try.h"
#include "tools/common.h"
#include "tools/model_folder.h"
#include "tools/model_sizes.h"

typedef struct exporter {
	const ckpt_request_t *request;
	srt_file_t *file;
	bool is_folder; /* of Hugging Face; else a checkpoint, whose parameters are as in memory */
	char config_path[TOOL_CONFIG_NBYTES];
	srt_decoder_config_t config;
	srt_family_file_t match; /* of a folder */
	const srt_gguf_family_t *row;
	srt_gguf_type_t type; /* of matrices */
	srt_gguf_keys_t keys;
	srt_gguf_tensors_t tensors;
	size_t written; /* bytes of the new file */
	srt_file_writer_t *writer;
} exporter_t;

/* ---- the model -------------------------------------------------------------------------- */

/* The config.json of a checkpoint, or of the folder. */
static srt_status_t read_config(exporter_t *e)
{
	const char *path = e->request->path[0], *text;
	const srt_family_t *family;

	if (srt_file_find_metadata(e->file, TOOL_CONFIG_KEY, &text) == SRT_OK) {
		snprintf(e->config_path, sizeof(e->config_path), "config.json of %s", path);
		SRT_TRY(srt_family_parse_config(text, strlen(text), path, &family, &e->config));
		return srt_gguf_find_family(family, e->config_path, &e->config, &e->row);
	}
	e->is_folder = true;
	snprintf(e->config_path, sizeof(e->config_path), "%s/config.json", path);
	if (access(e->config_path, F_OK) != 0)
		return srt_error_set(SRT_ERR_INVALID_ARGUMENT,
				     "convert --to gguf needs a folder of Hugging Face, with its "
				     "config.json, or a checkpoint of a model that began from one");
	SRT_TRY(srt_family_read_config(e->config_path, &family, &e->config));
	SRT_TRY(srt_family_match(family, &e->config, e->file, path, &e->match));
	return srt_gguf_find_family(family, e->config_path, &e->config, &e->row);
}

/* How the file has a parameter. */
static srt_file_source_t find_source(const exporter_t *e, const char *parameter)
{
	srt_file_source_t source = { .size = sizeof(source), .name = parameter };
	srt_file_names_t names;

	if (!e->is_folder)
		return source;
	names = srt_family_names(&e->match);
	names.find(parameter, &source, names.arg);
	return source;
}

static bool has_parameter(const char *parameter, void *arg)
{
	const exporter_t *e = arg;

	return srt_file_find(e->file, find_source(e, parameter).name, NULL) == SRT_OK;
}

/* Finds the tensor of a parameter in the file: of the model's size, and a dtype of weights. */
static srt_status_t find_tensor(const exporter_t *e, const srt_gguf_tensor_t *t,
				srt_file_source_t *source, srt_file_tensor_t *tensor)
{
	int64_t rows, columns;

	*source = find_source(e, t->parameter);
	if (srt_file_find(e->file, source->name, tensor) != SRT_OK)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT, "%s has no tensor '%s'",
				      e->request->path[0], source->name);
	if (tensor->dtype != SRT_F32 && tensor->dtype != SRT_F16 && tensor->dtype != SRT_BF16)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "tensor '%s' of %s has dtype %s, not F32, F16 or BF16",
				      source->name, e->request->path[0],
				      ckpt_name(tensor->dtype_name).text);
	rows = source->transposed ? t->columns : t->rows;
	columns = source->transposed ? t->rows : t->columns;
	if (tensor->ndim == t->ndim && tensor->shape[0] == rows &&
	    (t->ndim == 1 || tensor->shape[1] == columns))
		return SRT_OK;
	return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
			      "tensor '%s' of %s has %zu elements in %d dimensions, but %s "
			      "describes %" PRId64 " by %" PRId64,
			      source->name, e->request->path[0], tensor->nelem, tensor->ndim,
			      e->config_path, rows, columns);
}

/* Matrices have the dtype that was asked for, or that of the embedding. */
static srt_status_t find_type(exporter_t *e)
{
	static const struct {
		const char *name;
		srt_gguf_type_t type;
		srt_dtype_t dtype;
	} types[] = { { "f32", SRT_GGUF_F32, SRT_F32 },
		      { "f16", SRT_GGUF_F16, SRT_F16 },
		      { "bf16", SRT_GGUF_BF16, SRT_BF16 },
		      { "q8_0", SRT_GGUF_Q8_0, SRT_DTYPE_NONE } };
	const char *asked = e->request->dtype;
	srt_gguf_tensor_t embedding = { .ndim = 2,
					.rows = e->config.vocab,
					.columns = e->config.width };
	srt_file_tensor_t t = SRT_FILE_TENSOR_INIT;
	srt_file_source_t source;

	snprintf(embedding.parameter, sizeof(embedding.parameter), "%s.weight",
		 e->config.names->embedding);
	SRT_TRY(find_tensor(e, &embedding, &source, &t));
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (asked != NULL ? strcmp(asked, types[i].name) == 0 : t.dtype == types[i].dtype)
			e->type = types[i].type;
	return SRT_OK;
}

/* A base without its adapters is another model. */
static srt_status_t check_adapters(const exporter_t *e)
{
	srt_file_tensor_t t = SRT_FILE_TENSOR_INIT;

	for (size_t i = 0; srt_file_at(e->file, i, &t) == SRT_OK; i++)
		if (strstr(t.name, ".lora_A.weight") != NULL)
			return srt_model_fail(
				SRT_ERR_UNSUPPORTED,
				"%s is of a run with LoRA adapters, such as '%s': add "
				"those that --save has written to the model by "
				"shardrt-ckpt merge-lora, and convert its folder",
				e->request->path[0], t.name);
	return SRT_OK;
}

/* The tensors that the file must have, with their sizes. */
static srt_status_t list_tensors(exporter_t *e)
{
	const int64_t needed = srt_decoder_ntensors(&e->config);
	const size_t count = srt_file_count(e->file);

	if ((uint64_t)needed > count) /* config.json may claim any number of layers */
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "%s has %zu tensors, but a model of %" PRId64
				      " layers has %" PRId64,
				      e->request->path[0], count, e->config.layers, needed);
	SRT_TRY(check_adapters(e));
	SRT_TRY(find_type(e));
	SRT_TRY(srt_gguf_list_tensors(e->row, &e->config, e->type, has_parameter, e, &e->tensors));
	for (size_t i = 0; i < e->tensors.n; i++) {
		srt_file_tensor_t t = SRT_FILE_TENSOR_INIT;
		srt_file_source_t source;

		if (e->tensors.list[i].source == SRT_GGUF_PARAMETER)
			SRT_TRY(find_tensor(e, &e->tensors.list[i], &source, &t));
	}
	return SRT_OK;
}

static bool has_file(const char *folder, const char *name)
{
	char path[TOOL_CONFIG_NBYTES];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return access(path, F_OK) == 0;
}

/* The tokenizer of --tokenizer, or of the folder. */
static srt_status_t put_tokenizer(exporter_t *e, bool *has_one)
{
	const char *asked = e->request->tokenizer;
	const char *folder = asked != NULL ? asked : e->is_folder ? e->request->path[0] : NULL;

	*has_one = folder != NULL && has_file(folder, "tokenizer.json");
	if (*has_one)
		return srt_gguf_put_tokenizer(&e->keys, folder, e->config.vocab);
	if (asked != NULL)
		return srt_model_fail(SRT_ERR_NOT_FOUND,
				      "--tokenizer %s is no folder that has a tokenizer.json",
				      asked);
	if (folder != NULL && has_file(folder, "tokenizer.model"))
		return srt_model_fail(SRT_ERR_UNSUPPORTED,
				      "%s has no tokenizer.json, and tokenizer.model is not read: "
				      "save the tokenizer again by transformers",
				      folder);
	return srt_gguf_put_string(&e->keys, "tokenizer.ggml.model", "none", 4);
}

/* ---- tensors ---------------------------------------------------------------------------- */

/* Rows that are converted at a time, and what they need. */
typedef struct group {
	const srt_gguf_tensor_t *tensor;
	srt_file_source_t source;
	srt_dtype_t dtype;
	size_t item;           /* bytes of a value in the file */
	size_t most;           /* rows */
	char *bytes;           /* (most,columns) of the file, then of the new one */
	float *values, *moved; /* (most,columns) */
} group_t;

static srt_status_t append(exporter_t *e, const void *bytes, size_t nbytes)
{
	SRT_TRY(srt_file_writer_put(e->writer, 0, e->written, bytes, nbytes));
	e->written += nbytes;
	return SRT_OK;
}

/* The row of the file where rows row .. row + n - 1 begin: of a joint projection that is by head, n
 * is one head of q, k or v. */
static size_t find_row(const group_t *g, size_t row)
{
	const size_t heads = (size_t)g->source.interleaved_heads;
	size_t block, size;

	if (heads == 0)
		return row;
	size = (size_t)g->tensor->rows / (3 * heads);
	block = row / size;
	return (block % heads * 3 + block / heads) * size + row % size;
}

/* Rows row .. row + n - 1 of the tensor. */
static srt_status_t read_rows(const exporter_t *e, const group_t *g, size_t row, size_t n)
{
	const size_t rows = (size_t)g->tensor->rows, columns = (size_t)g->tensor->columns;

	if (!g->source.transposed) {
		SRT_TRY(srt_file_read(e->file, g->source.name, find_row(g, row) * columns * g->item,
				      n * columns * g->item, g->bytes));
		srt_gguf_decode(g->dtype, g->bytes, n * columns, g->values);
		return SRT_OK;
	}
	for (size_t k = 0; k < columns; k++) {
		SRT_TRY(srt_file_read(e->file, g->source.name, (k * rows + row) * g->item,
				      n * g->item, g->bytes));
		srt_gguf_decode(g->dtype, g->bytes, n, g->moved);
		for (size_t r = 0; r < n; r++)
			g->values[r * columns + k] = g->moved[r];
	}
	return SRT_OK;
}

/* Rows 0, 1, 2 ... of a head become 0, head / 2, 1, head / 2 + 1 ...: rotary pairs are
 * neighbours. @return where the values are. */
static float *move_pairs(const group_t *g, size_t n)
{
	const size_t columns = (size_t)g->tensor->columns, head = (size_t)g->tensor->head;

	if (head == 0)
		return g->values;
	for (size_t r = 0; r < n; r++) {
		const size_t in_head = r % head;

		memcpy(g->moved + r * columns,
		       g->values + (r - in_head + in_head % 2 * (head / 2) + in_head / 2) * columns,
		       columns * sizeof(float));
	}
	return g->moved;
}

static srt_status_t write_rows(exporter_t *e, const group_t *g, size_t n, float *values)
{
	const size_t nelem = n * (size_t)g->tensor->columns;
	size_t done;

	if (g->tensor->added != 0)
		for (size_t i = 0; i < nelem; i++)
			values[i] += g->tensor->added;
	done = srt_gguf_encode(g->tensor->type, values, nelem, g->bytes);
	if (done < nelem)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "tensor '%s' of %s has values near %g, which %s cannot have: "
				      "choose --dtype bf16 or f32",
				      g->source.name, e->request->path[0], (double)values[done],
				      g->tensor->type == SRT_GGUF_F16 ? "F16" : "Q8_0");
	return append(e, g->bytes, srt_gguf_nbytes(g->tensor->type, nelem));
}

/* Rows of a group: heads as a whole where rows of a head are moved. */
static size_t find_rows(const group_t *g)
{
	const size_t rows = (size_t)g->tensor->rows;
	const size_t heads = (size_t)g->source.interleaved_heads;
	const size_t unit = g->tensor->head > 0 ? (size_t)g->tensor->head :
			    heads > 0           ? rows / (3 * heads) :
						  1;
	const size_t fit = CKPT_PIECE_NBYTES / ((size_t)g->tensor->columns * sizeof(float));
	const size_t units = heads > 0 || fit < unit ? 1 : fit / unit;

	return units * unit < rows ? units * unit : rows;
}

static srt_status_t copy_rows(exporter_t *e, group_t *g)
{
	const size_t rows = (size_t)g->tensor->rows;
	srt_status_t status = SRT_OK;

	for (size_t row = 0, n; row < rows && status == SRT_OK; row += n) {
		n = rows - row < g->most ? rows - row : g->most;
		status = read_rows(e, g, row, n);
		if (status == SRT_OK)
			status = write_rows(e, g, n, move_pairs(g, n));
	}
	return status;
}

static srt_status_t copy_parameter(exporter_t *e, const srt_gguf_tensor_t *tensor)
{
	srt_file_tensor_t t = SRT_FILE_TENSOR_INIT;
	group_t g = { .tensor = tensor };
	srt_status_t status;
	size_t nelem;

	SRT_TRY(find_tensor(e, tensor, &g.source, &t));
	g.dtype = t.dtype;
	g.item = srt_dtype_bits(t.dtype) / 8;
	g.most = find_rows(&g);
	nelem = g.most * (size_t)tensor->columns;
	g.bytes = malloc(nelem * sizeof(float));
	g.values = malloc(nelem * sizeof(float));
	g.moved = malloc(nelem * sizeof(float));
	if (g.bytes == NULL || g.values == NULL || g.moved == NULL)
		status = srt_error_set(SRT_ERR_OUT_OF_MEMORY, "no memory to convert a file");
	else
		status = copy_rows(e, &g);
	free(g.bytes);
	free(g.values);
	free(g.moved);
	return status;
}

/* A vector that no file has: zeros, or factors of rotary frequencies. */
static srt_status_t write_made(exporter_t *e, const srt_gguf_tensor_t *t)
{
	float *values = calloc((size_t)t->rows, sizeof(float));
	srt_status_t status = SRT_OK;

	if (values == NULL)
		return srt_error_set(SRT_ERR_OUT_OF_MEMORY, "no memory to convert a file");
	if (t->source == SRT_GGUF_FACTORS)
		status = srt_gguf_rope_factors(&e->config.rope, values);
	if (status == SRT_OK)
		status = append(e, values, t->nbytes);
	free(values);
	return status;
}

/* ---- the file --------------------------------------------------------------------------- */

static srt_status_t write_tensors(exporter_t *e, size_t start)
{
	static const char zeros[SRT_GGUF_ALIGNMENT];

	for (size_t i = 0; i <= e->tensors.n; i++) {
		const srt_gguf_tensor_t *t = &e->tensors.list[i];
		const size_t place = start + (i < e->tensors.n ? t->offset : e->tensors.nbytes);

		SRT_TRY(append(e, zeros, place - e->written));
		if (i < e->tensors.n)
			SRT_TRY(t->source == SRT_GGUF_PARAMETER ? copy_parameter(e, t) :
								  write_made(e, t));
	}
	return SRT_OK;
}

static srt_status_t write_file(exporter_t *e)
{
	srt_string_t header = { 0 };
	srt_status_t status = srt_gguf_make_header(&e->keys, &e->tensors, &header);

	if (status == SRT_OK)
		status =
			srt_file_writer_create_plain(e->request->path[1],
						     header.nbytes + e->tensors.nbytes, &e->writer);
	if (status == SRT_OK)
		status = append(e, header.data, header.nbytes);
	if (status == SRT_OK)
		status = write_tensors(e, header.nbytes);
	if (status == SRT_OK)
		status = srt_file_writer_commit(e->writer);
	srt_file_writer_destroy(e->writer);
	free(header.data);
	return status;
}

static srt_status_t export(exporter_t *e)
{
	bool has_tokenizer;

	SRT_TRY(read_config(e));
	SRT_TRY(list_tensors(e));
	SRT_TRY(srt_gguf_put_model(&e->keys, e->row, &e->config, e->type));
	SRT_TRY(put_tokenizer(e, &has_tokenizer));
	SRT_TRY(write_file(e));
	if (srt_gguf_context(e->row, &e->config) < e->config.context)
		printf("context_length is %" PRId64 ", the window: readers of GGUF have no window "
		       "for this model\n",
		       srt_gguf_context(e->row, &e->config));
	printf("wrote %s: %zu tensors%s\n", e->request->path[1], e->tensors.n,
	       has_tokenizer ? "" : ", no tokenizer (--tokenizer FOLDER names one)");
	return SRT_OK;
}

int ckpt_convert_gguf(const ckpt_request_t *r)
{
	exporter_t e = { .request = r };
	srt_status_t status;

	if (ckpt_open(r->path[0], 0, &e.file) != 0)
		return CKPT_TROUBLE;
	status = export(&e);
	srt_gguf_clear_keys(&e.keys);
	srt_gguf_clear_tensors(&e.tensors);
	srt_file_close(e.file);
	return status == SRT_OK ? 0 : ckpt_fail();
}
