/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Unsharded parameters to and from one safetensors file (<shardrt/checkpoint.h>).
 *
 * Saving: the ranks gather one tensor after the other, rank 0 writes it. Loading: each rank checks
 * the complete header against its engine; if all ranks succeed, each reads its own shards. After
 * each stage that can fail on one rank only, the ranks exchange their status: all return the same
 * error, and no rank waits for one that failed. Tied names are one tensor, saved under the declared
 * name and found under any.
 */
#include <shardrt/checkpoint.h>

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "collectives/comm.h"
#include "runtime/engine/gather_full.h"
#include "runtime/engine/shard.h"
#include "runtime/checkpoint/safetensors.h"

/* Most unused tensors of a file that are named in the log. */
#define MAX_EXTRA 8

/* Host memory that saving takes: tensors are copied from the device in pieces of it. */
#define PIECE_NBYTES ((size_t)1 << 20)

/* The current stage, for the error of a rank whose peer does not answer. */
typedef struct doing {
	char text[160];
} doing_t;

static doing_t describe_doing(const char *verb, const char *path, const srt_param_t *param)
{
	size_t n;
	doing_t d;

	if (path == NULL) /* it is not used on this rank, or refused */
		path = "a file";
	n = strlen(path);
	/* The end of a long path is kept. */
	snprintf(d.text, sizeof(d.text), "%s %s%s%s%.48s%s", verb, n > 64 ? "..." : "",
		 n > 64 ? path + n - 64 : path, param != NULL ? ", tensor '" : "",
		 param != NULL ? param->name : "", param != NULL ? "'" : "");
	return d;
}

/* The first failure of any rank, on all ranks; collective. */
static srt_status_t share_status(srt_engine_t *engine, doing_t what, srt_status_t status)
{
	return srt_comm_status_consensus(engine->comm, what.text, status);
}

/* ---- saving --------------------------------------------------------------------------- */

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

static srt_status_t open_saver(srt_engine_t *engine, const char *path,
			       const srt_file_metadata_t *metadata, size_t nmetadata,
			       saver_t *saver)
{
	size_t nentries = engine->nparams + engine->nbuffers;
	srt_safetensors_entry_t *entries;
	srt_status_t status;

	SRT_TRY(srt_check_not_null(path, "srt_engine_save", "path"));
	if (nmetadata > 0)
		SRT_TRY(srt_check_not_null(metadata, "srt_engine_save", "metadata"));
	for (size_t i = 0; i < nmetadata; i++) {
		SRT_TRY(srt_check_not_null(metadata[i].key, "srt_engine_save", "a metadata key"));
		SRT_TRY(srt_check_not_null(metadata[i].value, "srt_engine_save",
					   "a metadata value"));
	}
	entries = srt_calloc(nentries + 1, sizeof(*entries), "names to be saved");
	if (entries == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < engine->nparams; i++) {
		const srt_param_t *p = engine->params[i];

		entries[i].name = p->name;
		entries[i].dtype = p->dtype;
		entries[i].ndim = p->ndim;
		memcpy(entries[i].shape, p->shape, sizeof(p->shape));
	}
	for (size_t i = 0; i < engine->nbuffers; i++) {
		const srt_unit_buffer_t *b = engine->buffers[i];
		srt_safetensors_entry_t *entry = &entries[engine->nparams + i];

		entry->name = b->name;
		entry->dtype = b->dtype;
		entry->ndim = b->ndim;
		memcpy(entry->shape, b->shape, sizeof(b->shape));
	}
	saver->sink = (srt_gather_sink_t){
		.host = srt_calloc(PIECE_NBYTES, 1, "a piece of a tensor to be saved"),
		.host_nbytes = PIECE_NBYTES,
		.take = take_piece,
		.arg = saver,
	};
	status = saver->sink.host == NULL ?
			 SRT_ERR_OUT_OF_MEMORY :
			 srt_safetensors_writer_create(path, entries, nentries, metadata, nmetadata,
						       &saver->writer);
	free(entries);
	return status;
}

