/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Unsharded parameters to one safetensors file (<shardrt/checkpoint.h>).
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
#include "runtime/checkpoint/formats/safetensors.h"

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

/* On rank 0 only. */
typedef struct saver {
	srt_safetensors_writer_t *writer;
	srt_gather_sink_t sink; /* gives take_piece() at most PIECE_NBYTES at a time */
	size_t entry;           /* that is being written */
	srt_status_t status;    /* of the pieces written so far */
} saver_t;

static void take_piece(void *arg, const void *bytes, size_t offset, size_t nbytes)
{
	saver_t *saver = arg;

	if (saver->status == SRT_OK)
		saver->status = srt_safetensors_writer_put_at(saver->writer, saver->entry, offset,
							      bytes, nbytes);
}

static srt_status_t check_metadata(const srt_file_metadata_t *metadata, size_t nmetadata)
{
	if (nmetadata > 0)
		SRT_TRY(srt_check_not_null(metadata, "srt_engine_save", "metadata"));
	for (size_t i = 0; i < nmetadata; i++) {
		SRT_TRY(srt_check_not_null(metadata[i].key, "srt_engine_save", "a metadata key"));
		SRT_TRY(srt_check_not_null(metadata[i].value, "srt_engine_save",
					   "a metadata value"));
	}
	return SRT_OK;
}

/* The parameters, then the buffers; to be freed. NULL without memory. */
static srt_safetensors_entry_t *list_entries(const srt_engine_t *engine)
{
	srt_safetensors_entry_t *entries = srt_calloc(engine->nparams + engine->unit_buffers.n + 1,
						      sizeof(*entries), "names to be saved");

	for (size_t i = 0; i < engine->nparams && entries != NULL; i++) {
		const srt_param_t *p = engine->params[i];

		entries[i] = (srt_safetensors_entry_t){ .name = p->name,
							.dtype = p->dtype,
							.ndim = p->ndim };
		memcpy(entries[i].shape, p->shape, sizeof(p->shape));
	}
	for (size_t i = 0; i < engine->unit_buffers.n && entries != NULL; i++) {
		const srt_unit_buffer_t *b = engine->unit_buffers.all[i];
		srt_safetensors_entry_t *entry = &entries[engine->nparams + i];

		*entry = (srt_safetensors_entry_t){ .name = b->name,
						    .dtype = b->dtype,
						    .ndim = b->ndim };
		memcpy(entry->shape, b->shape, sizeof(b->shape));
	}
	return entries;
}

static int compare_name_pointers(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The letters of SRT_FILE_KINDS_KEY; to be freed. NULL without memory. */
static char *list_kinds(const srt_engine_t *engine, const srt_safetensors_entry_t *entries)
{
	const size_t n = engine->nparams + engine->unit_buffers.n;
	const char **names = srt_calloc(n, sizeof(*names), "the order of names");
	char *kinds = srt_calloc(n + 1, 1, "the kinds of tensors");

	if (names != NULL && kinds != NULL) {
		for (size_t i = 0; i < n; i++)
			names[i] = entries[i].name;
		qsort(names, n, sizeof(*names), compare_name_pointers);
		for (size_t i = 0; i < n; i++)
			kinds[i] = srt_buffers_find(engine, names[i]) != NULL ? 'b' : 'p';
	} else {
		free(kinds);
		kinds = NULL;
	}
	free(names);
	return kinds;
}

/* With an entry of the kinds of tensors if there are buffers. */
static srt_status_t create_writer(const srt_engine_t *engine, const char *path,
				  const srt_file_metadata_t *metadata, size_t nmetadata,
				  srt_safetensors_writer_t **writer)
{
	const size_t nentries = engine->nparams + engine->unit_buffers.n;
	srt_safetensors_entry_t *entries = list_entries(engine);
	srt_file_metadata_t *list =
		srt_calloc(nmetadata + 1, sizeof(*list), "metadata to be saved");
	char *kinds = NULL;
	srt_status_t status = entries == NULL || list == NULL ? SRT_ERR_OUT_OF_MEMORY : SRT_OK;

	if (status == SRT_OK && nmetadata > 0)
		memcpy(list, metadata, nmetadata * sizeof(*list));
	if (status == SRT_OK && engine->unit_buffers.n > 0) {
		kinds = list_kinds(engine, entries);
		list[nmetadata++] = (srt_file_metadata_t){ SRT_FILE_KINDS_KEY, kinds };
		status = kinds == NULL ? SRT_ERR_OUT_OF_MEMORY : SRT_OK;
	}
	if (status == SRT_OK)
		status = srt_safetensors_writer_create(path, entries, nentries, list, nmetadata,
						       writer);
	free(kinds);
	free(list);
	free(entries);
	return status;
}

static srt_status_t open_saver(srt_engine_t *engine, const char *path,
			       const srt_file_metadata_t *metadata, size_t nmetadata,
			       saver_t *saver)
{
	SRT_TRY(srt_check_not_null(path, "srt_engine_save", "path"));
	SRT_TRY(check_metadata(metadata, nmetadata));
	saver->sink = (srt_gather_sink_t){
		.host = srt_calloc(PIECE_NBYTES, 1, "a piece of a tensor to be saved"),
		.host_nbytes = PIECE_NBYTES,
		.take = take_piece,
		.arg = saver,
	};
	return saver->sink.host == NULL ?
		       SRT_ERR_OUT_OF_MEMORY :
		       create_writer(engine, path, metadata, nmetadata, &saver->writer);
}

/* The buffers of rank 0. */
static srt_status_t put_buffers(srt_engine_t *engine, saver_t *saver, srt_stream_t *stream)
{
	for (size_t i = 0; i < engine->unit_buffers.n; i++) {
		const srt_unit_buffer_t *b = engine->unit_buffers.all[i];

		saver->entry = engine->nparams + i;
		SRT_TRY(srt_gather_copy(srt_view(engine->unit_buffers.memory, b->offset, b->dtype),
					b->nbytes, &saver->sink, stream));
		SRT_TRY(saver->status);
	}
	return SRT_OK;
}

srt_status_t srt_engine_save(srt_engine_t *engine, const char *path,
			     const srt_file_metadata_t *metadata, size_t nmetadata,
			     srt_stream_t *stream)
{
	saver_t saver = { 0 };
	srt_long_work_t work;
	srt_status_t status;
	bool writes;

	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_engine_require_built(engine, "srt_engine_save"));
	SRT_TRY(srt_full_check(engine, "srt_engine_save"));
	writes = engine->rank == 0;
	status = writes ? open_saver(engine, path, metadata, nmetadata, &saver) : SRT_OK;
	status = srt_share_status(engine, srt_describe_doing("beginning to save", path, NULL),
				  status);
	if (status == SRT_OK)
		status = srt_writes_before_read(engine, stream);
	for (size_t i = 0; i < engine->nparams && status == SRT_OK; i++) {
		saver.entry = i;
		status = srt_param_gather(engine->params[i], SRT_PARAM_VALUE, &saver.sink, stream);
		if (status == SRT_OK)
			status = saver.status;
		status = srt_share_status(engine,
					  srt_describe_doing("saving", path, engine->params[i]),
					  status);
	}
	if (status == SRT_OK) {
		srt_long_work_begin(&work, engine->comm,
				    srt_describe_doing("completing", path, NULL));
		if (writes)
			status = put_buffers(engine, &saver, stream);
		if (writes && status == SRT_OK)
			status = srt_safetensors_writer_commit(saver.writer);
		status = srt_long_work_end(&work, status);
	}
	srt_safetensors_writer_destroy(saver.writer);
	free(saver.sink.host);
	return status;
}
