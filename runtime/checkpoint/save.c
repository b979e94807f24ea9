/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Unsharded parameters to one safetensors file, or to a folder of several with other names, layouts
 * and dtypes (<shardrt/checkpoint.h>).
 *
 * The ranks gather one tensor after the other, rank 0 writes it. After each stage that can fail on
 * one rank only, the ranks exchange their status: all return the same error, and no rank waits for
 * one that failed. Tied names are one tensor, saved under the declared name. Loading: load.c.
 */
#include <shardrt/file.h>

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "collectives/comm.h"
#include "runtime/engine/declare/declare.h"
#include "runtime/engine/step/step.h"
#include "runtime/engine/values/gather_full.h"
#include "runtime/checkpoint/doing.h"
#include "runtime/checkpoint/long_work.h"
#include "runtime/checkpoint/output.h"
#include "runtime/checkpoint/source.h"

/* Host memory that saving takes: tensors are copied from the device in pieces of it. */
#define PIECE_NBYTES ((size_t)1 << 20)

srt_doing_t srt_describe_doing(const char *verb, const char *path, const srt_param_t *param)
{
	size_t n;
	srt_doing_t d;

	if (path == NULL) /* it is not used on this rank, or refused */
		path = "a file";
	n = strlen(path);
	/* The end of a long path is kept. */
	snprintf(d.text, sizeof(d.text), "%s %s%s%s%.48s%s", verb, n > 64 ? "..." : "",
		 n > 64 ? path + n - 64 : path, param != NULL ? ", tensor '" : "",
		 param != NULL ? param->name : "", param != NULL ? "'" : "");
	return d;
}

srt_status_t srt_share_status(srt_engine_t *engine, srt_doing_t what, srt_status_t status)
{
	return srt_comm_status_consensus(engine->comm, what.text, status);
}

/* A save. What rank 0 writes is on rank 0 only. */
typedef struct saver {
	srt_engine_t *engine;
	const char *call, *path;
	bool is_folder;
	srt_folder_options_t options; /* of rank 0 */
	srt_file_names_t names;       /* find is NULL: the engine's */
	size_t ntensors;              /* the parameters, then the buffers */
	srt_file_entry_t *entries;
	char **own_names; /* of the entries */
	srt_output_tensor_t *tensors;
	srt_output_t output;
	srt_gather_sink_t sink; /* gives take_piece() at most PIECE_NBYTES at a time */
	size_t entry;           /* that is being written */
	srt_status_t status;    /* of the pieces written so far */
} saver_t;

static void take_piece(void *arg, const void *bytes, size_t offset, size_t nbytes)
{
	saver_t *s = arg;

	if (s->status == SRT_OK)
		s->status = srt_output_put(&s->output, s->entry, offset, bytes, nbytes);
}

/* ---- what the file has ------------------------------------------------------------------ */

static srt_needed_t describe(const srt_engine_t *engine, size_t i)
{
	const srt_param_t *p = i < engine->nparams ? engine->params[i] : NULL;
	const srt_unit_buffer_t *b =
		p == NULL ? engine->unit_buffers.all[i - engine->nparams] : NULL;

	return p != NULL ? (srt_needed_t){ p->name, p->dtype, p->ndim, p->shape, false } :
			   (srt_needed_t){ b->name, b->dtype, b->ndim, b->shape, true };
}

/* The name and layout of a tensor in the file. */
static srt_status_t find_source(const saver_t *s, const srt_needed_t *tensor,
				srt_file_source_t *source)
{
	*source = (srt_file_source_t){ .size = sizeof(*source), .name = tensor->name };
	if (s->names.find == NULL)
		return SRT_OK;
	source->name = NULL;
	if (!s->names.find(tensor->name, source, s->names.arg) || source->name == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: names->find has no name in the file for '%s'", s->call,
				tensor->name);
	return srt_source_check(source, tensor);
}