/* The buffers of rank 0. */
static srt_status_t put_buffers(srt_engine_t *engine, saver_t *saver, srt_stream_t *stream)
{
	for (size_t i = 0; i < engine->nbuffers; i++) {
		const srt_unit_buffer_t *b = engine->buffers[i];

		saver->entry = engine->nparams + i;
		SRT_TRY(srt_gather_copy(srt_view(engine->buffers_memory, b->offset, b->dtype),
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
	srt_status_t status;
	bool writes;

	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_engine_require_built(engine, "srt_engine_save"));
	SRT_TRY(srt_full_check(engine, "srt_engine_save"));
	writes = engine->rank == 0;
	status = writes ? open_saver(engine, path, metadata, nmetadata, &saver) : SRT_OK;
	status = share_status(engine, describe_doing("beginning to save", path, NULL), status);
	if (status == SRT_OK)
		status = srt_local_take_changes(engine, stream);
	for (size_t i = 0; i < engine->nparams && status == SRT_OK; i++) {
		saver.entry = i;
		status = srt_param_gather(engine->params[i], SRT_PARAM_VALUE, &saver.sink, stream);
		if (status == SRT_OK)
			status = saver.status;
		status = share_status(engine, describe_doing("saving", path, engine->params[i]),
				      status);
	}
	if (status == SRT_OK) {
		if (writes)
			status = put_buffers(engine, &saver, stream);
		if (writes && status == SRT_OK)
			status = srt_safetensors_writer_commit(saver.writer);
		status = share_status(engine, describe_doing("completing", path, NULL), status);
	}
	srt_safetensors_writer_destroy(saver.writer);
	free(saver.sink.host);
	return status;
}

/* ---- loading -------------------------------------------------------------------------- */

static const srt_safetensors_tensor_t *find_source(const srt_safetensors_t *file,
						   const srt_param_t *param)
{
	const srt_safetensors_tensor_t *t = srt_safetensors_find(file, param->name);

	for (size_t i = 0; t == NULL && i < param->naliases; i++)
		t = srt_safetensors_find(file, param->aliases[i]);
	return t;
}

/* "[3,4]", cut where it does not fit. */
static void format_shape(const int64_t *shape, int ndim, char *out, size_t nout)
{
	size_t used = 1;

	snprintf(out, nout, "[");
	for (int i = 0; i < ndim && used < nout; i++)
		used += (size_t)snprintf(out + used, nout - used, "%s%lld", i > 0 ? "," : "",
					 (long long)shape[i]);
	if (used < nout)
		snprintf(out + used, nout - used, "]");
}

/* What the model needs of a tensor. */
typedef struct needed {
	const char *name;
	srt_dtype_t dtype;
	int ndim;
	const int64_t *shape;
} needed_t;

static srt_status_t check_source(const needed_t *needed, const srt_safetensors_tensor_t *t,
				 const char *path)
{
	char have[96], need[96];

	if (t == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s has no tensor '%s', which the model needs", path, needed->name);
	if (t->dtype == needed->dtype && t->ndim == needed->ndim &&
	    !memcmp(t->shape, needed->shape, (size_t)t->ndim * sizeof(*t->shape)))
		return SRT_OK;
	format_shape(t->shape, t->ndim, have, sizeof(have));
	format_shape(needed->shape, needed->ndim, need, sizeof(need));
	return srt_fail(SRT_ERR_INVALID_ARGUMENT,
			"tensor '%s' is %s %s in %s, but %s %s in the model", t->name,
			t->dtype_name, have, path, srt_dtype_name(needed->dtype), need);
}

/* Logs tensors that the model does not use, at most MAX_EXTRA by name. */
static void report_extra(srt_engine_t *engine, const srt_safetensors_t *file, const char *path)
{
	const srt_safetensors_tensor_t *t;
	size_t nextra = 0;

	for (size_t i = 0; (t = srt_safetensors_tensor(file, i)) != NULL; i++) {
		if (srt_engine_find(engine, t->name) != NULL ||
		    srt_buffers_find(engine, t->name) != NULL)
			continue;
		if (nextra++ < MAX_EXTRA)
			srt_log(SRT_LOG_WARN, "%s: tensor '%s' is not used by the model", path,
				srt_printable(t->name).text);
	}
	if (nextra > MAX_EXTRA)
		srt_log(SRT_LOG_WARN, "%s: %zu more tensors are not used by the model", path,
			nextra - MAX_EXTRA);
}

/* Everything that can be wrong with the file, before anything is changed. */
static srt_status_t check_file(srt_engine_t *engine, const srt_safetensors_t *file,
			       const char *path, size_t *largest)
{
	*largest = 0;
	for (size_t i = 0; i < engine->nparams; i++) {
		const srt_param_t *p = engine->params[i];
		size_t nbytes = p->shard_nbytes;

		SRT_TRY(check_source(&(needed_t){ p->name, p->dtype, p->ndim, p->shape },
				     find_source(file, p), path));
		if (nbytes > *largest)
			*largest = nbytes;
	}
	for (size_t i = 0; i < engine->nbuffers; i++) {
		const srt_unit_buffer_t *b = engine->buffers[i];

		SRT_TRY(check_source(&(needed_t){ b->name, b->dtype, b->ndim, b->shape },
				     srt_safetensors_find(file, b->name), path));
		if (b->nbytes > *largest)
			*largest = b->nbytes;
	}
	return SRT_OK;
}

static srt_status_t load_shard(srt_param_t *p, const srt_safetensors_t *file, void *elements,
			       srt_stream_t *stream)
{
	const srt_engine_t *engine = p->unit->engine;
	const int cell = srt_cell_index(engine, engine->rank);
	const size_t elem = srt_dtype_size(p->dtype);
	const int64_t begin = p->shard_first, end = begin + p->shard_nelem;

	for (int64_t at = begin, n, first; at < end; at += n) {
		n = srt_cell_run(p, cell, at, &first);
		n = n < end - at ? n : end - at;
		SRT_TRY(srt_safetensors_read(file, find_source(file, p), (size_t)first * elem,
					     (size_t)n * elem,
					     (char *)elements + (size_t)(at - begin) * elem));
	}
	return srt_param_set_shard(p, "srt_engine_load", elements, stream);
}

static srt_status_t load_buffer(srt_unit_buffer_t *b, const srt_safetensors_t *file, void *values,
				srt_stream_t *stream)
{
	SRT_TRY(srt_safetensors_read(file, srt_safetensors_find(file, b->name), 0, b->nbytes,
				     values));
	return srt_unit_buffer_set(b, values, stream);
}

/* The file that a rank has opened, for the other ranks. */
typedef struct opened {
	srt_safetensors_identity_t identity;
	int64_t copies; /* this rank accepts copies */
	char path[96];  /* its end */
} opened_t;

/* How the files of two ranks differ; NULL: they are the same. */
static const char *find_difference(const opened_t *a, const opened_t *b)
{
	const srt_safetensors_identity_t *x = &a->identity, *y = &b->identity;

	if (x->nbytes != y->nbytes)
		return "the sizes of the files differ";
	if (x->header_hash != y->header_hash)
		return "the headers of the files differ";
	if (x->mtime_s != y->mtime_s || x->mtime_ns != y->mtime_ns)
		return "the times of the last write to the files differ";
	if ((x->device != y->device || x->inode != y->inode) && (!a->copies || !b->copies))
		return "these are two files of one header and time "
		       "(SHARDRT_LOAD_COPIES=yes on all ranks accepts copies)";
	return NULL;
}

/* All ranks must have opened the same file, or they load parts of two models. Collective. */
static srt_status_t compare_files(srt_engine_t *engine, const srt_safetensors_t *file,
				  const char *path)
{
	size_t n = strlen(path);
	opened_t mine = { .identity = *srt_safetensors_identity(file) };
	opened_t *all = srt_calloc((size_t)engine->world, sizeof(*all), "identities of files");
	const char *copies = "no", *difference;
	srt_status_t status = all == NULL ? SRT_ERR_OUT_OF_MEMORY : SRT_OK;

	srt_config_value("SHARDRT_LOAD_COPIES", &copies, NULL);
	mine.copies = strcmp(copies, "yes") == 0;
	snprintf(mine.path, sizeof(mine.path), "%s%s", n > 92 ? "..." : "",
		 n > 92 ? path + n - 92 : path);
	status = share_status(engine, describe_doing("checking", path, NULL), status);
	if (status == SRT_OK)
		status = srt_comm_oob_allgather_for(engine->comm,
						    describe_doing("comparing", path, NULL).text,
						    &mine, sizeof(mine), all);
	for (int r = 1; r < engine->world && status == SRT_OK; r++) {
		difference = find_difference(&all[0], &all[r]);
		if (difference != NULL)
			status = srt_fail(SRT_ERR_MISMATCH,
					  "rank %d has opened %s (inode %llu, %llu bytes), rank 0 "
					  "has opened %s (inode %llu, %llu bytes): %s; load a file "
					  "that all ranks see and that no job replaces meanwhile",
					  r, all[r].path, (unsigned long long)all[r].identity.inode,
					  (unsigned long long)all[r].identity.nbytes, all[0].path,
					  (unsigned long long)all[0].identity.inode,
					  (unsigned long long)all[0].identity.nbytes, difference);
	}
	free(all);
	return status;
}

srt_status_t srt_engine_load(srt_engine_t *engine, const char *path, srt_stream_t *stream)
{
	srt_safetensors_t *file = NULL;
	void *elements = NULL;
	size_t largest;
	srt_status_t status;

	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_engine_require_built(engine, "srt_engine_load"));
	SRT_TRY(srt_full_check(engine, "srt_engine_load"));
	status = srt_check_not_null(path, "srt_engine_load", "path");
	if (status == SRT_OK)
		status = srt_safetensors_open(path, &file);
	if (status == SRT_OK)
		status = check_file(engine, file, path, &largest);
	if (status == SRT_OK) {
		elements = srt_calloc(largest + 1, 1, "elements to be loaded");
		status = elements == NULL ? SRT_ERR_OUT_OF_MEMORY : SRT_OK;
	}
	status = share_status(engine, describe_doing("checking", path, NULL), status);
	if (status == SRT_OK)
		status = compare_files(engine, file, path);
	if (status == SRT_OK && engine->rank == 0)
		report_extra(engine, file, path);
	if (status == SRT_OK) {
		for (size_t i = 0; i < engine->nparams && status == SRT_OK; i++)
			status = load_shard(engine->params[i], file, elements, stream);
		for (size_t i = 0; i < engine->nbuffers && status == SRT_OK; i++)
			status = load_buffer(engine->buffers[i], file, elements, stream);
		if (status == SRT_OK)
			status = srt_safetensors_check_unchanged(file);
		if (status == SRT_OK) /* the copies to the device may have failed */
			status = srt_stream_sync(stream);
		status = share_status(engine, describe_doing("loading", path, NULL), status);
	}
	free(elements);
	srt_safetensors_close(file);
	return status;
}

srt_status_t srt_file_get_metadata(const char *path, const char *key, char *value, size_t nvalue)
{
	srt_safetensors_t *file;
	const char *text;
	srt_status_t status = SRT_OK;

	SRT_NOT_NULL(path);
	SRT_NOT_NULL(key);
	SRT_NOT_NULL(value);
	SRT_TRY(srt_safetensors_open(path, &file));
	text = srt_safetensors_metadata(file, key);
	if (text == NULL)
		status = srt_fail(SRT_ERR_NOT_FOUND, "%s has no metadata entry '%s'", path, key);
	else if (strlen(text) >= nvalue)
		status = srt_fail(SRT_ERR_INVALID_ARGUMENT,
				  "metadata entry '%s' of %s has %zu bytes, more than nvalue, %zu",
				  key, path, strlen(text) + 1, nvalue);
	else
		memcpy(value, text, strlen(text) + 1);
	srt_safetensors_close(file);
	return status;
}

srt_status_t srt_file_count_tensors(const char *path, size_t *ntensors)
{
	srt_safetensors_t *file;

	SRT_NOT_NULL(path);
	SRT_NOT_NULL(ntensors);
	SRT_TRY(srt_safetensors_open(path, &file));
	*ntensors = srt_safetensors_count(file);
	srt_safetensors_close(file);
	return SRT_OK;
}