/* Fills entry i of the tables. */
static srt_status_t list_tensor(saver_t *s, size_t i)
{
	const srt_needed_t tensor = describe(s->engine, i);
	srt_output_tensor_t *t = &s->tensors[i];
	srt_file_entry_t *e = &s->entries[i];
	srt_file_source_t source;

	SRT_TRY(find_source(s, &tensor, &source));
	s->own_names[i] = srt_strdup(source.name);
	if (s->own_names[i] == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	*t = (srt_output_tensor_t){ .from = tensor.dtype, .nelem = 1 };
	t->to = srt_dtype_is_float(tensor.dtype) ? srt_dtype_or(s->options.dtype, tensor.dtype) :
						   tensor.dtype;
	t->heads = source.interleaved_heads;
	*e = (srt_file_entry_t){ .name = s->own_names[i], .dtype = t->to, .ndim = tensor.ndim };
	for (int d = 0; d < tensor.ndim; d++) {
		t->nelem *= tensor.shape[d];
		e->shape[source.transposed ? 1 - d : d] = tensor.shape[d];
	}
	if (source.transposed) {
		t->rows = tensor.shape[0];
		t->columns = tensor.shape[1];
	}
	return SRT_OK;
}

static srt_status_t list_tensors(saver_t *s)
{
	const size_t n = s->engine->nparams + s->engine->unit_buffers.n;

	s->entries = srt_calloc(n + 1, sizeof(*s->entries), "names to be saved");
	s->own_names = srt_calloc(n + 1, sizeof(*s->own_names), "names to be saved");
	s->tensors = srt_calloc(n + 1, sizeof(*s->tensors), "tensors to be saved");
	if (s->entries == NULL || s->own_names == NULL || s->tensors == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (; s->ntensors < n; s->ntensors++)
		SRT_TRY(list_tensor(s, s->ntensors));
	return SRT_OK;
}

static int compare_name_pointers(const void *a, const void *b)
{
	return strcmp(**(char **const *)a, **(char **const *)b);
}

/* Whether a reader of the file cannot tell by itself which tensors are parameters. */
static bool needs_kinds(const srt_engine_t *engine)
{
	bool needs = engine->unit_buffers.n > 0;

	for (size_t i = 0; i < engine->nparams; i++)
		needs = needs || !srt_dtype_is_float(engine->params[i]->dtype);
	return needs;
}

/* The letters of SRT_FILE_KINDS_KEY; to be freed. NULL without memory. */
static char *list_kinds(const saver_t *s)
{
	char ***sorted = srt_calloc(s->ntensors, sizeof(*sorted), "the order of names");
	char *kinds = srt_calloc(s->ntensors + 1, 1, "the kinds of tensors");

	if (sorted != NULL && kinds != NULL) {
		for (size_t i = 0; i < s->ntensors; i++)
			sorted[i] = &s->own_names[i];
		qsort(sorted, s->ntensors, sizeof(*sorted), compare_name_pointers);
		for (size_t i = 0; i < s->ntensors; i++)
			kinds[i] =
				(size_t)(sorted[i] - s->own_names) < s->engine->nparams ? 'p' : 'b';
	} else {
		free(kinds);
		kinds = NULL;
	}
	free(sorted);
	return kinds;
}

/* ---- rank 0 ----------------------------------------------------------------------------- */

/* With an entry of the kinds of tensors where it is needed. */
static srt_status_t create_writer(saver_t *s)
{
	const srt_folder_options_t *o = &s->options;
	size_t n = o->nmetadata;
	srt_file_metadata_t *list = srt_calloc(n + 1, sizeof(*list), "metadata to be saved");
	char *kinds = NULL;
	srt_status_t status = list == NULL ? SRT_ERR_OUT_OF_MEMORY : SRT_OK;

	if (status == SRT_OK && n > 0)
		memcpy(list, o->metadata, n * sizeof(*list));
	if (status == SRT_OK && needs_kinds(s->engine)) {
		kinds = list_kinds(s);
		list[n++] = (srt_file_metadata_t){ SRT_FILE_KINDS_KEY, kinds };
		status = kinds == NULL ? SRT_ERR_OUT_OF_MEMORY : SRT_OK;
	}
	if (status == SRT_OK)
		status = s->is_folder ?
				 srt_file_writer_create_folder(s->path, s->entries, s->ntensors,
							       list, n, o->max_nbytes,
							       &s->output.writer) :
				 srt_file_writer_create(s->path, s->entries, s->ntensors, list, n,
							&s->output.writer);
	free(kinds);
	free(list);
	return status;
}

/* Names, dtype and metadata of rank 0. */
static srt_status_t check_options(saver_t *s)
{
	const srt_folder_options_t *o = &s->options;

	if (o->names != NULL) {
		SRT_TRY(srt_struct_read(&s->names, sizeof(s->names), o->names, "srt_file_names_t"));
		SRT_TRY(srt_check_not_null((void *)(uintptr_t)s->names.find, s->call,
					   "names->find"));
	}
	if (o->dtype != SRT_DTYPE_NONE && !srt_dtype_is_float(o->dtype))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: the dtype of the file is %s, not f32, f16 or bf16", s->call,
				srt_dtype_name(o->dtype));
	if (o->nmetadata > 0)
		SRT_TRY(srt_check_not_null(o->metadata, s->call, "metadata"));
	for (size_t i = 0; i < o->nmetadata; i++) {
		SRT_TRY(srt_check_not_null(o->metadata[i].key, s->call, "a metadata key"));
		SRT_TRY(srt_check_not_null(o->metadata[i].value, s->call, "a metadata value"));
	}
	return SRT_OK;
}

static srt_status_t open_saver(saver_t *s, const srt_folder_options_t *options,
			       srt_stream_t *stream)
{
	SRT_TRY(srt_check_not_null(s->path, s->call, s->is_folder ? "folder" : "path"));
	SRT_TRY(srt_struct_read(&s->options, sizeof(s->options), options, "srt_folder_options_t"));
	SRT_TRY(check_options(s));
	s->sink = (srt_gather_sink_t){
		.host = srt_calloc(PIECE_NBYTES, 1, "a piece of a tensor to be saved"),
		.host_nbytes = PIECE_NBYTES,
		.take = take_piece,
		.arg = s,
	};
	if (s->sink.host == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	SRT_TRY(list_tensors(s));
	s->output.tensors = s->tensors;
	s->output.ntensors = s->ntensors;
	s->output.stream = stream;
	SRT_TRY(srt_output_open(&s->output));
	return create_writer(s);
}

static void close_saver(saver_t *s)
{
	srt_file_writer_destroy(s->output.writer);
	srt_output_close(&s->output);
	for (size_t i = 0; s->own_names != NULL && i < s->ntensors + 1; i++)
		free(s->own_names[i]);
	free(s->own_names);
	free(s->entries);
	free(s->tensors);
	free(s->sink.host);
}

/* ---- all ranks -------------------------------------------------------------------------- */

/* The buffers of rank 0. */
static srt_status_t put_buffers(saver_t *s, srt_stream_t *stream)
{
	const srt_engine_t *engine = s->engine;

	for (size_t i = 0; i < engine->unit_buffers.n; i++) {
		const srt_unit_buffer_t *b = engine->unit_buffers.all[i];

		s->entry = engine->nparams + i;
		SRT_TRY(srt_gather_copy(srt_view(engine->unit_buffers.memory, b->offset, b->dtype),
					b->nbytes, &s->sink, stream));
		SRT_TRY(s->status);
	}
	return SRT_OK;
}

/* Gathers the parameters, one after the other. */
static srt_status_t put_params(saver_t *s, srt_stream_t *stream)
{
	srt_engine_t *engine = s->engine;
	srt_status_t status = srt_writes_before_read(engine, stream);

	for (size_t i = 0; i < engine->nparams && status == SRT_OK; i++) {
		s->entry = i;
		status = srt_param_gather(engine->params[i], SRT_PARAM_VALUE, &s->sink, stream);
		if (status == SRT_OK)
			status = s->status;
		status = srt_share_status(engine,
					  srt_describe_doing("saving", s->path, engine->params[i]),
					  status);
	}
	return status;
}

static srt_status_t save_engine(saver_t *s, const srt_folder_options_t *options,
				srt_stream_t *stream)
{
	srt_engine_t *engine = s->engine;
	srt_long_work_t work;
	srt_status_t status = SRT_OK;
	bool writes;

	SRT_TRY(srt_check_not_null(engine, s->call, "engine"));
	SRT_TRY(srt_check_not_null(stream, s->call, "stream"));
	SRT_TRY(srt_engine_require_built(engine, s->call));
	SRT_TRY(srt_full_check(engine, s->call));
	writes = engine->rank == 0;
	if (writes)
		status = open_saver(s, options, stream);
	status = srt_share_status(engine, srt_describe_doing("beginning to save", s->path, NULL),
				  status);
	if (status == SRT_OK)
		status = put_params(s, stream);
	if (status == SRT_OK) {
		srt_long_work_begin(&work, engine->comm,
				    srt_describe_doing("completing", s->path, NULL));
		if (writes)
			status = put_buffers(s, stream);
		if (writes && status == SRT_OK)
			status = srt_file_writer_commit(s->output.writer);
		status = srt_long_work_end(&work, status);
	}
	close_saver(s);
	return status;
}

srt_status_t srt_engine_save(srt_engine_t *engine, const char *path,
			     const srt_file_metadata_t *metadata, size_t nmetadata,
			     srt_stream_t *stream)
{
	const srt_folder_options_t options = { .size = sizeof(options),
					       .metadata = metadata,
					       .nmetadata = nmetadata };
	saver_t s = { .engine = engine, .call = "srt_engine_save", .path = path };

	return save_engine(&s, &options, stream);
}

srt_status_t srt_engine_save_folder(srt_engine_t *engine, const char *folder,
				    const srt_folder_options_t *options, srt_stream_t *stream)
{
	saver_t s = { .engine = engine,
		      .call = "srt_engine_save_folder",
		      .path = folder,
		      .is_folder = true };

	return save_engine(&s, options, stream);
}
